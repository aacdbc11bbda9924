"""Scenario E: variables, blocks with secrets and blocks inside, artifacts in and outside of flows."""

from __future__ import annotations

from uuid import UUID

from prefect import flow, task
from prefect.artifacts import (
    Artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.blocks.core import Block
from prefect.blocks.system import Secret
from prefect.variables import Variable
from pydantic import SecretStr
from waiting import report


class EKey(Block):
    """A key of a microscope."""

    _block_type_slug = "e-key"
    user: str
    password: SecretStr


class EMicroscope(Block):
    """A microscope."""

    _block_type_slug = "e-microscope"
    host: str
    port: int = 80
    key: EKey
    headers: dict[str, SecretStr] = {}


@task
def measure() -> None:
    create_table_artifact(
        [{"slice": 1, "mean": 0.5}, {"slice": 2, "mean": 0.75}], key="e-table", description="means"
    )


@flow(name="e-artifacts", flow_run_name="artifacts")
def artifacts() -> None:
    measure()
    create_markdown_artifact("# One", key="e-page")
    create_markdown_artifact("# Two", key="e-page", description="the second")
    create_link_artifact("https://example.org/", link_text="there", key="e-link")
    progress = create_progress_artifact(10.0, key="e-progress")
    assert isinstance(progress, UUID)
    update_progress_artifact(progress, 90.0)


def variables() -> None:
    Variable.set("e_place", "room 1", tags=["e-tag"])
    Variable.set("e_place", "room 2", tags=["e-tag", "e-moved"], overwrite=True)
    Variable.set("e_plan", {"lasers": [1, 2], "on": True, "none": None, "power": 0.5})
    Variable.set("e_gone", 1)
    try:
        Variable.set("e_plan", 3)
        refused = ""
    except ValueError as error:
        refused = str(error)
    report(
        refused=refused,
        place=Variable.get("e_place"),
        plan=Variable.get("e_plan"),
        gone=[
            Variable.unset("e_gone"),
            Variable.unset("e_gone"),
            Variable.get("e_gone", default="not there"),
        ],
    )


def blocks() -> None:
    Secret(value=SecretStr("s3cret")).save("e-secret")
    Secret(value=SecretStr("s3cret 2")).save("e-secret", overwrite=True)
    Secret(value={"deep": ["s3cret 3"]}).save("e-deep-secret")
    key = EKey(user="ada", password=SecretStr("s3cret 4"))
    key.save("e-key")
    EMicroscope(host="scope", key=key, headers={"token": SecretStr("s3cret 5")}).save("e-scope")
    EMicroscope(host="old", key=EKey(user="b", password=SecretStr("s3cret 6"))).save("e-old")
    EMicroscope.delete("e-old")
    try:
        key.save("e-key")
        refused = ""
    except ValueError as error:
        refused = str(error)
    scope = EMicroscope.load("e-scope")
    report(
        twice=refused,
        secret=Secret.load("e-secret").get(),
        deep=Secret.load("e-deep-secret").get(),
        scope=[scope.host, scope.port, scope.key.user, scope.key.password.get_secret_value()],
        headers={name: value.get_secret_value() for name, value in scope.headers.items()},
        shown=str(Secret.load("e-secret").value),
    )


def main() -> None:
    variables()
    blocks()
    artifacts()
    create_markdown_artifact("outside", key="e-outside")
    page = Artifact.get("e-page")
    assert page is not None
    report(page=[page.data, page.description, page.type])


if __name__ == "__main__":
    main()
