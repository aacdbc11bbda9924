"""
The keys with which the values of blocks are encrypted: made, read, added.

`LEDGER_BLOCK_KEYS` has them, the newest first, with commas or spaces between; else they are the lines of the
file that `LEDGER_BLOCK_KEYS_FILE` names, else of `~/.config/ledger/block-keys`. The file is made with the
first value that is encrypted, readable for its owner only. A key is 32 random bytes in URL-safe base64, as
`cryptography.fernet` wants it. Nothing here shows a key: a fingerprint names it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import BadKey

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

VARIABLE: Final = "LEDGER_BLOCK_KEYS"
FILE_VARIABLE: Final = "LEDGER_BLOCK_KEYS_FILE"
_HEAD: Final = "# Keys of block values, the newest first. Keep this file secret, and keep a copy of it.\n"


class Key:
    """One key. fingerprint: 16 hexadecimal digits that name it, and from which nobody can make it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.fingerprint = sha256(b"key of block values:" + text.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<Key {self.fingerprint}>"

    @cached_property
    def _fernet(self) -> Fernet:
        from cryptography.fernet import Fernet  # late: only who reads or writes values needs it

        try:
            return Fernet(self._text)
        except ValueError:
            raise BadKey("a key is not 32 bytes in URL-safe base64: make one anew") from None

    def encrypted(self, value: Any, *place: str) -> dict[str, str]:
        """A JSON value as it is recorded: the key's fingerprint and the encrypted text.

        place: where it belongs; it cannot be decrypted elsewhere.
        """
        text = json.dumps([*place, value], ensure_ascii=False, allow_nan=False)
        return {"key": self.fingerprint, "token": self._fernet.encrypt(text.encode()).decode()}

    def decrypted(self, token: str, *place: str) -> Any:
        """The value. Raises BadKey for a text that this key did not encrypt for this place."""
        from cryptography.fernet import InvalidToken

        try:
            *where, value = json.loads(self._fernet.decrypt(token))
        except (InvalidToken, ValueError):
            raise BadKey(f"key {self.fingerprint} does not decrypt a value: it was changed") from None
        if where != [*place]:
            raise BadKey("an encrypted value was copied from another place: it is not used")
        return value


class Keys:
    """Keys from a source that is read again at each use, so that a new key needs no restart.

    read: returns their texts, the newest first. file: the file in which they are; None where they come from
    elsewhere and cannot be added to.
    """

    def __init__(self, read: Callable[[], list[str]], file: Path | None = None) -> None:
        self._read, self.file = read, file

    @classmethod
    def from_environment(cls) -> Keys:
        """The keys that the environment names, else those of the file in the user's configuration."""
        if (texts := os.environ.get(VARIABLE, "")).strip():
            return cls(lambda: texts.replace(",", " ").split())
        return cls.in_file(Path(os.environ.get(FILE_VARIABLE) or default_file()))

    @classmethod
    def in_file(cls, file: Path) -> Keys:
        """The keys in a file; none while it does not exist."""
        return cls(lambda: _lines(file), file)

    def all(self) -> dict[str, Key]:
        """The keys by their fingerprints, the newest first. Raises BadKey for a file that others may read."""
        return {key.fingerprint: key for key in map(Key, self._read())}

    def get(self, fingerprint: str) -> Key:
        """The key with this fingerprint. Raises BadKey."""
        try:
            return self.all()[fingerprint]
        except KeyError:
            raise BadKey(
                f"key {fingerprint}, with which values are encrypted, is not among the keys of this process: "
                f"copy it from where it is, into {self.file or VARIABLE}"
            ) from None

    def newest(self) -> Key:
        """The newest key; a first one is made where there is none and there is a file. Raises BadKey."""
        return next(iter(self.all().values()), None) or self.added()

    def added(self) -> Key:
        """Make a new key, put it before the others in the file, and return it. Raises BadKey."""
        from cryptography.fernet import Fernet

        if self.file is None:
            raise BadKey(f"keys in {VARIABLE} are not made here: put a new one before the others")
        made = Fernet.generate_key().decode()
        try:
            with _locked(self.file):
                _replace(self.file, [made, *_lines(self.file)])
        except OSError as error:
            raise BadKey(f"{self.file} cannot be written: {error.strerror}") from error
        return Key(made)


def default_file() -> Path:
    """The file of the keys where none is named."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ledger" / "block-keys"


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="ascii")
        mode = file.stat().st_mode
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadKey(f"{file} cannot be read: {error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise BadKey(f"{file} can be read by others: run chmod 600 {file}, and rotate the keys")
    return [line for line in text.split("\n") if line.strip() and not line.startswith("#")]


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Alone among the processes that change the file."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(file: Path, lines: list[str]) -> None:
    """Write the file anew, readable for its owner only, so that it is whole after a crash too."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as made:
            made.write(_HEAD + "".join(f"{line}\n" for line in lines))
            made.flush()
            os.fsync(made.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
