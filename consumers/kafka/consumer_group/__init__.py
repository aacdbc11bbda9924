"""Consumers of Kafka topics: handlers get each event once; offsets, parked keys, dead letters, rewinding."""
