//! The replica's rules, against a log that is a plain vector.
#![allow(unused_must_use)]

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::identity::{Epoch, History, SessionId};
use crate::participants::Participants;
use crate::region::tests::{arrive, opened, slice};

fn blank() -> Region {
    Region::new("us-east".parse().unwrap(), History([1; 16]), 0)
}

/// A replica after its first catch-up, registered as a writer.
fn following(writer: u64) -> Replica {
    let mut replica = Replica::new(blank());
    assert_eq!(replica.start(), [Output::CatchUp { after: 0 }]);
    assert_eq!(replica.step(caught_up(&[])), [Output::Register]);
    assert_eq!(replica.step(Input::Registered(Writer(writer))), []);
    replica
}

fn caught_up(entries: &[Logged]) -> Input {
    let head = entries.last().map_or(0, |entry| entry.index);
    Input::CaughtUp { snapshot: None, entries: entries.to_vec(), head }
}

fn open() -> Command {
    Command::Fact(opened(1, &slice(Participants::Count(9))))
}

fn submit(ticket: u64, command: Command) -> Input {
    Input::Submitted { ticket: Ticket(ticket), command: Box::new(command) }
}

/// The one append among the outputs, at an index.
fn append(outputs: &[Output], index: u64) -> Logged {
    let mut appends = outputs.iter().filter_map(|output| match output {
        Output::Append { writer, seq, bytes, .. } => {
            Some(Logged { index, writer: *writer, seq: *seq, bytes: bytes.clone() })
        }
        _ => None,
    });
    let append = appends.next().expect("an append");
    assert_eq!(appends.next(), None, "one append in flight");
    append
}

fn landed(entry: &Logged) -> Input {
    Input::Appended { writer: entry.writer, seq: entry.seq, result: Appended::Landed { index: entry.index } }
}

fn result(entry: &Logged, result: Appended) -> Input {
    Input::Appended { writer: entry.writer, seq: entry.seq, result }
}

fn answered(outputs: &[Output]) -> Vec<u64> {
    let done = outputs.iter().filter_map(|output| match output {
        Output::Answer { ticket, answer: Answer::Reply(_) } => Some(ticket.0),
        _ => None,
    });
    done.collect()
}

#[test]
fn what_comes_while_an_append_is_in_flight_is_the_next_batch() {
    let mut replica = following(5);
    let first = append(&replica.step(submit(1, open())), 1);
    for (ticket, who) in [(2, "a"), (3, "b"), (4, "c")] {
        assert_eq!(replica.step(submit(ticket, Command::Arrive(arrive(1, who)))), []);
    }
    let outputs = replica.step(landed(&first));
    assert_eq!(answered(&outputs), [1]);
    let second = append(&outputs, 2);
    assert_eq!(Body::decode(&second.bytes).unwrap().commands.len(), 3);
    assert_eq!(answered(&replica.step(landed(&second))), [2, 3, 4]);
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut replica = following(5);
    let entry = append(&replica.step(submit(1, open())), 1);
    assert_eq!(replica.step(result(&entry, Appended::Unknown)).len(), 1, "only the retry");
    assert_eq!(replica.region().index(), 0);
}

#[test]
fn an_unknown_outcome_is_retried_under_the_same_identity_and_applied_once() {
    let mut replica = following(5);
    let entry = append(&replica.step(submit(1, open())), 1);
    let retry = append(&replica.step(result(&entry, Appended::Unknown)), 1);
    assert_eq!(retry, entry);
    // The first try had landed; the follower brings it.
    assert_eq!(replica.step(result(&entry, Appended::AlreadyThere)), []);
    assert!(replica.expects_entries());
    assert_eq!(answered(&replica.step(Input::Followed(vec![entry.clone()]))), [1]);
    assert_eq!(replica.step(Input::Followed(vec![entry])), [], "seen again");
    assert_eq!(replica.region().index(), 1);
}

#[test]
fn an_entry_that_the_follower_brings_first_answers_too() {
    let mut replica = following(5);
    let entry = append(&replica.step(submit(1, open())), 1);
    replica.step(submit(2, Command::Arrive(arrive(1, "a"))));
    let outputs = replica.step(Input::Followed(vec![entry.clone()]));
    assert_eq!(answered(&outputs), [1]);
    append(&outputs, 2);
    assert_eq!(replica.step(landed(&entry)), [], "the answer is no news");
}

#[test]
fn a_gap_is_caught_up_not_guessed() {
    let mut writer = following(5);
    let one = append(&writer.step(submit(1, open())), 1);
    let outputs = writer.step(landed(&one));
    assert_eq!(answered(&outputs), [1]);
    let two = append(&writer.step(submit(2, Command::Arrive(arrive(1, "a")))), 2);
    writer.step(landed(&two));

    let mut reader = following(6);
    assert_eq!(reader.step(Input::Followed(vec![two.clone()])), [Output::CatchUp { after: 0 }]);
    assert_eq!(reader.step(Input::Followed(vec![one.clone()])), [], "not while catching up");
    reader.step(caught_up(&[one, two]));
    assert_eq!((reader.region(), reader.witness()), (writer.region(), writer.witness()));
}

