//! Three agents and a coordinator in one process, on embedded adapters.
