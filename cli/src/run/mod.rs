//! `muster run`: does a participant's work and speaks for it.
//!
//! ```text
//! who, and already there? ──ok before──────────────────────▶ wait
//!          │                                                  ▲
//!     open a session                                          │
//!          ▼                                                  │
//!     start the child ──exit 0──▶ arrive ok ──────────────────┘
//!          │   │ │ ╲
//!          │   │ │  ╲─exit n, signal n──▶ arrive failed, end with the child's code
//!          │   │ └─session lost or fenced──▶ stop it, end with 5: nothing arrives
//!          │   └─a signal for us──▶ hand it on; interrupted: nothing arrives
//!          └─can't start──▶ 126, 127: nothing arrives
//! ```
//!
//! The session is closed at the end of each of these ways.

mod child;
mod session;

use clap::{Args, ValueEnum};
use muster_client::{Client, Session, Target};
use muster_protocol::generation::State;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::{Participant as Known, ParticipantState};
use muster_wire::code::Code;
use muster_wire::request::Arrival;

use self::child::{Child, Ended, Signals};
use crate::arguments::PartArguments;
use crate::connect::Context;
use crate::failure::Failure;
use crate::participant::Participant;
use crate::render::visible_line;
use crate::{arrive, wait};

/// `muster run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    part: PartArguments,
    /// Arrive, and do not wait for the release
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Run although this participant has arrived before
    #[arg(long)]
    again: bool,
    /// What a failed command means
    #[arg(long, value_enum, default_value = "report", value_name = "WHAT")]
    on_fail: OnFail,
    /// What to run; it finds MUSTER_BARRIER, MUSTER_GENERATION,
    /// MUSTER_PARTICIPANT and MUSTER_ATTEMPT in its environment
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a failed command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFail {
    /// The participant has failed
    Report,
    /// Nothing yet: whoever started this will start it again
    Silent,
}

/// One participant's part in one generation.
struct Part {
    client: Client,
    target: Target,
    participant: Participant,
    attempt: Option<u32>,
    session: Option<Session>,
}

pub(crate) async fn run(arguments: RunArguments, context: &Context) -> Result<(), Failure> {
    let participant = arguments.part.participant.resolve()?;
    // Before the child there is nothing to lose: a service that is away is told
    // soon. Time counts again once the work is done.
    let client = context.participant(context.until())?;
    let target = client.resolve(&context.target(&arguments.part.target.target)?).await?;
    let mut part = Part { client, target, participant, attempt: arguments.part.attempt, session: None };
    let known = part.look().await?;
    let done = known.as_ref().is_some_and(|known| known.state == ParticipantState::Arrived);
    if done && !arguments.again {
        context.tell(&format!("{} has arrived before and is not run again (--again runs it)", part.participant.id));
        return part.pass(arguments.no_wait, context).await;
    }
    part.session = session::open(&part.client, &part.target, &part.participant).await?;
    let given = part.session.as_ref().and_then(|session| session.participants().first()).map(|work| work.attempt);
    part.attempt = part.attempt.or(given).or_else(|| known.as_ref().and_then(next_attempt));
    let outcome = part.run(&arguments, context).await;
    if let Some(session) = part.session {
        session::close(session).await;
    }
    outcome
}

/// The attempt after what was withdrawn or failed; the first needs no number.
fn next_attempt(known: &Known) -> Option<u32> {
    let failed = known.attempt.filter(|_| known.state != ParticipantState::Arrived);
    failed.max(known.withdrawn).map(|attempt| attempt.saturating_add(1))
}

