use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::fact::Decided;
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::global::{Declared, Generation, Waiver};
use muster_protocol::identity::{Era, History, Stamp, Timestamp};
use muster_protocol::name::{RegionName, ZoneName};
use muster_protocol::outcome::{Break, BreakReason, Failure, Outcome, Override, Release, Verdict};
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::report::{Apart, Missing, RegionReport, ZoneReport};
use muster_protocol::spec::{Leaf, Rule, Spec};
use muster_wire::answer::{Link, Participant, ParticipantState, Reason, RegionState};
use muster_wire::definition;

use super::{View, explain, index, is_at_least, is_newer, released, status};
use crate::store::{GenerationRow, RegionRow};

const NOW: Timestamp = Timestamp(1_791_374_400_000);

/// A generation of `etl/map` in three regions of ten, and who can be heard.
struct World {
    row: GenerationRow,
    regions: BTreeMap<muster_protocol::name::RegionName, RegionRow>,
    declared: BTreeMap<RegionName, Declared>,
    era: Era,
}

impl World {
    fn new() -> Self {
        let name = "etl/map".parse().unwrap();
        let body = br#"{"regions": ["us-east", "eu-west", "ap-south"], "participants": "[0-9]",
            "generations": "keyed", "deadline": "2h", "owner": "data-platform"}"#;
        let spec: Spec = definition::parse(&name, body).unwrap().spec;
        let id = GenerationId { barrier: name, n: 7, key: Some("2026-10-07".parse().unwrap()), round: 0 };
        let generation = Generation {
            id,
            revision: 1,
            opened_at: NOW,
            deadline_at: Some(NOW.plus_ms(4_920_000)),
            era: Era::new("era"),
            reports: BTreeMap::new(),
            decided: None,
            settled: false,
            carry: None,
            waived: BTreeMap::new(),
            closed: false,
        };
        let regions = spec.regions.keys().map(|name| {
            let (history, index, agents) = (Some(History([1; 16])), 1, Vec::new());
            let silence = Some(Duration::from_secs(1));
            let (era, drained, unknown_histories) = (Some(Era::new("era")), None, Vec::new());
            let (name, heard_at) = (name.clone(), Some(NOW));
            let row = RegionRow { name, history, index, silence, heard_at, agents, era, drained, unknown_histories };
            (row.name.clone(), row)
        });
        let regions: BTreeMap<_, RegionRow> = regions.collect();
        let declared = regions.iter().map(|(name, row)| (name.clone(), row.declared())).collect();
        let row = GenerationRow { generation, spec, version: 3, report_ages: BTreeMap::new() };
        Self { row, regions, declared, era: Era::new("era") }
    }

    fn report(mut self, region: &str, arrived: u32, missing: &str) -> Self {
        let name: muster_protocol::name::RegionName = region.parse().unwrap();
        let at = |ms: u64| (arrived > 0).then(|| NOW.plus_ms(ms));
        let report = RegionReport {
            region: name.clone(),
            stamp: Stamp { history: History([1; 16]), shard: 0, index: 1 },
            generation: self.row.generation.id.clone(),
            expected: 10,
            arrived,
            failed: 0,
            retrying: 0,
            complete: arrived == 10,
            over_failures: false,
            missing: Missing { count: 10 - arrived, names: missing.to_owned() },
            failures: Vec::new(),
            outputs: BTreeMap::from([("0".parse().unwrap(), "s3://x".to_owned())]),
            first_arrival_at: at(region.len() as u64 * 100),
            last_arrival_at: at(5_000 + region.len() as u64 * 100),
            applied: None,
            name_taken: false,
            spec: None,
            era: None,
            outcome: None,
            apart: muster_protocol::report::Apart::default(),
            zones: BTreeMap::new(),
        };
        self.row.generation.reports.insert(name, report);
        self
    }

    fn silent(mut self, region: &str, silence: Option<Duration>) -> Self {
        self.regions.get_mut(&region.parse().unwrap()).unwrap().silence = silence;
        self
    }

    fn decided(mut self, verdict: Verdict) -> Self {
        let outcome = Outcome { generation: self.row.generation.id.clone(), verdict, decided_at: NOW };
        self.row.generation.decided =
            Some(Decided { outcome, next: None, regions: self.row.spec.regions.keys().cloned().collect() });
        self
    }

    fn applied(mut self, region: &str) -> Self {
        let digest = self.row.generation.decided.as_ref().unwrap().outcome.digest();
        self.row.generation.reports.get_mut(&region.parse().unwrap()).unwrap().applied = Some(digest);
        self
    }

    fn view(&self) -> View<'_> {
        View { row: &self.row, regions: &self.regions, declared: &self.declared, era: &self.era, waiting: 12, now: NOW }
    }

    fn reason(&self) -> (Reason, String) {
        let status = status(&self.view());
        (status.reason, status.message)
    }
}

