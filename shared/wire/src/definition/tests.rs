use muster_protocol::caps;
use muster_protocol::participants::Participants;
use muster_protocol::spec::{Generations, Liveness, OnLost, Rule, Scope};

use super::*;
use crate::code::Code;

const GOOD: &str = "
kind: Barrier
name: etl/map
description: all map parts of a night are written
owner: data-platform
labels: {app: etl, off: no}
regions: {us-east: , ap-south: {participants: '[0-511]'}}
participants: '[0-1023]'
generations: keyed
maxOpen: 4
deadline: 2h
";

pub(super) fn name() -> BarrierName {
    "etl/map".parse().unwrap()
}

pub(super) fn yaml(text: &str) -> Result<Parsed, Problem> {
    parse(&name(), text.as_bytes())
}

/// The shortest good definition, with these lines instead of or beside its own.
pub(super) fn with(lines: &str) -> Result<Parsed, Problem> {
    let mut text = String::new();
    for (field, line) in
        [("regions", "regions: [a, b]"), ("participants", "participants: 3"), ("deadline", "deadline: 2h")]
    {
        let replaced =
            lines.lines().any(|other| other.starts_with(&format!("{field}:")) || other == format!("-{field}"));
        text.push_str(if replaced { "" } else { line });
        text.push('\n');
    }
    text.extend(lines.lines().filter(|line| !line.starts_with('-')).flat_map(|line| [line, "\n"]));
    yaml(&text)
}

fn slice<'a>(parsed: &'a Parsed, region: &str) -> &'a muster_protocol::spec::Slice {
    &parsed.spec.regions[&region.parse().unwrap()]
}

#[test]
fn a_definition_is_read() {
    let parsed = yaml(GOOD).unwrap();
    let spec = &parsed.spec;
    assert_eq!(spec.name, name());
    assert_eq!(spec.generations, Generations::Keyed { max_open: 4 });
    assert_eq!(spec.deadline_ms, Some(7_200_000));
    assert_eq!(spec.owner, "data-platform");
    assert_eq!(spec.labels["off"], "no");
    assert_eq!(slice(&parsed, "us-east").participants.expected(), 1024);
    assert_eq!(slice(&parsed, "ap-south").participants.expected(), 512);
    assert_eq!(slice(&parsed, "ap-south").outputs_bytes_max as usize, caps::OUTPUTS_PER_GENERATION_BYTES_MAX / 2);
    assert_eq!(parsed.written["participants"], "[0-1023]");
    assert_eq!(parsed.effective["regions"]["us-east"]["participants"], "[0-1023]");
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = r#"{"regions": ["b", "a"], "participants": 3, "deadline": "none"}"#;
    let parsed = yaml(json).unwrap();
    assert_eq!(parsed.spec, with("deadline: none").unwrap().spec);
    assert_eq!(parsed.spec.deadline_ms, None);
    assert_eq!(parsed.spec.generations, Generations::Single);
    // YAML's own braces are no JSON, and are read all the same.
    assert_eq!(yaml("{regions: [a, b], participants: 3, deadline: none}").unwrap().spec, parsed.spec);
}

#[test]
fn every_default_may_be_written_out() {
    let written = with(
        "scope: global\nattempts: 1\nmaxFailures: 0\nfailFast: true\nreleaseWhen: all\nkeepArrivals: true\n\
         retention: 30d\ngenerations: single\nregions: {a: {maxFailures: 0}, b: {}}",
    );
    assert_eq!(written.unwrap().spec, with("").unwrap().spec);
    assert_eq!(with("generations: cyclic").unwrap().spec.generations, Generations::Cyclic);
    assert_eq!(
        with("generations: keyed").unwrap().spec.generations,
        Generations::Keyed { max_open: caps::MAX_OPEN_DEFAULT }
    );
    assert_eq!(with("deadline: 30d").unwrap().spec.deadline_ms, Some(caps::DEADLINE_MS_MAX));
}

