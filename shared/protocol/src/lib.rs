//! Muster's pure state machines and their vocabulary: no clock, no I/O, no randomness.
