//! A scenario's own corner of a cluster: barriers under a namespace of its
//! own, clients of every region, and the history of all their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use futures::future::try_join_all;
use muster_client::{Apply, Client, Error, Target};
use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, RegionName};
use muster_wire::answer::{Applied, Released, Status};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Part};
use crate::history::{Answer, Expectation, History, Required, What, check};
use crate::raw::Request;
use crate::until::{DEADLINE, until};
use crate::worker::Worker;

/// A scenario's own corner of a cluster.
pub struct World<'a> {
    /// The cluster.
    pub cluster: &'a dyn Cluster,
    /// Everything that was called.
    pub history: History,
    namespace: String,
    expectation: Mutex<Expectation>,
}

impl<'a> World<'a> {
    /// A new corner.
    #[must_use]
    pub fn new(cluster: &'a dyn Cluster) -> Self {
        let namespace = format!("t{:08x}", rand::random::<u32>());
        Self { cluster, history: History::default(), namespace, expectation: Mutex::default() }
    }

    /// The namespace of its barriers.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The regions.
    #[must_use]
    pub fn regions(&self) -> &[RegionName] {
        &self.cluster.shape().regions
    }

    /// The n-th region.
    #[must_use]
    pub fn region(&self, number: usize) -> &RegionName {
        &self.regions()[number]
    }

    /// A barrier of this corner.
    ///
    /// # Panics
    /// `name` is outside the grammar.
    #[must_use]
    pub fn barrier(&self, name: &str) -> BarrierName {
        format!("{}/{name}", self.namespace).parse().expect("a barrier's name")
    }

    /// One generation of a barrier of this corner.
    ///
    /// # Panics
    /// It is outside the grammar.
    #[must_use]
    pub fn target(&self, name: &str, generation: impl std::fmt::Display) -> Target {
        format!("{}/{name}@{generation}", self.namespace).parse().expect("a target")
    }

    /// A client of the coordinators.
    ///
    /// # Panics
    /// The cluster has none.
    #[must_use]
    pub fn coordinator(&self) -> Client {
        Client::new(self.cluster.coordinators()).expect("addresses").patience(DEADLINE)
    }

    /// A client of a region's agents.
    ///
    /// # Panics
    /// The region has none.
    #[must_use]
    pub fn agents(&self, region: &RegionName) -> Client {
        Client::new(self.cluster.agents(region)).expect("addresses").patience(DEADLINE)
    }

    /// The base URL of the first agent of the n-th region.
    #[must_use]
    pub fn agent_url(&self, number: usize) -> String {
        self.cluster.url(&Part::Agent(self.region(number).clone(), 0))
    }

    /// A participant of the n-th region.
    ///
    /// # Panics
    /// `id` is outside the grammar.
    #[must_use]
    pub fn worker(&self, region: usize, id: &str) -> Worker {
        let region = self.region(region).clone();
        Worker::new(self.agents(&region), region, id.parse().expect("an id"), self.history.clone())
    }

    /// The same `ids` in every region.
    #[must_use]
    pub fn workers(&self, ids: &[&str]) -> Vec<Worker> {
        (0..self.regions().len()).flat_map(|region| ids.iter().map(move |id| self.worker(region, id))).collect()
    }

    /// A definition over all regions; `more` adds fields and replaces them.
    #[must_use]
    pub fn definition(&self, name: &str, more: Value) -> Value {
        let mut definition = json!({
            "kind": "Barrier", "name": self.barrier(name), "regions": self.regions(),
            "participants": ["1"], "generations": "single", "deadline": "10m",
        });
        if let (Some(definition), Value::Object(more)) = (definition.as_object_mut(), more) {
            definition.extend(more);
        }
        definition
    }

    /// Defines a barrier over all regions.
    pub async fn define(&self, name: &str, more: Value) -> Result<Applied, Error> {
        let definition = self.definition(name, more).to_string();
        self.coordinator().apply(&self.barrier(name), definition, Apply::default()).await
    }

    /// Nobody may pass this generation before these have arrived.
    pub fn require(&self, target: &Target, workers: &[Worker]) {
        let names: BTreeSet<String> = workers.iter().map(Worker::name).collect();
        self.expect(target, Required::These(names));
    }

    /// Nobody may pass this generation before so many have arrived in each
    /// region.
    pub fn require_count(&self, target: &Target, count: usize) {
        self.expect(target, Required::Count(self.regions().iter().map(|r| (r.to_string(), count)).collect()));
    }