#[test]
fn participants_are_a_number_or_exactly_these() {
    let of = |lines: &str| slice(&with(lines).unwrap(), "a").participants.clone();
    assert_eq!(of("participants: 1000000"), Participants::Count(1_000_000));
    let cases = [
        ("'[17,204-206]'", 4, "17"),
        ("'[0-3],x, p-[007-120]'", 4 + 1 + 114, "p-007"),
        ("['[0-3]', x]", 5, "x"),
        ("[17, 18, 007]", 3, "007"),
        ("[1024]", 1, "1024"),
        ("'[1024]'", 1, "1024"),
        ("'0-[1]'", 1, "0-1"),
        ("worker", 1, "worker"),
    ];
    for (text, expected, inside) in cases {
        let participants = of(&format!("participants: {text}"));
        assert_eq!(participants.expected(), expected, "{text}");
        assert!(matches!(&participants, Participants::Set(set) if set.contains(&inside.parse().unwrap())), "{text}");
    }
}

/// Field, lines, and what the sentence must hold.
const INVALID: &[(&str, &str, &str)] = &[
    ("kind", "kind: Semaphore", "kind: Barrier"),
    ("name", "name: etl/mop", "etl/map"),
    ("name", "name: 5", "etl/map"),
    ("particpants", "particpants: 3", "participants is one"),
    ("colour", "colour: red", "there are kind, name"),
    ("regions", "-regions", "list the regions"),
    ("regions", "regions: []", "no regions"),
    ("regions", "regions: {}", "no regions"),
    ("regions", "regions: a", "not a list"),
    ("regions", "regions: [a, a]", "listed twice"),
    ("regions", "regions: [A]", "1 to 63"),
    ("regions", "regions: [1]", "in quotes"),
    ("regions.a", "regions: {a: 3}", "{participants: 3}"),
    ("regions.a.participant", "regions: {a: {participant: 3}}", "participants is one"),
    ("regions.a.deadline", "regions: {a: {deadline: 3h}}", "whole barrier"),
    ("regions.a.participants", "regions: {a: {participants: 0}}", "expects nobody"),
    ("regions.a.maxFailures", "regions: {a: {maxFailures: -1}}", "percentage"),
    ("regions.b.participants", "-participants\nregions: {a: {participants: 1}, b: {}}", "is missing"),
    ("participants", "participants: 0", "expects nobody"),
    ("participants", "participants: -1", "whole number"),
    ("participants", "participants: 1.5", "whole number"),
    ("participants", "participants: 1000001", "limit of 1000000"),
    ("participants", "participants: 99999999999", "99999999999"),
    ("participants", "participants: '1024'", "remove the quotes"),
    ("participants", "participants: '1024'", "[\"1024\"]"),
    ("participants", "participants: [0-1023]", "\"[0-1023]\", in quotes"),
    ("participants", "participants: 0-1023", "\"0-[1023]\""),
    ("participants", "participants: []", "expects nobody"),
    ("participants", "participants: [x, x]", "listed twice"),
    ("participants", "participants: '[0-9],7'", "listed twice"),
    ("participants", "participants: '[9-0]'", "ends before"),
    ("participants", "participants: '[0-9'", "neither"),
    ("participants", "participants: [x, true]", "not an id"),
    ("participants", "participants: '[0-1000000]'", "1000001 participants are over the limit of 1000000"),
    ("participants", "participants: 1_000", "(write 1000)"),
    ("participants", "participants:", "null"),
    ("generations", "generations: cycle", "single or cyclic or keyed"),
    ("generations", "generations: 3", "single or cyclic or keyed"),
    ("maxOpen", "maxOpen: 3", "only keyed"),
    ("maxOpen", "generations: keyed\nmaxOpen: 0", "1 to 1000"),
    ("maxOpen", "generations: keyed\nmaxOpen: 1001", "1 to 1000"),
    ("deadline", "-deadline", "\"none\""),
    ("deadline", "deadline:", "\"none\""),
    ("deadline", "deadline: 30", "\"30s\""),
    ("deadline", "deadline: 0s", "at once"),
    ("deadline", "deadline: soon", "2h"),
    ("deadline", "deadline: 31d", "limit of 30d"),
    ("deadline", "deadline: 720h1ms", "limit of 30d"),
    ("owner", "owner: 5", "in quotes"),
    ("owner", "owner:", "empty"),
    ("labels", "labels: [a]", "map"),
    ("labels.a", "labels: {a: 1}", "in quotes"),
    ("labels.a", "labels: {a: true}", "in quotes"),
    ("labels", "labels: {'': x}", "no name"),
    ("scope", "scope: local", "global or regional"),
    ("scope", "scope: regional", "2 are listed"),
    ("attempts", "attempts: 0", "1 to 1000000"),
    ("attempts", "attempts: 1000001", "1 to 1000000"),
    ("attempts", "attempts: '3'", "1 to 1000000"),
    ("maxFailures", "maxFailures: '101%'", "percentage"),
    ("maxFailures", "maxFailures: '1.00001%'", "percentage"),
    ("maxFailures", "maxFailures: '%'", "percentage"),
    ("maxFailures", "maxFailures: '-1%'", "percentage"),
    ("maxFailures", "maxFailures: 0.5", "percentage"),
    ("maxFailures", "maxFailures: 4294967296", "percentage"),
    ("maxFailures", "maxFailures: many", "percentage"),
    ("regions.a.maxFailures", "maxFailures: 2\nregions: {a: {maxFailures: 3}, b: }", "3 is over the 2"),
    ("regions.a.maxFailures", "maxFailures: 0\nregions: {a: {maxFailures: '50%'}, b: }", "1 is over the 0"),
    ("failFast", "failFast: 1", "true nor false"),
    ("keepArrivals", "keepArrivals: yes", "true nor false"),
    ("keepArrivals", "keepArrivals: false", "needs liveness"),
    ("releaseWhen", "releaseWhen: most", "not a rule"),
    ("releaseWhen", "releaseWhen: a", "not a rule"),
    ("releaseWhen", "releaseWhen: {atLeast: 3, of: [a, b]}", "never hold; write 1 to 2"),
    ("releaseWhen", "releaseWhen: {atLeast: 0, of: [a, b]}", "never hold"),
    ("releaseWhen", "releaseWhen: {all: []}", "not a list"),
    ("releaseWhen", "releaseWhen: {any: [a]}", "not a rule"),
    ("releaseWhen", "releaseWhen: {all: [a], of: [b]}", "not a rule"),
    ("releaseWhen", "releaseWhen: {all: [a, 7]}", "neither a region nor a rule"),
    ("releaseWhen", "releaseWhen: {all: [a, a]}", "twice in one list"),
    ("releaseWhen", "releaseWhen: {all: [x-y-z, a]}", "there are a, b"),
    ("releaseWhen", "regions: [us-east, eu-west]\nreleaseWhen: {all: [us-esat]}", "us-east is one"),
    (
        "releaseWhen",
        "regions: {us-east: {zones: {one: '[0-3]', two: x}}, b: }\nreleaseWhen: {all: [us-east/tow]}",
        "us-east/two is one",
    ),
    ("regions.a.zones", "regions: {a: {zones: [0-3]}}", "not a map of zones"),
    ("regions.a.zones", "regions: {a: {zones: {}}}", "not a map of zones"),
    ("regions.a.zones", "regions: {a: {zones: {x: '[0-3]', y: '[3-5]'}}}", "\"3\" is in two zones"),
    ("regions.a.zones", "regions: {a: {zones: {x: '[0-999999]', y: '[1000000-1000001]'}}}", "limit of 1000000"),
    ("regions.a.zones.x", "regions: {a: {zones: {x: 3}}}", "does not say who"),
    ("regions.a.zones.X", "regions: {a: {zones: {X: '[0-3]'}}}", "1 to 63"),
    ("regions.a.participants", "regions: {a: {participants: 3, zones: {x: '[0-3]'}}}", "leave participants or zones"),
    ("liveness", "liveness: 30s", "map"),
    ("liveness.ttl", "liveness: {}", "is missing"),
    ("liveness.ttl", "liveness: {ttl: 30}", "\"30s\""),
    ("liveness.ttl", "liveness: {ttl: 2s}", "2s is under the limit of 3s"),
    ("liveness.ttl", "liveness: {ttl: 25h}", "1d1h is over the limit of 1d"),
    ("liveness.rejoin", "liveness: {ttl: 3s, rejoin: 31d}", "over the limit of 30d"),
    ("liveness.rejoin", "liveness: {ttl: 3s, rejoin: soon}", "30s"),
    ("liveness.onLost", "liveness: {ttl: 3s, onLost: panic}", "fail or exclude or wait"),
    ("liveness.onLost", "liveness: {ttl: 3s, onLost: wait}", "scope: regional"),
    ("liveness.tll", "liveness: {tll: 3s}", "ttl is one"),
    ("retention", "retention: 91d", "91d is over the limit of 90d"),
    ("retention", "retention: 1001", "1 to 1000"),
    ("retention", "retention: 0", "1 to 1000"),
    ("retention", "retention: 0s", "before those who wait"),
    ("retention", "retention: long", "30s"),
    ("after", "after: extract", "namespace/name"),
    ("after", "after: 5", "namespace/name"),
    ("after", "after: etl/map", "after itself"),
];

