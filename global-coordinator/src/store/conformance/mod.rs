//! What every adapter of the store must do: one suite, run by the tests of
//! each on two handles of one database, as two coordinators have them.

pub(super) mod absence;
pub(super) mod cancelling;
pub(super) mod collecting;
pub(super) mod deciding;
pub(super) mod defining;
pub(super) mod eras;
pub(super) mod guarding;
pub(super) mod listing;
pub(super) mod opening;
pub(super) mod overruling;
pub(super) mod owing;
pub(super) mod racing;
pub(super) mod regions;
pub(super) mod succeeding;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::fact::{AgentId, Heartbeat, Hello};
use muster_protocol::generation::GenerationId;
use muster_protocol::global::{Barrier, Change, Command, Expect, Refusal, Reply, Step};
use muster_protocol::identity::{Digest, History, Stamp, Timestamp};
use muster_protocol::name::{BarrierName, Key, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::participants::Participants;
use muster_protocol::report::{Missing, RegionReport};
use muster_protocol::spec::{Generations, Rule, Scope, Slice, Spec};

use super::backend::{Backend, End, Purpose, Transaction, run};
use super::query::Query;
use super::write::Writes;
use super::{GenerationRow, Mode, Store, StoreError};

/// Runs every test of the suite: `$run` makes the stores, calls the test and
/// cleans up.
macro_rules! conformance {
    ($run:path) => {
        $crate::store::conformance::conformance! { @each $run;
            absence::a_drained_region_is_waived_in_what_opens,
            absence::another_log_takes_the_place_of_a_regions,
            absence::who_opens_while_a_region_is_drained_knows_it_or_is_found,
            cancelling::dropped_callers_leave_nothing_half_done,
            collecting::by_count_details_go_first_and_verdicts_later,
            collecting::by_time_nothing_stays_for_ever,
            collecting::much_is_collected_in_parts,
            collecting::what_comes_with_the_collection_stays,
            deciding::a_batch_is_applied_in_its_order_to_every_barrier,
            deciding::a_failure_breaks_everywhere,
            deciding::a_large_batch_is_applied_whole,
            deciding::an_end_of_a_cyclic_barrier_opens_the_next,
            deciding::hostile_text_comes_back_as_it_was,
            deciding::it_is_settled_once_every_region_applied_the_end,
            deciding::stale_foreign_and_repeated_reports_change_nothing,
            deciding::the_last_region_decides_once_with_outputs,
            deciding::time_up_breaks_on_the_clock_of_the_database,
            defining::a_definition_is_new_equal_in_conflict_or_replaced,
            defining::numbers_go_on_across_deletion,
            defining::refused_and_tried_definitions_leave_nothing,
            eras::greetings_say_which_life_and_what_it_lacks,
            eras::who_is_not_known_any_more_is_told_and_greets,
            eras::nothing_is_decided_before_all_have_spoken_again,
            eras::what_was_lost_is_taken_up,
            guarding::an_outcome_is_written_once,
            guarding::a_number_is_opened_once,
            guarding::an_older_report_replaces_nothing,
            guarding::an_older_waiver_replaces_nothing,
            guarding::numbers_never_fall,
            listing::barriers_are_listed_by_exact_prefix_in_stable_pages,
            listing::generations_are_filtered,
            listing::generations_are_listed_newest_first_in_stable_pages,
            listing::generations_are_found_by_number_key_and_round,
            opening::a_key_opens_once_and_no_more_than_may,
            opening::a_single_barrier_is_open_once,
            overruling::a_retry_goes_on_from_the_round_that_broke,
            overruling::the_audit_log_is_listed_by_whom_and_what,
            overruling::waivers_are_kept_and_owed,
            owing::unanswered_is_exactly_what_is_owed,
            owing::unreadable_records_are_kept_once,
            racing::batches_in_opposite_orders_all_end,
            racing::one_first_history_wins,
            racing::one_of_arrival_deadline_and_abort_wins,
            racing::one_of_two_definitions_is_the_first,
            racing::two_deciders_never_miss_and_never_double_a_decision,
            regions::greetings_are_answered_by_what_is_known,
            regions::indices_only_rise,
            regions::signs_of_life_count_for_the_current_history,
            succeeding::a_key_goes_down_with_the_latest_round_of_its_predecessor,
            succeeding::a_number_goes_down_with_the_same_number,
        }
    };
    (@each $run:path; $($module:ident::$test:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $run($crate::store::conformance::$module::$test).await;
            }
        )*
    };
}
pub(super) use conformance;

/// Two handles of one database, and a look behind the port.
pub(super) struct Stores {
    pub(super) one: Arc<dyn Store>,
    pub(super) other: Arc<dyn Store>,
    pub(super) behind: Arc<dyn Behind>,
}

