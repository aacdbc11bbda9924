"""Operations that mean no good, and what they must not hurt."""

from __future__ import annotations

import _thread
import ctypes
import gc
import locale
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from consumers.jobs import OperationContext, OperationResult, Registry, RetryLaterError
from tests.jobs.oddities import VALUES

registry = Registry()
ENDURES = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(300)"


def hostile(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Register a function of the payload under its name."""

    def operation(session: OperationContext, payload: Any, *, emit: Any) -> Any:
        return function(payload)

    registry.operation(function.__name__)(operation)
    return function


@hostile
def ping(payload: Any) -> OperationResult:
    return OperationResult({"pid": os.getpid()})


# Raising


@hostile
def raises_system_exit(payload: Any) -> NoReturn:
    raise SystemExit(0)


@hostile
def raises_keyboard_interrupt(payload: Any) -> NoReturn:
    raise KeyboardInterrupt


@hostile
def raises_generator_exit(payload: Any) -> NoReturn:
    raise GeneratorExit


class Mute(Exception):
    """Has no text, and cannot be pickled."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()

    def __str__(self) -> str:
        raise SystemExit("no text")


@hostile
def raises_mute(payload: Any) -> NoReturn:
    raise Mute


@hostile
def raises_nul(payload: Any) -> NoReturn:
    raise ValueError("a\x00b\ud800c")


@hostile
def raises_long(payload: Any) -> NoReturn:
    raise ValueError("x" * 30_000_000)


@hostile
def puts_off_for_ever(payload: Any) -> NoReturn:
    raise RetryLaterError("for ever", float("nan"))


# Ending


@hostile
def exits_well(payload: Any) -> NoReturn:
    print("so long", flush=True)
    os._exit(0)


@hostile
def exits_badly(payload: Any) -> NoReturn:
    os._exit(3)


@hostile
def kills_itself(payload: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hostile
def crashes(payload: Any) -> None:
    ctypes.string_at(0)


@hostile
def hangs(payload: Any) -> None:
    """Holds the interpreter in C, and minds no signal but one."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Path(payload["here"]).write_text(str(os.getpid()))
    sum(range(10**14))


# Leaving something


@hostile
def leaves_a_daemon(payload: Any) -> OperationResult:
    """Two descendants: one in its process group, and one in a session of its own, whose parent is gone."""
    near = subprocess.Popen([sys.executable, "-S", "-c", ENDURES])
    far = f"subprocess.Popen([sys.executable, '-S', '-c', {ENDURES!r}], start_new_session=True)"
    middle = f"import subprocess, sys; print({far}.pid)"
    with subprocess.Popen([sys.executable, "-S", "-c", middle], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        there = int(process.stdout.readline())
    near.returncode = 0  # no warning about it
    pids = [near.pid, there]
    if "here" in payload:
        Path(payload["here"]).write_text(" ".join(map(str, [os.getpid(), *pids])))
    if payload.get("then") == "hang":
        time.sleep(300)
    if payload.get("then") == "exit":
        os._exit(0)
    return OperationResult({"pids": pids})


@hostile
def comes_back_twice(payload: Any) -> OperationResult:
    return OperationResult({"forked": os.fork() == 0})


@hostile
def leaves_threads(payload: Any) -> None:
    for _ in range(3):
        threading.Thread(target=time.sleep, args=[300]).start()


@hostile
def changes_everything(payload: Any) -> None:
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    locale.setlocale(locale.LC_ALL, "C")
    sys.setrecursionlimit(100)
    gc.disable()
    sys.stdout = None


@hostile
def how_it_is(payload: Any) -> OperationResult:
    mask = os.umask(0o22)
    os.umask(mask)
    time.sleep(payload.get("seconds", 0))
    found = {
        "folder": str(Path.cwd()), "mask": mask, "term": str(signal.getsignal(signal.SIGTERM)),
        "locale": locale.setlocale(locale.LC_ALL), "depth": sys.getrecursionlimit(), "gc": gc.isenabled(),
        "output": sys.stdout is sys.__stdout__, "pid": os.getpid(), "threads": threading.active_count(),
    }  # fmt: skip
    return OperationResult(found)


@hostile
def closes_its_output(payload: Any) -> None:
    sys.stdout.close()


@hostile
def multiplies(payload: Any) -> OperationResult:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return OperationResult({"squares": pool.map(abs, [-1, -2, -3])})


# The pipe


@hostile
def closes_everything(payload: Any) -> None:
    os.closerange(0, 1000)


@hostile
def closes_and_opens(payload: Any) -> OperationResult:
    """Other files get the numbers that the pipes had."""
    os.closerange(3, 1000)
    files = [Path(payload["here"]).open("w") for _ in range(20)]  # noqa: SIM115
    globals()["kept"] = files
    return OperationResult()


@hostile
def writes_everywhere(payload: Any) -> None:
    for fd in range(3, 100):
        try:
            os.write(fd, b"\x00\x00\x00\x05hello")
        except OSError:
            continue


# Too much


@hostile
def prints(payload: Any) -> None:
    block = ("x" * 99 + "\n") * 10_000
    for _ in range(payload["megabytes"]):
        sys.stdout.write(block)
    print("the end", file=sys.stderr)
    if payload.get("fail", True):
        raise ArithmeticError("printed enough")


@hostile
def allocates(payload: Any) -> None:
    held = []
    while True:
        held.append(bytearray(2**24))


# Returning


@hostile
def returns(payload: Any) -> Any:
    return VALUES[payload["what"]]()


@hostile
def hands_out_odd(payload: Any) -> OperationResult:
    message = {"operation": "ping", "payload": {}, "priority": 2**70}
    return OperationResult(deferred=True, publish_operations=[("default", message)])


# Saying and stopping


@registry.operation("says_odd")
def says_odd(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """What nobody can keep, and more than a number may be."""
    emit("odd", fields={"n": float("nan")})
    emit("odd", fields={"n": object()}, message="a\x00")
    emit("odd", fields={"_progress_current": 2**70, "_progress_total": "many"})
    emit("odd", fields={"_progress_current": 2**70})
    emit("", level="\x00")
    emit(None)


@registry.operation("waits")
def waits(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Until it is told to stop."""
    print("waits", flush=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        session.check()
        time.sleep(0.001)
    return OperationResult()


@registry.operation("ends", ends_process=True)
def ends(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """In a process that runs nothing else afterwards."""
    return OperationResult({"pid": os.getpid()})
