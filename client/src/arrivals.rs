//! Arrivals: one, many, taken back.

use http::Method;
use muster_protocol::name::ParticipantId;
use muster_wire::answer::{Arrived, BatchArrived, Participant, Released};
use muster_wire::request::{Arrival, Arrivals, BatchArrival};
use tokio::time::Instant;

use crate::call::{Call, json};
use crate::wait::released;
use crate::{Client, Error, Target};

impl Client {
    /// Arrives. The same attempt again gets the first answer.
    ///
    /// # Errors
    /// `broken`, `not-expected`, `full`, `stale-attempt`, `withdrawn` …; unknown
    /// when the last answer was lost.
    pub async fn arrive(
        &self,
        target: &Target,
        participant: &ParticipantId,
        arrival: &Arrival,
    ) -> Result<Arrived, Error> {
        let target = self.resolve(target).await?;
        self.call(arrive(&target, participant, arrival), json).await
    }

    /// Arrives and waits in one call, until `until` or for as long as it takes.
    ///
    /// # Errors
    /// As [`arrive`](Self::arrive) and [`wait`](Self::wait). When time is up the
    /// arrival stands.
    pub async fn arrive_and_wait(
        &self,
        target: &Target,
        participant: &ParticipantId,
        arrival: &Arrival,
        until: Option<Instant>,
    ) -> Result<Released, Error> {
        let target = self.resolve(target).await?;
        let mut call = arrive(&target, participant, arrival);
        call.answers = &[200];
        self.call_waiting(call, until, released).await
    }

    /// Arrives for many, each with an answer of its own.
    ///
    /// # Errors
    /// None of them was taken: the batch is too large, or can't be read.
    pub async fn arrive_all(&self, target: &Target, arrivals: Vec<BatchArrival>) -> Result<BatchArrived, Error> {
        let target = self.resolve(target).await?;
        let call = Call::new(Method::POST, format!("{}/arrivals", target.path()));
        let expected = arrivals.len();
        let read = move |body: &[u8]| {
            let batch: BatchArrived = json(body)?;
            match batch.arrivals.len() == expected {
                true => Ok(batch),
                false => Err(format!("{} answers to {expected} arrivals", batch.arrivals.len())),
            }
        };
        self.call(call.json(&Arrivals { arrivals }), read).await
    }

    /// One participant, and how far it has come. At a coordinator its region
    /// must be told.
    ///
    /// # Errors
    /// `not-expected`, `no-such-generation`.
    pub async fn arrival(
        &self,
        target: &Target,
        participant: &ParticipantId,
        region: Option<&str>,
    ) -> Result<Participant, Error> {
        let target = self.resolve(target).await?;
        let call = Call::get(format!("{}/arrivals/{participant}", target.path()));
        self.call(call.query_if("region", region), json).await
    }

    /// Takes back an attempt, and all before it, for good.
    ///
    /// # Errors
    /// `sealed` once the region is complete, `stale-attempt` when a higher one
    /// has arrived.
    pub async fn withdraw(
        &self,
        target: &Target,
        participant: &ParticipantId,
        attempt: Option<u32>,
        region: Option<&str>,
    ) -> Result<(), Error> {
        let target = self.resolve(target).await?;
        let call = Call::new(Method::DELETE, format!("{}/arrivals/{participant}", target.path()));
        self.call(call.query_if("attempt", attempt).query_if("region", region), |_| Ok(())).await
    }
}

fn arrive(target: &Target, participant: &ParticipantId, arrival: &Arrival) -> Call {
    Call::new(Method::PUT, format!("{}/arrivals/{participant}", target.path())).json(arrival)
}
