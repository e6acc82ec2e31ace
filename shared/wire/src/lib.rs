//! What crosses a process border, with a version on everything that is kept.
//!
//! - [`code`] and [`problem`]: every refusal has a code; the code decides its
//!   HTTP status, whether a repeat helps, and the exit code of the CLI.
//! - [`definition`]: a definition as people write it, checked into a
//!   [`Spec`](muster_protocol::spec::Spec) with sentences that say what to change.
//! - [`nearest`]: the known name that a misspelt one means.
//! - [`mod@reference`]: how a generation is named in a path.
//! - [`refusal`]: what the machine of a barrier says no to, the same by everybody.
//! - [`request`] and [`answer`]: HTTP bodies. Unknown fields are refused in
//!   requests.
//! - [`selection`]: some participants, as people name them.
//! - [`verdict`]: how an outcome is told, the same by everybody.
//! - [`record`]: Kafka records, JSON, tagged and versioned. Unknown fields are
//!   ignored.
//!
//! Log entries and snapshots are encoded by `muster_protocol::entry`, because
//! the replica that sizes and hashes them lives there.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod answer;
pub mod code;
pub mod definition;
pub mod nearest;
pub mod problem;
pub mod record;
pub mod reference;
pub mod refusal;
pub mod request;
pub mod selection;
pub mod time;
pub mod verdict;
