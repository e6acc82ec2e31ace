//! The rules. Each names the invariant of the architecture that it judges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use muster_protocol::region::ArrivalOutcome;
use muster_wire::code::Code;

use super::linear::is_linearizable;
use super::{Answer, Call, Expectation, History, Required, What};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, such as `I1`.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Everything in the history that no correct service can have done.
#[must_use]
pub fn check(history: &History, expectation: &Expectation) -> Vec<Violation> {
    let calls = history.calls();
    let mut generations: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &calls {
        generations.entry(&call.generation).or_default().push(call);
    }
    let mut violations = different_generations(&calls);
    for (generation, calls) in &generations {
        let mut found = one_end(calls);
        let carried = expectation.carried.get(*generation).and_then(|before| generations.get(before.as_str()));
        let come = Come::new(calls, carried);
        if let Some(required) = expectation.required.get(*generation) {
            found.extend(released_too_early(calls, &come, required));
        }
        if let Some(everybody) = expectation.everybody.get(*generation) {
            found.extend(whole_without_everybody(calls, &come, everybody));
        }
        let forgotten = expectation.forgotten.contains(*generation);
        for of_one in by_participant(calls).values() {
            found.extend(acknowledged_stays(of_one, forgotten));
            found.extend(refused_stays(of_one));
        }
        // What a simpler rule explains needs no search.
        if found.is_empty() && carried.is_none() {
            found.extend(in_one_order(calls, expectation.required.get(*generation)));
        }
        violations.extend(
            found.into_iter().map(|found| Violation { what: format!("{generation}: {}", found.what), ..found }),
        );
    }
    violations
}

fn violation(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

fn by_participant<'a>(calls: &[&'a Call]) -> BTreeMap<&'a str, Vec<&'a Call>> {
    let mut participants: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        participants.entry(&call.participant).or_default().push(call);
    }
    participants
}

/// I4: no outcome belongs to two generations.
fn different_generations(calls: &[Call]) -> Vec<Violation> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut violations = Vec::new();
    for call in calls {
        let Answer::Released { digest, .. } = &call.answer else { continue };
        let first = *seen.entry(digest).or_insert(&call.generation);
        if first != call.generation {
            violations
                .push(violation("I4", format!("{first} and {} ended with one outcome {digest}", call.generation)));
        }
    }
    violations
}

/// I2 and I5: everybody is told the same end.
fn one_end(calls: &[&Call]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let digests: BTreeSet<&str> = calls
        .iter()
        .filter_map(|call| match &call.answer {
            Answer::Released { digest, .. } => Some(digest.as_str()),
            _ => None,
        })
        .collect();
    if digests.len() > 1 {
        violations.push(violation("I2", format!("two outcomes were told: {digests:?}")));
    }
    let broken = calls.iter().find(|call| call.answer == Answer::Broken);
    if let (Some(broken), false) = (broken, digests.is_empty()) {
        let what = format!("{} was told that it broke, others that it was released", broken.participant);
        violations.push(violation("I5", what));
    }
    violations
}

/// Who can have arrived by when. An arrival has its effect no sooner than its
/// call began.
struct Come<'a>(BTreeMap<&'a str, Instant>);

impl<'a> Come<'a> {
    /// By the calls of a generation, and of the round that it carries over.
    fn new(calls: &[&'a Call], carried: Option<&Vec<&'a Call>>) -> Self {
        let earlier = carried.into_iter().flat_map(|calls| by_participant(calls));
        let all = by_participant(calls).into_iter().chain(earlier);
        let mut come: BTreeMap<&str, Instant> = BTreeMap::new();
        for (who, start) in all.filter_map(|(who, calls)| Some((who, earliest_arrival(&calls)?))) {
            let known = come.entry(who).or_insert(start);
            *known = start.min(*known);
        }
        Self(come)
    }

    fn before(&self, who: &str, end: Instant) -> bool {
        self.0.get(who).is_some_and(|start| *start <= end)
    }

    fn of_region(&self, region: &str, end: Instant) -> usize {
        let inside = |who: &str| who.split_once('/').is_some_and(|(its, _)| its == region);
        self.0.iter().filter(|(who, start)| inside(who) && **start <= end).count()
    }
}

fn first_release<'a>(calls: &[&'a Call], counts: impl Fn(bool) -> bool) -> Option<&'a Call> {
    let told = calls.iter().filter(|call| matches!(call.answer, Answer::Released { whole, .. } if counts(whole)));
    told.min_by_key(|call| call.end).copied()
}

/// I1: nobody passes before everybody required has arrived.
fn released_too_early(calls: &[&Call], come: &Come<'_>, required: &Required) -> Vec<Violation> {
    let Some(release) = first_release(calls, |_| true) else { return Vec::new() };
    let told = &release.participant;
    let lacks = |who: &&String| !come.before(who, release.end);
    let found: Vec<String> = match required {
        Required::These(participants) => {
            let missing = participants.iter().filter(lacks);
            missing.map(|missing| format!("{told} was released before {missing} had arrived")).collect()
        }
        Required::Count(regions) => regions
            .iter()
            .map(|(region, count)| (region, count, come.of_region(region, release.end)))
            .filter(|(_, count, arrived)| arrived < *count)
            .map(|(region, count, arrived)| {
                format!("{told} was released when {arrived} of {count} of {region} had arrived")
            })
            .collect(),
        Required::AnyOf(sets) if sets.iter().any(|set| !set.iter().any(|who| lacks(&who))) => Vec::new(),
        Required::AnyOf(sets) => {
            vec![format!("{told} was released before all of one of {sets:?} had arrived")]
        }
    };
    found.into_iter().map(|what| violation("I1", what)).collect()
}

