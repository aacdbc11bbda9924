"""The LMDB environment: one per folder and process, growth, forks, damage, read-only folders, full disks."""

from __future__ import annotations

import os
import resource
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ledger import DatabaseFullError, StateDBError
from projections.builds.environment import Environment, Transaction

SMALL = 64 * 1024


def put(name: bytes, value: bytes) -> Callable[[Transaction], object]:
    return lambda writer: writer.put(name, value)


def fill(count: int, size: int = 1000) -> Callable[[Transaction], int]:
    """Write so many values."""

    def work(writer: Transaction) -> int:
        for number in range(count):
            writer.put(b"%d" % number, b"x" * size)
        return count

    return work


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """An environment with a small map."""
    opened = Environment.shared(tmp_path / "builds", SMALL)
    yield opened
    opened.release()


def in_child(act: Callable[[], object]) -> None:
    """Run `act` in a fork; fails where it raises or is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, where this process has threads
        child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_one_process_opens_it_once(environment: Environment, tmp_path: Path) -> None:
    """S4-05, also by another spelling of the folder; and it stays open for the other user."""
    (tmp_path / "link").symlink_to(environment.folder)
    other = Environment.shared(tmp_path / "link")
    assert other is environment
    environment.write(put(b"a", b"1"))
    other.release()
    assert environment.get(b"a") == b"1"


def test_all_of_a_write_is_stored_or_nothing(environment: Environment) -> None:
    def work(writer: Transaction) -> None:
        writer.put(b"a", b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        environment.write(work)
    assert environment.get(b"a") is None


def test_w4_09_the_map_grows_by_itself(environment: Environment) -> None:
    assert environment.write(fill(1000)) == 1000
    assert environment.get(b"999") == b"x" * 1000
    assert environment.map_size >= 1_000_000


def test_it_grows_while_other_threads_read(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))
    stop, seen = threading.Event(), list[bytes | None]()

    def read() -> None:
        is_last = False
        while not is_last:
            is_last = stop.is_set()
            seen.append(environment.get(b"a"))
            with environment.reading() as reader:
                seen.append(reader.get(b"a"))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for count in (100, 400, 1600, 6400):
        environment.write(fill(count))
    stop.set()
    for thread in threads:
        thread.join()
    assert {*seen} == {b"1"}


def test_a_size_that_another_process_gave_the_map_is_taken(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))
    in_child(lambda: environment.write(fill(1000)))
    assert environment.get(b"999") == b"x" * 1000
    in_child(lambda: environment.write(fill(4000)))
    with environment.reading() as reader:
        assert reader.get(b"3999") is not None
    in_child(lambda: environment.write(fill(16000)))
    environment.write(put(b"a", b"2"))
    assert (environment.get(b"15999") is not None, environment.get(b"a")) == (True, b"2")


def test_a_forked_process_has_its_own(environment: Environment) -> None:
    """Also where another thread of the parent is in a transaction at that moment."""
    environment.write(put(b"a", b"1"))
    inside, leave = threading.Event(), threading.Event()

    def read() -> None:
        with environment.reading() as reader:
            inside.set()
            leave.wait()
            assert reader.get(b"a") == b"1"

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait()

    def child() -> None:
        assert environment.get(b"a") == b"1"
        environment.write(put(b"a", b"2"))
        environment.write(fill(1000))

    in_child(child)
    leave.set()
    thread.join()
    assert environment.get(b"a") == b"2"
    environment.write(put(b"a", b"3"))
    assert environment.get(b"a") == b"3"


def test_two_processes_write_in_turns(environment: Environment) -> None:
    def count(writer: Transaction) -> None:
        writer.put(b"n", b"%d" % (int(writer.get(b"n") or 0) + 1))

    def child() -> None:
        for _ in range(100):
            environment.write(count)

    threads = [threading.Thread(target=in_child, args=(child,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert environment.get(b"n") == b"300"


def test_a_thread_must_not_write_in_its_own_reading(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))
    with environment.reading() as reader, pytest.raises(StateDBError, match="inside its own `reading`"):
        environment.write(put(b"a", reader.get(b"a") or b""))
    environment.write(put(b"a", b"2"))


@pytest.mark.parametrize("left", [0, 5_000, 50_000, "junk"])
def test_damaged_files_are_made_anew(environment: Environment, left: int | str) -> None:
    """A file that was cut off would end the process where a page of it is read."""
    environment.write(fill(100))
    environment.close()
    data = environment.folder / "data.mdb"
    data.write_bytes(b"junk" * 5000 if left == "junk" else data.read_bytes()[: int(left)])
    assert environment.get(b"1") is None
    environment.write(put(b"a", b"1"))
    assert environment.get(b"a") == b"1"


def test_deleted_files_are_noticed(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))
    for file in environment.folder.iterdir():
        file.unlink()
    environment.folder.rmdir()
    with environment.reading() as reader:
        assert reader.get(b"a") is None
    environment.write(put(b"a", b"2"))
    assert environment.get(b"a") == b"2"
    assert (environment.folder / "data.mdb").exists()


def test_files_that_another_process_replaced_are_noticed(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))

    def replace() -> None:
        assert environment.get(b"a") == b"1"
        environment.discard("for a test")
        environment.write(put(b"b", b"2"))

    in_child(replace)
    with environment.reading() as reader:
        assert (reader.get(b"a"), reader.get(b"b")) == (None, b"2")


def test_a_full_disk_is_an_error_and_loses_nothing(environment: Environment) -> None:
    """The limit of a file's size stands for the disk."""
    environment.write(fill(100))
    size = (environment.folder / "data.mdb").stat().st_size

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, resource.RLIM_INFINITY))
        with pytest.raises(DatabaseFullError, match="cannot grow"):
            environment.write(fill(1000, 2000))
        assert environment.get(b"99") == b"x" * 1000
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        environment.write(fill(1000, 2000))

    in_child(child)
    assert environment.get(b"999") == b"x" * 2000


