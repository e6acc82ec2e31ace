//! Small worlds of the protocol's own machines, in which a model checker looks
//! at every schedule: agents that lag and crash, coordinators that commit and
//! die before they publish, messages that are lost, doubled and reordered.
//!
//! A message that was sent stays in the world: it may be delivered at any time,
//! any number of times, or never. A region's log is its states by index; an
//! agent is how far it has replayed and the call it has not answered. The
//! coordinators are one table, one transaction at a time, and what each has
//! committed and not yet published.
//!
//! ```text
//! world       what there is, and what may be done
//! step        doing it, on the machines of `muster_protocol`
//! promise     what must always hold, and what must be seen sometimes
//! ```

mod promise;
mod step;
mod world;

pub use world::{Act, State, World};