fn all_complete() -> World {
    World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 10, "")
}

fn release() -> Verdict {
    Verdict::Released(Release {
        whole: true,
        outputs: BTreeMap::from([(
            "us-east".parse().unwrap(),
            BTreeMap::from([("0".parse().unwrap(), "s3://x".to_owned())]),
        )]),
        ..Release::default()
    })
}

fn break_for(reason: BreakReason, message: &str) -> Verdict {
    let failure = Failure {
        region: "us-east".parse().unwrap(),
        participant: "4".parse().unwrap(),
        attempt: 1,
        note: Some("signal 9".to_owned()),
    };
    let region = Some(failure.region.clone());
    Verdict::Broken(Break { reason, region, failed: vec![failure], actor: Some("ada".into()), message: message.into() })
}

#[test]
fn participants_that_are_missing_have_numbers_and_a_place() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    let (reason, message) = world.reason();
    assert_eq!(reason, Reason::WaitingForParticipants);
    assert_eq!(message, "3 of 30 participants missing, all in ap-south");
    let world = World::new().report("us-east", 9, "7").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    assert_eq!(world.reason().1, "4 of 30 participants missing: 3 in ap-south and 1 in us-east");
}

#[test]
fn a_region_that_is_not_heard_is_the_reason() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    let (reason, message) = world.silent("ap-south", Some(Duration::from_secs(252))).reason();
    assert_eq!(reason, Reason::RegionSilent);
    assert!(message.starts_with("ap-south has not been heard for 4m12s; 3 of 30"), "{message}");
    // A complete region may be silent: nothing waits for it.
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    let (reason, _) = world.silent("us-east", Some(Duration::from_secs(252))).reason();
    assert_eq!(reason, Reason::WaitingForParticipants);
}

#[test]
fn a_region_that_did_not_open_it_is_the_reason() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "");
    let (reason, message) = world.reason();
    assert_eq!(reason, Reason::WaitingForRegions);
    assert!(message.starts_with("ap-south has not said that it opened it; 10 of 30"), "{message}");
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").silent("ap-south", None);
    assert!(world.reason().1.starts_with("no agent of ap-south was ever heard"));
}

#[test]
fn nobody_and_no_time_is_idle() {
    let mut world = World::new().report("us-east", 0, "").report("eu-west", 0, "").report("ap-south", 0, "");
    assert_eq!(world.reason().0, Reason::WaitingForParticipants, "time runs");
    world.row.generation.deadline_at = None;
    assert_eq!(world.reason().0, Reason::Idle);
}

#[test]
fn a_release_goes_from_deciding_to_released() {
    assert_eq!(all_complete().reason().0, Reason::Deciding);
    let mut world = all_complete().decided(release()).applied("us-east").applied("eu-west");
    let view = world.view();
    let document = status(&view);
    assert_eq!((document.state, document.reason), (State::Releasing, Reason::ReleasePropagating));
    assert_eq!(document.message, "released; ap-south has not applied it yet");
    assert_eq!(document.release.as_ref().map(|release| release.whole), Some(true));
    assert!(document.next.is_none() && document.broken.is_none());
    world = world.applied("ap-south");
    world.row.generation.settled = true;
    assert_eq!(world.reason(), (Reason::Released, "released: all 30 participants of 3 regions arrived".to_owned()));
    let released = released(&world.row).unwrap();
    assert_eq!(released.outputs.get("us-east/0").map(String::as_str), Some("s3://x"));
    assert_eq!(released.state, State::Released);
}

#[test]
fn a_break_says_who_and_why() {
    let world = all_complete().decided(break_for(BreakReason::Aborted, "wrong input"));
    assert_eq!(world.reason(), (Reason::Aborted, "aborted by ada: wrong input".to_owned()));
    assert!(released(&world.row).is_none());
    let broken = status(&world.view()).broken.unwrap();
    assert_eq!(broken.failed, ["us-east/4"]);
    let world = all_complete().decided(break_for(BreakReason::ParticipantFailed, "us-east/4 failed"));
    assert_eq!(world.reason(), (Reason::ParticipantFailed, "us-east/4 failed".to_owned()));
}

