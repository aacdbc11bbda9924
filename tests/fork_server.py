"""Python processes that start fast: forks of one that has already imported what all of them import.

Hundreds of tests run `pledger` as a process of its own, and most of what that costs are the imports.
`python()` is the beginning of a command line that does the same as `sys.executable`, through a fork. A fork
has its own streams, folder, environment, arguments and `__main__`, and ends as an interpreter ends; all
warnings but two of a library are errors in it. What the server imports beforehand declares no stream and no
view. A test of imports, of Python's own options or of an exact `kill -9` uses `sys.executable`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
IMPORTED: Final = (
    "gateway.cli.main", "gateway.cli.log", "gateway.cli.status", "ledger.domain", "ledger.domain.event",
    "ledger.domain.state", "ledger.log.ledger", "projections.engine", "projections.engine.watch",
    "projections.fold", "psycopg", "psycopg_pool", "psycopg_binary", "pydantic", "pydantic.json_schema",
    "pydantic.main", "pydantic.types", "prometheus_client", "cronsim", "rich.table", "rich.console", "json",
    "asyncio", "msgspec", "multiprocessing.connection", "kafka", "consumers.kafka.cluster",
)  # fmt: skip
"""What the server imports: nothing that declares streams or views. Pydantic imports its parts when asked."""
WARNED: Final = {"(read|open)_text is deprecated": DeprecationWarning, "unclosed <socket": ResourceWarning}
"""What kafka-python warns of; pyproject.toml has the same for the tests themselves."""
_WORD = 4


def python() -> list[str]:
    """The beginning of a command line: `[*python(), "-m", MODULE, …]`, `-c CODE` or a file's name."""
    if not sys.platform.startswith("linux"):  # elsewhere a fork may not use what its parent has loaded
        return [sys.executable, "-W", "error"]
    client = Path(__file__).with_name("fork_client.py")
    return [sys.executable, "-I", "-S", str(client), _server(os.getpid())]


@functools.cache
def _server(_pid: int) -> str:
    """Start the server of this process; the path of its socket."""
    from tests.temporary import short_folder

    path = short_folder("forks") / "socket"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen(64)
    prefix = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    command = [sys.executable, "-I", "-W", "error", *prefix, __file__, str(listening.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], cwd="/")
    listening.close()
    atexit.register(_end, process, path)
    return str(path)


def _end(process: subprocess.Popen[bytes], path: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    path.unlink()
    path.parent.rmdir()


class Asked(NamedTuple):
    """What a client asks for, in the order in which it sends it."""

    arguments: list[str]
    environment: dict[bytes, bytes]
    folder: bytes
    umask: int
    leads_group: bool
    leads_session: bool
    ignored: list[int]


class Server:
    """Forks for each client that connects; tells it the number of the fork's process, then its status."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.forks: dict[int, socket.socket] = {}
        self.wakeup, self.wake = socket.socketpair()
        for end in (self.wakeup, self.wake):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
        self.found = selectors.DefaultSelector()
        for readable in (sys.stdin, listening, self.wakeup):
            self.found.register(readable, selectors.EVENT_READ)

    def serve(self) -> list[str]:
        """Serve until stdin ends, as it does with the process that started this one; or, in a fork: what it
        is to run."""
        while True:
            for key, _ in self.found.select():
                if key.fileobj is sys.stdin:
                    for pid in [*self.forks]:  # what a test that failed left running
                        self._kill(pid)
                    return []
                elif key.fileobj is self.listening:
                    asked = self._start(self.listening.accept()[0])
                    if asked is not None:
                        return asked.arguments
                elif key.fileobj is self.wakeup:
                    with contextlib.suppress(BlockingIOError):
                        self.wakeup.recv(4096)
                    self._reap()
                else:
                    self._kill(key.data)

    def _start(self, client: socket.socket) -> Asked | None:
        """Fork; what was asked for, in the fork."""
        head, streams, *_ = socket.recv_fds(client, _WORD, 3)
        what = b""
        while head and len(what) < int.from_bytes(head, "big"):
            what += client.recv(65536)
        asked = Asked(*marshal.loads(what))
        pid = os.fork()
        if not pid:
            self.close()
            client.close()
            become(asked, streams)
            return asked
        for stream in streams:
            os.close(stream)
        client.sendall(pid.to_bytes(_WORD, "big"))
        self.forks[pid] = client
        self.found.register(client, selectors.EVENT_READ, pid)
        return None

    def close(self) -> None:
        """Close all of its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.found.close()
        for each in (self.listening, self.wakeup, self.wake, *self.forks.values()):
            each.close()

    def _kill(self, pid: int) -> None:
        """The client was killed: so is its fork."""
        os.kill(pid, signal.SIGKILL)
        self._forget(pid)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.forks:
                    with contextlib.suppress(OSError):  # it was killed
                        self.forks[pid].sendall(status.to_bytes(_WORD, "big"))
                    self._forget(pid)

    def _forget(self, pid: int) -> None:
        client = self.forks.pop(pid)
        self.found.unregister(client)
        client.close()


def become(asked: Asked, streams: list[int]) -> None:
    """Make this fork what an interpreter is at its start."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if asked.leads_session:
        os.setsid()
    elif asked.leads_group:
        os.setpgid(0, 0)
    os.chdir(asked.folder)
    os.umask(asked.umask)
    os.environb.clear()
    os.environb.update(asked.environment)
    time.tzset()
    for number in asked.ignored:
        signal.signal(number, signal.SIG_IGN)
    text = functools.partial(os.fdopen, encoding="utf-8", closefd=False)
    sys.stdin = sys.__stdin__ = text(0, "r")
    sys.stdout = sys.__stdout__ = text(1, "w", buffering=1 if os.isatty(1) else -1)
    sys.stderr = sys.__stderr__ = text(2, "w", buffering=1, errors="backslashreplace")
    sys.argv[:] = [asked.arguments[0]]
    importlib.invalidate_caches()


def execute(arguments: list[str], path: list[str]) -> None:
    """What `python ARGUMENTS…` does. path: where modules are found besides the program's own folder."""
    safe_path = arguments[0] == "-P"
    what, *words = arguments[safe_path:]
    added = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    own = sys.modules["__main__"] = types.ModuleType("__main__")
    if what == "-c":
        code, *sys.argv[1:] = words
        first, run = "", lambda: exec(compile(code, "<string>", "exec"), vars(own))
    elif what == "-m":
        module, *_ = sys.argv = words
        sys.modules.pop(module, None)  # it runs as `__main__`; who imports it by its name gets another
        first, run = str(Path.cwd()), lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [what, *words]
        first, run = str(Path(what).resolve().parent), lambda: runpy.run_path(what, run_name="__main__")
    sys.path[:] = [*([] if safe_path else [first]), *added, *path]
    run()


def main(listening: socket.socket) -> None:
    """Import, serve, and run what a fork is to run."""
    path = list(sys.path)
    sys.path.insert(0, str(ROOT))
    for message, category in WARNED.items():
        warnings.filterwarnings("ignore", message, category)
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # collecting would copy the pages that the forks share
    server = Server(listening)
    arguments = server.serve()
    server.close()
    if arguments:
        execute(arguments, path)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
