"""The archive of loaded classes: a node that starts from it needs half of the time, and of the processor.

It is an AOT cache from Java 25 on, and application class-data sharing before. It fits one Java and one class
path. The first start of a broker makes it; without one everything works, and starts are slower.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from consumers.kafka.broker import jars
from consumers.kafka.broker.java import Java

AOT = 25
"""The first Java with an AOT cache that a single run makes."""


def path_of(java: Java) -> Path:
    """Where the archive for this Java and these jars lies."""
    mark = hashlib.sha256(f"{java.program}:{jars.mark()}".encode()).hexdigest()[:12]
    kind = "aot" if java.major >= AOT else "jsa"
    return jars.cache_folder() / f"classes-{java.version}-{mark}.{kind}"


def use(java: Java, archive: Path) -> tuple[str, ...]:
    """The options of a JVM that loads its classes from the archive, if it fits."""
    return (f"-XX:{'AOTCache' if java.major >= AOT else 'SharedArchiveFile'}={archive}",)


def making(java: Java, archive: Path) -> tuple[str, ...]:
    """The options of a JVM that writes the archive when it ends."""
    return (f"-XX:{'AOTCacheOutput' if java.major >= AOT else 'ArchiveClassesAtExit'}={archive}",)