fn assert_found(problem: &Problem, field: &str, sentence: &str) {
    let errors = problem.more["errors"].as_array().unwrap();
    let found = errors
        .iter()
        .any(|error| error["field"] == field && error["message"].as_str().is_some_and(|text| text.contains(sentence)));
    assert!(found, "no {field:?} with {sentence:?} in {errors:?}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_change() {
    for (field, lines, sentence) in INVALID {
        let problem = with(lines).expect_err(lines);
        assert_eq!(problem.code, Code::InvalidDefinition, "{lines}");
        assert_found(&problem, field, sentence);
    }
}

#[test]
fn everything_that_can_be_asked_is_read() {
    let parsed = with(
        "attempts: 3\nmaxFailures: 4\nfailFast: false\nkeepArrivals: false\nretention: 7d\nafter: etl/extract\n\
         liveness: {ttl: 30s}\nregions: {a: {maxFailures: 1}, b: {zones: {x: '[0-3]', y: '[4-9]'}}, c: }\n\
         releaseWhen: {all: [a, {atLeast: 1, of: [b/x, b/y, c]}]}",
    )
    .unwrap();
    let (spec, a, b) = (&parsed.spec, slice(&parsed, "a"), slice(&parsed, "b"));
    assert_eq!((spec.scope, spec.failures_max, a.failures_max, b.failures_max), (Scope::Global, 4, 1, 4));
    assert_eq!((a.attempts, a.fail_fast, a.keep_arrivals, a.deadline_ms), (3, false, false, None));
    assert_eq!((spec.retention_ms, spec.retention_generations, b.retention_ms), (604_800_000, 1_000, 604_800_000));
    assert_eq!(spec.after.as_ref().unwrap().as_str(), "etl/extract");
    assert_eq!(a.liveness, Some(Liveness { ttl_ms: 30_000, rejoin_ms: 300_000, on_lost: OnLost::Fail }));
    assert_eq!((b.participants.expected(), b.participants.zones().count()), (10, 2));
    let Rule::Every(parts) = &spec.release_when else { panic!("{:?}", spec.release_when) };
    assert!(matches!(&parts[1], Rule::AtLeast { count: 1, of } if of.len() == 3));
    let leaves: Vec<String> = spec.release_when.leaves().into_iter().map(ToString::to_string).collect();
    assert_eq!(leaves, ["a", "b/x", "b/y", "c"]);
}

#[test]
fn a_regional_barrier_keeps_its_own_time_and_may_wait_for_the_lost() {
    let parsed = with("scope: regional\nregions: [a]\nliveness: {ttl: 3s, rejoin: 0s, onLost: wait}").unwrap();
    assert_eq!(parsed.spec.scope, Scope::Regional);
    assert_eq!(slice(&parsed, "a").deadline_ms, parsed.spec.deadline_ms);
    let expected = Liveness { ttl_ms: 3_000, rejoin_ms: 0, on_lost: OnLost::Wait };
    assert_eq!(slice(&parsed, "a").liveness, Some(expected));
}

#[test]
fn failures_are_limited_in_all_regions_and_in_each() {
    let of = |lines: &str| {
        let parsed = with(&format!("participants: 250\n{lines}")).unwrap();
        (parsed.spec.failures_max, slice(&parsed, "a").failures_max, slice(&parsed, "b").failures_max)
    };
    assert_eq!(of(""), (0, 0, 0));
    assert_eq!(of("maxFailures: 7"), (7, 7, 7));
    assert_eq!(of("maxFailures: '1%'"), (5, 5, 5), "of all 500");
    assert_eq!(of("maxFailures: '0.59%'"), (2, 2, 2), "rounded down");
    assert_eq!(of("maxFailures: '100%'"), (500, 500, 500));
    assert_eq!(of("maxFailures: 7\nregions: {a: {maxFailures: '1%'}, b: }"), (7, 2, 7), "of its own 250");
    assert_eq!(of("regions: {a: {maxFailures: 3}, b: {maxFailures: 4}}"), (7, 3, 4), "their sum");
    assert_eq!(of("regions: {a: {maxFailures: 3}, b: }"), (3, 3, 0));
}

#[test]
fn a_number_of_generations_is_kept_as_long_as_may_be() {
    let of = |lines: &str| {
        let spec = with(lines).unwrap().spec;
        (spec.retention_ms, spec.retention_generations)
    };
    assert_eq!(of(""), (caps::RETENTION_MS_DEFAULT, 1_000));
    assert_eq!(of("retention: 90d"), (caps::RETENTION_MS_MAX, 1_000));
    assert_eq!(of("retention: 1000"), of("retention: 90d"));
    assert_eq!(of("retention: 5"), (caps::RETENTION_MS_MAX, 5));
}

#[test]
fn a_brief_definition_says_what_differs_and_means_the_same() {
    for lines in ["", "attempts: 3\nretention: 5\nregions: {a: {maxFailures: 1}, b: }", "scope: regional\nregions: [a]"]
    {
        let parsed = with(lines).unwrap();
        let brief = brief(&parsed.spec);
        assert_eq!(parse(&name(), brief.to_string().as_bytes()).unwrap().spec, parsed.spec, "{brief}");
        assert_eq!(brief.get("attempts").is_some(), lines.contains("attempts"), "{brief}");
    }
    let brief = brief(&with("").unwrap().spec);
    let fields: Vec<&String> = brief.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["deadline", "generations", "name", "regions"]);
}

