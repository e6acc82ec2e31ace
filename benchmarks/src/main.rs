//! Ratios measured in one run: make bench.

fn main() {}
