//! Scenarios over one Cluster interface: in one process and on real services.
