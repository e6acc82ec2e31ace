//! What holds of every definition, and of every text that is none.

use muster_protocol::caps;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::tests::{name, with, yaml};
use super::*;

fn participants_text() -> impl Strategy<Value = Value> {
    let item = prop_oneof![
        (0_u32..300).prop_map(|n| n.to_string()),
        (0_u32..100, 0_u32..50).prop_map(|(first, more)| format!("[{first}-{}]", first + more)),
        (0_u32..100, 0_u32..50).prop_map(|(first, more)| format!("p-[{first:04}-{:04}]", first + more)),
        "[a-z]{1,3}",
        (0_u32..9, 0_u32..9).prop_map(|(a, b)| format!("{a}-[{b}]")),
    ];
    prop_oneof![(1_u32..2_000_000).prop_map(Value::from), prop::collection::vec(item, 1..6).prop_map(Value::from)]
}

/// A region's entry: participants or zones, and perhaps a limit of its own.
fn entry() -> impl Strategy<Value = Value> {
    let zones = (1_u32..50, 1_u32..50).prop_map(|(first, more)| {
        json!({"zones": {"x": format!("[0-{first}]"), "y": [format!("[{}-{}]", first + 1, first + more)], "z": "w"}})
    });
    let expected = prop_oneof![participants_text().prop_map(|text| json!({"participants": text})), zones];
    let limit = prop::option::of(max_failures());
    (expected, limit).prop_map(|(mut entry, limit)| {
        entry.as_object_mut().unwrap().extend(limit.map(|limit| ("maxFailures".to_owned(), limit)));
        entry
    })
}

fn max_failures() -> impl Strategy<Value = Value> {
    prop_oneof![(0_u32..9).prop_map(Value::from), "[0-9]{1,2}(\\.[0-9]{1,4})?%".prop_map(Value::from)]
}

fn release_when() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec!["a", "b", "c", "a/x", "b/y", "c/z"]).prop_map(Value::from);
    leaf.prop_recursive(3, 12, 3, |part| {
        (prop::collection::vec(part, 1..4), 0_u32..4).prop_map(|(parts, count)| match count {
            0 => json!({"all": parts}),
            count => json!({"atLeast": count, "of": parts}),
        })
    })
}

/// Fields that may be there, each with values that are mostly good.
fn more() -> impl Strategy<Value = Map<String, Value>> {
    let liveness = (3_000_u64..90_000_000, 0_u64..600_000, prop::sample::select(vec!["fail", "exclude", "wait"]))
        .prop_map(
            |(ttl, rejoin, lost)| json!({"ttl": format!("{ttl}ms"), "rejoin": format!("{rejoin}ms"), "onLost": lost}),
        );
    let retention = prop_oneof![
        (1_u64..1_001).prop_map(Value::from),
        (1_u64..caps::RETENTION_MS_MAX).prop_map(|ms| format!("{ms}ms").into())
    ];
    let fields = (
        prop::option::of(max_failures()),
        prop::option::of(release_when()),
        prop::option::of(liveness),
        prop::option::of(retention),
        prop::option::of((1_u32..9).prop_map(Value::from)),
        prop::option::of(any::<bool>().prop_map(Value::from)),
        prop::option::of(any::<bool>().prop_map(Value::from)),
        prop::option::of(prop::sample::select(vec!["etl/x", "a/b"]).prop_map(Value::from)),
        prop::option::of(prop::sample::select(vec!["global", "regional"]).prop_map(Value::from)),
    );
    fields.prop_map(|fields| {
        let names = [
            ("maxFailures", fields.0),
            ("releaseWhen", fields.1),
            ("liveness", fields.2),
            ("retention", fields.3),
            ("attempts", fields.4),
            ("failFast", fields.5),
            ("keepArrivals", fields.6),
            ("after", fields.7),
            ("scope", fields.8),
        ];
        names.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn the_effective_document_defines_the_same_barrier(
        regions in prop::collection::btree_map("[a-c]", entry(), 1..4),
        deadline in 1_u64..=caps::DEADLINE_MS_MAX,
        owner in ".{0,30}",
        labels in prop::collection::btree_map(".{1,9}", ".{0,9}", 0..4),
        generations in prop::sample::select(vec!["single", "cyclic", "keyed"]),
        more in more(),
    ) {
        let mut written = json!({"regions": regions, "deadline": format!("{deadline}ms"), "owner": owner, "labels": labels,
            "generations": generations});
        written.as_object_mut().unwrap().extend(more);
        if let Ok(parsed) = parse(&name(), written.to_string().as_bytes()) {
            let again = parse(&name(), parsed.effective.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&again.spec, &parsed.spec);
            prop_assert_eq!(&again.effective, &parsed.effective);
            let brief = parse(&name(), brief(&parsed.spec).to_string().as_bytes()).unwrap();
            prop_assert_eq!(&brief.spec, &parsed.spec);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&name(), &body);
        let _ = documents(&String::from_utf8_lossy(&body));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z:{}\\[\\]\"'\\-, \n&*!|>0-9#?%@`]{0,120}") {
        let _ = yaml(&text);
        let _ = documents(&text);
    }

    #[test]
    fn no_value_of_a_field_makes_it_panic(
        field in prop::sample::select(vec!["regions", "participants", "deadline", "labels", "releaseWhen", "maxFailures", "liveness", "retention", "after", "scope", "attempts"]),
        value in "[a-c0-9\\[\\]{}:, '%é-]{0,40}",
    ) {
        let _ = with(&format!("{field}: {value}"));
    }
}
