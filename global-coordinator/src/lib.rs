//! The global coordinator: aggregates the regions and decides once.
