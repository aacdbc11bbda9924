"""Blocks: schemas under Prefect's checksums, values that are in clear only when read, keys that rotate."""

from __future__ import annotations

import json
import logging
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import (
    BadKey,
    BadRecord,
    Ledger,
    RecordExists,
    RecordNotFound,
    RecordProtected,
)
from ledger.runs.block_schemas import checksum
from ledger.runs.blocks import KEY_SETTING, Blocks
from ledger.runs.default_storage import DefaultStorage
from ledger.runs.keys import Key, Keys, default_file
from ledger.runs.records import Record
from ledger.runs.secret_fields import HIDDEN, hidden, put_back, secret_paths
from tests.runs.given_reads import projector

_numbers = count(1)
RECORDED = json.loads((Path(__file__).parent / "block_schemas.json").read_text())
"""Schemas and checksums that Prefect's client made (tests/prefect/programs/block_schemas.py)."""
SECRET = "hunter2-und-so-weiter"
FIELDS = {
    "title": "Login",
    "type": "object",
    "properties": {"user": {"type": "string"}, "password": {"type": "string"}, "tokens": {"type": "object"}},
    "secret_fields": ["password", "tokens.*"],
}


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys.in_file(tmp_path_factory.mktemp("keys") / "new" / "block-keys")


@pytest.fixture
def blocks(shared: Ledger, keys: Keys) -> Blocks:
    return Blocks(shared, keys)


@pytest.fixture
def schema(blocks: Blocks) -> Record:
    """The schema of a new type of blocks with a password."""
    return new_schema(blocks)


def new_schema(blocks: Blocks, slug: str | None = None, **fields: Any) -> Record:
    slug = slug or f"login-{next(_numbers)}"
    block_type = blocks.schemas.create_type({"name": slug, "slug": slug})
    made = {"fields": {**FIELDS, "block_type_slug": slug, **fields}, "block_type_id": block_type.id}
    return blocks.schemas.create(made)[0]


def document(schema: Record, name: str | None = "db", **data: Any) -> dict[str, Any]:
    ids = {"block_schema_id": schema.id, "block_type_id": schema["block_type_id"]}
    return {"name": name, "data": data, **ids}


# Types and schemas


@pytest.mark.parametrize("one", RECORDED, ids=[one["name"] for one in RECORDED])
def test_the_checksum_is_that_of_prefect(one: dict[str, Any]) -> None:
    assert checksum(one["fields"]) == one["checksum"]


def test_a_schema_is_registered_once_with_those_of_nested_blocks(blocks: Blocks) -> None:
    types = {
        one["name"]: blocks.schemas.create_type({"name": one["name"], "slug": one["name"].lower()})
        for one in RECORDED[3:]
    }
    database = RECORDED[-1]
    given = {"fields": database["fields"], "block_type_id": types["Database"].id, "capabilities": ["get"]}
    made, new = blocks.schemas.create(given)
    same, again = blocks.schemas.create(given)
    assert (new, again, same) == (True, False, made)
    assert made["checksum"] == database["checksum"]
    for name, checksums in (("login", 1), ("other", 2)):
        nested = [blocks.records.get("block_schema", id) for id in made["references"][name]]
        assert len(nested) == checksums
        assert nested[0]["checksum"] == RECORDED[3]["checksum"]
    shown = blocks.schemas.shown(made)
    assert (shown["block_type"]["slug"], shown["capabilities"]) == ("database", ["get"])
    assert shown["fields"] == database["fields"]
    newer, _ = blocks.schemas.create({**given, "version": "2"})
    assert blocks.schemas.by_checksum(database["checksum"]).id == newer.id
    assert blocks.schemas.by_checksum(database["checksum"], "non-versioned").id == made.id
    with pytest.raises(RecordNotFound):
        blocks.schemas.by_checksum("sha256:0")


def test_a_nested_block_without_a_type_or_definition_is_refused(blocks: Blocks, schema: Record) -> None:
    for slug, error in (("nobody", RecordNotFound), (schema["fields"]["block_type_slug"], BadRecord)):
        reference = {"block_type_slug": slug, "block_schema_checksum": "sha256:0"}
        with pytest.raises(error):
            new_schema(blocks, block_schema_references={"x": reference})
    with pytest.raises(RecordProtected):
        blocks.schemas.create_type({"name": "Prefect own", "slug": "own"})
    with pytest.raises(RecordNotFound):
        blocks.schemas.create({"fields": {}, "block_type_id": schema.id})


