"""Commands of Kafka: the broker, the relay, consumers and their dead letters."""