#[test]
fn the_document_has_what_the_walk_shows() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    let document = status(&world.view());
    assert_eq!((document.arrived, document.expected, document.waiting), (27, 30, 12));
    assert_eq!(document.next.as_ref().unwrap().what, "break");
    assert_eq!(document.skew_seconds, None, "not everybody has arrived");
    let ap_south = document.regions.iter().find(|region| region.name.as_str() == "ap-south").unwrap();
    assert_eq!((ap_south.state, ap_south.link, ap_south.missing_count), (RegionState::Gathering, Link::Up, 3));
    assert_eq!(document.links["wait"], "/v1/barriers/etl/map/generations/2026-10-07/wait");
    assert_eq!(status(&all_complete().view()).skew_seconds, Some(5.1));
}

#[test]
fn an_explanation_has_lines_people_and_a_way_out() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 7, "[1,4-5]");
    let explanation = explain(&world.view(), &[]);
    let lines = explanation.lines.join("\n");
    assert!(lines.contains("etl/map@2026-10-07 has not released: 3 of 30"), "{lines}");
    assert!(lines.contains("ap-south: 7 of 10 arrived, 3 missing: [1,4-5]."), "{lines}");
    assert!(lines.contains("eu-west and us-east are complete."), "{lines}");
    assert!(lines.contains("It breaks in 1h22m (deadline)."), "{lines}");
    let named: Vec<&str> = explanation.participants.iter().map(|one| one.participant.as_str()).collect();
    assert_eq!(named, ["ap-south/1", "ap-south/4", "ap-south/5"]);
    let commands: Vec<&str> = explanation.actions.iter().map(|action| action.command.as_str()).collect();
    assert_eq!(
        commands,
        [
            "muster waive etl/map@2026-10-07 --region ap-south --id 1,4-5 --reason …",
            "muster waive etl/map@2026-10-07 --region ap-south --reason …",
            "muster abort etl/map@2026-10-07 --reason …",
        ]
    );
}

#[test]
fn an_index_orders_what_its_origin_issued() {
    let (era, mut world) = (Era::new("7412:1"), World::new());
    let before = index(&era, &world.row);
    assert!(!is_newer(&era, &world.row, &before) && is_at_least(&era, &world.row, &before));
    world.row.version += 1;
    assert!(is_newer(&era, &world.row, &before));
    let after = index(&era, &world.row);
    world.row.version -= 1;
    assert!(!is_at_least(&era, &world.row, &after));
    world.row.generation.id.n += 1;
    assert!(is_newer(&era, &world.row, &after), "a later generation is newer than any state of one before");
    for foreign in ["other:9.9", "", "nonsense", "7412:1:x.y"] {
        assert!(is_newer(&era, &world.row, foreign), "{foreign:?} must be answered at once");
    }
}

fn waiver(ids: Option<&str>) -> Waiver {
    let participants = ids.map(|ids| IdSet::parse([ids]).unwrap());
    let by = Override { actor: Some("ada".into()), reason: "it is dark".into() };
    Waiver { revision: 1, participants, by }
}

fn apart(mut world: World, region: &str, apart: Apart, retrying: u32) -> World {
    let report = world.row.generation.reports.get_mut(&region.parse().unwrap()).unwrap();
    (report.apart, report.retrying) = (apart, retrying);
    report.missing.count -= retrying;
    world
}

#[test]
fn those_that_are_missing_are_told_apart() {
    let world = World::new().report("us-east", 10, "").report("eu-west", 10, "").report("ap-south", 6, "[1,4-5]");
    let world = apart(world, "ap-south", Apart { working: 2, lost: 1, ..Apart::default() }, 1);
    assert_eq!(world.reason().1, "4 of 30 participants missing, all in ap-south; 2 working, 1 lost, 1 retrying");
    let document = status(&world.view());
    let region = &document.regions[0];
    assert_eq!((region.missing_count, region.working, region.lost, region.retrying), (3, 2, 1, 1));
    let lost = Participant {
        last_seen_seconds: Some(252.4),
        rejoin_seconds: Some(48.0),
        ..super::explain::plain("ap-south/5".to_owned(), ParticipantState::Lost)
    };
    let explanation = explain(&world.view(), &[lost]);
    let lines = explanation.lines.join("\n");
    assert!(
        lines.contains("ap-south: 6 of 10 arrived, 1 retrying, 3 missing (2 working, 1 lost): [1,4-5]."),
        "{lines}"
    );
    assert!(lines.contains("ap-south/5 is lost, last heard 4m12s ago, 48s left to come back."), "{lines}");
    let named: Vec<&str> = explanation.participants.iter().map(|one| one.participant.as_str()).collect();
    assert_eq!(named, ["ap-south/5", "ap-south/1", "ap-south/4"], "once each");
}