#[test]
fn a_lost_writer_catches_up_and_submits_again_as_another() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    replica.step(landed(&one));
    let two = append(&replica.step(submit(2, Command::Arrive(arrive(1, "a")))), 2);
    replica.step(submit(3, Command::Arrive(arrive(1, "b"))));
    assert_eq!(replica.step(result(&two, Appended::WriterGone)), [Output::CatchUp { after: 1 }]);
    assert_eq!(replica.step(caught_up(&[one])), [Output::Register]);
    let again = append(&replica.step(Input::Registered(Writer(8))), 2);
    assert_eq!((again.writer, again.seq), (Writer(8), 1));
    assert_eq!(Body::decode(&again.bytes).unwrap().commands.len(), 2, "in their order, in one batch");
    assert_eq!(answered(&replica.step(landed(&again))), [2, 3]);
}

#[test]
fn a_landed_entry_of_a_lost_writer_is_answered_from_the_catch_up() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    replica.step(result(&one, Appended::WriterGone));
    // It had landed before the registration went; the same commands again
    // find it done.
    replica.step(caught_up(core::slice::from_ref(&one)));
    let again = append(&replica.step(Input::Registered(Writer(8))), 2);
    let outputs = replica.step(landed(&again));
    let unchanged = Answer::Reply(Reply::Done { changed: false });
    assert!(outputs.contains(&Output::Answer { ticket: Ticket(1), answer: unchanged }));
}

#[test]
fn replies_that_a_snapshot_swallowed_are_asked_for_again() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    let mut other = following(6);
    other.step(Input::Followed(vec![one.clone()]));
    let (snapshot, seqs) = other.snapshot();
    assert_eq!(seqs, [(Writer(5), 1)]);
    replica.step(result(&one, Appended::Unknown));
    assert_eq!(replica.step(Input::Overdue), [Output::CatchUp { after: 0 }]);
    let caught_up = Input::CaughtUp { snapshot: Some(snapshot.encode()), entries: vec![], head: 1 };
    let outputs = replica.step(caught_up.clone());
    // Nobody is told what led there, so whoever waits has to look again.
    assert!(outputs.contains(&Output::Restored), "{outputs:?}");
    let again = append(&outputs, 3);
    assert_eq!(again.seq, 2);
    replica.step(Input::FollowEnded);
    assert!(!replica.step(caught_up).contains(&Output::Restored), "it was there already");
    // The retry of the first lands after all, since its key was truncated: the
    // writer table ignores it.
    let late = Logged { index: 2, ..one };
    assert_eq!(answered(&replica.step(Input::Followed(vec![late, again]))), [1]);
    assert_eq!(replica.region().barriers().count(), 1);
}

#[test]
fn a_log_that_was_set_back_stops_the_replica() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    replica.step(landed(&one));
    replica.step(Input::FollowEnded);
    let outputs = replica.step(caught_up(&[]));
    assert_eq!(outputs, [Output::Stop(Stop::SetBack { head: 0, seen: 1 })]);
    let refused = replica.step(submit(2, open()));
    let stopped = Answer::NotDone(NotDone::Stopped);
    assert_eq!(refused, [Output::Answer { ticket: Ticket(2), answer: stopped.clone() }]);
    assert_eq!(replica.step(Input::ReadRequested(Ticket(3))), [Output::Answer { ticket: Ticket(3), answer: stopped }]);
}

#[test]
fn an_unreadable_entry_stops_rather_than_being_skipped() {
    let mut replica = following(5);
    let future = Logged { index: 1, writer: Writer(6), seq: 1, bytes: vec![99, 0] };
    let outputs = replica.step(Input::Followed(vec![future]));
    assert!(matches!(&outputs[..], [Output::Stop(Stop::Unreadable { index: 1, .. })]), "{outputs:?}");
}

#[test]
fn a_read_waits_for_the_head_it_asked_for_and_shares_the_question() {
    let mut replica = following(5);
    assert_eq!(replica.step(Input::ReadRequested(Ticket(1))), [Output::ReadHead]);
    assert_eq!(replica.step(Input::ReadRequested(Ticket(2))), [], "waits for the next question");
    assert_eq!(replica.step(Input::HeadRead(Some(1))), [Output::ReadHead]);
    let one = append(&replica.step(submit(9, open())), 1);
    let outputs = replica.step(landed(&one));
    assert!(outputs.contains(&Output::Answer { ticket: Ticket(1), answer: Answer::Fresh { index: 1 } }));
    let failed = Output::Answer { ticket: Ticket(2), answer: Answer::NotDone(NotDone::Unavailable) };
    assert_eq!(replica.step(Input::HeadRead(None)), [failed]);
}

