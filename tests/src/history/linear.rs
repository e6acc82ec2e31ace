//! Whether there is one order of all calls of a participant, and of the ends
//! that were told, in which each took effect at one moment between its start
//! and its end (linearizability; Herlihy and Wing, 1990). The search is
//! stateright's.
//!
//! It is looked for one participant at a time: were there an order of all
//! calls, what concerns one would be in order as well.

use muster_protocol::region::ArrivalOutcome;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::{Answer, Call, What};

/// More calls than this of one participant are not looked at: the search may
/// take exponentially long.
const CALLS_MAX: usize = 12;
/// Waits that are looked at beside them.
const WAITS_MAX: usize = 3;

/// What a generation is to one participant.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Whether nobody passes without this one.
    required: bool,
    arrived: Option<(u32, ArrivalOutcome)>,
    withdrawn: u32,
    ended: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Released,
    Broken,
}

impl Place {
    fn arrive(&mut self, attempt: u32, outcome: ArrivalOutcome) -> bool {
        let final_one =
            self.arrived.is_some_and(|(its, its_outcome)| its_outcome == ArrivalOutcome::Ok || its >= attempt);
        if attempt > self.withdrawn && self.ended.is_none() && !final_one {
            self.arrived = Some((attempt, outcome));
        }
        self.arrived.is_some()
    }

    fn end(&mut self, end: End) -> bool {
        let may = match end {
            End::Released => !self.required || matches!(self.arrived, Some((_, ArrivalOutcome::Ok))),
            End::Broken => true,
        };
        if self.ended.is_none() && may {
            self.ended = Some(end);
        }
        self.ended == Some(end)
    }

    fn withdraw(&mut self, attempt: u32) -> bool {
        if self.ended.is_some() || self.arrived.is_some_and(|(its, _)| its > attempt) {
            return false;
        }
        self.withdrawn = self.withdrawn.max(attempt);
        self.arrived = None;
        true
    }
}

impl SequentialSpec for Place {
    type Op = What;
    /// None where the answer was lost: anything may have come of it.
    type Ret = Option<Answer>;

    fn invoke(&mut self, what: &What) -> Self::Ret {
        match *what {
            What::Arrive { attempt, outcome } => drop(self.arrive(attempt, outcome)),
            What::Withdraw { attempt } => drop(self.withdraw(attempt)),
            What::FallSilent => self.arrived = None,
            What::Wait | What::Look => {}
        }
        None
    }

    fn is_valid_step(&mut self, what: &What, answer: &Self::Ret) -> bool {
        match (what, answer) {
            (What::Arrive { attempt, outcome }, Some(Answer::Arrived { attempt: counts, outcome: with })) => {
                self.arrive(*attempt, *outcome) && self.arrived == Some((*counts, *with))
            }
            (What::Withdraw { attempt }, Some(Answer::Withdrawn)) => {
                // Again, it is as it was.
                self.withdraw(*attempt) || self.withdrawn >= *attempt
            }
            (What::Look, Some(Answer::Seen { arrived })) => self.arrived == *arrived,
            (_, Some(Answer::Released { .. })) => self.end(End::Released),
            (_, Some(Answer::Broken)) => self.end(End::Broken),
            _ => true,
        }
    }
}

/// A call as it is played: what was called, and whether its answer tells when it
/// was done. Who was told that the generation broke may have arrived with an
/// earlier try of the same call, whose answer was lost.
fn threads_of(call: &Call) -> Vec<(&Call, What, bool)> {
    match call.answer {
        Answer::Unknown(_) | Answer::TimedOut => vec![(call, call.what, false)],
        Answer::Broken if call.what != What::Wait => vec![(call, call.what, false), (call, What::Wait, true)],
        _ => vec![(call, call.what, true)],
    }
}

/// Whether there is such an order for one participant: of its own calls, and
/// the waits of all.
pub(super) fn is_linearizable(own: &[&Call], waits: &[&Call], required: bool) -> bool {
    let told = |call: &&&Call| matches!(call.answer, Answer::Released { .. } | Answer::Broken);
    let waits = waits.iter().filter(|call| call.what == What::Wait).filter(told).take(WAITS_MAX);
    let own =
        own.iter().filter(|call| call.what != What::Wait).filter(|call| !matches!(call.answer, Answer::Refused(_)));
    let calls: Vec<&Call> = own.chain(waits).copied().collect();
    if calls.len() > CALLS_MAX || calls.iter().any(|call| call.what == What::FallSilent) {
        return true;
    }
    // Every call is a thread of its own: the next may begin before the answer
    // to the last, which was lost, would have come.
    let threads: Vec<(&Call, What, bool)> = calls.iter().flat_map(|call| threads_of(call)).collect();
    let mut moments: Vec<_> = threads.iter().enumerate().map(|(at, (call, ..))| (call.start, true, at)).collect();
    let answered = threads.iter().enumerate().filter(|(_, (.., answered))| *answered);
    moments.extend(answered.map(|(at, (call, ..))| (call.end, false, at)));
    moments.sort();
    let mut tester = LinearizabilityTester::new(Place { required, ..Place::default() });
    for (_, begins, at) in moments {
        let (call, what, _) = threads[at];
        let told = match begins {
            true => tester.on_invoke(at, what),
            false => tester.on_return(at, Some(call.answer.clone())),
        };
        told.unwrap_or_else(|error| unreachable!("every call is begun once and ends once: {error}"));
    }
    tester.is_consistent()
}
