//! The Rust client of Muster: several addresses, safe repeats, verdicts as types.
