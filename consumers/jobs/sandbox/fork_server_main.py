"""The process of a fork server: forks children, reports how they ended, kills what they leave behind."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from . import child
from .cleanup import children_of
from .fork_server import command
from .limits import adopt, die_with

_LINE: Final = 2**16
_PASSES: Final = 20
"""How often the fork server looks for descendants of a child: a killed one may have had children too."""


class _ForkServer:
    """A fork server at work. control: the socket to its worker."""

    def __init__(self, control: socket.socket, forks: bool) -> None:
        self.control, self.forks = control, forks
        self.pids: dict[int, int] = {}
        self.buffer = b""
        self.fds: list[int] = []
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Run until the worker is gone; then kill all children."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.woken, select.POLLIN)
        going = True
        while going:
            ready = {fd for fd, _ in poller.poll()}
            if self.woken in ready:
                with suppress(BlockingIOError):
                    os.read(self.woken, _LINE)
            if self.control.fileno() in ready:
                going = self.read_command()
            self.reap()
        for number, pid in [*self.pids.items()]:
            self.kill(number)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)  # its children become ours only when it is gone
        self.pids.clear()
        self.sweep()

    def read_command(self) -> bool:
        """Carry out the commands of the worker; False once it is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.control, _LINE, 64)
        except OSError:
            return False
        self.fds += fds
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "start" in message:
                self.start(message["start"], message["key"])
            else:
                self.kill(message["kill"])
        return bool(data)

    def start(self, number: int, key: str) -> None:
        """Start a child."""
        fds, self.fds = self.fds[:3], self.fds[3:]
        fork_server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_child(fork_server, fds, key, self.forks)
        for fd in fds:
            os.close(fd)
        self.pids[number] = pid

    def kill(self, number: int) -> None:
        """Kill a child's process group; `reap` kills what is left."""
        pid = self.pids.get(number)
        if pid is not None:
            _kill_group(pid)
            with suppress(ProcessLookupError):  # it may not have its own group yet
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Report children that ended, once nothing is left of them."""
        for number, pid in [*self.pids.items()]:
            status = _ended(pid)
            if status is None:
                continue
            del self.pids[number]
            self.sweep()
            message = {"ended": number, "code": os.waitstatus_to_exitcode(status)}
            with suppress(OSError):
                self.control.sendall(json.dumps(message).encode() + b"\n")

    def sweep(self) -> None:
        """Kill the processes that became ours when a child ended: its surviving descendants.

        A living child adopts its own orphans (`adopt`), so we have no other children.
        """
        for _ in range(_PASSES):
            left = children_of(os.getpid()) - {*self.pids.values()}
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            if not left:
                return


def _ended(pid: int) -> int | None:
    """The wait status of a child that ended, whose process group is ended too; None while it lives.

    If the system allows it, the group is killed before the child is reaped: until then its number is its own.
    """
    careful = hasattr(os, "waitid")
    if careful and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    if careful:
        _kill_group(pid)
    gone, status = os.waitpid(pid, os.WNOHANG)
    if gone and not careful:
        _kill_group(pid)
    return status if gone else None


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _become_child(fork_server: int, fds: list[int], key: str, forks: bool) -> None:
    """In the forked process: leave the fork server behind. Does not return."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        die_with(fork_server)
        adopt()
        task_fd, stop_fd, output_fd = fds
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        task_fd, stop_fd = _alone(task_fd, stop_fd)
        if not forks:
            os.set_inheritable(task_fd, True)
            os.set_inheritable(stop_fd, True)
            line = command("child", task_fd, stop_fd, key)
            os.execv(line[0], line)
        child.main(task_fd, stop_fd, key)
        with suppress(Exception):
            logging.shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(0)
    finally:
        os._exit(1)


def _alone(task_fd: int, stop_fd: int) -> tuple[int, int]:
    """Close all descriptors of the fork server and of other children."""
    kept = sorted({task_fd, stop_fd})
    os.closerange(3, kept[0])
    os.closerange(kept[0] + 1, kept[1])
    os.closerange(kept[1] + 1, 65536 if kept[1] < 65536 else kept[1] + 2)
    return task_fd, stop_fd


def main(control: str, forks: str) -> None:
    """Look after children until the worker is gone."""
    adopt()
    gc.collect()
    gc.freeze()  # what is imported stays shared with the children
    _ForkServer(socket.socket(fileno=int(control)), forks == "1").run()
