"""
A real Apache Kafka on this machine, of one node or several, for tests, demos and trying things.

    java.py     which Java runs it
    jars.py     the jars: fetched once, checked against jars.lock
    layout.py   ports, identifiers and settings of the nodes
    process.py  a node's process, which ends with the process that started it
    nodes.py    `Broker`: start, readiness, faults
    archive.py  the archive of loaded classes, which halves the time of a start
"""

from consumers.kafka.broker.nodes import Broker

__all__ = ["Broker"]
