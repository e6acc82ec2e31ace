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
//! look        having the checker look at it
//! ```

mod look;
mod promise;
mod step;
mod world;

pub use look::{Found, Limits, look};
pub use world::{Act, State, World};

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn keeps_its_promises(world: World, limits: Limits) -> Found {
        let found = look(world, limits);
        // Not through the macros, which tests that pass keep to themselves.
        writeln!(std::io::stderr(), "{found}").expect("print what was found");
        assert!(found.is_good(), "{found}");
        found
    }

    #[test]
    fn small_worlds_keep_every_promise_to_completion() {
        for world in [World::ending(), World::withdrawing(), World::breaking(), World::taking(), World::losing()] {
            assert!(keeps_its_promises(world, Limits::default()).complete);
        }
    }

    /// A minute of it; `make model` looks at more. What must be seen is seen on
    /// the runs of chance, which are the same every time.
    #[test]
    fn a_large_world_keeps_every_promise_as_far_as_it_is_looked_at() {
        keeps_its_promises(World::large(), Limits { time: Some(Duration::from_secs(60)), states: None });
    }
}