def test_an_address_space_that_is_full_is_an_error(environment: Environment) -> None:
    def child() -> None:
        environment.write(put(b"a", b"1"))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 8_000_000, resource.RLIM_INFINITY))
        with pytest.raises(DatabaseFullError, match="address space"):
            environment.write(fill(50_000))
        assert environment.get(b"a") == b"1"

    in_child(child)


def test_a_folder_that_cannot_be_written_is_read() -> None:
    """With the copy as it is; without one there is nothing to read."""
    with TemporaryDirectory() as place:
        folder = Path(place, "builds")
        environment = Environment(folder)
        environment.write(put(b"a", b"1"))
        environment.close()
        for path in (*folder.iterdir(), folder, Path(place)):
            path.chmod(0o555)

        def child() -> None:
            if os.geteuid() == 0:  # who may write everywhere
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            assert environment.get(b"a") == b"1"
            assert environment.is_readonly
            with pytest.raises(StateDBError, match="this user cannot write the local copy"):
                environment.write(put(b"a", b"2"))
            with pytest.raises(StateDBError, match="there is no local copy in"):
                Environment(Path(place, "other")).get(b"a")

        try:
            in_child(child)
        finally:
            for path in (Path(place), folder):
                path.chmod(0o755)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = Environment(tmp_path / "file" / "builds")
    with pytest.raises(StateDBError, match="cannot be opened"):
        environment.get(b"a")


def test_a_writer_that_is_killed_leaves_nothing_of_its_write(environment: Environment) -> None:
    environment.write(put(b"a", b"1"))

    def die(writer: Transaction) -> None:
        fill(1000, 10)(writer)
        os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        environment.write(die)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert (environment.get(b"a"), environment.get(b"1")) == (b"1", None)
    environment.write(put(b"a", b"2"))
    assert environment.get(b"a") == b"2"
