//! The bytes of every version ever sent stay readable: topics keep records for
//! days, and the previous release runs beside the new one.

use super::*;

const UPWARD: &str = include_str!("../fixtures/upward-v1.jsonl");
const DOWNWARD: &str = include_str!("../fixtures/downward-v1.jsonl");

fn stays<T: DeserializeOwned + Serialize + PartialEq>(lines: &str) -> usize {
    for line in lines.lines() {
        let record: T = decode(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
        let again: T = decode(&encode(&record).unwrap()).unwrap();
        assert!(again == record, "a record is not what was written: {line}");
    }
    lines.lines().count()
}

#[test]
fn records_of_version_1_stay_readable() {
    assert_eq!(stays::<Upward>(UPWARD), 3, "one of each kind");
    assert_eq!(stays::<Downward>(DOWNWARD), 6, "one of each kind, both verdicts, with and without a slice");
}

#[test]
fn a_reader_ignores_fields_of_the_future() {
    for line in UPWARD.lines() {
        let later = line.replacen("\"body\":{", "\"body\":{\"later\":1,", 1).replacen('{', "{\"later\":2,", 1);
        assert_eq!(decode::<Upward>(later.as_bytes()).unwrap(), decode::<Upward>(line.as_bytes()).unwrap());
    }
}

#[test]
fn a_version_of_the_future_is_not_guessed() {
    for line in DOWNWARD.lines() {
        let later = line.replacen("\"v\":1", "\"v\":2", 1);
        assert!(matches!(decode::<Downward>(later.as_bytes()), Err(Unreadable::Version { found: 2 })));
        let never = line.replacen("\"v\":1,", "", 1);
        assert!(matches!(decode::<Downward>(never.as_bytes()), Err(Unreadable::Unversioned)));
    }
    assert!(matches!(decode::<Upward>(b"\xff"), Err(Unreadable::Form(_))));
}