impl Stores {
    /// Two handles of one database, with three declared regions whose agents
    /// have greeted.
    pub(super) async fn new<B: Backend>(one: B, other: B) -> Self {
        let stores = Self { one: Arc::new(one.clone()), other: Arc::new(other), behind: Arc::new(one) };
        for region in REGIONS {
            assert!(stores.one.declare(&named(region)).await.unwrap());
            stores.one.hello(&hello(region, 1, 1)).await.unwrap();
        }
        stores
    }

    /// Both handles.
    fn both(&self) -> [&Arc<dyn Store>; 2] {
        [&self.one, &self.other]
    }

    /// Does one command on the first handle.
    async fn act(&self, barrier: &BarrierName, command: Command) -> Step {
        act(&self.one, barrier, command).await
    }

    /// Defines a barrier and returns the numbers it opened.
    async fn define(&self, spec: &Spec) -> Vec<GenerationId> {
        let step = self.act(&spec.name, define(spec, Expect::NewOrEqual)).await;
        assert!(matches!(step.reply, Ok(Reply::Defined { changed: true, .. })), "{:?}", step.reply);
        opened(&step)
    }

    /// Opens a key and returns its generation.
    async fn open(&self, barrier: &BarrierName, key: &str) -> GenerationId {
        let step = self.act(barrier, Command::Open { key: Some(named(key)) }).await;
        match step.reply {
            Ok(Reply::Opened { generation, created: true, .. }) => generation,
            other => panic!("{key} was not opened: {other:?}"),
        }
    }

    /// A generation as the first handle has it.
    async fn row(&self, id: &GenerationId) -> GenerationRow {
        row(&self.one, id).await
    }
}