# Values


def test_secrets_are_hidden_from_who_does_not_ask_for_them(blocks: Blocks, schema: Record) -> None:
    made = blocks.create(document(schema, user="me", password=SECRET, tokens={"a": "b", "c": ["d"]}))
    assert made["data"] == {"user": "me", "password": HIDDEN, "tokens": {"a": HIDDEN, "c": [HIDDEN]}}
    slug = made["block_type"]["slug"]
    assert made["block_schema"]["block_type"] == made["block_type"]
    assert blocks.named(slug, "db") == blocks.get(made["id"]) == made
    clear = blocks.named(slug, "db", include_secrets=True)
    assert clear["data"] == {"user": "me", "password": SECRET, "tokens": {"a": "b", "c": ["d"]}}
    with pytest.raises(RecordExists):
        blocks.create(document(schema))


def test_no_value_is_in_clear_in_events_heads_views_logs_errors_or_representations(
    blocks: Blocks, schema: Record, shared: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = blocks.create(document(schema, user=SECRET, password=SECRET, tokens={"x": [SECRET]}))
    changed = blocks.change(made["id"], {"data": {"password": SECRET + "2"}})
    record = blocks.records.get("block_document", made["id"])
    name = f"block_document/{made['id']}"
    head = shared.head(name)
    assert head is not None
    errors = []
    for wrong in (
        document(schema, "not a slug", password=SECRET),
        document(schema, "db", password=SECRET),
        document(schema, "other", password=SECRET, ref={"$ref": SECRET}),
    ):
        with pytest.raises((BadRecord, RecordExists)) as refused:
            blocks.create(wrong)
        errors.append(repr(refused.value))
    projector(shared).catch_up()
    with shared.reader() as connection:
        rows = connection.execute("SELECT r::text FROM ledger_views.run_records r").fetchall()
    assert any(made["id"] in row for (row,) in rows)
    seen = [
        *(f"{event} {event.event!r}" for event in shared.read(name)), repr(head), repr(record), repr(rows),
        repr(record.shown()), repr(changed["data"]["password"]), repr(blocks.keys.newest()), *errors,
        caplog.text,
    ]  # fmt: skip
    assert [text for text in seen if SECRET in text] == []
    assert len(shared.read(name)) == 2


def test_a_change_keeps_what_is_not_given_and_what_is_sent_back_hidden(
    blocks: Blocks, schema: Record, shared: Ledger
) -> None:
    made = blocks.create(document(schema, user="me", password=SECRET, tokens={"a": "b"}))
    before = blocks.records.get("block_document", made["id"])
    blocks.change(made["id"], {"data": made["data"]})
    assert blocks.records.get("block_document", made["id"]) == before  # nothing was recorded
    blocks.change(made["id"], {"data": {"user": "you", "tokens": {"a": HIDDEN, "n": 1}}})
    after = blocks.records.get("block_document", made["id"])
    assert after["data"]["password"] == before["data"]["password"]  # the same encrypted text
    clear = blocks.get(made["id"], include_secrets=True)["data"]
    assert clear == {"user": "you", "password": SECRET, "tokens": {"a": "b", "n": 1}}
    blocks.change(made["id"], {"data": {"password": HIDDEN}, "merge_existing_data": False})
    assert blocks.get(made["id"], include_secrets=True)["data"] == {"password": SECRET}
    with pytest.raises(RecordNotFound):
        blocks.change(schema.id, {"data": {}})


def test_a_document_moves_to_another_schema_of_its_type_only(blocks: Blocks, schema: Record) -> None:
    made = blocks.create(document(schema, password=SECRET))
    newer, _ = blocks.schemas.create(
        {"fields": {**FIELDS, "more": 1}, "block_type_id": schema["block_type_id"]}
    )
    assert blocks.change(made["id"], {"block_schema_id": newer.id})["block_schema_id"] == newer.id
    with pytest.raises(BadRecord, match="another type"):
        blocks.change(made["id"], {"block_schema_id": new_schema(blocks).id})


def test_an_anonymous_document_gets_a_name(blocks: Blocks, schema: Record) -> None:
    made = blocks.create({**document(schema, None, user="me"), "is_anonymous": True})
    assert made["name"].startswith("anonymous-")
    with pytest.raises(BadRecord, match="name"):
        blocks.create(document(schema, None))


def test_nested_documents_are_shown_inside_and_never_in_a_circle(blocks: Blocks, schema: Record) -> None:
    inner = blocks.create(document(schema, "inner", user="me", password=SECRET))
    ref = {"$ref": {"block_document_id": inner["id"]}}
    outer = blocks.create(document(schema, "outer", login=ref, user="out"))
    assert outer["data"] == {"user": "out", "login": {"user": "me", "password": HIDDEN}}
    told = outer["block_document_references"]["login"]["block_document"]
    assert (told["id"], told["name"], told["block_document_references"]) == (inner["id"], "inner", {})
    assert blocks.get(outer["id"], include_secrets=True)["data"]["login"]["password"] == SECRET
    back = {"$ref": {"block_document_id": outer["id"]}}
    with pytest.raises(BadRecord, match="nested in itself"):
        blocks.change(inner["id"], {"data": {"x": back}})
    with pytest.raises(RecordNotFound):
        blocks.create(document(schema, "lost", login={"$ref": {"block_document_id": schema.id}}))
    kept = blocks.change(outer["id"], {"data": {"user": "new"}})
    assert kept["data"]["login"]["user"] == "me"
    assert blocks.change(outer["id"], {"data": {"login": "plain"}})["block_document_references"] == {}
    blocks.change(outer["id"], {"data": {"login": ref}})
    blocks.delete(inner["id"])
    assert "login" not in blocks.get(outer["id"])["data"]


def test_a_deleted_type_takes_its_schemas_and_documents_with_it(blocks: Blocks) -> None:
    first, second = new_schema(blocks), new_schema(blocks)
    made = [blocks.create(document(schema, password="x")) for schema in (first, second)]
    blocks.delete_schema(first.id)
    with pytest.raises(RecordNotFound):
        blocks.get(made[0]["id"])
    blocks.delete_type(second["block_type_id"])
    for kind, id in (("block_document", made[1]["id"]), ("block_schema", second.id)):
        with pytest.raises(RecordNotFound):
            blocks.records.get(kind, id)
    protected = blocks.records.create("block_type", {"name": "S", "slug": "protected", "is_protected": True})
    with pytest.raises(RecordProtected):
        blocks.delete_type(protected.id)


@pytest.mark.parametrize(
    ("paths", "data", "shown"),
    [
        (["a.b"], {"a": {"b": 1, "c": 2}}, {"a": {"b": HIDDEN, "c": 2}}),
        (["a.b"], {"a": [{"b": 1}, {"b": None}]}, {"a": [{"b": HIDDEN}, {"b": None}]}),
        (["a"], {"a": {"deep": [1]}}, {"a": {"deep": [HIDDEN]}}),
        (["a.*"], {"a": {"x": {"y": 1}}, "b": 1}, {"a": {"x": {"y": HIDDEN}}, "b": 1}),
        (["a.*"], {"a": "text"}, {"a": HIDDEN}),
        (["a.b.c"], {"a": "text"}, {"a": "text"}),
    ],
)
def test_secret_paths_lead_through_dicts_and_lists(
    paths: list[str], data: dict[str, Any], shown: dict[str, Any]
) -> None:
    found = secret_paths({"secret_fields": paths})
    assert hidden(data, found) == shown
    assert put_back(shown, data, found) == data


# Keys


def test_the_first_key_is_made_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "keys"
    keys = Keys.in_file(file)
    assert keys.all() == {}
    first = keys.newest()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    second = keys.added()
    assert list(keys.all()) == [second.fingerprint, first.fingerprint]
    assert keys.newest().fingerprint == second.fingerprint
    assert str(first) == f"<Key {first.fingerprint}>"
    file.chmod(0o640)
    with pytest.raises(BadKey, match="chmod 600"):
        keys.newest()


def test_keys_come_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Keys.in_file(tmp_path / "keys")
    first, second = made.added(), made.added()
    texts = [line for line in (tmp_path / "keys").read_text().splitlines() if not line.startswith("#")]
    monkeypatch.setenv("LEDGER_BLOCK_KEYS", ", ".join(texts))
    keys = Keys.from_environment()
    assert list(keys.all()) == [second.fingerprint, first.fingerprint]
    with pytest.raises(BadKey, match="LEDGER_BLOCK_KEYS"):
        keys.added()
    monkeypatch.delenv("LEDGER_BLOCK_KEYS")
    monkeypatch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path / "keys"))
    assert list(Keys.from_environment().all()) == [second.fingerprint, first.fingerprint]
    monkeypatch.delenv("LEDGER_BLOCK_KEYS_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert Keys.from_environment().file == default_file() == tmp_path / "ledger" / "block-keys"


def test_a_value_is_bound_to_its_place(tmp_path: Path) -> None:
    key = Keys.in_file(tmp_path / "keys").newest()
    kept = key.encrypted([1.5, "ü"], "id", "field")
    assert key.decrypted(kept["token"], "id", "field") == [1.5, "ü"]
    for place in (("id", "other"), ("other", "field")):
        with pytest.raises(BadKey, match="another place"):
            key.decrypted(kept["token"], *place)
    with pytest.raises(BadKey, match="changed"):
        key.decrypted(kept["token"][:-8] + "AAAAAAA=", "id", "field")
    with pytest.raises(BadKey, match="32 bytes"):
        Key("short").encrypted(1)


def test_a_server_without_the_current_key_refuses_and_makes_none(log: Ledger, tmp_path: Path) -> None:
    first, other = (Blocks(log, Keys.in_file(tmp_path / name)) for name in ("one", "two"))
    schema = new_schema(first)
    made = first.create(document(schema, password=SECRET))
    with pytest.raises(BadKey, match="is not among the keys"):
        other.create(document(schema, "mine"))
    with pytest.raises(BadKey):
        other.get(made["id"])
    assert not (tmp_path / "two").exists()


def test_a_rotation_encrypts_present_values_anew_and_history_keeps_the_old_key(
    log: Ledger, tmp_path: Path
) -> None:
    blocks = Blocks(log, Keys.in_file(tmp_path / "keys"))
    assert blocks.rotate() == 0
    schema = new_schema(blocks)
    made = [blocks.create(document(schema, name, password=SECRET + name)) for name in ("a", "b")]
    old = blocks.keys.newest()
    gone = blocks.create(document(schema, "gone"))
    blocks.delete(gone["id"])
    assert blocks.rotate() == 2
    only = _with_newest_only(blocks, tmp_path)
    for one, name in zip(made, "ab", strict=True):
        assert only.get(one["id"], include_secrets=True)["data"]["password"] == SECRET + name
    assert only.create(document(schema, "new", password="x"))["name"] == "new"
    before = json.loads(log.read(f"block_document/{made[0]['id']}")[0].data or "")["fields"]["data"][
        "password"
    ]
    assert before["key"] == old.fingerprint
    assert old.decrypted(before["token"], made[0]["id"], "password") == SECRET + "a"
    again = Blocks(log, Keys(lambda: _texts(tmp_path / "keys")))
    assert again.rotate() == 0  # the newest key of a variable is the current one


def _texts(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


def _with_newest_only(blocks: Blocks, folder: Path) -> Blocks:
    return Blocks(blocks.ledger, Keys(lambda: _texts(folder / "keys")[:1]))


def test_a_rotation_that_broke_off_is_finished_by_the_next(
    log: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two documents: everything stays readable, and the next rotation leaves no old key."""
    blocks = Blocks(log, Keys.in_file(tmp_path / "keys"))
    schema = new_schema(blocks)
    made = [blocks.create(document(schema, name, password=name)) for name in ("a", "b")]
    commit, left = log.commit, iter([None, None])

    def breaking(*streams: Any, **more: Any) -> Any:
        if streams[0].name.startswith("block_document") and next(left, "over") == "over":
            raise KeyboardInterrupt
        return commit(*streams, **more)

    next(left)
    monkeypatch.setattr(log, "commit", breaking)
    with pytest.raises(KeyboardInterrupt):
        blocks.rotate()
    monkeypatch.undo()
    used = {blocks.records.get("block_document", one["id"])["data"]["password"]["key"] for one in made}
    assert len(used) == 2
    for one in made:
        assert blocks.get(one["id"], include_secrets=True)["data"]["password"] == one["name"]
    assert blocks.rotate() == 2
    only = _with_newest_only(blocks, tmp_path)
    assert [only.get(one["id"], include_secrets=True)["data"]["password"] for one in made] == ["a", "b"]


def test_a_write_during_a_rotation_takes_the_new_key(log: Ledger, tmp_path: Path) -> None:
    """The key changes between the moment at which a writer encrypted and its append."""
    blocks, keys = Blocks(log, Keys.in_file(tmp_path / "keys")), Keys.in_file(tmp_path / "keys")
    schema = new_schema(blocks)
    blocks.create(document(schema, "first", password="x"))

    class Slow(Key):
        def encrypted(self, value: Any, *place: str) -> dict[str, str]:
            done = super().encrypted(value, *place)
            if not rotated:
                rotated.append(blocks.rotate())
            return done

    class SlowKeys(Keys):
        def get(self, fingerprint: str) -> Key:
            found = super().get(fingerprint)
            found.__class__ = Slow
            return found

    rotated: list[int] = []
    slow = Blocks(log, SlowKeys(lambda: _texts(tmp_path / "keys"), keys.file))
    made = slow.create(document(schema, "second", password=SECRET))
    assert rotated == [1]
    record = blocks.records.get("block_document", made["id"])
    assert record["data"]["password"]["key"] == keys.newest().fingerprint


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(["create", "change", "rotate", "delete"]), max_size=10))
def test_law_after_a_rotation_all_values_are_readable_without_older_keys(
    shared: Ledger, tmp_path_factory: pytest.TempPathFactory, keys: Keys, steps: list[str]
) -> None:
    blocks = Blocks(shared, keys)
    schema, values = new_schema(blocks), dict[str, int]()
    for nth, step in enumerate(steps):
        match step:
            case "create":
                values[blocks.create(document(schema, f"n{nth}", password=nth))["id"]] = nth
            case "rotate":
                blocks.rotate()
            case "change" if values:
                id = next(iter(values))
                blocks.change(id, {"data": {"password": -nth}})
                values[id] = -nth
            case "delete" if values:
                blocks.delete(next(iter(values)))
                del values[next(iter(values))]
    blocks.rotate()
    assert keys.file is not None
    newest = Blocks(shared, Keys(lambda: _texts(Path(str(keys.file)))[:1]))
    read = {id: newest.get(id, include_secrets=True)["data"]["password"] for id in values}
    assert read == values


def test_writers_that_begin_together_agree_on_the_first_key(log: Ledger, tmp_path: Path) -> None:
    schema = new_schema(Blocks(log, Keys.in_file(tmp_path / "0")))
    start, refused = threading.Barrier(3), list[str]()

    def write(nth: int) -> None:
        blocks = Blocks(log, Keys.in_file(tmp_path / str(nth)))
        start.wait()
        try:
            blocks.create(document(schema, f"n{nth}", password=nth))
        except BadKey as error:
            refused.append(str(error))

    threads = [threading.Thread(target=write, args=[nth]) for nth in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = Blocks(log).records.get("setting", KEY_SETTING)["value"]
    documents = Blocks(log).records.below("block_document", schema["block_type_id"])
    assert len(documents) + len(refused) == 3
    assert {one["data"]["password"]["key"] for one in documents} == {current}


def test_the_default_storage_of_results_is_a_block_that_can_store(blocks: Blocks, schema: Record) -> None:
    storage = DefaultStorage(blocks.ledger)
    plain = blocks.create(document(schema))
    with pytest.raises(BadRecord, match="write-path"):
        storage.set(plain["id"])
    able, _ = blocks.schemas.create(
        {"fields": {"n": 1}, "block_type_id": schema["block_type_id"], "capabilities": ["write-path"]}
    )
    made = [blocks.create(document(able, name)) for name in ("one", "two")]
    for one in made:
        storage.set(one["id"])
        assert storage.get() == one["id"]
    blocks.delete(made[1]["id"])
    assert storage.get() is None
    storage.clear()
    storage.clear()
    with pytest.raises(RecordNotFound):
        storage.set(schema.id)
