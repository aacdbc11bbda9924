"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""
