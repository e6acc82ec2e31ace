//! Repository rules as a program: dependency directions.

fn main() {}
