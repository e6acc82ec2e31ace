//! Finding the generation a caller means, and waiting for one that its region
//! has not heard of yet.
//!
//! ```text
//! known here ─▶ done
//! else: does the coordinator know it? (a first arrival opens a key)
//!   no, for certain        ─▶ 404, 409, 422: what is wrong
//!   yes, or no answer      ─▶ hold until it opens here, at most 5 s (or `wait=`);
//!                             then 408 or 503, after a look at the log's head
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_http::{Answer, Failure};
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::global::Command;
use muster_protocol::name::{BarrierName, Key, ParticipantId};
use muster_protocol::participants::IdSet;
use muster_protocol::region::Region;
use muster_protocol::replica::NotDone;
use muster_protocol::spec::Generations;
use muster_wire::code::Code;
use muster_wire::definition::effective;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::speak::no_answer;
use super::{Api, regional};
use crate::coordinator::NoWord;
use crate::driver::NoAnswer;

/// How long a call is held for an opening that is on its way.
const HOLD: Duration = Duration::from_secs(5);
/// How long the log's head may take to be read, before a call is told that
/// nothing has opened.
const READ_MAX: Duration = Duration::from_secs(2);
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
        // Nothing is said here of a number that is forgotten: what looks like one
        // may be a key, and of which kind the barrier is, is not kept.
        // The subscription comes before the question, so that an opening in
        // between is not missed.
        let mut opening = self.handle.waiters().for_opening(barrier);
        let deadline = Instant::now() + patience.map_or(HOLD, |patience| patience.min(HOLD));
        let asked = async {
            match self.word(barrier, reference, purpose).await {
                // A stranger opens nothing.
                Word::MayOpen(expected) if !who.iter().any(|who| admits(&expected, who)) => {
                    Err(strangers(barrier, who, &expected))
                }
                Word::MayOpen(_) => Ok(self.word(barrier, reference, Purpose::Open).await),
                word => Ok(word),
            }
        };
        let word = tokio::select! {
            word = asked => word?,
            () = tokio::time::sleep_until(deadline) => Word::Away,
            () = self.shutdown.cancelled() => return Err(draining()),
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
                () = tokio::time::sleep_until(deadline) => {
                    // An agent that is behind its region's log can't say what is not open.
                    let read = tokio::time::timeout(READ_MAX, self.handle.fresh()).await;
                    read.unwrap_or(Err(NoAnswer::NotDone(NotDone::Unavailable))).map_err(no_answer)?;
                    let full = self.handle.status().borrow().full;
                    let found = self.find(barrier, reference).map(Place::Here);
                    return found.ok_or_else(|| too_early(barrier, reference, purpose, &word, full));
                }
                () = self.shutdown.cancelled() => return Err(draining()),
            }
        }
    }

    /// The generation of a barrier that has but one. What `latest` names on any
    /// other changes under a caller that acts.
    async fn only(&self, barrier: &BarrierName) -> Answer<Reference> {
        let regional = || self.handle.read(|region| only_regional(region, barrier));
        if let Some(only) = regional() {
            return only;
        }
        let required = || self.handle.read(|region| generation_required(region, barrier));
        let refused = match self.coordinator.barrier(barrier).await {
            Ok(defined) if defined.effective["generations"] == "single" => None,
            Ok(_) => return Err(required()),
            Err(NoWord::Refused(problem)) if problem.code != Code::NotDefined => return Err(Failure::from(*problem)),
            Err(NoWord::Refused(problem)) => Some(Failure::from(*problem)),
            // Only the coordinator knows of which kind it is.
            Err(NoWord::Away(_)) => Some(required()),
        };
        if let Some(refused) = refused {
            // It may have been defined at another agent a moment ago.
            self.handle.fresh().await.map_err(no_answer)?;
            return regional().unwrap_or(Err(refused));
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

    async fn word(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Word {
        let asked = self.questions.asked((barrier.clone(), reference.to_string(), purpose));
        asked.answer.get_or_init(|| self.ask(barrier, reference, purpose)).await.clone()
    }

    /// A generation is what it was opened as: the definition in force is asked
    /// only where there is none.
    async fn ask(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Word {
        if let Some(word) = self.ask_region(barrier, reference, purpose).await {
            return word;
        }
        let word = self.ask_world(barrier, reference, purpose).await;
        let unheard = match &word {
            Word::Away => true,
            Word::No(problem) => problem.code == Code::NotDefined,
            _ => false,
        };
        if !unheard {
            return word;
        }
        // It may have been defined at another agent a moment ago.
        match self.handle.fresh().await {
            Ok(()) => self.ask_region(barrier, reference, purpose).await.unwrap_or(word),
            // What no coordinator knows may be this region's own.
            Err(why) if matches!(word, Word::No(_)) => Word::No(Box::new(no_answer(why).into_problem())),
            Err(_) => word,
        }
    }

    /// What this region itself says of a barrier that it decides alone.
    async fn ask_region(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Option<Word> {
        let (effective, absent) = self.handle.read(|region| {
            let decider = region.regional_barrier(barrier)?;
            Some((decider.spec().map(effective), regional::absent(region, decider, reference)))
        })?;
        let Some(effective) = effective else { return Some(Word::No(Box::new(absent))) };
        if purpose == Purpose::Open {
            let Some(key) = reference.key() else { return Some(Word::Coming) };
            return Some(match self.open_regional(barrier, Command::Open { key: Some(key.clone()) }).await {
                Ok(_) => Word::Coming,
                Err(failure) => Word::No(Box::new(failure.into_problem())),
            });
        }
        Some(self.not_open(barrier, &effective, reference, purpose, absent))
    }

    async fn ask_world(&self, barrier: &BarrierName, reference: &Reference, purpose: Purpose) -> Word {
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
        if !takes_part(&defined.effective, self.region.as_str()) {
            return Word::Elsewhere;
        }
        self.not_open(barrier, &defined.effective, reference, purpose, *absent)
    }

    /// What may become of a generation that is not open, by its barrier's
    /// definition.
    fn not_open(
        &self,
        barrier: &BarrierName,
        effective: &Value,
        reference: &Reference,
        purpose: Purpose,
        absent: Problem,
    ) -> Word {
        let keyed = effective["generations"] == "keyed" && reference.key().is_some();
        let first_round = reference.round().is_none_or(|round| round == 0);
        match purpose {
            Purpose::Arrive if keyed && first_round => {
                Word::MayOpen(Arc::new(expected(effective, self.region.as_str())))
            }
            Purpose::Wait if may_open(effective, reference, &absent) => Word::Coming,
            _ => Word::No(Box::new(self.wrong_generation(barrier, reference, absent))),
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
        let open = self.handle.read(|region| open_generations(region, barrier));
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
}

/// The generation of a single barrier that this region decides alone.
fn only_regional(region: &Region, barrier: &BarrierName) -> Option<Answer<Reference>> {
    let decider = region.regional_barrier(barrier)?;
    let single = decider.spec().is_none_or(|spec| spec.generations == Generations::Single);
    Some(match find(region, barrier, &Reference::Latest) {
        Some(id) if single => id.n.to_string().parse::<Reference>().map_err(Failure::from),
        None if single => Err(regional::absent(region, decider, &Reference::Latest).into()),
        _ => Err(generation_required(region, barrier)),
    })
}

/// The generations of a barrier that are open, the first of them.
fn open_generations(region: &Region, barrier: &BarrierName) -> Vec<String> {
    let generations = region.barrier(barrier).into_iter().flat_map(|barrier| barrier.generations());
    let open = generations.filter(|generation| generation.state() == State::Gathering);
    open.map(|generation| generation.id().label().to_string()).take(OPEN_NAMED).collect()
}

/// The refusal of a call that acts and names no generation.
pub(super) fn generation_required(region: &Region, barrier: &BarrierName) -> Failure {
    let open = open_generations(region, barrier);
    let named = if open.is_empty() { "none is open here".to_owned() } else { format!("open now: {}", open.join(", ")) };
    Problem::new(Code::GenerationRequired, format!("name the generation of {barrier} in the path; {named}"))
        .hint("`latest` is for reads: what it names changes under a caller that acts")
        .with("open", open)
        .into()
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

fn takes_part(effective: &Value, region: &str) -> bool {
    effective["regions"].as_object().is_some_and(|regions| regions.contains_key(region))
}

/// Whether a generation that is not open may open one day by itself or by an
/// arrival, so that a wait for it is only early.
fn may_open(effective: &Value, reference: &Reference, problem: &Problem) -> bool {
    let unknown = matches!(problem.code, Code::NoSuchGeneration | Code::WrongGeneration);
    unknown
        && match effective["generations"].as_str() {
            Some("keyed") => reference.round().is_none_or(|round| round == 0),
            Some("cyclic") => reference.number().is_some_and(|n| n > 0),
            _ => false,
        }
}

/// Who is expected of a region, if they have names.
fn expected(effective: &Value, region: &str) -> Option<IdSet> {
    let region = &effective["regions"][region];
    let sets =
        std::iter::once(&region["participants"]).chain(region["zones"].as_object().into_iter().flat_map(Map::values));
    let mut items: Vec<&str> = Vec::new();
    for set in sets {
        match set {
            Value::String(one) => items.push(one),
            Value::Array(some) => items.extend(some.iter().filter_map(Value::as_str)),
            _ => {}
        }
    }
    // Any so many have no names, and leave the list empty.
    IdSet::parse(items).ok()
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

fn too_early(barrier: &BarrierName, reference: &Reference, purpose: Purpose, word: &Word, full: bool) -> Failure {
    let (code, why) = match (purpose, word) {
        (Purpose::Wait | Purpose::Look, _) => (Code::NotOpenYet, "is not open in this region yet"),
        (Purpose::Arrive | Purpose::Open, Word::Away) => {
            (Code::CannotOpen, "is not open here, and no coordinator answers to open it")
        }
        (Purpose::Withdraw, Word::Away) => {
            (Code::Unavailable, "is not known here, and no coordinator answers to say whether it exists")
        }
        (Purpose::Arrive | Purpose::Open | Purpose::Withdraw, _) if full => {
            (Code::StorageFull, "exists, but the region's log has no room to note it")
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
