"""
The content cache: a folder that keeps outputs under the hash of their content.

    files/ab/cdef…        the bytes of a file, read-only
    files/ab/cdef….dir    the manifest of a folder

An object is written under another name and renamed, so it is there as a whole or not at all; several
processes and machines may share the folder. What is restored is checked: an object that does not hold what
its name says is deleted, and counts as missing. Objects may be deleted at any time, at the cost of running
stages again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple
from uuid import uuid4

from .hashing import EXECUTABLE, FOLDER, Entry, Identity, folder_identity, manifest_from, manifest_text

Link = Literal["copy", "hardlink"]
_CLONE: Final = 0x40049409
"""FICLONE: the new file shares the blocks of the old one until one of them is written; Linux."""
_CANNOT_CLONE: Final = {
    errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF,
    errno.ETXTBSY,
}  # fmt: skip
ABANDONED: Final = 86400.0
"""Seconds after which a file that was never renamed is deleted by `collect`."""


class Collected(NamedTuple):
    """What was deleted: objects, and their bytes; kept: objects that are left."""

    objects: int = 0
    bytes: int = 0
    kept: int = 0


class ContentCache:
    """The content cache in a folder. link: whether outputs are copies, or hard links that are read-only.

    A copy shares its blocks with the object where the file system can do that. scratch: a folder on the disk
    of the workspace, in which outputs are put together before they take their places.
    """

    def __init__(self, folder: Path, scratch: Path, link: Link = "copy") -> None:
        self.folder, self.scratch, self.link = folder / "files", scratch, link

    def store(self, path: Path, identity: Identity) -> None:
        """Keep what is at a path. Raises OSError, also where it is not what the identity says."""
        if identity.manifest is None:
            self._store(path, identity.hash)
            return
        for entry in identity.manifest:
            if entry.hash:
                self._store(path / entry.path, entry.hash)
        target = self._object(identity.hash)
        if not target.exists():
            with self._new(target) as new:
                new.write_bytes(manifest_text(identity.manifest))

    def holds(self, content: str) -> bool:
        """Whether the object is there, and of a folder all files; not whether they are intact."""
        if not content.endswith(FOLDER):
            return self._object(content).exists()
        manifest = self.manifest(content)
        return manifest is not None and all(not one.hash or self.holds(one.hash) for one in manifest)

    def manifest(self, content: str) -> tuple[Entry, ...] | None:
        """The files of a folder; None where they are not known."""
        try:
            found = manifest_from(self._object(content).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found if folder_identity(found).hash == content else None

    def restore(self, content: str, path: Path) -> bool:
        """Put content at a path, in place of what is there; False where it is not here or not intact.

        A file takes its place at once; a folder does after the old one was removed. Raises OSError.
        """
        return self._placed(path, lambda new: self._lay(content, new))

    def collect(self, keep: Collection[str], *, dry_run: bool = False) -> Collected:
        """Delete the objects that are not among these contents, nor files of these folders."""
        names = {_name(content) for content in keep}
        for content in keep:
            if content.endswith(FOLDER):
                names |= {_name(entry.hash) for entry in self.manifest(content) or () if entry.hash}
        result = Collected()
        for path in self.folder.glob("*/*") if self.folder.exists() else ():
            result = self._collect(path, names, result, dry_run)
        return result

    def _collect(self, path: Path, names: set[str], result: Collected, dry_run: bool) -> Collected:
        with suppress(FileNotFoundError):  # another process deleted or renamed it
            what = path.stat()
            unfinished = path.name.startswith(".")
            if f"{path.parent.name}{path.name}" in names or (
                unfinished and what.st_mtime > time.time() - ABANDONED
            ):
                return result._replace(kept=result.kept + (not unfinished))
            if not dry_run:
                path.unlink()
            return result._replace(objects=result.objects + 1, bytes=result.bytes + what.st_size)
        return result

    def _store(self, path: Path, content: str) -> None:
        target = self._object(content)
        if target.exists():
            if self.link == "hardlink" and not _same(target, path):
                self._link_back(target, path, content)
            return
        with self._new(target) as new:
            _copy(path, new)
            if _digest(new) != _name(content):
                raise OSError(errno.EBUSY, f"{path} changed while it was stored")
            new.chmod(0o555 if self.link == "hardlink" and content.endswith(EXECUTABLE) else 0o444)
        if self.link == "hardlink":
            self._link_back(target, path, content)

    def _link_back(self, target: Path, path: Path, content: str) -> None:
        """Make the output a link to the object, so that its bytes are on the disk once."""
        self._placed(path, lambda new: _linked(target, new, content))

    def _placed(self, path: Path, lay: Callable[[Path], bool]) -> bool:
        """Let `lay` make what is to be at a path, and put it there; whether it made it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.scratch.mkdir(parents=True, exist_ok=True)
        for folder in (self.scratch, path.parent):
            new = folder / f".{uuid4().hex}"
            try:
                if not lay(new):
                    return False
                if new.is_dir() or (path.is_dir() and not path.is_symlink()):
                    remove(path)
                new.replace(path)
                return True
            except OSError as error:
                if error.errno != errno.EXDEV or folder != self.scratch:
                    raise  # else it is on another disk
            finally:
                remove(new)
        return False

    def _lay(self, content: str, new: Path) -> bool:
        """Put content at a new path; False where it is not here or not intact."""
        if not content.endswith(FOLDER):
            return self._lay_file(content, new)
        manifest = self.manifest(content)
        if manifest is None:
            return False
        new.mkdir()
        for entry in manifest:
            place = new / entry.path
            if not entry.hash:
                place.mkdir(parents=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if not self._lay_file(entry.hash, place):
                return False
        return True

    def _lay_file(self, content: str, new: Path) -> bool:
        target = self._object(content)
        try:
            if self.link == "hardlink" and _linked(target, new, content):
                checked = target
            else:
                _copy(target, new)
                if content.endswith(EXECUTABLE):
                    mode = new.stat().st_mode
                    new.chmod(mode | (mode & 0o444) >> 2)
                checked = new
        except FileNotFoundError:
            return False
        if _digest(checked) == _name(content):
            return True
        with suppress(FileNotFoundError):  # what is damaged is no longer offered
            target.unlink()
        return False

    def _object(self, content: str) -> Path:
        name = _name(content)
        return self.folder / name[:2] / name[2:]

    @contextmanager
    def _new(self, target: Path) -> Iterator[Path]:
        """A file beside the target that becomes the target at the end of the block."""
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.parent / f".{uuid4().hex}"
        try:
            yield new
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete what is at a path: a file, a link, a folder, or nothing. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _name(content: str) -> str:
    return content.removesuffix(EXECUTABLE)


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _copy(source: Path, new: Path) -> None:
    """Copy the bytes of a file, or share them where the file system can. Raises OSError."""
    with source.open("rb") as reading, new.open("xb") as writing:
        try:
            fcntl.ioctl(writing.fileno(), _CLONE, reading.fileno())
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            shutil.copyfileobj(reading, writing, 2**20)


def _linked(target: Path, new: Path, content: str) -> bool:
    """Whether the new path was made a link to the object: same disk, same mode, and links are allowed."""
    if content.endswith(EXECUTABLE) != bool(target.stat().st_mode & 0o100):
        return False
    try:
        os.link(target, new)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        return False
    return True


def _same(first: Path, second: Path) -> bool:
    return first.stat().st_ino == second.stat().st_ino
