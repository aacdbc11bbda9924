#!/usr/bin/env python3
"""The one command of a developer: `python3 dev.py -h` tells what it does.

Standard library only, and written so that even Python 2.7 can read it: an interpreter that is too old
gets a sentence instead of a syntax error.
"""

from __future__ import print_function

import sys

if not (3, 11) <= sys.version_info < (3, 15) or sys.platform == "win32":
    sys.stderr.write(
        "dev.py: Python 3.11 to 3.14 on Linux or macOS is needed, and this is Python %d.%d on %s (%s).\n"
        % (sys.version_info[0], sys.version_info[1], sys.platform, sys.executable)
    )
    sys.exit(2)

import ast
import fcntl
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib

ROOT = os.path.dirname(os.path.abspath(__file__))
LOCK = os.path.join(ROOT, "requirements.lock")
PROJECT = os.path.join(ROOT, "pyproject.toml")
ENTRY = os.path.join(ROOT, "gateway", "cli", "entry.py")
BENCHMARKS = os.path.join(ROOT, "tests", "benchmarks")
DEMO = os.path.join(ROOT, "docs", "examples", "lsm_pipeline", "run.py")

LONG_TESTS = ("faults", "docs", "demo", "kafka")
"""What `test --fast` leaves out; the tests of Kafka start and kill brokers."""

PREFECT = os.path.join(ROOT, ".prefect")
PREFECT_VERSIONS = {"3.8": "3.8.8", "3.6": "3.6.29"}
"""The clients that `test --prefect` runs, each in an environment of its own: PREFECT/3.8 and so on."""
PREFECT_FASTAPI = {"3.8": "<0.151", "3.6": "<0.129"}
"""What the server of each version works with: that of 3.6 answers every request with 500 on newer ones."""

LAST_FAILED = os.path.join(ROOT, ".pytest_cache", "v", "cache", "lastfailed")
MOST_AGAIN = 10
"""So many failed tests are run again, alone; more are no accident."""

VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "made-by-dev.py")
BYTECODE = os.path.join(VENV, "bytecode")
COMPILED = os.path.join(BYTECODE, "tests-are-compiled")
GATE = os.path.join(ROOT, ".venv.lock")

# The interpreter behind this one: never that of a virtual environment, which may be deleted under us.
BASE_PYTHON = getattr(sys, "_base_executable", None) or sys.executable

USAGE = """\
usage: python3 dev.py COMMAND [ARGS]

  demo [ARGS]           run a real LSM pipeline on a real image (demo -h tells its options)
  test [PYTEST ARGS]    ruff, mypy, then pytest: what CI runs
  test --fast           the same without tests of faults, docs, the demo and Kafka
  test --slow [NAME] [--minutes N]
                        only the long campaigns: all, or those whose name matches NAME
  test --prefect [--slow] [PYTEST ARGS]
                        only the scenarios with real clients of Prefect; --slow: also on its own server
  check                 ruff and mypy only
  bench [NAME] [ARGS]   a benchmark (bench NAME -h tells its options); without a NAME, the list of them
  walk [--steps]        how many files and functions common calls go through
  lock [UV ARGS]        write requirements.lock anew from pyproject.toml (--upgrade: newest versions), and
                        the locks of the clients of Prefect

The first command makes a virtual environment, .venv beside this file, from the hashes in
requirements.lock: with uv where it is on the PATH, with pip otherwise. Later commands use it as it is
until the lock, pyproject.toml or the interpreter changes. Deleting .venv is always safe. The clients of
Prefect have environments of their own in .prefect, made by `test --prefect`.

Exit code: that of the command that was run; 2 for wrong use; 1 where .venv cannot be made.
"""

# What ends a command from outside, and is passed on to it.
ENDS = (signal.SIGTERM, signal.SIGHUP)

