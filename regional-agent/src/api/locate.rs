//! Finding the generation a caller means, and waiting for one that its region
//! has not heard of yet.
//!
//! ```text
//! known here ─▶ done
//! else: does the coordinator know it? (a first arrival opens a key)
//!   no, for certain        ─▶ 404, 409, 422: what is wrong
//!   yes, or no answer      ─▶ hold until it opens here, at most 5 s (or `wait=`)
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_http::{Answer, Failure};
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::name::{BarrierName, Key, ParticipantId};
use muster_protocol::participants::IdSet;
use muster_protocol::region::Region;
use muster_wire::answer;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Api;
use crate::coordinator::NoWord;

/// How long a call is held for an opening that is on its way.
const HOLD: Duration = Duration::from_secs(5);
/// Open generations that a refusal names.
const OPEN_NAMED: usize = 16;

/// What the caller is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Arrive: the first arrival of a key opens it, if it is expected.
    Arrive,
    /// Open, for one who arrives.
    Open,
    /// Take back: opens nothing.
    Withdraw,
    /// Wait: opens nothing, and holds for what may open.
    Wait,
    /// Look at what there is; `latest` is allowed.
    Look,
}

/// Where a generation is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// This region has a part in it.
    Here(GenerationId),
    /// It exists, and this region has no part in it.
    Elsewhere,
}

/// What the coordinator says of a generation that is not known here.
#[derive(Clone, Debug)]
enum Word {
    /// It exists: its opening, or its end, is on its way.
    Coming,
    /// It exists without this region.
    Elsewhere,
    /// It is not open, and the first of these to arrive opens it; anybody, if
    /// they have no names.
    MayOpen(Arc<Option<IdSet>>),
    /// It does not exist.
    No(Box<Problem>),
    /// No coordinator answered.
    Away,
}

/// Questions on their way to the coordinator: a crowd that arrives at a new
/// key asks once.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<HashMap<Question, Arc<OnceCell<Word>>>>);

/// Which barrier, which generation, and what for.
type Question = (BarrierName, String, Purpose);

/// One caller's share of a question. Answers are not kept: when the first
/// caller has its answer, or hangs up, the next one asks what is so then.
struct Asked<'a> {
    questions: &'a Questions,
    question: Question,
    answer: Arc<OnceCell<Word>>,
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Question, Arc<OnceCell<Word>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self, question: Question) -> Asked<'_> {
        let answer = self.lock().entry(question.clone()).or_default().clone();
        Asked { questions: self, question, answer }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut questions = self.questions.lock();
        if questions.get(&self.question).is_some_and(|kept| Arc::ptr_eq(kept, &self.answer)) {
            questions.remove(&self.question);
        }
    }
}

impl Api {
    /// The generation that `reference` names, held until it is known here.
    pub(super) async fn locate(
        &self,
        barrier: &BarrierName,
        reference: &Reference,
        purpose: Purpose,
        who: &[ParticipantId],
        patience: Option<Duration>,
    ) -> Answer<Place> {
        let only;
        let reference = if *reference == Reference::Latest && purpose != Purpose::Look {
            only = self.only(barrier).await?;
            &only
        } else {
            reference
        };
        if let Some(found) = self.find(barrier, reference) {
            return Ok(Place::Here(found));
        }
        if self.has_forgotten(barrier, reference) {
            let detail = format!("{barrier}@{reference} ended and is past its retention");
            return Err(Failure::new(Code::Expired, detail));
        }
        // The subscription comes before the question, so that an opening in
        // between is not missed.
        let mut opening = self.handle.waiters().for_opening(barrier);
        let deadline = Instant::now() + patience.map_or(HOLD, |patience| patience.min(HOLD));
        let word = match self.word(barrier, reference, purpose).await {
            // A stranger opens nothing.
            Word::MayOpen(expected) if !who.iter().any(|who| admits(&expected, who)) => {
                return Err(strangers(barrier, who, &expected));
            }
            Word::MayOpen(_) => self.word(barrier, reference, Purpose::Open).await,
            word => word,
        };
        let word = match word {
            Word::Elsewhere => return Ok(Place::Elsewhere),
            Word::No(problem) => return Err(Failure::from(*problem)),
            word @ (Word::Coming | Word::Away | Word::MayOpen(_)) => word,
        };
        loop {
            if let Some(found) = self.find(barrier, reference) {
                return Ok(Place::Here(found));
            }
            tokio::select! {
                () = opening.changed() => {}
                () = tokio::time::sleep_until(deadline) => return Err(too_early(barrier, reference, purpose, &word)),
                () = self.shutdown.cancelled() => return Err(draining()),
            }
        }
    }

