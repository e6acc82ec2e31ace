//! The port to Kafka and its adapters.
