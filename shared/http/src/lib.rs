//! The HTTP server both services share, so that they refuse, limit, count and
//! stop in the same way.
//!
//! ```text
//! listen ─▶ serve ─▶ observe ─▶ guard ─▶ panics caught ─▶ routes of the service
//!                    span,      foreign                    extract: path, query, body
//!                    metrics    callers                    failure: problem documents
//! ```
//!
//! - [`listen`] binds an address, or says why it can't and what to change.
//! - [`serve()`] runs the accept loop: HTTP/1.1 and HTTP/2 without TLS, limits,
//!   graceful stop with a deadline.
//! - [`extract`] reads paths, queries and bodies; whatever is wrong with them
//!   becomes a problem document that names it.
//! - [`Failure`] is a problem document as a response.
//! - [`routes`] are those every service has; [`ready`] answers `/readyz`.
//! - [`forward`] hands a request on to where it belongs: one hop, never two.
//! - [`poll`] are the parameters of calls that wait.
//!
//! Fail closed: nothing in this crate answers 2xx for a service.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod descriptors;
pub mod etag;
pub mod extract;
mod failure;
pub mod forward;
mod guard;
mod limits;
pub mod listen;
mod observe;
pub mod path;
pub mod poll;
pub mod ready;
pub mod routes;
mod serve;
#[cfg(test)]
mod tests;
mod turns;

pub use extract::{Json, Query};
pub use failure::{Answer, Failure};
pub use forward::{Call, Forwarder};
pub use guard::Hosts;
pub use path::{BarrierPath, GenerationPath, ParticipantPath, RegionPath, SessionPath};
pub use serve::{Options, serve};