    /// The generation of a barrier that has but one. What `latest` names on any
    /// other changes under a caller that acts.
    async fn only(&self, barrier: &BarrierName) -> Answer<Reference> {
        let single = match self.coordinator.barrier(barrier).await {
            Ok(defined) => defined.effective["generations"] == "single",
            Err(NoWord::Refused(problem)) => return Err(Failure::from(*problem)),
            // Only the coordinator knows of which kind it is.
            Err(NoWord::Away(_)) => false,
        };
        if !single {
            return Err(self.generation_required(barrier));
        }
        match self.coordinator.status(barrier, "latest").await {
            Ok(status) => Ok(status.n.to_string().parse::<Reference>()?),
            Err(NoWord::Refused(problem)) => Err(Failure::from(*problem)),
            Err(NoWord::Away(why)) => Err(why),
        }
    }

    fn find(&self, barrier: &BarrierName, reference: &Reference) -> Option<GenerationId> {
        self.handle.read(|region| find(region, barrier, reference))
    }

    fn has_forgotten(&self, barrier: &BarrierName, reference: &Reference) -> bool {
        self.handle.read(|region| {
            let known = region.barrier(barrier).zip(reference.number());
            known.is_some_and(|(barrier, n)| barrier.has_forgotten(n))
        })
    }

