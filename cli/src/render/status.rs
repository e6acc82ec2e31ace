//! The status document as a tree of regions.

use muster_protocol::generation::State;
use muster_protocol::identity::Timestamp;
use muster_wire::answer::{Link, Reason, RegionState, RegionStatus, ReleaseStatus, Status};

use super::table::aligned;
use super::time::{ago, short, until};
use super::visible::visible_line;

const DONE: &str = "✔";
const OPEN: &str = "◌";
const FAILED: &str = "✖";
const WITHOUT: &str = "–";

/// The whole document: one line for all, one for each region, and what keeps it
/// when that is not plain from the tree.
pub(crate) fn tree(status: &Status, now: Timestamp) -> String {
    let mut text = format!("{}\n", line(status, now));
    let count = status.regions.len();
    let regions = status.regions.iter().enumerate();
    let rows: Vec<[String; 3]> =
        regions.flat_map(|(index, region)| rows(status, region, index + 1 == count, now)).collect();
    text.push_str(&aligned(&rows, ""));
    text.extend(status.release.as_ref().and_then(without).map(|without| format!("{without}\n")));
    let plain = matches!(status.reason, Reason::WaitingForParticipants | Reason::Released | Reason::Idle);
    if !plain && !status.message.is_empty() {
        text.push_str(&format!("{}\n", visible_line(&status.message)));
    }
    text
}

/// The document in one line.
pub(crate) fn line(status: &Status, now: Timestamp) -> String {
    let mut parts = vec![
        format!("{}@{}", status.barrier, status.generation),
        format!("{:<9}", status.state.as_str()),
        format!("{}/{}", status.arrived, status.expected),
    ];
    if status.failed > 0 {
        parts.push(format!("{} failed", status.failed));
    }
    match (&status.decided_at, &status.deadline_at) {
        (Some(decided), _) if status.state == State::Broken => parts.push(format!("broken {}", ago(now, decided))),
        (Some(decided), _) => parts.push(format!("decided {}", ago(now, decided))),
        (None, deadline) => {
            parts.push(format!("opened {}", ago(now, &status.opened_at)));
            parts.extend(deadline.iter().map(|deadline| format!("deadline {}", until(now, deadline))));
        }
    }
    if status.release.as_ref().is_some_and(|release| !release.whole) {
        parts.push("not whole".to_owned());
    }
    parts.extend(status.skew_seconds.map(|skew| format!("skew {}", short(skew))));
    // The state is padded for lists of lines; two spaces part the rest.
    visible_line(&format!("{}  {}  {}", parts[0], parts[1], parts[2..].join("   ")))
}

/// A region, and its zones below it.
fn rows(status: &Status, region: &RegionStatus, last: bool, now: Timestamp) -> Vec<[String; 3]> {
    let (branch, stem) = if last { ("└─", "   ") } else { ("├─", "│  ") };
    let tail = [what(status, region, now), heard(status, region)];
    let tail: Vec<&str> = tail.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let mark = mark(status, region);
    let first = [
        format!("{branch} {mark} {}", region.name),
        format!(" {}/{}", region.arrived, region.expected),
        tail.join("  "),
    ];
    let count = region.zones.len();
    let zones = region.zones.iter().enumerate().map(|(index, (name, zone))| {
        let branch = if index + 1 == count { "└─" } else { "├─" };
        let mark = if zone.complete { DONE } else { OPEN };
        let failed = (zone.failed > 0).then(|| format!("{} failed", zone.failed));
        let complete = zone.complete.then(|| "complete".to_owned());
        let tail: Vec<String> = failed.into_iter().chain(complete).collect();
        [format!("{stem}{branch} {mark} {name}"), format!(" {}/{}", zone.arrived, zone.expected), tail.join("  ")]
    });
    std::iter::once(first).chain(zones).collect()
}

fn mark(status: &Status, region: &RegionStatus) -> &'static str {
    match (region.state, status.state) {
        _ if is_left_out(status, region) => WITHOUT,
        (RegionState::Failed, _) => FAILED,
        (_, State::Broken) if region.failed > 0 => FAILED,
        (_, State::Released) => DONE,
        (_, State::Releasing) if !region.applied => OPEN,
        (RegionState::Waived, _) => WITHOUT,
        (RegionState::Complete, _) => DONE,
        _ if region.applied && status.state != State::Broken => DONE,
        _ => OPEN,
    }
}

/// Whether it was released without this region.
fn is_left_out(status: &Status, region: &RegionStatus) -> bool {
    status.release.as_ref().is_some_and(|release| {
        release.left_out.contains(&region.name) || release.waived.get(&region.name).is_some_and(String::is_empty)
    })
}