    /// Nobody may pass this generation before all of one of these sets have
    /// arrived.
    pub fn require_any(&self, target: &Target, sets: &[Vec<Worker>]) {
        let names = |set: &Vec<Worker>| set.iter().map(Worker::name).collect();
        self.expect(target, Required::AnyOf(sets.iter().map(names).collect()));
    }

    /// Nobody may be told of a whole release before these have arrived.
    pub fn everybody(&self, target: &Target, workers: &[Worker]) {
        let names = workers.iter().map(Worker::name).collect();
        self.expecting().everybody.insert(target.to_string(), names);
    }

    /// Arrivals of `before` count in this round of the same key.
    pub fn carries(&self, target: &Target, before: &Target) {
        self.expecting().carried.insert(target.to_string(), before.to_string());
    }

    /// This generation may be past its retention when it is judged.
    pub fn may_be_forgotten(&self, target: &Target) {
        self.expecting().forgotten.insert(target.to_string());
    }

    fn expect(&self, target: &Target, required: Required) {
        self.expecting().required.insert(target.to_string(), required);
    }

    fn expecting(&self) -> MutexGuard<'_, Expectation> {
        self.expectation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them arrive and wait at once; all must be released, equally.
    pub async fn cross(&self, target: &Target, workers: &[Worker]) -> anyhow::Result<Released> {
        self.require(target, workers);
        let released = try_join_all(workers.iter().map(|worker| worker.cross(target))).await?;
        released.into_iter().next().context("nobody crossed")
    }

    /// The status document from the coordinator.
    pub async fn status(&self, target: &Target) -> Result<Status, Error> {
        self.coordinator().status(target, None).await
    }

    /// Waits until the coordinator says that the generation is in this state.
    pub async fn until_state(&self, target: &Target, state: State) -> anyhow::Result<Status> {
        self.until_status(target, &format!("{target} is {}", state.as_str()), |status| status.state == state).await
    }

    /// Waits until the coordinator's status document satisfies `is`.
    pub async fn until_status(
        &self,
        target: &Target,
        what: &str,
        is: impl Fn(&Status) -> bool,
    ) -> anyhow::Result<Status> {
        let coordinator = self.coordinator();
        until(what, || async {
            match coordinator.status(target, None).await {
                Ok(status) if is(&status) => Ok(status),
                Ok(status) => Err(format!("{status:?}")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// A bare request to the coordinator.
    #[must_use]
    pub fn raw(&self, method: &'static str, path: &str) -> Request {
        Request::new(method, format!("{}{path}", self.cluster.url(&Part::Coordinator(0))))
    }

    /// A bare request to an agent of the n-th region.
    #[must_use]
    pub fn raw_agent(&self, region: usize, method: &'static str, path: &str) -> Request {
        Request::new(method, format!("{}{path}", self.agent_url(region)))
    }

    /// Looks after every arrival that was acknowledged, then judges the whole
    /// history.
    pub async fn judge(&self) -> anyhow::Result<()> {
        self.look_at_all().await?;
        self.judge_seen()
    }

    /// Judges the whole history, in which everybody has looked already.
    pub fn judge_seen(&self) -> anyhow::Result<()> {
        let expectation = self.expecting().clone();
        let violations = check(&self.history, &expectation);
        if violations.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        let calls: Vec<String> = self.history.calls().iter().map(|call| format!("{call:?}")).collect();
        let file = std::env::temp_dir().join(format!("muster-history-{}.txt", self.namespace));
        std::fs::write(&file, calls.join("\n")).with_context(|| format!("write {}", file.display()))?;
        bail!("{}\nthe history is in {}", lines.join("\n"), file.display())
    }

    async fn look_at_all(&self) -> anyhow::Result<()> {
        let mut acknowledged: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for call in self.history.calls() {
            let kept = matches!(call.answer, Answer::Arrived { .. });
            let doubtful = matches!((call.what, &call.answer), (What::Arrive { .. }, Answer::Refused(_)))
                || matches!(call.answer, Answer::Withdrawn);
            if kept || doubtful {
                acknowledged.entry(call.generation).or_default().insert(call.participant);
            }
        }
        for (generation, participants) in acknowledged {
            let Ok(target) = generation.parse::<Target>() else { continue };
            for participant in participants {
                let Some((region, id)) = participant.split_once('/') else { continue };
                let Some(number) = self.regions().iter().position(|known| known.as_str() == region) else { continue };
                // A stranger has nothing to be seen; the history has the refusal.
                let _ = self.worker(number, id).look(&target).await;
            }
        }
        Ok(())
    }
}