NO_VENV = (
    "cannot make .venv from requirements.lock: is the network (or the mirror that pip is set to) there, has "
    "this platform a wheel of every package, and can `python3 -m venv` make an environment (on Debian: apt "
    "install python3-venv)? Then start again."
)

UNWANTED = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")


class Stop(Exception):
    """An end that needs a sentence, not a traceback."""

    def __init__(self, sentence, code=1):
        super(Stop, self).__init__(sentence)
        self.code = code


def note(text):
    print("dev.py: " + text, file=sys.stderr, flush=True)


# The virtual environment.


def digest(*paths):
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(file.read())
    return whole.hexdigest()


def wanted():
    """What .venv must have been made from; only a change of the last line needs no whole new one.

    All of the project is used where it lies, but for the entry of `pledger`, of which .venv has a copy.
    """
    interpreter = "%s (%s)" % (sys.version.split()[0], os.path.realpath(BASE_PYTHON))
    return [ROOT, interpreter, "lock " + digest(LOCK), "project " + digest(PROJECT, ENTRY)]


def found():
    """What .venv was made from; nothing where it is missing, half made, or has lost its interpreter."""
    if not os.access(PYTHON, os.X_OK):
        return []
    try:
        with open(STAMP) as file:
            return file.read().splitlines()
    except OSError:
        return []


