//! Who may fail: how often one participant, and how many of them.

use std::collections::BTreeMap;

use muster_protocol::caps;
use muster_protocol::name::RegionName;
use serde_json::Value;

use super::check::Reader;
use super::findings::short;
use super::regions::Entry;

/// Parts of one percent that a limit may be written in.
const PERCENT: u64 = 10_000;

/// How many may fail, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Number(u32),
    /// In [`PERCENT`]s of a percent.
    Percent(u64),
}

impl Limit {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).map(Self::Number);
        let percent = || value.as_str().and_then(|text| percent(text.strip_suffix('%')?)).map(Self::Percent);
        number.or_else(percent).ok_or_else(|| {
            format!("{} is neither a number, 0 or more, nor a percentage from \"0%\" to \"100%\"", short(value))
        })
    }

    /// How many that is of `expected`, rounded down.
    fn of(self, expected: u64) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(parts) => u32::try_from(expected * parts / (100 * PERCENT)).unwrap_or(u32::MAX),
        }
    }
}

/// Exact: a limit must not depend on how a machine rounds.
fn percent(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, max| (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole, 3) || !digits(rest, 4) {
        return None;
    }
    let parts = whole.parse::<u64>().ok()? * PERCENT + format!("{rest:0<4}").parse::<u64>().ok()?;
    (parts <= 100 * PERCENT).then_some(parts)
}

/// How many may fail, in all regions together and in each.
pub(super) struct Failures {
    pub(super) total: u32,
    own: BTreeMap<RegionName, u32>,
    /// In a region that says nothing of its own.
    elsewhere: u32,
}

impl Failures {
    pub(super) fn of(&self, region: &RegionName) -> u32 {
        self.own.get(region).copied().unwrap_or(self.elsewhere)
    }
}

impl Reader<'_> {
    /// The limit of all regions together; when only regions have limits, their
    /// sum.
    pub(super) fn failures(&mut self, regions: &BTreeMap<RegionName, Entry>) -> Failures {
        let own: BTreeMap<RegionName, u32> = regions
            .iter()
            .filter_map(|(region, entry)| {
                Some((region.clone(), entry.max_failures?.of(entry.participants.expected().into())))
            })
            .collect();
        let written = match self.fields.get("maxFailures").map(Limit::parse) {
            Some(Ok(limit)) => Some(limit),
            Some(Err(message)) => {
                self.findings.invalid("maxFailures", message);
                None
            }
            None => None,
        };
        let Some(limit) = written else {
            let total = own.values().fold(0_u32, |sum, own| sum.saturating_add(*own));
            return Failures { total, own, elsewhere: 0 };
        };
        let total = limit.of(regions.values().map(|entry| u64::from(entry.participants.expected())).sum());
        for (region, own) in own.iter().filter(|(_, own)| **own > total) {
            let message = format!(
                "{own} is over the {total} that may fail in all regions together; lower it, or raise maxFailures"
            );
            self.findings.invalid(format!("regions.{region}.maxFailures"), message);
        }
        Failures { total, own, elsewhere: total }
    }

    pub(super) fn attempts(&mut self) -> u32 {
        let Some(value) = self.fields.get("attempts") else { return 1 };
        let limit = caps::ATTEMPTS_MAX;
        match value.as_u64().and_then(|given| u32::try_from(given).ok()) {
            Some(given) if (1..=limit).contains(&given) => return given,
            _ => self.findings.invalid("attempts", format!("{} is not a number from 1 to {limit}", short(value))),
        }
        1
    }
}
