//! What the demo found: for people, and as one JSON object.

use serde::Serialize;

use super::course::Course;
use super::roster::Phase;
use super::words::{self, Counts};
use crate::render::table;

/// So many words are shown.
const TOP: usize = 10;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// How many words there are; 0 when the run did not end well.
    words: u64,
    /// How many different ones.
    distinct: usize,
    /// Whether the workers' counts equal those of a single pass.
    #[serde(rename = "match")]
    matches: bool,
    /// The most frequent words.
    top: Vec<(String, u64)>,
    /// Each barrier.
    barriers: Vec<Barrier>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Barrier {
    name: &'static str,
    generation: String,
    /// `unknown` when the coordinator could not be asked.
    state: String,
    arrived: u64,
    expected: u64,
    /// From the first arrival to the last, as they began to be sent.
    skew_seconds: Option<f64>,
    /// From the beginning of the last arrival to the last wake-up.
    release_seconds: Option<f64>,
}

impl Report {
    /// `result` holds the workers' counts and those of the single pass.
    pub(crate) fn new(generation: &str, course: &Course, expected: u64, result: Option<(&Counts, &Counts)>) -> Self {
        let barrier = |phase: Phase| {
            let status = course.status_of(phase);
            Barrier {
                name: phase.name(),
                generation: generation.to_owned(),
                state: status.map_or("unknown", |status| status.state.as_str()).to_owned(),
                arrived: status.map_or(0, |status| status.arrived),
                expected: status.map_or(expected, |status| status.expected),
                skew_seconds: course.skew_seconds(phase),
                release_seconds: course.release_seconds(phase),
            }
        };
        let counts = result.map(|(counts, _)| counts);
        Self {
            words: counts.map_or(0, words::total),
            distinct: counts.map_or(0, Counts::len),
            matches: result.is_some_and(|(counts, single_pass)| counts == single_pass),
            top: counts.map_or_else(Vec::new, |counts| words::top(counts, TOP)),
            barriers: Phase::ALL.into_iter().map(barrier).collect(),
        }
    }

    /// Whether the counts are right.
    pub(crate) fn matches(&self) -> bool {
        self.matches
    }

    /// The most frequent words, and whether the counts are right.
    pub(crate) fn result(&self, single_pass: &Counts) -> String {
        let width = self.top.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
        let digits = self.top.first().map_or(0, |(_, count)| grouped(*count).len());
        let line = |(word, count): &(String, u64)| format!("  {word:width$}  {:>digits$}\n", grouped(*count));
        let top: String = self.top.iter().map(line).collect();
        let (words, distinct) = (grouped(self.words), grouped(self.distinct as u64));
        let proof = match self.matches {
            true => "match: a single pass over the same input counts the same".to_owned(),
            false => {
                let (words, distinct) = (grouped(words::total(single_pass)), grouped(single_pass.len() as u64));
                format!("MISMATCH: a single pass over the same input counts {words} words, {distinct} distinct")
            }
        };
        format!("{words} words, {distinct} distinct; the most frequent:\n{top}{proof}\n")
    }

    /// One row for each barrier.
    pub(crate) fn barriers(&self) -> String {
        let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), short);
        let row = |barrier: &Barrier| {
            [
                barrier.name.to_owned(),
                barrier.state.clone(),
                format!("{}/{}", barrier.arrived, barrier.expected),
                seconds(barrier.skew_seconds),
                seconds(barrier.release_seconds),
            ]
        };
        let titles = ["BARRIER", "STATE", "ARRIVED", "SKEW", "LAST ARRIVAL → LAST WAKE-UP"];
        table(titles, self.barriers.iter().map(row))
    }
}

fn short(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{:.1} ms", seconds * 1_000.0),
        false => format!("{seconds:.2} s"),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::job::{Event, Instant};
    use super::*;
    use serde_json::{Value, json};

    fn counts(words: &[(&str, u64)]) -> Counts {
        words.iter().map(|(word, count)| (word.as_bytes().to_vec(), *count)).collect()
    }

    #[test]
    fn the_object_has_the_promised_shape() {
        let mut course = Course::new(1);
        course.event(0, Event::Arriving { phase: Phase::Map, at: Instant(0) });
        course.event(0, Event::Woken { phase: Phase::Map, at: Instant(12_500_000) });
        let found = counts(&[("the", 3), ("a", 1)]);
        let report = serde_json::to_value(Report::new("k", &course, 1, Some((&found, &found)))).unwrap();
        let barrier = |name: &str, skew: Value, release: Value| {
            json!({"name": name, "generation": "k", "state": "unknown", "arrived": 0, "expected": 1,
                   "skewSeconds": skew, "releaseSeconds": release})
        };
        let expected = json!({
            "words": 4, "distinct": 2, "match": true, "top": [["the", 3], ["a", 1]],
            "barriers": [barrier("demo/map", json!(0.0), json!(0.0125)), barrier("demo/shuffle", Value::Null, Value::Null),
                         barrier("demo/reduce", Value::Null, Value::Null)],
        });
        assert_eq!(report, expected);
    }

    #[test]
    fn one_word_too_many_is_no_match() {
        let course = Course::new(1);
        let (found, truth) = (counts(&[("the", 3)]), counts(&[("the", 2)]));
        let report = Report::new("k", &course, 1, Some((&found, &truth)));
        assert!(!report.matches());
        assert!(report.result(&truth).contains("MISMATCH"), "{}", report.result(&truth));
        assert!(!Report::new("k", &course, 1, None).matches(), "no result, no match");
        assert!(Report::new("k", &course, 1, Some((&truth, &truth))).result(&truth).contains("\nmatch: "));
    }

    #[test]
    fn numbers_are_grouped() {
        let texts = [0, 12, 123, 1_234, 123_456, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }
}
