//! A checker that can't fail proves nothing: each rule is shown a history that
//! breaks it.

use std::time::Duration;

use super::*;

const OK: ArrivalOutcome = ArrivalOutcome::Ok;

/// A history written down: every call takes one step, and starts when the one
/// before has ended.
struct Told {
    history: History,
    at: Instant,
}

impl Told {
    fn new() -> Self {
        Self { history: History::default(), at: Instant::now() }
    }

    fn call(mut self, participant: &str, what: What, answer: Answer) -> Self {
        let (start, end) = (self.at, self.at + Duration::from_millis(1));
        self.at = end + Duration::from_millis(1);
        let (generation, participant) = ("a/b@1".to_owned(), participant.to_owned());
        self.history.record(Call { generation, participant, what, start, end, answer });
        self
    }

    fn arrive(self, participant: &str, attempt: u32) -> Self {
        self.call(participant, What::Arrive { attempt, outcome: OK }, Answer::Arrived { attempt, outcome: OK })
    }

    fn refused(self, participant: &str, attempt: u32, code: Code) -> Self {
        self.call(participant, What::Arrive { attempt, outcome: OK }, Answer::Refused(code))
    }

    fn released(self, participant: &str, digest: &str) -> Self {
        self.call(participant, What::Wait, Answer::Released { digest: digest.to_owned(), whole: false })
    }

    fn passed_whole(self, participant: &str) -> Self {
        self.call(participant, What::Wait, Answer::Released { digest: "d".to_owned(), whole: true })
    }

    fn withdraw(self, participant: &str, attempt: u32) -> Self {
        self.call(participant, What::Withdraw { attempt }, Answer::Withdrawn)
    }

    fn seen(self, participant: &str, attempt: Option<u32>) -> Self {
        self.call(participant, What::Look, Answer::Seen { arrived: attempt.map(|attempt| (attempt, OK)) })
    }

    /// What is found broken when this is expected.
    fn broken_by(&self, expectation: Expectation) -> Vec<&'static str> {
        check(&self.history, &expectation).into_iter().map(|found| found.invariant).collect()
    }

    /// The invariants that are found broken.
    fn broken(&self) -> Vec<&'static str> {
        let required = Required::These(["r/1".to_owned(), "s/1".to_owned()].into());
        let by_name = self.broken_by(requiring(required));
        let count = Required::Count([("r".to_owned(), 1), ("s".to_owned(), 1)].into());
        assert_eq!(by_name, self.broken_by(requiring(count)));
        by_name
    }
}

