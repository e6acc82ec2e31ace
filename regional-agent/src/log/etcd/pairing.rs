//! Puts entries and heads of a watch back together: an append puts both at one
//! revision, the head's version is the entry's index, and a fragment of a watch
//! response may end between the two.
//!
//! ```text
//!          entry or head of revision r             the other one of r
//!  empty ─────────────────────────────▶ half(r) ─────────────────────▶ empty, one entry out
//!                                          │ any of another revision
//!                                          ▼
//!                                        broken
//! ```

use crate::log::RawEntry;

/// One put key of the log, seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Put {
    /// The revision it was put at.
    pub(super) revision: i64,
    pub(super) half: Half,
}

/// Which of the two keys of an append it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// The entry; its index is not known yet and 0.
    Entry(RawEntry),
    /// The head, with the index its version stands for.
    Head(u64),
}

/// A revision that is not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {revision} of the watch holds half an append")]
pub(super) struct Broken {
    revision: i64,
}

/// The half that waits for its other one.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    waiting: Option<Put>,
}

impl Pairing {
    /// Takes the next put; an entry comes out when its revision is whole.
    pub(super) fn take(&mut self, put: Put) -> Result<Option<RawEntry>, Broken> {
        let Some(waiting) = self.waiting.take() else {
            self.waiting = Some(put);
            return Ok(None);
        };
        let revision = waiting.revision;
        match (waiting.half, put.half) {
            (Half::Entry(entry), Half::Head(index)) | (Half::Head(index), Half::Entry(entry))
                if revision == put.revision =>
            {
                Ok(Some(RawEntry { index, ..entry }))
            }
            _ => Err(Broken { revision }),
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_protocol::identity::Writer;

    use super::*;

    fn raw(index: u64) -> RawEntry {
        RawEntry { index, writer: Writer(3), seq: 9, bytes: vec![1] }
    }

    fn entry(revision: i64) -> Put {
        Put { revision, half: Half::Entry(raw(0)) }
    }

    fn head(revision: i64, index: u64) -> Put {
        Put { revision, half: Half::Head(index) }
    }

    #[test]
    fn an_entry_waits_for_its_head_and_takes_its_index() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.take(entry(10)), Ok(None));
        assert_eq!(pairing.take(head(10, 7)), Ok(Some(raw(7))));
        assert_eq!(pairing.take(head(11, 8)), Ok(None));
        assert_eq!(pairing.take(entry(11)), Ok(Some(raw(8))));
    }

    #[test]
    fn half_a_revision_breaks_the_watch() {
        for (first, second) in [
            (entry(10), entry(11)),
            (entry(10), head(11, 7)),
            (head(10, 7), entry(11)),
            (head(10, 7), head(10, 7)),
            (entry(10), entry(10)),
        ] {
            let mut pairing = Pairing::default();
            assert_eq!(pairing.take(first), Ok(None));
            assert_eq!(pairing.take(second), Err(Broken { revision: 10 }));
        }
    }
}
