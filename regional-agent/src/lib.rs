//! The agent of a region: drives the region machine over a replicated log.