/// What the suite must see or do that the port has no call for.
#[async_trait]
pub(super) trait Behind: Send + Sync {
    /// The number that a statement reads.
    async fn number(&self, statement: &'static str) -> i64;

    /// Changes rows as a later version will.
    async fn alter(&self, statement: &'static str);

    /// Writes a change without lock and machine, as a defect would.
    async fn force(&self, barrier: Barrier, change: Change) -> Result<(), StoreError>;
}

#[async_trait]
impl<B: Backend> Behind for B {
    async fn number(&self, statement: &'static str) -> i64 {
        let read = run(self, Purpose::Read, move |tx| {
            Box::pin(async move {
                let rows: Vec<(i64,)> = tx.fetch(Query::new(statement)).await?;
                Ok((rows[0].0, End::Rollback))
            })
        });
        read.await.unwrap()
    }

    async fn alter(&self, statement: &'static str) {
        let mut tx = self.begin(Purpose::Write).await.unwrap();
        tx.execute(Query::new(statement)).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn force(&self, barrier: Barrier, change: Change) -> Result<(), StoreError> {
        let mut tx = self.begin(Purpose::Write).await?;
        let clock = tx.clock().await?;
        let mut writes = Writes::new(&clock);
        writes.add(&barrier.name, &change)?;
        let barriers = BTreeMap::from([(barrier.name.clone(), barrier)]);
        match writes.write(&mut tx, &barriers).await {
            Ok(()) => tx.commit().await,
            refused => tx.rollback().await.and(refused),
        }
    }
}

/// What a database of the first version may hold, with an end and a region that
/// has greeted.
pub(super) const FIRST: [&str; 7] = [
    "insert into regions (name, declared_at) values ('us-east', 1), ('silent', 1)",
    "insert into histories (region, history, standing, highest_index, first_seen_at)
        values ('us-east', '01010101010101010101010101010101', 'current', 5, 1)",
    "insert into barriers (namespace, name, revision, deleted, next_n) values ('etl', 'map', 1, false, 2)",
    "insert into specs (namespace, name, revision, spec, defined_at) values ('etl', 'map', 1, '{}', 1)",
    "insert into spec_regions (namespace, name, revision, region) values ('etl', 'map', 1, 'us-east')",
    "insert into generations (namespace, name, n, round, revision, opened_at, era, settled, version)
        values ('etl', 'map', 1, 0, 1, 1, 'e', false, 1)",
    "insert into reports (namespace, name, n, region, history, shard, log_index, complete, body, received_at)
        values ('etl', 'map', 1, 'us-east', '01010101010101010101010101010101', 0, 1, false, '{}', 1)",
];

/// That the row of each table reads as [`FIRST`] means it, once it was brought
/// to this version.
pub(super) const BROUGHT_FORWARD: &str = "select count(*) from regions as r
    join barriers as b on b.retention_ms = 2592000000 and b.retention_generations = 1000
    join specs as s on s.after_name is null
    join generations as g on not g.closed and g.carry is null
    join reports as p on p.waiver = 0
    where r.name = 'us-east' and r.drained_until is null";

/// The declared regions; the history of each is [`history`]\(1).
const REGIONS: [&str; 3] = ["ap-south", "eu-west", "us-east"];

fn named<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn history(life: u8) -> History {
    History([life; 16])
}

fn hello(region: &str, life: u8, head: u64) -> Hello {
    Hello {
        region: named(region),
        agent: agent(region),
        history: history(life),
        shard: 0,
        head,
        machine_version: 1,
        address: format!("http://{region}.test:7171"),
        era: None,
    }
}

fn heartbeat(region: &str, life: u8, index: u64) -> Heartbeat {
    let Hello { region, agent, history, shard, address, era, .. } = hello(region, life, index);
    Heartbeat { region, agent, history, shard, index, address, era }
}

fn agent(region: &str) -> AgentId {
    AgentId { name: format!("{region}-1"), instance: "f00d".into() }
}

fn spec(name: &str, generations: Generations) -> Spec {
    spec_of(name, generations, &REGIONS)
}

fn spec_of(name: &str, generations: Generations, regions: &[&str]) -> Spec {
    let slice = Slice {
        participants: Participants::Count(2),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 1_024,
        deadline_ms: None,
        retention_ms: 1_000,
    };
    Spec {
        name: named(name),
        description: String::new(),
        owner: "tests".into(),
        labels: BTreeMap::new(),
        scope: Scope::Global,
        regions: regions.iter().map(|region| (named(region), slice.clone())).collect(),
        generations,
        deadline_ms: None,
        release_when: Rule::All,
        retention_ms: 1_000,
        retention_generations: 1_000,
        failures_max: 0,
        after: None,
    }
}

fn define(spec: &Spec, expect: Expect) -> Command {
    Command::Define { spec: Box::new(spec.clone()), expect }
}

fn abort(n: u64) -> Command {
    Command::Abort { n, by: by("enough") }
}

fn by(reason: &str) -> Override {
    Override { actor: Some("tests".into()), reason: reason.into() }
}

/// A region's report with one of two participants arrived.
fn report(generation: &GenerationId, region: &str, index: u64) -> RegionReport {
    RegionReport {
        region: named(region),
        stamp: Stamp { history: history(1), shard: 0, index },
        generation: generation.clone(),
        expected: 2,
        arrived: 1,
        failed: 0,
        retrying: 0,
        complete: false,
        over_failures: false,
        missing: Missing { count: 1, names: String::new() },
        failures: Vec::new(),
        outputs: BTreeMap::new(),
        first_arrival_at: Some(Timestamp(1)),
        last_arrival_at: Some(Timestamp(1)),
        applied: None,
        name_taken: false,
        spec: None,
        era: None,
        outcome: None,
        apart: muster_protocol::report::Apart::default(),
        zones: BTreeMap::new(),
    }
}

/// The report of a region in which everybody has arrived.
fn complete(generation: &GenerationId, region: &str, index: u64) -> RegionReport {
    let missing = Missing::default();
    RegionReport { arrived: 2, complete: true, missing, ..report(generation, region, index) }
}

/// The report of a region that has applied an end.
fn applied(generation: &GenerationId, region: &str, index: u64, digest: Digest) -> RegionReport {
    RegionReport { applied: Some(digest), ..complete(generation, region, index) }
}

fn says(report: RegionReport) -> (BarrierName, Command) {
    (report.generation.barrier.clone(), Command::Report(Box::new(report)))
}

/// Completes every region of a generation, one after the other.
async fn complete_all(store: &Arc<dyn Store>, id: &GenerationId, index: u64) -> Digest {
    for region in REGIONS {
        store.transact(vec![says(complete(id, region, index))], Mode::Commit).await.unwrap();
    }
    row(store, id).await.generation.decided.unwrap().outcome.digest()
}

async fn act(store: &Arc<dyn Store>, barrier: &BarrierName, command: Command) -> Step {
    store.transact(vec![(barrier.clone(), command)], Mode::Commit).await.unwrap().pop().unwrap()
}

async fn row(store: &Arc<dyn Store>, id: &GenerationId) -> GenerationRow {
    let reference = named(&id.label().to_string());
    store.generation(&id.barrier, &reference).await.unwrap().expect("the generation is there")
}

fn opened(step: &Step) -> Vec<GenerationId> {
    let opened = step.changes.iter().filter_map(|change| match change {
        Change::Opened(generation) => Some(generation.id.clone()),
        _ => None,
    });
    opened.collect()
}

fn decided(step: &Step) -> Vec<Digest> {
    let decided = step.changes.iter().filter_map(|change| match change {
        Change::Decided { decided, .. } => Some(decided.outcome.digest()),
        _ => None,
    });
    decided.collect()
}

fn refusal(step: Step) -> Refusal {
    step.reply.expect_err("it was not refused")
}

/// What may take a while on a slow machine and must not take for ever.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {} s", limit.as_secs()))
}

fn keyed(max_open: u32) -> Generations {
    Generations::Keyed { max_open }
}

fn key(text: &str) -> Key {
    named(text)
}

fn region(text: &str) -> RegionName {
    named(text)
}

/// A barrier of one region that opens by key.
pub(super) fn small_spec(name: &str) -> Spec {
    spec_of(name, keyed(1), &REGIONS[..1])
}