def take(gate, kind):
    """Lock the gate: shared to use .venv, exclusive to make it."""
    try:
        fcntl.flock(gate, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        note("another dev.py is using or making .venv; waiting for it")
        fcntl.flock(gate, kind)


def ready():
    """Make .venv where it does not fit; the file returned holds it against a rebuild while it is in use."""
    try:
        gate = open(GATE, "a")
    except OSError as error:
        raise Stop("cannot write in the project's folder: %s" % error)
    take(gate, fcntl.LOCK_SH)
    while found() != wanted():
        take(gate, fcntl.LOCK_EX)
        if found() != wanted():
            make(gate.fileno())
        take(gate, fcntl.LOCK_SH)
    return gate


def make(gate):
    """Install with the first tool that can; write the stamp last, so that a kill half-way leaves none."""
    started, news = time.monotonic(), wanted()
    fresh = found()[:3] != news[:3]
    forget(STAMP)
    tools = [shutil.which("uv"), None] if shutil.which("uv") else [None]
    # An environment that uv made has no pip: where uv is gone since, pip makes it anew.
    for uv in tools if fresh else tools + [None]:
        name = "uv" if uv else "pip"
        if not fresh:
            note("installing the project anew, for pyproject.toml has changed")
        else:
            note("making .venv with %s for Python %s%s" % (name, news[1], "" if uv else ": a minute or two"))
            shutil.rmtree(VENV, ignore_errors=True)
        if all(install(command, gate) for command in commands(uv, fresh)):
            break
        note("%s could not; its own words are above" % name)
        fresh = True
    else:
        raise Stop(NO_VENV)
    with open(STAMP + ".new", "w") as file:
        file.write("\n".join(news) + "\n")
    os.replace(STAMP + ".new", STAMP)
    note(".venv is ready after %.0f s" % (time.monotonic() - started))


def forget(path):
    if os.path.exists(path):
        os.remove(path)


def commands(uv, fresh):
    """The commands that make .venv, or only put the project in it anew."""
    project = ["--no-deps", "--no-build-isolation", "-e", ROOT]
    return (new_environment(uv, VENV, LOCK) if fresh else []) + [installer(uv, VENV) + project]


def new_environment(uv, folder, locked):
    """The commands that make an environment and install what a lock says, by its hashes."""
    new = [BASE_PYTHON, "-m", "venv", folder]
    if uv:
        new = [uv, "venv", "--python", BASE_PYTHON, "--no-python-downloads", folder] + quietly()
    # A lock is complete, so nothing is resolved again: pip would refuse sqlalchemy[asyncio], of which the
    # lock has sqlalchemy.
    locked_only = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", locked]
    return [new, installer(uv, folder) + locked_only]


def installer(uv, folder):
    python = os.path.join(folder, "bin", "python")
    if uv:
        return [uv, "pip", "install", "--python", python] + quietly()
    return [python, "-m", "pip", "install", "--disable-pip-version-check"] + quietly()


def quietly():
    return [] if sys.stderr.isatty() else ["--quiet"]


def install(command, gate):
    """Run an installer; it inherits the gate, so that even orphaned it keeps others out until it ends."""
    env = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    env["PIP_NO_INPUT"] = "1"
    try:
        return subprocess.call(command, cwd=ROOT, env=env, stdout=sys.stderr, pass_fds=[gate]) == 0
    except OSError as error:
        note(str(error))
        return False


# The environments of Prefect's clients.


def prefect_lock(version):
    return os.path.join(ROOT, "requirements-prefect-%s.lock" % version)


def clients_ready():
    """Make the environments of Prefect's clients that are missing or not of their lock any more."""
    if not os.path.isdir(PREFECT):
        os.mkdir(PREFECT)
    with open(os.path.join(PREFECT, "lock"), "a") as gate:
        take(gate, fcntl.LOCK_EX)
        for version in PREFECT_VERSIONS:
            folder = os.path.join(PREFECT, version)
            stamp, news = os.path.join(folder, "made-by-dev.py"), "\n".join(client_wanted(folder, version))
            if os.path.exists(stamp):
                with open(stamp) as file:
                    if file.read() == news:
                        continue
            make_client(folder, prefect_lock(version), gate.fileno())
            with open(stamp, "w") as file:
                file.write(news)


def client_wanted(folder, version):
    return [folder, wanted()[1], digest(prefect_lock(version))]


def make_client(folder, locked, gate):
    """A new environment with what a lock says, made with the first tool that can."""
    started = time.monotonic()
    for uv in [shutil.which("uv"), None] if shutil.which("uv") else [None]:
        note("making %s with %s" % (os.path.relpath(folder, ROOT), "uv" if uv else "pip: a minute or two"))
        shutil.rmtree(folder, ignore_errors=True)
        if all(install(command, gate) for command in new_environment(uv, folder, locked)):
            note("it is ready after %.0f s" % (time.monotonic() - started))
            return
    raise Stop(NO_VENV.replace(".venv from requirements.lock", "%s from %s" % (folder, locked)))


# Running things in it.


def environment():
    """What a child in .venv finds in its environment."""
    env = dict(os.environ, VIRTUAL_ENV=VENV)
    env["PATH"] = os.path.join(VENV, "bin") + os.pathsep + env.get("PATH", os.defpath)
    env.pop("PYTHONHOME", None)
    # Compiled modules are kept in .venv, also where the environment says to keep none: the tests start
    # hundreds of processes, and each would compile all that it imports.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPYCACHEPREFIX"] = BYTECODE
    return env


def run(command, cwd=ROOT):
    """Run a child to its end, passing on what would end us; answer its exit code as a shell would."""
    sys.stdout.flush()
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends it to the child as well
    child = subprocess.Popen(command, cwd=cwd, env=environment())
    for number in ENDS:
        signal.signal(number, lambda signum, _: child.send_signal(signum))
    code = child.wait()
    for number in ENDS + (signal.SIGINT,):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    return code if code >= 0 else 128 - code


def typed():
    """The folders that mypy reads, of those that hold any Python yet."""
    with open(PROJECT, "rb") as file:
        folders = tomllib.load(file)["tool"]["mypy"]["files"]
    return [name for name in folders if glob.glob(os.path.join(ROOT, name, "**", "*.py"), recursive=True)]


def checks():
    """Run every static check, also after one that failed; answer the first exit code that is not 0."""
    steps = {
        "ruff check": ["ruff", "check", "--quiet"],
        "ruff format": ["ruff", "format", "--check", "--quiet"],
    }
    steps.update({"mypy": ["mypy"] + typed()} if typed() else {})
    codes = []
    for name, command in steps.items():
        codes.append(run([PYTHON, "-m"] + command))
        note("%s: %s" % (name, "failed" if codes[-1] else "ok"))
        if codes[-1] > 128:
            break
    return next((code for code in codes if code), 0)


def checks_and_compilation():
    """The static checks, and beside them, the first time, the compilation of all tests; as `checks` answers.

    mypy takes one processor. Without this each process of the tests compiles all of them, half a minute each.
    """
    if os.path.exists(COMPILED):
        return checks()
    command = [PYTHON, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # the tests say the same again
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **silent) as compilation:
        code = checks()
        if code > 128:
            compilation.terminate()
    if compilation.returncode == 0:
        with open(COMPILED, "w"):
            pass
    return code


# The commands.


def demo(args):
    with ready():
        return run([PYTHON, DEMO] + args, cwd=os.getcwd())


def test(args):
    with ready():
        if "--prefect" in args:
            return with_clients([arg for arg in args if arg != "--prefect"])
        if "--slow" in args:
            return run([PYTHON, "-m", "pytest"] + campaign(args))
        whole = not args or args == ["--fast"]
        failed = checks_and_compilation() if whole else checks()
        if failed > 128:
            return failed
        if failed:
            note("the static checks failed; running the tests all the same")
        # The whole suite takes every processor, with a process more because many tests wait for something;
        # a part of it, or a debugger, takes one process.
        everywhere = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal"]
        if args == ["--fast"]:
            everywhere += ["--ignore=tests/" + name for name in LONG_TESTS]
        code = run([PYTHON, "-m", "pytest"] + (everywhere if whole else args))
        if code == 1 and whole:
            code = again_alone()
        return code or failed


def with_clients(args):
    """The tests with real clients of Prefect; one process for each version, which has its own server."""
    clients_ready()
    if "--slow" in args:
        at = args.index("--slow")
        args = args[:at] + ["-m", ""] + args[at + 1 :]
    many = [] if "-n" in args else ["-n", str(len(PREFECT_VERSIONS)), "--dist", "loadgroup"]
    if not any(os.path.exists(arg.partition("::")[0]) for arg in args):
        args = args + [os.path.join("tests", "prefect")]
    return run([PYTHON, "-m", "pytest", "--prefect", "-p", "no:randomly"] + many + args)


def again_alone():
    """Run the few tests that failed once more, one at a time: some kill servers, and on a machine where
    everything else runs too they may wait longer than they allow. A defect fails twice."""
    names = last_failed()
    if len(names) > MOST_AGAIN:
        note("%d failed, too many to run again: %s ..." % (len(names), " ".join(names[:MOST_AGAIN])))
        return 1
    note("%d failed; running them again, one at a time" % len(names))
    code = run([PYTHON, "-m", "pytest", "-p", "no:randomly"] + names)
    twice = names if code > 128 else [name for name in names if name in last_failed()] if code else []
    if len(twice) < len(names):
        note("passed alone, and failed beside the others: " + " ".join(sorted(set(names) - set(twice))))
    if code > 128:
        note("pytest itself was ended by %s" % signal.Signals(code - 128).name)
    if code:
        note("failed twice: " + " ".join(twice))
    return code


def last_failed():
    """The names of the tests that failed when they ran last, as pytest has noted them."""
    with open(LAST_FAILED) as file:
        return sorted(json.load(file))


def walk(args):
    with ready():
        return run([PYTHON, "-m", "tests.house.walk"] + args)


def campaign(args):
    """--slow [NAME] as pytest understands it; every other argument goes to pytest as it is."""
    at = args.index("--slow")
    before, after = args[:at], args[at + 1 :]
    name = after[:1] if after and not after[0].startswith("-") else []
    chosen = ["-k", name[0]] if name else []
    return before + ["-m", "slow"] + chosen + after[len(name) :]


def check(args):
    if args:
        raise Stop("check takes no arguments (see python3 dev.py -h)", 2)
    with ready():
        return checks()


def bench(args):
    there = benchmarks()
    if args and args[0] in there:
        with ready():
            return run([PYTHON, "-m", "tests.benchmarks." + args[0]] + args[1:])
    lines = ["  %-14s %s" % (name, there[name]) for name in sorted(there)]
    listing = "benchmarks, as in `python3 dev.py bench NAME`:\n" + ("\n".join(lines) or "  none yet")
    if args:
        raise Stop("there is no benchmark %r; %s" % (args[0], listing), 2)
    print(listing)
    return 0


def benchmarks():
    """The name of each benchmark and the first line of its docstring."""
    there = {}
    for name in os.listdir(BENCHMARKS) if os.path.isdir(BENCHMARKS) else []:
        if name.endswith(".py") and not name.startswith(("_", "test_", "conftest")):
            with open(os.path.join(BENCHMARKS, name), encoding="utf-8") as file:
                text = file.read()
            if "\ndef main(" in text:  # the others are parts of these
                there[name[:-3]] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return there


def lock(args):
    """Resolve for every platform and Python at once; versions that still fit are kept."""
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv") or borrowed_uv(folder)
        command = [uv, "pip", "compile", PROJECT, "--group", PROJECT + ":dev"]
        # Not the extra `prefect`: its ninety packages are for who wants them.
        for extra in ("embedded", "demo", "broker", "telemetry", "builds", "server", "runs"):
            command += ["--extra", extra]
        command += ["--universal"]
        code = run(command + LOCKED + ["-o", LOCK] + args)
        for version in PREFECT_VERSIONS:
            code = code or lock_client(uv, folder, version, args)
        return code


LOCKED = ["--python-version", "3.11", "--generate-hashes", "--quiet", "--no-emit-index-url"]
LOCKED += ["--no-emit-find-links", "--custom-compile-command", "python3 dev.py lock"]


def lock_client(uv, folder, version, args):
    """The lock of a client and of its own server, which fails with newer versions of FastAPI and SQLAlchemy;
    Prefect 3.6 imports importlib_metadata without naming it."""
    needs = os.path.join(folder, "prefect.in")
    with open(needs, "w") as file:
        file.write("prefect==%s\nfastapi%s\n" % (PREFECT_VERSIONS[version], PREFECT_FASTAPI[version]))
        file.write("sqlalchemy<2.1\nimportlib-metadata\n")
    command = [uv, "pip", "compile", needs, "--universal", "--no-annotate"] + LOCKED
    return run(command + ["-o", prefect_lock(version)] + args)


def borrowed_uv(folder):
    note("uv is not on the PATH; fetching one for this time")
    python = os.path.join(folder, "bin", "python")
    for command in ([BASE_PYTHON, "-m", "venv", folder], [python, "-m", "pip", "install", "--quiet", "uv"]):
        if subprocess.call(command, stdout=sys.stderr):
            raise Stop("cannot fetch uv, which makes the lock: see above")
    return os.path.join(folder, "bin", "uv")


COMMANDS = {"demo": demo, "test": test, "check": check, "bench": bench, "walk": walk, "lock": lock}


def main(args):
    own_help = len(args) > 1 and args[0] in ("test", "check", "bench", "lock") and args[1] in ("-h", "--help")
    if own_help or args[:1] in (["-h"], ["--help"], ["help"]):
        print(USAGE, end="")
        return 0
    if not args or args[0] not in COMMANDS:
        wrong = "there is no command %r\n\n" % args[0] if args else ""
        print(wrong + USAGE, end="", file=sys.stderr)
        return 2
    try:
        return COMMANDS[args[0]](args[1:])
    except Stop as end:
        note(str(end))
        return end.code
    except KeyboardInterrupt:
        note("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