fn what(status: &Status, region: &RegionStatus, now: Timestamp) -> String {
    let without = if is_left_out(status, region) { " without it" } else { "" };
    if status.state == State::Releasing && !region.applied {
        return format!("release{without} on its way");
    }
    if matches!(status.state, State::Releasing | State::Released) {
        return format!("released{without}");
    }
    let mut parts = Vec::new();
    if region.failed > 0 {
        parts.push(format!("{} failed", region.failed));
    }
    match region.state {
        RegionState::Complete => {
            let since = region.completed_at.as_ref().map(|at| format!(" {}", ago(now, at)));
            parts.push(format!("complete{}", since.unwrap_or_default()));
        }
        RegionState::Unopened => parts.push("not open there yet".to_owned()),
        RegionState::Unknown => parts.push("not known here".to_owned()),
        RegionState::Waived => parts.push("waived".to_owned()),
        _ if !region.missing.is_empty() => parts.push(format!("missing {}", missing(region))),
        _ if region.missing_count > 0 => parts.push(format!("{} missing", region.missing_count)),
        _ => {}
    }
    let counts = [
        (region.retrying, "retrying"),
        (region.working, "working"),
        (region.lost, "lost"),
        (region.excluded, "excluded"),
        (region.waived, "waived"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0 && region.state != RegionState::Waived);
    parts.extend(counts.map(|(count, what)| format!("{count} {what}")));
    parts.join("  ")
}

/// What a release that is not whole went without.
fn without(release: &ReleaseStatus) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend((release.failed > 0).then(|| format!("{} failed", release.failed)));
    parts.extend((release.excluded > 0).then(|| format!("{} lost and excluded", release.excluded)));
    parts.extend(release.left_out.iter().map(|region| format!("{region} left out")));
    parts.extend(release.waived.iter().map(|(region, ids)| match ids.as_str() {
        "" => format!("{region} waived"),
        ids => format!("{ids} of {region} waived"),
    }));
    parts.extend(release.forced.as_ref().map(|forced| {
        let by = forced.actor.as_ref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        format!("forced{by}: {}", forced.reason)
    }));
    (!release.whole && !parts.is_empty()).then(|| format!("not whole: {}", parts.join("; ")))
}

/// The names that are known, and how many there are beside them.
fn missing(region: &RegionStatus) -> String {
    let named: Result<muster_protocol::participants::IdSet, _> =
        muster_protocol::participants::IdSet::parse(ranges(&region.missing));
    match named.map(|set| region.missing_count.saturating_sub(set.len())) {
        Ok(more) if more > 0 => format!("{} and {more} more", region.missing),
        _ => region.missing.clone(),
    }
}

/// Ids and ranges, divided at the commas outside of brackets.
pub(crate) fn ranges(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}