#[test]
fn giving_up_is_certain_only_for_what_was_never_sent() {
    let mut replica = following(5);
    replica.step(submit(1, open()));
    replica.step(submit(2, Command::Arrive(arrive(1, "a"))));
    let answer = |ticket, answer| vec![Output::Answer { ticket: Ticket(ticket), answer }];
    assert_eq!(replica.step(Input::GivenUp(Ticket(1))), answer(1, Answer::Unknown));
    assert_eq!(replica.step(Input::GivenUp(Ticket(2))), answer(2, Answer::NotDone(NotDone::Unavailable)));
}

#[test]
fn a_full_log_refuses_the_batch_and_goes_on() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    replica.step(submit(2, open()));
    let outputs = replica.step(result(&one, Appended::Full));
    assert!(outputs.contains(&Output::Answer { ticket: Ticket(1), answer: Answer::NotDone(NotDone::Full) }));
    assert_eq!(append(&outputs, 1).seq, 2);
}

#[test]
fn a_refusal_after_an_unknown_try_refuses_nothing() {
    for refusal in [Appended::Full, Appended::Refused] {
        let mut replica = following(5);
        let one = append(&replica.step(submit(1, open())), 1);
        replica.step(submit(2, open()));
        replica.step(result(&one, Appended::Unknown));
        let outputs = replica.step(result(&one, refusal));
        let [Output::Append { seq: 1, attempt: 2, .. }] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(answered(&replica.step(landed(&one))), [1]);
    }
}

#[test]
fn a_batch_stays_within_the_size_of_an_entry() {
    let mut replica = following(5);
    replica.step(submit(0, open()));
    for ticket in 1..200 {
        let mut arrival = arrive(1, "a");
        arrival.output = Some("x".repeat(4_096));
        replica.step(submit(ticket, Command::Arrive(arrival)));
    }
    let bytes = replica.batches[&1].bytes.clone();
    let outputs = replica.step(landed(&Logged { index: 1, writer: Writer(5), seq: 1, bytes }));
    let second = append(&outputs, 2);
    assert!(second.bytes.len() <= caps::ENTRY_BYTES_MAX + 128, "{}", second.bytes.len());
    assert!(second.bytes.len() > caps::ENTRY_BYTES_MAX / 2);
}

#[test]
fn a_replica_that_differs_is_read_anew_and_then_the_writer_is_named() {
    let mut replica = following(5);
    let one = append(&replica.step(submit(1, open())), 1);
    replica.step(landed(&one));
    let wrong = Body { witness: Witness { index: 1, hash: Digest([9; 32]) }, commands: vec![] };
    let entry = Logged { index: 2, writer: Writer(6), seq: 1, bytes: wrong.encode() };
    assert_eq!(replica.step(Input::Followed(vec![entry.clone()])), [Output::CatchUp { after: 0 }]);
    let outputs = replica.step(caught_up(&[one, entry]));
    assert!(outputs.contains(&Output::Diverged { writer: Writer(6), index: 1 }), "{outputs:?}");
    assert_eq!(replica.region().index(), 2);
}

fn raise(version: u16) -> Command {
    Command::VersionRaised { epoch: Epoch(1), version }
}

/// What a build of the version before can't read never gets on a log that one
/// may follow: it would stop there.
#[test]
fn what_older_builds_do_not_know_is_not_appended() {
    let mut replica = following(5);
    let outputs = replica.step(submit(1, Command::CloseSession(SessionId([1; 16]))));
    let too_low = Answer::Reply(Reply::Refused(Refusal::VersionTooLow));
    assert_eq!(outputs, [Output::Answer { ticket: Ticket(1), answer: too_low }]);
    let entry = append(&replica.step(submit(2, Command::TookOver { epoch: Epoch(1) })), 1);
    assert_eq!(entry.seq, 1);
    // It waits behind what is in flight, and by then the version is raised.
    replica.step(landed(&entry));
    let entry = append(&replica.step(submit(3, raise(2))), 2);
    assert_eq!(replica.step(submit(4, Command::CloseSession(SessionId([1; 16])))), []);
    append(&replica.step(landed(&entry)), 3);
}

#[test]
fn a_build_stops_where_the_log_needs_a_newer_one() {
    let mut newer = following(5);
    let entries = [Command::TookOver { epoch: Epoch(1) }, raise(2)].into_iter().zip(1..).map(|(command, index)| {
        let entry = append(&newer.step(submit(index, command)), index);
        newer.step(landed(&entry));
        entry
    });
    let entries: Vec<Logged> = entries.collect();
    let mut older = Replica::new(blank()).as_build_of(1);
    older.start();
    assert!(older.step(caught_up(&entries[..1])).contains(&Output::Register), "the first version it knows");
    let stop = Output::Stop(Stop::TooNew { index: 2, needed: 2, runs: 1 });
    assert!(older.step(Input::Followed(entries[1..].to_vec())).contains(&stop));
    assert_eq!(older.region().index(), 1);
    let mut late = Replica::new(blank()).as_build_of(1);
    late.start();
    let snapshot = Some(newer.snapshot().0.encode());
    let restored = late.step(Input::CaughtUp { snapshot, entries: Vec::new(), head: 2 });
    assert!(restored.contains(&stop), "{restored:?}");
}
