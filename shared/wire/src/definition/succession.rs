//! What a definition comes after, beside the definitions that are there. One
//! that is not defined yet is no mistake: they come in any order.

use muster_protocol::spec::Spec;

use super::findings::Findings;
use crate::problem::Problem;

/// A definition that is about to be applied, and what is wrong with the
/// barriers it comes after.
#[derive(Clone, Copy, Debug)]
pub struct Succession<'a>(pub &'a Spec);

impl Succession<'_> {
    /// How many barriers are looked at, one before the other.
    pub const MAX: usize = 64;

    /// One of the barriers it comes after, near or far.
    ///
    /// # Errors
    ///
    /// `invalid-definition` when nothing could come of it: no generation of one
    /// is ever called as one of the other, or what broke could never be retried.
    pub fn follows(self, predecessor: &Spec) -> Result<(), Problem> {
        let (name, other) = (&self.0.name, &predecessor.name);
        if predecessor.after.as_ref() == Some(name) {
            return refused(format!(
                "{other} comes after {name} itself, so neither could be retried once one is broken; leave out one `after`"
            ));
        }
        match (self.0.generations.are_keyed(), predecessor.generations.are_keyed()) {
            (true, false) => refused(format!(
                "the generations of {other} are numbered, and these have keys: none belongs to another"
            )),
            (false, true) => refused(format!(
                "the generations of {other} have keys, and these are numbered: none belongs to another"
            )),
            _ => Ok(()),
        }
    }

    /// It comes after a barrier of the other scope.
    ///
    /// # Errors
    ///
    /// `invalid-definition`, always.
    pub fn crosses_scopes(self) -> Result<(), Problem> {
        let other = self.0.after.as_ref().map_or("it", |after| after.as_str());
        refused(format!("{other} is of the other scope, and is decided elsewhere; name one of this scope"))
    }
}

fn refused(message: String) -> Result<(), Problem> {
    let mut findings = Findings::default();
    findings.invalid("after", message);
    findings.finish()
}
