"""The relay: publishes the log to Kafka, each event once; its checkpoint, its producer, its status."""