#[test]
fn what_the_rule_still_needs_is_said() {
    let leaf = |name: &str| Rule::Leaf(Leaf { region: name.parse().unwrap(), zone: None });
    let of = vec![leaf("us-east"), leaf("eu-west")];
    let mut world = World::new().report("us-east", 4, "[4-9]").report("eu-west", 1, "[1-9]").report("ap-south", 10, "");
    world.row.spec.release_when = Rule::Every(vec![leaf("ap-south"), Rule::AtLeast { count: 1, of }]);
    let lines = explain(&world.view(), &[]).lines.join("\n");
    assert!(lines.contains("Release needs 1 of [us-east, eu-west]."), "{lines}");
    let world = world.report("us-east", 10, "");
    assert_eq!(world.reason().0, Reason::Deciding, "it needs no more");
}

#[test]
fn a_waived_region_is_not_waited_for() {
    let mut world = World::new().report("us-east", 10, "").report("eu-west", 9, "7");
    world.row.generation.waived.insert("ap-south".parse().unwrap(), waiver(None));
    world.row.generation.waived.insert("eu-west".parse().unwrap(), waiver(Some("3")));
    assert_eq!(world.reason().1, "1 of 30 participants missing, all in eu-west");
    let document = status(&world.view());
    assert_eq!((document.regions[0].state, document.regions[0].missing_count), (RegionState::Waived, 0));
    let explanation = explain(&world.view(), &[]);
    let lines = explanation.lines.join("\n");
    assert!(lines.contains("ap-south waived by ada: it is dark.") && lines.contains("3 of eu-west waived"), "{lines}");
    assert!(!explanation.actions.iter().any(|action| action.command.contains("ap-south")), "it is waived");
}

#[test]
fn a_region_that_has_to_speak_first_is_the_reason() {
    let mut world = all_complete();
    world.row.generation.era = Era::new("before");
    let (reason, message) = world.reason();
    assert_eq!(reason, Reason::RegionBehind);
    assert!(message.contains("before ap-south has said"), "{message}");
    assert!(explain(&world.view(), &[]).actions.is_empty(), "nobody can overrule it");
}

#[test]
fn a_release_says_what_it_did_without() {
    let left_out = vec!["ap-south".parse().unwrap()];
    let waived = BTreeMap::from([("eu-west".parse().unwrap(), "[1-3]".to_owned())]);
    let release = Release { failed: 2, excluded: 1, left_out, waived, ..Release::default() };
    let mut world = all_complete().decided(Verdict::Released(release.clone()));
    world.row.generation.settled = true;
    let (reason, message) = world.reason();
    assert_eq!(reason, Reason::Released);
    assert_eq!(
        message,
        "released, not whole: 2 participants failed; 1 participant was lost and excluded; ap-south was left out; \
         [1-3] of eu-west waived"
    );
    let forced = Some(Override { actor: None, reason: "the night is over".into() });
    let mut world = all_complete().decided(Verdict::Released(Release { forced, ..release }));
    world.row.generation.settled = true;
    assert_eq!(world.reason(), (Reason::Forced, "released by force: the night is over".to_owned()));
}

#[test]
fn a_verdict_outlives_its_details() {
    let mut world = World::new().decided(break_for(BreakReason::Aborted, "wrong input"));
    (world.row.generation.closed, world.row.generation.settled) = (true, true);
    let document = status(&world.view());
    assert_eq!((document.reason, document.regions[0].state), (Reason::Aborted, RegionState::Unknown));
    let explanation = explain(&world.view(), &[]);
    assert!(explanation.lines.join("\n").contains("past its retention"));
    assert!(explanation.actions[0].command.contains("--keep none"), "{:?}", explanation.actions);
}

#[test]
fn zones_stand_below_their_region() {
    let mut world = World::new().report("us-east", 4, "[4-9]");
    let zones = ["[0-4]", "[5-9]"].map(|ids| IdSet::parse([ids]).unwrap());
    let names = ["a", "b"].map(|name| name.parse::<ZoneName>().unwrap());
    let (us, [one, other]): (RegionName, _) = ("us-east".parse().unwrap(), names.clone());
    let zoned = names.into_iter().zip(zones).collect();
    world.row.spec.regions.get_mut(&us).unwrap().participants = Participants::Zones(zoned);
    let report = world.row.generation.reports.get_mut(&us).unwrap();
    report.zones.insert(one.clone(), ZoneReport { expected: 5, arrived: 4, failed: 1, complete: true });
    let document = status(&world.view());
    let region = document.regions.iter().find(|region| region.name == us).unwrap();
    assert_eq!((region.zones[&one].arrived, region.zones[&one].complete), (4, true));
    assert_eq!((region.zones[&other].expected, region.zones[&other].arrived), (5, 0));
}