/// When the region was heard, where that matters.
fn heard(status: &Status, region: &RegionStatus) -> String {
    let waits = match status.state {
        State::Gathering => region.state != RegionState::Complete,
        State::Releasing => !region.applied,
        State::Released | State::Broken => false,
    };
    let age = region.as_of_seconds.map(short);
    match (region.link, age) {
        (Link::Silent, Some(age)) => format!("silent for {age}"),
        (Link::Silent, None) => "silent".to_owned(),
        (Link::Never, _) => "never heard of".to_owned(),
        (Link::Up, Some(age)) if waits => format!("agent {age} ago"),
        _ => String::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use muster_wire::time::parse_rfc3339;
    use serde_json::json;

    pub(crate) fn at_noon() -> Timestamp {
        parse_rfc3339("2026-10-07T12:00:00Z").unwrap()
    }

    pub(crate) fn gathering() -> Status {
        let region = |name: &str, arrived: u32, more: serde_json::Value| {
            let mut region = json!({"name": name, "state": "complete", "arrived": arrived, "expected": 1024, "failed": 0,
                "applied": false, "link": "up", "asOfSeconds": 1.4});
            region.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            region
        };
        serde_json::from_value(json!({
            "barrier": "etl/map", "generation": "2026-10-07", "n": 7, "round": 0, "state": "gathering",
            "reason": "waiting-for-participants", "message": "3 of 3072 participants are missing, all in ap-south",
            "expected": 3072, "arrived": 3069, "failed": 0, "waiting": 812, "openedAt": "2026-10-07T11:22:00Z",
            "deadlineAt": "2026-10-07T13:22:00Z", "index": "e:1", "owner": "",
            "regions": [
                region("us-east", 1024, json!({"completedAt": "2026-10-07T11:48:00Z"})),
                region("eu-west", 1024, json!({"completedAt": "2026-10-07T11:57:00Z"})),
                region("ap-south", 1021, json!({"state": "gathering", "missing": "[17,204-205]", "missingCount": 3})),
            ],
            "links": {}
        }))
        .unwrap()
    }

    #[test]
    fn a_gathering_generation_shows_who_is_missing() {
        let expected = "\
etl/map@2026-10-07  gathering  3069/3072   opened 38m ago   deadline in 1h22m
├─ ✔ us-east    1024/1024  complete 12m ago
├─ ✔ eu-west    1024/1024  complete 3m ago
└─ ◌ ap-south   1021/1024  missing [17,204-205]  agent 1.4s ago
";
        assert_eq!(tree(&gathering(), at_noon()), expected);
    }

    #[test]
    fn a_silent_region_is_told() {
        let mut status = gathering();
        status.reason = Reason::RegionSilent;
        status.message = "ap-south does not answer".to_owned();
        status.regions[2].link = Link::Silent;
        status.regions[2].as_of_seconds = Some(252.0);
        status.regions[2].missing_count = 103;
        status.regions[1].state = RegionState::Unopened;
        status.regions[1].link = Link::Never;
        let expected = "\
etl/map@2026-10-07  gathering  3069/3072   opened 38m ago   deadline in 1h22m
├─ ✔ us-east    1024/1024  complete 12m ago
├─ ◌ eu-west    1024/1024  not open there yet  never heard of
└─ ◌ ap-south   1021/1024  missing [17,204-205] and 100 more  silent for 4m12s
ap-south does not answer
";
        assert_eq!(tree(&status, at_noon()), expected);
    }

    #[test]
    fn those_who_work_or_are_lost_and_zones_are_told() {
        let mut status = gathering();
        let [first, second, third] = &mut status.regions[..] else { panic!() };
        let zone = |arrived, complete| json!({"arrived": arrived, "expected": 512, "failed": 0, "complete": complete});
        first.zones = serde_json::from_value(json!({"a": zone(512, true), "b": zone(510, false)})).unwrap();
        first.state = RegionState::Gathering;
        second.state = RegionState::Waived;
        (third.retrying, third.working, third.lost, third.excluded, third.waived) = (1, 1, 2, 3, 4);
        let expected = "\
etl/map@2026-10-07  gathering  3069/3072   opened 38m ago   deadline in 1h22m
├─ ◌ us-east    1024/1024  agent 1.4s ago
│  ├─ ✔ a       512/512    complete
│  └─ ◌ b       510/512
├─ – eu-west    1024/1024  waived  agent 1.4s ago
└─ ◌ ap-south   1021/1024  missing [17,204-205]  1 retrying  1 working  2 lost  3 excluded  4 waived  agent 1.4s ago
";
        assert_eq!(tree(&status, at_noon()), expected);
    }

    #[test]
    fn a_release_that_is_not_whole_says_what_it_went_without() {
        let mut status = gathering();
        status.state = State::Released;
        status.reason = Reason::Released;
        status.decided_at = Some("2026-10-07T11:59:58Z".to_owned());
        status.release = serde_json::from_value(json!({"whole": false, "failed": 2, "excluded": 1, "leftOut": ["eu-west"],
            "waived": {"us-east": "", "ap-south": "[17]"}, "forced": {"actor": "ann", "reason": "demo day"}, "digest": "00"}))
        .unwrap();
        let expected = "\
etl/map@2026-10-07  released   3069/3072   decided 2.0s ago   not whole
├─ – us-east    1024/1024  released without it
├─ – eu-west    1024/1024  released without it
└─ ✔ ap-south   1021/1024  released
not whole: 2 failed; 1 lost and excluded; eu-west left out; [17] of ap-south waived; us-east waived; forced by ann: demo day
";
        assert_eq!(tree(&status, at_noon()), expected);
    }

    #[test]
    fn ends_are_told() {
        let mut status = gathering();
        status.decided_at = Some("2026-10-07T11:59:58Z".to_owned());
        status.state = State::Releasing;
        status.reason = Reason::ReleasePropagating;
        status.message = "decided; ap-south has not applied it".to_owned();
        status.skew_seconds = Some(3.25);
        status.regions[0].applied = true;
        status.regions[1].applied = true;
        status.regions[2].state = RegionState::Complete;
        let expected = "\
etl/map@2026-10-07  releasing  3069/3072   decided 2.0s ago   skew 3.2s
├─ ✔ us-east    1024/1024  released
├─ ✔ eu-west    1024/1024  released
└─ ◌ ap-south   1021/1024  release on its way  agent 1.4s ago
decided; ap-south has not applied it
";
        assert_eq!(tree(&status, at_noon()), expected);
        status.state = State::Broken;
        status.skew_seconds = None;
        status.failed = 1;
        status.message = "ap-south/17 failed: exit status 3".to_owned();
        status.regions[2].failed = 1;
        status.regions[2].state = RegionState::Failed;
        let expected = "\
etl/map@2026-10-07  broken     3069/3072   1 failed   broken 2.0s ago
├─ ✔ us-east    1024/1024  complete 12m ago
├─ ✔ eu-west    1024/1024  complete 3m ago
└─ ✖ ap-south   1021/1024  1 failed  missing [17,204-205]
ap-south/17 failed: exit status 3
";
        assert_eq!(tree(&status, at_noon()), expected);
    }
}