impl Part {
    /// What is known of this participant. A generation that is broken needs no
    /// work any more; one that nobody opened yet is opened by an arrival.
    async fn look(&self) -> Result<Option<Known>, Failure> {
        let status = match self.client.status(&self.target, None).await {
            Ok(status) => status,
            Err(error) if error.is(Code::NoSuchGeneration) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if status.state == State::Broken {
            let sentence = format!("{} is broken, so nothing is run: {}", self.target, status.message);
            return Err(Failure::refused(Code::Broken, sentence));
        }
        let region = self.participant.region.as_ref().map(|region| region.as_str());
        match self.client.arrival(&self.target, &self.participant.id, region).await {
            Ok(known) => Ok(Some(known)),
            // The region has not heard of the generation yet.
            Err(error) if error.is(Code::NoSuchGeneration) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// From the child's start to the release, or to why there is none.
    async fn run(&mut self, arguments: &RunArguments, context: &Context) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        let ended = self.work(&arguments.command, &mut signals).await?;
        let id = self.participant.id.clone();
        let rest = async {
            self.client = context.participant(context.until_from_now())?;
            self.tell(&ended, arguments.on_fail, context).await?;
            self.pass(arguments.no_wait, context).await
        };
        // Once they are listened to, signals do nothing by themselves.
        tokio::select! {
            biased;
            passed = rest => passed,
            code = signals.stopped() => {
                eprintln!("muster: interrupted before the release; {id} may have arrived, and an arrival stands");
                Err(Failure::Code(code))
            }
        }
    }

    async fn work(&self, command: &[String], signals: &mut Signals) -> Result<Ended, Failure> {
        let mut environment = vec![
            ("MUSTER_BARRIER", self.target.barrier.to_string()),
            ("MUSTER_PARTICIPANT", self.participant.id.to_string()),
            ("MUSTER_ATTEMPT", self.attempt.unwrap_or(1).to_string()),
        ];
        environment.extend(self.target.generation.iter().map(|id| ("MUSTER_GENERATION", id.to_string())));
        environment.extend(self.participant.region.iter().map(|region| ("MUSTER_REGION", region.to_string())));
        match Child::start(command, &environment) {
            Ok(child) => child.run(signals, session::over(self.session.as_ref())).await,
            Err(error) => {
                let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
                eprintln!("muster: start {:?}: {error}; nothing arrived", command[0]);
                Err(Failure::Code(code))
            }
        }
    }

    /// Arrives with what the child came to; a child that failed ends with its
    /// own code.
    async fn tell(&self, ended: &Ended, on_fail: OnFail, context: &Context) -> Result<(), Failure> {
        if let Some(over) = &ended.over {
            return Err(Failure::refused(
                over.code,
                format!("{} has not arrived: {}", self.participant.id, over.detail),
            ));
        }
        if ended.interrupted {
            eprintln!("muster: interrupted; {} has not arrived, and may run again", self.participant.id);
            return Err(Failure::Code(ended.code));
        }
        let failed = ended.note.is_some();
        if failed && on_fail == OnFail::Silent {
            return Err(Failure::Code(ended.code));
        }
        let arrival = Arrival {
            attempt: self.attempt,
            outcome: failed.then_some(ArrivalOutcome::Failed),
            note: ended.note.clone(),
            session: self.session.as_ref().map(Session::id),
            region: self.participant.region.clone(),
            ..Arrival::default()
        };
        let arrived = self.client.arrive(&self.target, &self.participant.id, &arrival).await;
        match (arrived, failed) {
            (Ok(arrived), false) => {
                context.tell(&arrive::sentence(&arrived));
                Ok(())
            }
            (Ok(arrived), true) => {
                let sentence = visible_line(&arrive::sentence(&arrived));
                eprintln!("muster: {sentence}: {}", ended.note.as_deref().unwrap_or_default());
                Err(Failure::Code(ended.code))
            }
            (Err(error), false) => Err(error.into()),
            (Err(error), true) => {
                eprintln!("muster: the failure could not be told: {}", visible_line(&error.to_string()));
                Err(Failure::Code(ended.code))
            }
        }
    }

    /// Waits for the release, unless it is not to.
    async fn pass(&mut self, no_wait: bool, context: &Context) -> Result<(), Failure> {
        if no_wait {
            return Ok(());
        }
        self.client = context.participant(context.until_from_now())?;
        let released = tokio::select! {
            biased;
            released = self.client.wait(&self.target, context.until_from_now()) => released?,
            lost = self.lost_arrival() => return Err(lost),
        };
        wait::show(&released, context)
    }

    /// Ends when the arrival does not count any more, because its session is
    /// over.
    async fn lost_arrival(&self) -> Failure {
        let over = session::over(self.session.as_ref()).await;
        if !session::arrival_needs_it(&self.client, &self.target).await {
            return std::future::pending().await;
        }
        let id = &self.participant.id;
        Failure::refused(over.code, format!("{id} had arrived, and that counts no more: {}", over.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_attempt_follows_what_is_spent() {
        let known = |json: &str| next_attempt(&serde_json::from_str(json).unwrap());
        assert_eq!(known(r#"{"participant":"a/1","state":"missing"}"#), None);
        assert_eq!(known(r#"{"participant":"a/1","state":"missing","withdrawn":2}"#), Some(3));
        assert_eq!(known(r#"{"participant":"a/1","state":"retrying","attempt":1}"#), Some(2));
        assert_eq!(known(r#"{"participant":"a/1","state":"arrived","attempt":4}"#), None);
    }
}
