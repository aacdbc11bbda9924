"""What a person sees: tables that fit the terminal, colours only where they are wanted."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable

import pytest

from ledger import Ledger
from ledger.pipelines import LSMStateService
from tests.gateway.conftest import environment, forked
from tests.lamp import OpenLamp

Terminal = Callable[..., str]


@pytest.fixture
def terminal(dsn: str) -> Terminal:
    """Run a command on a terminal of so many columns; what it shows there."""

    def run(columns: int, *arguments: str, **more: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        settings = environment(LEDGER_DSN=dsn, TERM="xterm-256color", TZ="Asia/Kolkata", **more)
        settings.pop("COLUMNS", None)
        command = subprocess.Popen(
            [*forked(), *arguments], stdout=theirs, stderr=subprocess.DEVNULL, env=settings
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                more_shown = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not more_shown:
                break
            shown += more_shown
        os.close(ours)
        assert command.wait(60) == 0
        return shown.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def filled(log: Ledger) -> None:
    with log.open(OpenLamp, "a/rather/long/name-of-a-lamp") as lamp:
        lamp.make(40, {"text": "é\x1b[31m\n" + "x" * 300})
    with LSMStateService(log).open_channel_by_parts("p", slice_id=1, channel_id=0) as channel:
        channel.get_or_create_strip(1).mark_completed()
        channel.get_or_create_strip(2)


COMMANDS = [
    ("streams",),
    ("history", "lamp/a%2Frather%2Flong%2Fname-of-a-lamp"),
    ("show", "lamp/a%2Frather%2Flong%2Fname-of-a-lamp", "--domain", "tests.lamp"),
    ("tail",),
    ("lsm", "show", "p"),
    ("lsm", "show", "p", "--slice", "1", "--channel", "0"),
    ("init",),
]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_line_fits_and_no_character_acts(
    terminal: Terminal, filled: None, command: tuple[str, ...], columns: int
) -> None:
    shown = terminal(columns, *command, "--no-color")
    assert shown.strip()
    assert max(map(len, shown.splitlines())) <= columns
    assert "\x1b" not in shown


def test_colours_are_for_terminals_that_want_them(terminal: Terminal, filled: None) -> None:
    assert "\x1b[" in terminal(80, "lsm", "show", "p")
    assert "\x1b[" not in terminal(80, "lsm", "show", "p", NO_COLOR="1")
    assert "\x1b[31m" not in terminal(80, "tail")


def test_times_are_local_with_their_offset_and_json_is_not(terminal: Terminal, filled: None) -> None:
    assert "+05:30" in terminal(200, "streams", "--no-color")
    assert "+05:30" in terminal(200, "history", "lsm.project/p", "--no-color")
    told = terminal(200, "streams", "--json")
    assert "+05:30" not in told
    assert "+00:00" in told


def test_a_table_keeps_the_names_whole(terminal: Terminal, filled: None) -> None:
    for columns in (80, 200):
        folded = "".join(terminal(columns, "streams", "--no-color").split())
        assert "lsm.channel/p/1/0" in folded
    bar = terminal(80, "lsm", "show", "p", "--no-color")
    assert "█████░░░░░" in bar
    assert "1/2" in bar