#[test]
fn all_problems_are_told_at_once() {
    let problem = yaml("regions: []\nattempts: 0\nspeed: 9\n").unwrap_err();
    assert_eq!(problem.code, Code::InvalidDefinition);
    assert_eq!(problem.more["errors"].as_array().unwrap().len(), 4);
    assert!(problem.detail.ends_with("(and 3 more problems)"), "{}", problem.detail);
}

#[test]
fn sizes_over_a_cap_are_refused_with_the_number() {
    let labels: Vec<String> = (0..17).map(|n| format!("l{n}: x")).collect();
    assert_found(
        &with(&format!("labels: {{{}}}", labels.join(", "))).unwrap_err(),
        "labels",
        "17 labels are over the limit of 16",
    );
    let regions: Vec<String> = (0..129).map(|n| format!("r{n}")).collect();
    let problem = with(&format!("regions: [{}]", regions.join(", "))).unwrap_err();
    assert_found(&problem, "regions", "129 regions are over the limit of 128");
    let long = "x".repeat(1_025);
    assert_found(&with(&format!("owner: {long}")).unwrap_err(), "owner", "1025 bytes are over the limit of 1024");
    let ids: Vec<String> = (0..2_001).map(|n| format!("w{n}")).collect();
    let problem = with(&format!("participants: [{}]", ids.join(", "))).unwrap_err();
    assert_found(&problem, "participants", "over the limit of 2000");
    let mut rule = "a".to_owned();
    (0..9).for_each(|_| rule = format!("{{all: [{rule}]}}"));
    assert_found(&with(&format!("releaseWhen: {rule}")).unwrap_err(), "releaseWhen", "limit of 8");
    let names: Vec<String> = (0..120).map(|n| format!("r{n}")).collect();
    let part = format!("{{all: [{}]}}", names.join(", "));
    let rule = format!("{{all: [{part}, {part}, {part}]}}");
    let problem = with(&format!("regions: [{}]\nreleaseWhen: {rule}", names.join(", "))).unwrap_err();
    assert_found(&problem, "releaseWhen", "limit of 256 parts");
    let long: Vec<String> = (0..600).map(|n| format!("{n:x>120}")).collect();
    let problem = with(&format!("participants: [{}]", long.join(", "))).unwrap_err();
    assert_found(&problem, "participants", "over the limit of 65536");
    let big = parse(&name(), &vec![b' '; caps::DEFINITION_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(big.code, Code::TooLarge);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for bad in ["", "- a", "a: [", "{\"a\": ", "regions: [a]\nregions: [b]", "{\"a\": 1, \"a\": 2}", &deep, "5"] {
        let problem = yaml(bad).unwrap_err();
        assert_eq!(problem.code, Code::InvalidDefinition, "{problem}");
    }
    assert_eq!(parse(&name(), b"\xff\xfe").unwrap_err().code, Code::InvalidDefinition);
}

#[test]
fn a_body_holds_one_definition_and_no_field_twice() {
    for (body, sentence) in [
        ("regions: [a]\nregions: [b]\n", "\"regions\" is written twice"),
        ("regions: [a]\n---\nregions: [b]\n", "2 definitions in it; send one by one"),
        ("", "the definition is empty"),
    ] {
        let problem = yaml(body).unwrap_err();
        assert!(problem.detail.contains(sentence), "{body:?}: {}", problem.detail);
    }
}

#[test]
fn files_hold_several_definitions() {
    let file = "# one night\nkind: Barrier\nname: etl/map\nregions: [a]\n---\nname: etl/reduce\n---\n";
    let documents = documents(file).unwrap();
    let names: Vec<&str> = documents.iter().map(|document| document.name.as_str()).collect();
    assert_eq!(names, ["etl/map", "etl/reduce"]);
    assert_eq!(documents[0].body["regions"][0], "a");
    assert_eq!(super::documents("{\"name\": \"a/b\"}").unwrap().len(), 1);
    for (bad, sentence) in [
        ("", "no definition"),
        ("name: a/b\n---\nkind: Lock\nname: a/c\n", "document 2: kind \"Lock\""),
        ("regions: [a]", "name is missing"),
        ("name: 5", "name must be text"),
        ("name: etl", "namespace/name"),
        ("- a", "map of fields"),
        ("a: [", "can't be read as YAML"),
        ("{\"name\": \"a/b\"", "can't be read as JSON"),
    ] {
        let problem = super::documents(bad).unwrap_err();
        assert!(problem.detail.contains(sentence), "{bad:?}: {}", problem.detail);
    }
}

#[test]
fn changes_are_named_by_field() {
    let before = with("owner: x").unwrap().effective;
    let after = with("owner: y\nregions: {a: {participants: 4}, b: , c: }").unwrap().effective;
    let list = changes(&before, &after);
    let fields: Vec<&str> = list.iter().map(|change| change.field.as_str()).collect();
    assert_eq!(fields, ["owner", "regions.a.participants", "regions.c"]);
    assert_eq!((list[0].from.clone(), list[0].to.clone()), (Some("x".into()), Some("y".into())));
    assert_eq!(list[2].from, None);
    assert!(changes(&after, &after).is_empty());
}

#[test]
fn ids_that_look_like_something_else_survive_being_printed() {
    for text in ["'[1024]'", "'0-[1]'", "['0-[01]', '[7]']", "[017]", "p-[007-120]", "['[0-3]', '[7-9]', 5]"] {
        let parsed = with(&format!("participants: {text}")).unwrap();
        let again = parse(&name(), parsed.effective.to_string().as_bytes()).unwrap();
        assert_eq!(again.spec, parsed.spec, "{text}: {}", parsed.effective);
    }
}
