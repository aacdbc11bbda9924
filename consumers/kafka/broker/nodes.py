"""`Broker`: real nodes of Apache Kafka, from nothing to ready, and the faults to try on them."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from consumers.kafka.broker import archive
from consumers.kafka.broker.jars import HERE, cache_folder, fetched_jars, locked, mark
from consumers.kafka.broker.java import find_java
from consumers.kafka.broker.layout import HOST, Layout, unique
from consumers.kafka.broker.process import NodeProcess
from consumers.kafka.wire import members
from ledger.errors import KafkaUnavailable

READY = 120.0
"""Seconds that nodes may take to be ready: a laptop needs 2 to 4, a machine under load may need 30."""
PATIENCE = 2.0
"""Seconds to wait for a node's answer before it is asked again."""
ATTEMPTS = 3
"""How often new ports are tried: another process may take one between our look and the node's start."""
_QUIET_JVM = (
    "-Xms96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip


def _silent(_: str) -> None:
    """Tell nobody."""


class Broker:
    """A cluster of nodes 1 to N on this machine's loopback, each broker and controller.

        with Broker(nodes=3) as broker:
            KafkaProducer(bootstrap_servers=broker.bootstrap)
            broker.kill(2)
            broker.start(2)

    Topics are made explicitly; three nodes keep three copies of each. The nodes end with the process that
    started them, however it ends.
    """

    def __init__(
        self,
        nodes: int = 1,
        root: Path | str | None = None,
        *,
        heap: str = "320m",
        listeners: Sequence[str] = ("PLAINTEXT",),
        settings: Mapping[str, object] | None = None,
        tell: Callable[[str], object] = _silent,
    ) -> None:
        """
        root: the folder that keeps data and ports for the next start; by default a temporary one.
        listeners: security protocols, a port of each on every node; nodes talk to each other by the first.
        settings: properties of the nodes besides ours. tell: hears of what takes long.
        """
        self.nodes = range(1, nodes + 1)
        self._listeners, self._settings = tuple(listeners), dict(settings or {})
        self._heap, self._tell = heap, tell
        self._is_temporary = root is None
        self.root = Path(root or tempfile.mkdtemp(prefix="ledger-kafka-")).resolve()
        self._layout: Layout | None = None
        self._processes: dict[int, NodeProcess] = {}
        self._held = contextlib.ExitStack()

    @property
    def layout(self) -> Layout:
        """Its ports. Raises KafkaUnavailable before it is started."""
        if self._layout is None:
            raise KafkaUnavailable("this broker is not started: use it in a `with` statement")
        return self._layout

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, as `bootstrap_servers` takes them, for the first listener."""
        return self.bootstrap_of(self._listeners[0])

    def bootstrap_of(self, listener: str) -> str:
        """The addresses for another listener, such as SASL_SSL."""
        return ",".join(self.layout.addresses(listener).values())

    def demand_running(self) -> None:
        """Raise KafkaUnavailable if a node has ended."""
        for node, each in self._processes.items():
            if not each.is_running:
                raise KafkaUnavailable(f"node {node} of Kafka ended: {self._last_words(node)}")

    def is_running(self, node: int) -> bool:
        """Whether the process of a node has not ended; a frozen one has not."""
        return self._processes[node].is_running

    def pid(self, node: int) -> int:
        """The process id of a node."""
        return self._processes[node].pid

    # -- from nothing to ready, and back -----------------------------------

    def __enter__(self) -> Broker:
        """Start all nodes and wait until they are ready. Raises KafkaUnavailable."""
        try:
            self._hold_root()
            self._java = find_java()
            self._jars = fetched_jars(self._java, self._tell)
            self._options = self._from_archive()
            self._bring_up()
        except BaseException:
            self._end_all(kindly=False)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all(kindly=not self._is_temporary)

    def _hold_root(self) -> None:
        """Keep others from starting nodes in this folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        lock = self._held.enter_context((self.root / "lock").open("a"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KafkaUnavailable(f"another process runs the broker in {self.root}: end it first") from None

    def _from_archive(self) -> tuple[str, ...]:
        """The options that use the archive of classes, which is made first; none while another makes it."""
        path = archive.path_of(self._java)
        with contextlib.suppress(BlockingIOError), locked("archive.lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            if not path.exists():
                self._tell("making an archive of classes, which halves the time of each later start")
                self._make_archive(path)
        return archive.use(self._java, path) if path.exists() else ()

    def _make_archive(self, path: Path) -> None:
        """Start a node of its own and end it. If that fails, nothing is lost but time."""
        fresh = path.with_name(f"partial-{path.name}")
        node = Broker()
        node._java, node._jars, node._options = self._java, self._jars, archive.making(self._java, fresh)
        with contextlib.suppress(KafkaUnavailable, subprocess.TimeoutExpired, OSError):
            try:
                node._bring_up()
                node.terminate(1)
                fresh.rename(path)
            finally:
                node._end_all(kindly=False)

    def _bring_up(self) -> None:
        kept = self.root / "layout.json"
        for attempt in range(1, ATTEMPTS + 1):
            known = Layout.read(kept)
            if known and list(known.ports) != list(self.nodes):
                raise KafkaUnavailable(
                    f"{self.root} keeps a cluster of {len(known.ports)} nodes: start as many"
                )
            self._layout = known or Layout.fresh(self.nodes, self._listeners)
            self._write_settings()
            try:
                if not known:
                    self._format()
                for node in self.nodes:
                    self.start(node, wait=False)
                self.wait()
            except _Ended:
                self._stop(kindly=False)
                if known or attempt == ATTEMPTS:
                    raise
            else:
                self._layout.write(kept)
                return

    def _write_settings(self) -> None:
        for node in self.nodes:
            settings = self.layout.settings(node, self._folder(node), self._settings)
            lines = [f"{name}={_escaped(value)}\n" for name, value in settings.items()]
            self._properties(node).write_text("".join(lines))

    def _format(self) -> None:
        """Format the folders. What Kafka's tool writes is the same for each node of any cluster, but for the
        identifiers; it is kept beside the jars, because a JVM for it is slow."""
        for node in self.nodes:
            shutil.rmtree(self._folder(node), ignore_errors=True)
            self._folder(node).mkdir(exist_ok=True)
        kept = cache_folder() / f"bootstrap-{mark()}.checkpoint"
        if not kept.exists():
            self._make_bootstrap(kept)
        for node in self.nodes:
            shutil.copy(kept, self._folder(node) / "bootstrap.checkpoint")
            lines = (
                "version=1",
                f"cluster.id={self.layout.cluster}",
                f"node.id={node}",
                f"directory.id={unique()}",
            )
            (self._folder(node) / "meta.properties").write_text("\n".join((*lines, "")))

    def _make_bootstrap(self, kept: Path) -> None:
        """Have Kafka's tool format the first node, and keep what it wrote."""
        words = ("format", "-t", self.layout.cluster, "-c", str(self._properties(1)))
        command = self._command("kafka.tools.StorageTool", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaUnavailable(
                f"Kafka cannot format {self._folder(1)}: {_reason(done.stdout + done.stderr)}"
            )
        fresh = kept.with_name(f"partial-{unique()}")
        shutil.copy(self._folder(1) / "bootstrap.checkpoint", fresh)
        fresh.rename(kept)

    def start(self, node: int, *, wait: bool = True) -> None:
        """Start a node that does not run. wait: until all that run are ready."""
        command = self._command("kafka.Kafka", str(self._properties(node)), options=self._options)
        self._processes[node] = NodeProcess(command, self._output(node))
        if wait:
            self.wait()

    def wait(self, timeout: float = READY) -> None:
        """Wait until each node that runs answers, and knows all that run as members that are not fenced.

        Frozen nodes do not count. Raises KafkaUnavailable if a node ends, or after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        wanted = {node for node, each in self._processes.items() if each.is_running and not each.is_frozen}
        waiting = set(wanted)
        while waiting:
            for node in wanted:
                if not self._processes[node].is_running:
                    raise _Ended(f"node {node} of Kafka ended: {self._last_words(node)}")
            if time.monotonic() > deadline:
                late = min(waiting)
                raise KafkaUnavailable(
                    f"node {late} of Kafka is not ready after {timeout:g} s: {self._last_words(late)}"
                )
            waiting = {node for node in waiting if not wanted <= self._members_known_to(node)}
            time.sleep(0.05 if waiting else 0)

    def _members_known_to(self, node: int) -> set[int]:
        """The members that are not fenced, as this node says."""
        try:
            return members((HOST, self.layout.ports[node][self._listeners[0]]), PATIENCE)
        except OSError:
            return set()

    def _end_all(self, *, kindly: bool) -> None:
        self._stop(kindly=kindly)
        self._held.close()
        if self._is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)

    def _stop(self, *, kindly: bool) -> None:
        """End all nodes. kindly: by a controlled shutdown, for which the last may need some seconds."""
        running = [each for each in self._processes.values() if each.is_running]
        for each in running if kindly else ():
            each.ask_to_end()
        for each in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(20 if kindly else 0)
                continue
            each.kill()
        self._processes.clear()

    # -- faults ------------------------------------------------------------

    def kill(self, node: int) -> None:
        """End a node as a power failure does."""
        self._processes[node].kill()

    def terminate(self, node: int, timeout: float = 60.0) -> None:
        """End a node by a controlled shutdown: its leaderships move away first."""
        self._processes[node].ask_to_end()
        self._processes[node].wait(timeout)

    def freeze(self, node: int) -> None:
        """Stop a node where it stands. After some seconds others lead, and it does not know that."""
        self._processes[node].freeze()

    def thaw(self, node: int) -> None:
        """Let a frozen node go on."""
        self._processes[node].thaw()

    # -- files and commands ------------------------------------------------

    def _folder(self, node: int) -> Path:
        return self.root / f"node{node}"

    def _properties(self, node: int) -> Path:
        return self.root / f"node{node}.properties"

    def _output(self, node: int) -> Path:
        return self.root / f"node{node}.out"

    def _last_words(self, node: int) -> str:
        text = self._output(node).read_text(errors="replace")
        return f"{_reason(text)} (see {self._output(node)})"

    def _command(self, main: str, *words: str, options: Sequence[str] = ()) -> list[str]:
        places = (f"-Dkafka.logs.dir={self.root}", f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}")
        classes = ":".join(map(str, self._jars))
        program = (str(self._java.program), f"-Xmx{self._heap}", *_QUIET_JVM)
        return [*program, *places, *options, "-cp", classes, main, *words]


class _Ended(KafkaUnavailable):
    """A node ended while it was waited for."""


def _escaped(value: object) -> str:
    """A value as a Java properties file takes it."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n")


def _reason(said: str) -> str:
    """The line of a node's output that tells most: the first cause of a fatal error, else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "Caused by:" in line or "FATAL" in line or " ERROR " in line]
    return (telling or lines[-1:] or ["it printed nothing"])[0][:300]
