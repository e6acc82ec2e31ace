//! What a run came to: `benchmarks/results/latest.json`, and a table for
//! people.
//!
//! `ratios` has one number for each measurement and `hops` one row for each
//! hop, so that scripts need to know nothing else; `measurements` says how each
//! number came about. More of each may come; none changes its meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::hops::Hop;
use crate::surroundings::{Machine, Revision, Versions};

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Target {
    /// It may not be larger.
    AtMost { at_most: f64 },
    /// It is told; that it could be measured at all is the target.
    Reported,
}

impl Target {
    fn met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost { at_most } => value <= at_most,
            Self::Reported => true,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    #[serde(rename = "target")]
    pub(crate) goal: Target,
    /// What was counted, from when to when.
    pub(crate) counted: &'static str,
    pub(crate) details: Value,
}

/// Everything one run came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    version: u32,
    date: String,
    git: Revision,
    profile: &'static str,
    machine: Machine,
    pub(crate) services: Option<Versions>,
    ratios: BTreeMap<&'static str, f64>,
    pub(crate) hops: BTreeMap<&'static str, Hop>,
    measurements: BTreeMap<&'static str, Measured>,
}

impl Results {
    /// Of a run that begins now.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        Ok(Self {
            version: 1,
            date: jiff::Timestamp::now().round(jiff::Unit::Second).context("read the clock")?.to_string(),
            git: Revision::look()?,
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            machine: Machine::look()?,
            services: None,
            ratios: BTreeMap::new(),
            hops: BTreeMap::new(),
            measurements: BTreeMap::new(),
        })
    }

    pub(crate) fn add(&mut self, name: &'static str, measured: Measured) {
        self.ratios.insert(name, measured.value);
        self.measurements.insert(name, measured);
    }

    /// Whether every figure that was measured reaches its target.
    pub(crate) fn are_good(&self) -> bool {
        self.measurements.values().all(|measured| measured.goal.met_by(measured.value))
    }

    /// Writes them where the repository keeps them.
    pub(crate) fn write(&self) -> anyhow::Result<PathBuf> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results"));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let path = folder.join("latest.json");
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        if !self.hops.is_empty() {
            let _ = writeln!(text, "{:<42} {:>10} {:>10} {:>8}", "hop", "p50 ms", "p90 ms", "samples");
        }
        for (name, Hop { times, in_sum }) in &self.hops {
            let name = if *in_sum { (*name).to_owned() } else { format!("{name} (not in the sum)") };
            let _ = writeln!(text, "{name:<42} {:>10.2} {:>10.2} {:>8}", times.p50_ms, times.p90_ms, times.samples);
        }
        if !self.hops.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{:<42} {:>10} {:>10} {:>8}", "ratio", "value", "target", "verdict");
        for (name, measured) in &self.measurements {
            let (target, verdict) = match measured.goal {
                Target::AtMost { at_most } if measured.goal.met_by(measured.value) => (format!("<= {at_most}"), "met"),
                Target::AtMost { at_most } => (format!("<= {at_most}"), "MISSED"),
                Target::Reported => ("reported".to_owned(), "-"),
            };
            let _ = writeln!(text, "{name:<42} {:>10} {target:>10} {verdict:>8}", measured.value);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Times;

    fn results(value: f64, goal: Target) -> Results {
        let mut results = Results::begin().unwrap();
        results.add("some_ratio", Measured { value, goal, counted: "nothing", details: Value::Null });
        results
            .hops
            .insert("here", Hop { times: Times { p50_ms: 1.0, p90_ms: 2.0, p99_ms: 3.0, samples: 4 }, in_sum: false });
        results
    }

    #[test]
    fn a_target_is_missed_when_it_is_passed() {
        for (value, goal, good) in [
            (3.0, Target::AtMost { at_most: 3.0 }, true),
            (3.001, Target::AtMost { at_most: 3.0 }, false),
            (f64::NAN, Target::AtMost { at_most: 3.0 }, false),
            (9.9, Target::Reported, true),
        ] {
            let results = results(value, goal);
            assert_eq!(results.are_good(), good, "{value}");
            assert_eq!(results.table().contains("MISSED"), !good, "{}", results.table());
        }
    }

    #[test]
    fn scripts_find_ratios_and_hops() {
        let document = serde_json::to_value(results(0.5, Target::AtMost { at_most: 1.0 })).unwrap();
        assert_eq!(document["ratios"]["some_ratio"], 0.5);
        assert_eq!(document["hops"]["here"]["p50_ms"], 1.0);
        assert_eq!(document["hops"]["here"]["samples"], 4);
        assert_eq!(document["measurements"]["some_ratio"]["target"]["at_most"], 1.0);
        assert_eq!(document["git"]["revision"].as_str().map(str::len), Some(40));
    }
}
