"""A foreign producer: it writes records of a topic again, byte for byte, outside of any transaction."""

from __future__ import annotations

import random

from confluent_kafka import Consumer, Message, Producer, TopicPartition

LIMIT = 60.0


class ForeignProducer:
    """written: partition and offset of each record that it wrote."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.written: set[tuple[int, int]] = set()
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": "foreign", "enable.auto.commit": False,
                "isolation.level": "read_committed", "log_level": 0, "auto.offset.reset": "error",
            }
        )  # fmt: skip
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def write_again(self, chance: random.Random) -> None:
        """Write one record again, or some that follow each other: the last ones of a partition, or others."""
        place = TopicPartition(self.topic, chance.randrange(self.partitions))
        first, end = self._reader.get_watermark_offsets(place, LIMIT)
        many = chance.choice((1, 20, 200))
        begin = max(first, end - chance.choice((many, end)) - 10)
        self._reader.assign([TopicPartition(place.topic, place.partition, begin)])
        found = [one for one in self._reader.consume(many, 5.0) if one.error() is None]
        for one in found:
            self._producer.produce(
                one.topic(), one.value(), one.key(), one.partition(), self._note, headers=one.headers()
            )
        assert self._producer.flush(LIMIT) == 0, "the copies were not acknowledged"

    def _note(self, error: object, message: Message) -> None:
        assert error is None, error
        assert message.offset() >= 0, "a copy's offset is unknown"
        self.written.add((message.partition(), message.offset()))
