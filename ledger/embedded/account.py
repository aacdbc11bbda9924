"""The account of the server's processes: the current user, or an ordinary user if that is root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.errors import ServerUnavailable

# PostgreSQL refuses to run as root; the first of these that exists is used, the last one is created.
ORDINARY_USERS = ("postgres", "_postgres", "ledger-pg")

LONGEST_REASON = 300
"""The maximum length of a program's output in a message."""
KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine, and how to run a program as that user."""

    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        """Whether processes must change user (only root can)."""
        return self.uid != os.geteuid()

    def process(self) -> dict[str, Any]:
        """The arguments of `subprocess` for a detached process of this account."""
        ways: dict[str, Any] = {
            "cwd": "/",
            "env": environment() | {"LC_ALL": "C", "TZ": "UTC"},
            "start_new_session": True,  # a Ctrl-C at our terminal must not reach it
            "stdin": subprocess.DEVNULL,
            "umask": 0o077,
        }
        if self.is_other:
            ways |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return ways

    def run(self, *command: str | Path, keep_open: Iterable[int] = ()) -> str:
        """Run a program to its end and return what it printed; `keep_open` are descriptors it inherits."""
        with tempfile.TemporaryFile() as out:  # not a pipe, which a remaining child would keep open
            try:
                ways = self.process() | {"pass_fds": tuple(keep_open), "stdout": out, "stderr": out}
                done = subprocess.run([*map(str, command)], check=False, **ways)
            except OSError as error:
                raise ServerUnavailable(f"{self.name} cannot run {command[0]}: {error.strerror}") from None
            out.seek(0)
            text = out.read().decode(errors="replace").strip()
        if done.returncode:
            raise ServerUnavailable(
                f"{command[0]} failed: {reason(text) or f'exit status {done.returncode}'}"
            )
        return text

    def reaches(self, folder: Path) -> bool:
        """Whether the account can access files in the folder."""
        try:
            self.run("/bin/sh", "-c", 'test -x "$0"', folder)
        except ServerUnavailable:
            return False
        return True

    def give(self, path: Path) -> None:
        """Make the account the owner of a file or folder."""
        if self.is_other:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def reason(said: str) -> str:
    """The line of a PostgreSQL program's output with the reason of its failure; else the last line."""
    lines = said.splitlines()
    telling = [line for line in lines if any(word in line for word in ("FATAL: ", "PANIC: ", "error: "))]
    return (telling or lines[-1:] or [""])[0].strip()[:LONGEST_REASON]


def environment() -> dict[str, str]:
    """The variables that child processes get: others may hold secrets, or affect them (PG*, LC_*)."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def account_for(data: Path) -> Account:
    """The account for the server of this data folder: the folder's owner, if it exists."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), f"user {os.geteuid()}")
    with contextlib.suppress(FileNotFoundError, KeyError):
        if uid := data.stat().st_uid:
            return _named(pwd.getpwuid(uid))
    return _ordinary_user()


def _ordinary_user() -> Account:
    for name in ORDINARY_USERS:
        with contextlib.suppress(KeyError):
            return _named(pwd.getpwnam(name))
    name, useradd = ORDINARY_USERS[-1], shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd:
        options = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
        subprocess.run([useradd, *options, name], check=False, capture_output=True, stdin=subprocess.DEVNULL)
    try:  # also if another process created the user at the same time
        return _named(pwd.getpwnam(name))
    except KeyError:
        raise ServerUnavailable(
            f"PostgreSQL does not run as root: create a system user named {name}, or run as an ordinary user"
        ) from None


def _named(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)
