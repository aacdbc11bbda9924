"""A build project in a folder, for tests: write files, run it, and see what was said of each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consumers.builds import progress
from consumers.builds.run import run_build
from ledger import Ledger
from ledger.builds import OpenOutput, OpenStage, RunManifest
from ledger.builds.run import manifest_of

CHAIN = """
[params]
k = 1
[stages.a]
command = "echo a >> ran; cat in.txt > a.txt"
deps = ["in.txt"]
outs = ["a.txt"]
[stages.b]
command = "echo b >> ran; mkdir -p b; head -c 1 a.txt > b/first; echo ${params.k} > b/k"
deps = ["a.txt"]
outs = ["b/"]
[stages.c]
command = "echo c >> ran; cat b/first other.txt > c.txt"
deps = ["b/", "other.txt"]
outs = ["c.txt"]
"""
"""Three stages; b reads only the first character of a. Each notes in `ran` that it ran."""


class GivenBuild:
    """A project `p` in a folder. said: what was said of each stage in the last run, status and reason."""

    def __init__(self, log: Ledger, root: Path, stages: str = CHAIN) -> None:
        self.log, self.root = log, root
        root.mkdir(parents=True, exist_ok=True)
        self.declare(stages)
        self.events: list[progress.Progress] = []
        self.said: dict[str, tuple[str, str]] = {}

    def declare(self, stages: str) -> None:
        """Write the build file."""
        self.write("pledger-build.toml", f'[project]\nname = "p"\n{stages}')

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, name: str) -> str:
        """What is in a file."""
        return (self.root / name).read_text(encoding="utf-8")

    def run(self, *targets: str, **options: Any) -> progress.RunEnded:
        """Run it."""
        self.events, self.said = [], {}
        ended = run_build(self.log, self.root, targets, listener=self._hear, **options)
        assert self.events[-1] == ended
        return ended

    def ran(self) -> str:
        """The stages whose commands ran since this was called before, in their order."""
        path = self.root / "ran"
        names = "".join(path.read_text().split()) if path.exists() else ""
        path.unlink(missing_ok=True)
        return names

    def generation(self, path: str) -> int:
        """The generation of an output, 0 where it has none."""
        return self.log.load(OpenOutput, "p", path).version

    def stage(self, name: str) -> OpenStage:
        """A stage's stream."""
        return self.log.load(OpenStage, "p", name)

    def manifest(self, run: str) -> RunManifest:
        """The manifest of a run, folded from the log."""
        events = [(one.event, one.recorded_at) for one in self.log.read(f"build_run/p/{run}")]
        found = manifest_of(run, events)  # type: ignore[arg-type]
        assert found is not None
        return found

    def heard(self, kind: type[Any]) -> bool:
        """Whether an event of this kind was heard in the last run."""
        return any(isinstance(event, kind) for event in [*self.events])

    def _hear(self, event: progress.Progress) -> None:
        self.events.append(event)
        match event:
            case progress.StagesSkipped():
                self.said |= {one.stage: ("skipped", one.reason) for one in event.stages}
            case progress.StageEnded():
                self.said[event.stage] = event.status, event.reason
            case progress.StagePlanned():
                self.said[event.stage] = "planned", event.reason