    async fn word(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Word {
        let asked = self.questions.asked((barrier.clone(), reference.to_string(), purpose));
        asked.answer.get_or_init(|| self.ask(barrier, reference, purpose)).await.clone()
    }

    /// A generation is what it was opened as: the definition in force is asked
    /// only where there is none.
    async fn ask(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Word {
        if purpose == Purpose::Open {
            return match reference.key() {
                Some(key) => self.open(barrier, key).await,
                None => Word::Coming,
            };
        }
        let absent = match self.coordinator.status(barrier, &reference.to_string()).await {
            Ok(status) if status.regions.iter().any(|region| region.name == self.region) => return Word::Coming,
            Ok(_) => return Word::Elsewhere,
            Err(NoWord::Refused(problem)) if problem.code == Code::NoSuchGeneration => problem,
            Err(no) => return no_word(no),
        };
        let defined = match self.coordinator.barrier(barrier).await {
            Ok(defined) => defined,
            Err(no) => return no_word(no),
        };
        if !takes_part(&defined, self.region.as_str()) {
            return Word::Elsewhere;
        }
        let keyed = defined.effective["generations"] == "keyed" && reference.key().is_some();
        let first_round = reference.round().is_none_or(|round| round == 0);
        match purpose {
            Purpose::Arrive if keyed && first_round => {
                Word::MayOpen(Arc::new(expected(&defined, self.region.as_str())))
            }
            Purpose::Wait if may_open(&defined, reference, &absent) => Word::Coming,
            _ => Word::No(Box::new(self.wrong_generation(barrier, reference, *absent))),
        }
    }

    async fn open(&self, barrier: &BarrierName, key: &Key) -> Word {
        fail::fail_point!("agent.open.before");
        match self.coordinator.open(barrier, key).await {
            Ok(_) => Word::Coming,
            Err(no) => no_word(no),
        }
    }

    /// A barrier without keys has a right generation to name.
    fn wrong_generation(&self, barrier: &BarrierName, reference: &Reference, problem: Problem) -> Problem {
        let open = self.open_generations(barrier);
        if open.is_empty() || reference.number().is_none() {
            return problem;
        }
        Problem::new(
            Code::WrongGeneration,
            format!("{barrier}@{reference} does not exist; open now: {}", open.join(", ")),
        )
        .hint("arrive at the generation that is open; the next one opens when it ends")
        .with("generation", open[0].clone())
        .with("open", open)
    }

    fn open_generations(&self, barrier: &BarrierName) -> Vec<String> {
        self.handle.read(|region| {
            let generations = region.barrier(barrier).into_iter().flat_map(|barrier| barrier.generations());
            let open = generations.filter(|generation| generation.state() == State::Gathering);
            open.map(|generation| generation.id().label().to_string()).take(OPEN_NAMED).collect()
        })
    }

    fn generation_required(&self, barrier: &BarrierName) -> Failure {
        let open = self.open_generations(barrier);
        let named =
            if open.is_empty() { "none is open here".to_owned() } else { format!("open now: {}", open.join(", ")) };
        Problem::new(Code::GenerationRequired, format!("name the generation of {barrier} in the path; {named}"))
            .hint("`latest` is for reads: what it names changes under a caller that acts")
            .with("open", open)
            .into()
    }
}

/// The generation a reference names, if the region knows it.
pub(super) fn find(region: &Region, barrier: &BarrierName, reference: &Reference) -> Option<GenerationId> {
    let barrier = region.barrier(barrier)?;
    let by_key = || barrier.keyed(reference.key()?, reference.round());
    let by_number = || barrier.generation(reference.number()?).filter(|generation| generation.id().key.is_none());
    let found = match reference {
        Reference::Latest => barrier.latest(),
        Reference::Number(..) | Reference::Key(..) => by_key().or_else(by_number),
    };
    found.map(|generation| generation.id().clone())
}

fn takes_part(defined: &answer::Barrier, region: &str) -> bool {
    defined.effective["regions"].as_object().is_some_and(|regions| regions.contains_key(region))
}

/// Whether a generation that is not open may open one day by itself or by an
/// arrival, so that a wait for it is only early.
fn may_open(defined: &answer::Barrier, reference: &Reference, problem: &Problem) -> bool {
    let unknown = matches!(problem.code, Code::NoSuchGeneration | Code::WrongGeneration);
    unknown
        && match defined.effective["generations"].as_str() {
            Some("keyed") => reference.round().is_none_or(|round| round == 0),
            Some("cyclic") => reference.number().is_some_and(|n| n > 0),
            _ => false,
        }
}

/// Who is expected of a region, if they have names.
fn expected(defined: &answer::Barrier, region: &str) -> Option<IdSet> {
    match &defined.effective["regions"][region]["participants"] {
        Value::String(one) => IdSet::parse([one]).ok(),
        Value::Array(items) => IdSet::parse(items.iter().filter_map(Value::as_str)).ok(),
        _ => None,
    }
}

fn admits(expected: &Option<IdSet>, who: &ParticipantId) -> bool {
    expected.as_ref().is_none_or(|set| set.contains(who))
}

fn strangers(barrier: &BarrierName, who: &[ParticipantId], expected: &Option<IdSet>) -> Failure {
    let set = expected.as_ref().map(ToString::to_string).unwrap_or_default();
    let who: Vec<&str> = who.iter().map(ParticipantId::as_str).take(OPEN_NAMED).collect();
    let detail = format!("{} is not a participant of {barrier}; expected here: {set}", who.join(", "));
    Problem::new(Code::NotExpected, detail).with("expected", set).into()
}

fn no_word(no: NoWord) -> Word {
    match no {
        NoWord::Refused(problem) => Word::No(problem),
        NoWord::Away(why) => {
            tracing::debug!(?why, "ask the coordinator for a generation");
            Word::Away
        }
    }
}

fn too_early(barrier: &BarrierName, reference: &Reference, purpose: Purpose, word: &Word) -> Failure {
    let (code, why) = match (purpose, word) {
        (Purpose::Wait | Purpose::Look, _) => (Code::NotOpenYet, "is not open in this region yet"),
        (Purpose::Arrive | Purpose::Open, Word::Away) => {
            (Code::CannotOpen, "is not open here, and no coordinator answers to open it")
        }
        (Purpose::Arrive | Purpose::Open | Purpose::Withdraw, _) => {
            (Code::Behind, "exists, but this region has not heard of it yet")
        }
    };
    Problem::new(code, format!("{barrier}@{reference} {why}")).hint("nothing was done; send the same call again").into()
}

/// This agent is stopping; another one of the region goes on.
pub(super) fn draining() -> Failure {
    Problem::new(Code::Draining, "this agent is stopping")
        .hint("send the same call to another agent of the region, or again in a moment")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_hangs_up_leaves_nothing_behind() {
        let questions = Questions::default();
        let question = || ("a/b".parse().unwrap(), "k".to_owned(), Purpose::Arrive);
        let (first, second) = (questions.asked(question()), questions.asked(question()));
        assert!(Arc::ptr_eq(&first.answer, &second.answer), "a crowd asks once");
        drop(first);
        assert!(!Arc::ptr_eq(&questions.asked(question()).answer, &second.answer), "the next one asks anew");
        drop(second);
        assert!(questions.lock().is_empty());
    }
}
