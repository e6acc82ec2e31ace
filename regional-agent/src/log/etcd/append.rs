//! One append is one transaction, and needs no agreement with other writers:
//! the head's version, which etcd counts, is the index.

use std::time::Instant;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnResponse};
use muster_protocol::caps::ENTRY_BYTES_MAX;
use muster_protocol::identity::Writer;
use muster_protocol::mutant;
use muster_telemetry::metrics;

use super::Shared;
use super::keys::SEQ_MAX;
use super::origin::{Origin, all_but, first_keys};
use super::requests::Purpose;
use super::verdict::{CallError, Verdict};
use crate::log::{Appended, LogError};

impl Shared {
    pub(super) async fn append_entry(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
        let refused = |what: String| Appended::Refused(LogError::Damaged { what });
        if bytes.len() > ENTRY_BYTES_MAX || seq > SEQ_MAX {
            let size = bytes.len();
            return refused(format!("entry {seq} of {size} bytes is over {ENTRY_BYTES_MAX} bytes or number {SEQ_MAX}"));
        }
        let Some(lease) = self.lease_of(writer) else {
            return refused(format!("writer {writer} was not registered by this process"));
        };
        let origin = match self.origin().await {
            Ok(origin) => origin,
            Err(error) => return Appended::Refused(error),
        };
        fail::fail_point!("log.append.before");
        let started = Instant::now();
        let txn = self.append_txn(origin, writer, &lease.agent_key, seq, bytes);
        let answer = match self.endpoints.txn(Purpose::Append, "append to the log", txn).await {
            Ok(answer) => answer,
            Err(error) if error.doubt && mutant!(AcknowledgeBeforeDurable) => {
                return Appended::Landed { index: self.seen.index() + 1 };
            }
            Err(error) => return failed(error),
        };
        let appended = self.outcome(origin, writer, &answer);
        match appended {
            Appended::Landed { .. } => {
                metrics::log_append(self.region.clone()).record(started.elapsed().as_secs_f64());
                metrics::log_appends(self.region.clone()).increment(1);
            }
            Appended::WriterGone => lease.lose(),
            _ => {}
        }
        fail::fail_point!("log.append.after");
        appended
    }

    fn append_txn(&self, origin: &Origin, writer: Writer, agent: &str, seq: u64, bytes: &[u8]) -> Txn {
        let (entry, head) = (self.keys.entry(writer, seq), self.keys.head());
        let keys_only = || Some(GetOptions::new().with_keys_only());
        let seen = origin.version_of(self.seen.index());
        Txn::new()
            .when(all_but([
                (mutant!(NoRegistration), Compare::create_revision(agent, CompareOp::Equal, revision(writer.0))),
                (mutant!(LandsTwice), Compare::create_revision(entry.as_str(), CompareOp::Equal, 0)),
                (mutant!(HeadBornAgain), Compare::create_revision(head.as_str(), CompareOp::Equal, origin.birth)),
                // Never contended: the head only grows, unless its etcd was
                // restored from a backup, and then nothing may be numbered.
                (mutant!(HeadFalls), Compare::version(head.as_str(), CompareOp::Greater, seen - 1)),
            ]))
            .and_then([
                TxnOp::put(entry.as_str(), bytes, None),
                TxnOp::put(head.as_str(), "", None),
                TxnOp::get(head.as_str(), keys_only()),
            ])
            .or_else([
                TxnOp::get(entry, keys_only()),
                TxnOp::get(agent, keys_only()),
                TxnOp::get(head.as_str(), keys_only()),
            ])
    }

    fn outcome(&self, origin: &Origin, writer: Writer, answer: &TxnResponse) -> Appended {
        let [entry, agent, head]: [Option<KeyValue>; 3] = first_keys(answer);
        let head_here = head.filter(|head| head.create_revision() == origin.birth);
        if answer.succeeded() {
            // The transaction put the head, so it got it.
            let index = head_here.map_or(origin.base, |head| origin.index_of(head.version()));
            self.seen.note(index);
            return Appended::Landed { index };
        }
        if head_here.is_none() {
            return Appended::HeadGone;
        }
        if agent.is_none_or(|agent| agent.create_revision() != revision(writer.0)) {
            return Appended::WriterGone;
        }
        if entry.is_some() {
            return Appended::AlreadyThere;
        }
        // All else is as it must be, so the head is lower than it was seen.
        Appended::HeadGone
    }
}

/// What an append came to that got no answer, or a refusal. A refusal counts
/// only if no earlier try of it may still land.
fn failed(error: CallError) -> Appended {
    match error.verdict {
        _ if error.doubt && !mutant!(DoubtForgotten) => Appended::Unknown(error.into()),
        Verdict::Full => Appended::Full,
        Verdict::Refused => Appended::Refused(error.into()),
        Verdict::Compacted | Verdict::Unknown => Appended::Unknown(error.into()),
    }
}

/// A number of ours that is a revision of etcd.
pub(super) fn revision(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::verdict::EtcdError;
    use super::*;

    #[test]
    fn a_refusal_counts_only_if_no_earlier_try_may_still_land() {
        let failed = |verdict, doubt| {
            let error = EtcdError::Silent { url: String::new(), after: Duration::ZERO };
            failed(CallError { what: "append", error, verdict, doubt })
        };
        assert!(matches!(failed(Verdict::Full, false), Appended::Full));
        assert!(matches!(failed(Verdict::Refused, false), Appended::Refused(_)));
        for verdict in [Verdict::Full, Verdict::Refused, Verdict::Compacted, Verdict::Unknown] {
            assert!(matches!(failed(verdict, true), Appended::Unknown(_)), "{verdict:?}");
        }
    }
}