fn requiring(required: Required) -> Expectation {
    Expectation { required: [("a/b@1".to_owned(), required)].into(), ..Expectation::default() }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn crossed() -> Told {
    Told::new().arrive("r/1", 1).arrive("s/1", 1).released("r/1", "d").released("s/1", "d")
}

#[test]
fn a_correct_history_is_accepted() {
    assert!(crossed().seen("r/1", Some(1)).seen("s/1", Some(1)).broken().is_empty());
    let withdrawn =
        Told::new().arrive("r/1", 1).withdraw("r/1", 1).refused("r/1", 1, Code::Withdrawn).seen("r/1", None);
    assert!(withdrawn.broken().is_empty(), "{:?}", withdrawn.broken());
}

#[test]
fn released_before_the_last_arrival_began_is_found() {
    let early = Told::new().arrive("r/1", 1).released("r/1", "d").arrive("s/1", 1);
    assert_eq!(early.seen("r/1", Some(1)).seen("s/1", Some(1)).broken(), ["I1"]);
}

#[test]
fn released_without_an_arrival_that_counts_is_found() {
    let refused = Told::new().arrive("r/1", 1).refused("s/1", 1, Code::Full).released("r/1", "d");
    assert_eq!(refused.seen("r/1", Some(1)).broken(), ["I1"]);
    let withdrawn = Told::new().arrive("r/1", 1).arrive("s/1", 1).withdraw("s/1", 1).released("r/1", "d");
    assert_eq!(withdrawn.seen("r/1", Some(1)).broken(), ["I1"]);
    let failed = What::Arrive { attempt: 1, outcome: ArrivalOutcome::Failed };
    let acknowledged = Answer::Arrived { attempt: 1, outcome: ArrivalOutcome::Failed };
    let failed = Told::new().arrive("r/1", 1).call("s/1", failed, acknowledged).released("r/1", "d");
    let seen = Answer::Seen { arrived: Some((1, ArrivalOutcome::Failed)) };
    assert_eq!(failed.seen("r/1", Some(1)).call("s/1", What::Look, seen).broken(), ["I1"]);
}

#[test]
fn an_arrival_without_an_answer_may_have_counted() {
    let unknown = Answer::Unknown("lost".to_owned());
    let told = Told::new().arrive("r/1", 1).call("s/1", What::Arrive { attempt: 1, outcome: OK }, unknown);
    assert!(told.released("r/1", "d").seen("r/1", Some(1)).broken().is_empty());
}

#[test]
fn two_outcomes_are_found() {
    let told = Told::new().arrive("r/1", 1).arrive("s/1", 1).released("r/1", "d").released("s/1", "e");
    assert_eq!(told.seen("r/1", Some(1)).seen("s/1", Some(1)).broken(), ["I2"]);
}

#[test]
fn one_outcome_of_two_generations_is_found() {
    let told = crossed().seen("r/1", Some(1)).seen("s/1", Some(1));
    let mut other = told.history.calls().into_iter().find(|call| call.what == What::Wait).unwrap();
    other.generation = "a/b@2".to_owned();
    told.history.record(other);
    assert_eq!(told.broken(), ["I4"]);
}

#[test]
fn released_here_and_broken_there_is_found() {
    let told = crossed().call("s/1", What::Wait, Answer::Broken);
    assert_eq!(told.seen("r/1", Some(1)).seen("s/1", Some(1)).broken(), ["I5"]);
}

#[test]
fn an_acknowledged_arrival_that_is_gone_is_found() {
    assert_eq!(crossed().seen("r/1", Some(1)).seen("s/1", None).broken(), ["I3"]);
}

#[test]
fn an_arrival_that_nobody_looked_after_is_found() {
    assert_eq!(crossed().seen("r/1", Some(1)).broken(), ["I3"]);
}

#[test]
fn a_withdrawn_attempt_that_counts_again_is_found() {
    let again = Told::new().arrive("r/1", 1).withdraw("r/1", 1).arrive("r/1", 1);
    assert_eq!(again.broken(), ["I8"]);
    let seen = Told::new().arrive("r/1", 1).withdraw("r/1", 1).seen("r/1", Some(1));
    assert_eq!(seen.broken(), ["I8"]);
}

#[test]
fn a_refused_attempt_that_counts_is_found() {
    let later = Told::new().refused("r/1", 1, Code::NotExpected).arrive("r/1", 1).seen("r/1", Some(1));
    assert_eq!(later.broken(), ["I8"]);
    let reported = Told::new().refused("r/1", 1, Code::NotExpected).seen("r/1", Some(1));
    assert_eq!(reported.broken(), ["I8"]);
}

#[test]
fn a_release_that_no_allowed_set_had_earned_is_found() {
    let told = crossed().seen("r/1", Some(1)).seen("s/1", Some(1));
    let any = |sets: &[&[&str]]| requiring(Required::AnyOf(sets.iter().map(|set| names(set)).collect()));
    assert!(told.broken_by(any(&[&["r/1", "t/1"], &["r/1", "s/1"]])).is_empty());
    assert_eq!(told.broken_by(any(&[&["r/1", "t/1"], &["s/1", "t/1"]])), ["I1"]);
}

#[test]
fn a_release_called_whole_without_everybody_is_found() {
    let everybody = [("a/b@1".to_owned(), names(&["r/1", "s/1"]))];
    let expectation = || Expectation { everybody: everybody.clone().into(), ..Expectation::default() };
    let without = || Told::new().arrive("r/1", 1).seen("r/1", Some(1));
    assert!(without().released("r/1", "d").broken_by(expectation()).is_empty());
    assert_eq!(without().passed_whole("r/1").broken_by(expectation()), ["I1"]);
    let with = without().arrive("s/1", 1).seen("s/1", Some(1)).passed_whole("r/1");
    assert!(with.broken_by(expectation()).is_empty());
}

#[test]
fn what_a_round_carries_over_counts_there_alone() {
    let told = Told::new().arrive("r/1", 1).seen("r/1", Some(1));
    let mut next = told.history.calls();
    let at = Told::new().arrive("s/1", 1).seen("s/1", Some(1)).released("s/1", "d");
    for call in at.history.calls() {
        next.push(Call { generation: "a/b@1~1".to_owned(), ..call });
    }
    next.into_iter().skip(2).for_each(|call| told.history.record(call));
    let required = Required::These(names(&["r/1", "s/1"]));
    let expectation = Expectation { required: [("a/b@1~1".to_owned(), required)].into(), ..Expectation::default() };
    assert_eq!(told.broken_by(expectation.clone()), ["I1"]);
    let carried = [("a/b@1~1".to_owned(), "a/b@1".to_owned())].into();
    assert!(told.broken_by(Expectation { carried, ..expectation }).is_empty());
}

#[test]
fn an_arrival_may_go_with_its_session_or_its_generation_only() {
    let gone = || Told::new().arrive("r/1", 1);
    assert_eq!(gone().seen("r/1", None).broken(), ["I3"]);
    let silent = Answer::Unknown("nobody is called".to_owned());
    assert!(gone().call("r/1", What::FallSilent, silent).seen("r/1", None).broken().is_empty());
    let expired = || gone().call("r/1", What::Look, Answer::Refused(Code::Expired));
    assert_eq!(expired().broken(), ["I3"]);
    let forgotten = Expectation { forgotten: names(&["a/b@1"]), ..Expectation::default() };
    assert!(expired().broken_by(forgotten).is_empty());
}

#[test]
fn what_can_have_happened_in_no_order_is_found() {
    let lost = |told: Told| {
        let unknown = Answer::Unknown("lost".to_owned());
        told.call("r/1", What::Arrive { attempt: 1, outcome: OK }, unknown)
    };
    // Nobody acknowledged it, so that it may come late or never; but not go.
    assert!(lost(Told::new()).seen("r/1", None).seen("r/1", Some(1)).broken().is_empty());
    assert_eq!(lost(Told::new()).seen("r/1", Some(1)).seen("r/1", None).broken(), ["order"]);
    // It counts, or it is too late for that.
    let late = |told: Told| lost(told.call("s/1", What::Wait, Answer::Broken));
    assert!(late(Told::new()).seen("r/1", None).broken().is_empty());
    assert_eq!(late(Told::new()).seen("r/1", Some(1)).broken(), ["order"]);
    // Its first try may have counted before it broke, but nobody's later one.
    let told = |told: Told| told.call("r/1", What::Arrive { attempt: 1, outcome: OK }, Answer::Broken);
    assert!(told(Told::new()).seen("r/1", Some(1)).broken().is_empty());
    let broken = Told::new().call("s/1", What::Wait, Answer::Broken);
    assert_eq!(told(broken).seen("r/1", Some(1)).broken(), ["order"]);
}
