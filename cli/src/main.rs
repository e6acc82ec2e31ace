//! Barriers across regions: the command line, the services, the demo.

fn main() {}