/// I1: a release is whole only when everybody has arrived.
fn whole_without_everybody(calls: &[&Call], come: &Come<'_>, everybody: &BTreeSet<String>) -> Vec<Violation> {
    let Some(release) = first_release(calls, |whole| whole) else { return Vec::new() };
    let told = &release.participant;
    let missing = everybody.iter().filter(|who| !come.before(who, release.end));
    missing.map(|missing| violation("I1", format!("{told} was told of a whole release without {missing}"))).collect()
}

/// When an arrival that counts can first have taken effect: an ok one that was
/// not refused, of an attempt that was not withdrawn.
fn earliest_arrival(calls: &[&Call]) -> Option<Instant> {
    let withdrawn = calls
        .iter()
        .filter_map(|call| match (call.what, &call.answer) {
            (What::Withdraw { attempt }, Answer::Withdrawn) => Some(attempt),
            _ => None,
        })
        .max()
        .unwrap_or(0);
    let counts = |call: &&&Call| match call.what {
        What::Arrive { attempt, outcome: ArrivalOutcome::Ok } => {
            attempt > withdrawn && !matches!(call.answer, Answer::Refused(_))
        }
        _ => false,
    };
    calls.iter().filter(counts).map(|call| call.start).min()
}

/// I3: what was acknowledged is reported ever after, unless it was withdrawn,
/// replaced by a higher attempt, or fell with its session; and somebody must
/// have looked.
fn acknowledged_stays(calls: &[&Call], forgotten: bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    let taken_back = |attempt: u32| {
        calls.iter().any(|call| match call.what {
            // Whether or not it was acknowledged: it may have had its effect.
            What::Withdraw { attempt: through } => through >= attempt && !matches!(call.answer, Answer::Refused(_)),
            What::FallSilent => true,
            _ => false,
        })
    };
    for call in calls {
        let Answer::Arrived { attempt, outcome } = call.answer else { continue };
        if taken_back(attempt) {
            continue;
        }
        let who = &call.participant;
        let mut looked = false;
        for look in calls.iter().filter(|look| look.what == What::Look && look.start >= call.end) {
            looked |= forgotten;
            let Answer::Seen { arrived } = look.answer else { continue };
            looked = true;
            let stands = arrived.is_some_and(|seen| seen == (attempt, outcome) || seen.0 > attempt);
            if !stands {
                let what =
                    format!("{who} was told that attempt {attempt} stands, later it was reported as {arrived:?}");
                violations.push(violation("I3", what));
            }
        }
        if !looked {
            violations.push(violation("I3", format!("nobody looked whether the arrival of {who} stands")));
        }
    }
    violations
}

/// I8: "refused" and "withdrawn" are true for ever.
fn refused_stays(calls: &[&Call]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for call in calls {
        if let (What::Withdraw { attempt: through }, Answer::Withdrawn) = (call.what, &call.answer) {
            for later in calls.iter().filter(|later| later.start >= call.end) {
                let counts = match (&later.what, &later.answer) {
                    (What::Arrive { attempt, .. }, Answer::Arrived { .. }) => *attempt <= through,
                    (What::Look, Answer::Seen { arrived: Some((attempt, _)) }) => *attempt <= through,
                    _ => false,
                };
                if counts {
                    let who = &call.participant;
                    violations.push(violation("I8", format!("{who} withdrew attempt {through}, and it counts again")));
                }
            }
        }
    }
    violations.extend(refused_arrivals(calls));
    violations
}

/// A participant all of whose arrivals of an attempt were refused for good
/// never arrived with it.
fn refused_arrivals(calls: &[&Call]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let attempts: BTreeSet<u32> = calls
        .iter()
        .filter_map(|call| match (call.what, &call.answer) {
            (What::Arrive { attempt, .. }, Answer::Refused(code)) if for_good(*code) => Some(attempt),
            _ => None,
        })
        .collect();
    for attempt in attempts {
        let of_attempt = |call: &&&Call| matches!(call.what, What::Arrive { attempt: its, .. } if its == attempt);
        let refused_at = calls
            .iter()
            .filter(of_attempt)
            .filter(|call| matches!(call.answer, Answer::Refused(code) if for_good(code)))
            .map(|call| call.end)
            .min();
        let Some(refused_at) = refused_at else { continue };
        let acknowledged = calls.iter().filter(of_attempt).find(|call| {
            call.start >= refused_at && matches!(call.answer, Answer::Arrived { attempt: its, .. } if its == attempt)
        });
        let undecided = |call: &&Call| !matches!(call.answer, Answer::Refused(_));
        let never_taken = !calls.iter().filter(of_attempt).any(undecided);
        let seen = calls.iter().find(|look| {
            matches!(look.answer, Answer::Seen { arrived: Some((its, _)) } if its == attempt) && never_taken
        });
        for call in acknowledged.into_iter().chain(seen) {
            let what = format!("attempt {attempt} of {} was refused, and counts", call.participant);
            violations.push(violation("I8", what));
        }
    }
    violations
}

/// I2 to I5 at once: everything that one participant was told, and the ends
/// that anybody was told, can have happened one after another.
fn in_one_order(calls: &[&Call], required: Option<&Required>) -> Vec<Violation> {
    let without = |(who, of_one): &(&str, Vec<&Call>)| {
        let required = matches!(required, Some(Required::These(these)) if these.contains(*who));
        !is_linearizable(of_one, calls, required)
    };
    let disordered = by_participant(calls).into_iter().filter(without);
    disordered
        .map(|(who, _)| violation("order", format!("what {who} was told can't have happened in any order")))
        .collect()
}

/// Refusals that no repeat changes. A place that was taken may become free.
fn for_good(code: Code) -> bool {
    matches!(code, Code::NotExpected | Code::WrongRegion | Code::Withdrawn | Code::StaleAttempt)
}
