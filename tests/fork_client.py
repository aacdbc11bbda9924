"""Run Python as a fork of the server in fork_server.py: `python -I -S fork_client.py SOCKET ARGUMENTS…`.

To whoever started it, this process looks like `python ARGUMENTS…`: same streams, folder and environment; it
passes signals on, and ends as the fork ends. When it is killed, the server kills the fork. It imports next to
nothing, because that is the point: it starts in a tenth of the time in which a Python imports the ledger.
"""

import _signal
import _socket
import array
import marshal
import posix
import sys

KNOWN = {
    b"PYTHONPATH", b"PYTHONWARNINGS", b"PYTHONPYCACHEPREFIX", b"PYTHONDONTWRITEBYTECODE", b"PYTHONUNBUFFERED",
}  # fmt: skip
"""The settings of Python under which a fork is right; with any other, a new interpreter runs."""
FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT")
_WORD = 4
"""The bytes of a length, a process's number or a status."""


def main(path: str, arguments: list[str]) -> int:
    """Run it; returns its status as `waitpid` has it."""
    early: list[int] = []
    fork = 0

    def forward(number: int, _frame: object) -> None:
        if fork:
            posix.kill(fork, number)
        else:
            early.append(number)

    ignored = [name for name in FORWARDED if _signal.getsignal(getattr(_signal, name)) == _signal.SIG_IGN]
    for name in set(FORWARDED).difference(ignored):
        _signal.signal(getattr(_signal, name), forward)
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(path)
    what = marshal.dumps((
        arguments, posix.environ, posix.getcwdb(), posix.umask(0o022), posix.getpgrp() == posix.getpid(),
        posix.getsid(0) == posix.getpid(), [getattr(_signal, name) for name in ignored],
    ))  # fmt: skip
    streams = array.array("i", [0, 1, 2])
    server.sendmsg([len(what).to_bytes(_WORD, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    server.sendall(what)
    for stream in (0, 1, 2):  # the fork has them; a reader must see their end when it ends
        posix.close(stream)
    fork = _word(server)
    for number in early:
        posix.kill(fork, number)
    return _word(server)


def _word(server: _socket.socket) -> int:
    found = b""
    while len(found) < _WORD:
        more = server.recv(_WORD - len(found))
        if not more:
            posix._exit(111)
        found += more
    return int.from_bytes(found, "big")


if __name__ == "__main__":
    if any(name.startswith(b"PYTHON") and name not in KNOWN for name in posix.environ):
        posix.execv(sys.executable, [sys.executable, "-W", "error", *sys.argv[2:]])
    status = main(sys.argv[1], sys.argv[2:])
    if posix.WIFSIGNALED(status):
        if posix.WTERMSIG(status) != _signal.SIGKILL:
            _signal.signal(posix.WTERMSIG(status), _signal.SIG_DFL)
        posix.kill(posix.getpid(), posix.WTERMSIG(status))
    posix._exit(posix.WEXITSTATUS(status))
