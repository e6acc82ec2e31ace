//! Who is expected: so many distinct ids, or exactly these.
//!
//! Sets are written as compressed ranges, `[0-1023]`, `p-[007-120]`,
//! `[17,204-206]`, and print the same way. Leading zeros are kept: `007` and
//! `7` are two participants.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::caps;
use crate::name::{ParticipantId, ZoneName};

/// Who is expected in one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Participants {
    /// Any so many distinct ids.
    Count(u32),
    /// Exactly these; everybody else is a stranger.
    Set(IdSet),
    /// Exactly these, each in one zone of the region.
    Zones(BTreeMap<ZoneName, IdSet>),
}

impl Participants {
    /// How many are expected.
    #[must_use]
    pub fn expected(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Set(set) => set.len(),
            Self::Zones(zones) => zones.values().map(IdSet::len).sum(),
        }
    }

    /// Whether an id may arrive, as far as its name decides.
    #[must_use]
    pub fn admits(&self, id: &ParticipantId) -> bool {
        match self {
            Self::Count(_) => true,
            Self::Set(set) => set.contains(id),
            Self::Zones(zones) => zones.values().any(|set| set.contains(id)),
        }
    }

    /// The sets of ids that are expected; none when any will do.
    pub fn sets(&self) -> impl Iterator<Item = &IdSet> {
        let (one, zones) = match self {
            Self::Count(_) => (None, None),
            Self::Set(set) => (Some(set), None),
            Self::Zones(zones) => (None, Some(zones)),
        };
        one.into_iter().chain(zones.into_iter().flat_map(BTreeMap::values))
    }

    /// The zones, when the region has any.
    pub fn zones(&self) -> impl Iterator<Item = (&ZoneName, &IdSet)> {
        let zones = match self {
            Self::Zones(zones) => Some(zones),
            Self::Count(_) | Self::Set(_) => None,
        };
        zones.into_iter().flatten()
    }

    /// The zone that an id belongs to, when the region has zones.
    #[must_use]
    pub fn zone_of(&self, id: &ParticipantId) -> Option<&ZoneName> {
        self.zones().find(|(_, set)| set.contains(id)).map(|(zone, _)| zone)
    }
}

/// Why a text does not describe participants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidParticipants {
    /// The text is not an id and not a range.
    #[error("{0:?} is neither a participant id nor a range such as [0-1023] or p-[007-120]")]
    Syntax(String),
    /// A range ends before it begins.
    #[error("the range {0:?} ends before it begins")]
    Backwards(String),
    /// An id is listed twice.
    #[error("participant {0:?} is listed twice")]
    Duplicate(String),
    /// More participants than a region may have.
    #[error("{given} participants are over the limit of {limit} a region")]
    TooMany {
        /// How many were asked for.
        given: u64,
        /// How many there may be.
        limit: u32,
    },
    /// Too many ids given one by one.
    #[error("{given} ids given one by one are over the limit of {limit}; write them as ranges")]
    TooManyListed {
        /// How many were listed.
        given: usize,
        /// How many may be listed.
        limit: usize,
    },
    /// The ids given one by one take too many bytes.
    #[error("the ids given one by one take {given} bytes, over the limit of {limit}")]
    TooLong {
        /// How many bytes they take.
        given: usize,
        /// How many they may take.
        limit: usize,
    },
    /// Nobody is expected.
    #[error("no participants: a region that expects nobody can never arrive")]
    Empty,
}

/// Ids that share a prefix and differ by a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Range {
    prefix: String,
    /// Digits of each number, with leading zeros; 0 when there are none.
    width: u8,
    first: u64,
    last: u64,
}

impl Range {
    fn id(&self, number: u64) -> String {
        format!("{}{number:0width$}", self.prefix, width = usize::from(self.width))
    }

    fn contains(&self, numbered: &Numbered<'_>) -> bool {
        self.prefix == numbered.prefix
            && self.width == numbered.width
            && (self.first..=self.last).contains(&numbered.number)
    }

    /// From `10^(width-1)` on, padded numbers look like plain ones: `[007-120]`
    /// is `[007-099]` and `[100-120]`, so that every id has one form.
    fn split(self) -> impl Iterator<Item = Self> {
        let plain = match self.width {
            0 => self.first,
            width => 10_u64.pow(u32::from(width) - 1),
        };
        let padded = (self.first < plain).then(|| Self { last: self.last.min(plain - 1), ..self.clone() });
        let rest = (self.last >= plain).then(|| Self { width: 0, first: self.first.max(plain), ..self });
        padded.into_iter().chain(rest)
    }

    fn overlaps(&self, other: &Self) -> bool {
        (&self.prefix, self.width) == (&other.prefix, other.width)
            && self.first <= other.last
            && other.first <= self.last
    }
}

/// An id split at its trailing number. `width` is 0 for a number without
/// leading zeros, so that `7` and `007` stay apart.
struct Numbered<'a> {
    prefix: &'a str,
    width: u8,
    number: u64,
}

impl<'a> Numbered<'a> {
    fn of(id: &'a str) -> Option<Self> {
        let digits = id.len() - id.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, digits) = id.split_at(id.len() - digits);
        // 18 digits always fit; longer ones are names, not numbers.
        if digits.is_empty() || digits.len() > 18 {
            return None;
        }
        Some(Self { prefix, width: width(digits), number: digits.parse().ok()? })
    }
}

fn width(digits: &str) -> u8 {
    if digits.len() > 1 && digits.starts_with('0') { digits.len() as u8 } else { 0 }
}

/// A set of participant ids, kept as ranges and single ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct IdSet {
    ranges: Vec<Range>,
    singles: BTreeSet<ParticipantId>,
    len: u32,
}

impl IdSet {
    /// Reads ids and ranges, one per item.
    pub fn parse<I>(items: I) -> Result<Self, InvalidParticipants>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut set = Self::default();
        for item in items {
            set.add(item.as_ref())?;
        }
        set.check()
    }

    /// How many ids are in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether nobody is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an id is in the set.
    #[must_use]
    pub fn contains(&self, id: &ParticipantId) -> bool {
        self.singles.contains(id)
            || Numbered::of(id.as_str())
                .is_some_and(|numbered| self.ranges.iter().any(|range| range.contains(&numbered)))
    }

    /// All ids, ranges first, each once.
    pub fn iter(&self) -> impl Iterator<Item = ParticipantId> + '_ {
        let ranged = self
            .ranges
            .iter()
            .flat_map(|range| (range.first..=range.last).filter_map(|number| range.id(number).parse().ok()));
        ranged.chain(self.singles.iter().cloned())
    }

    fn add(&mut self, item: &str) -> Result<(), InvalidParticipants> {
        let syntax = || InvalidParticipants::Syntax(item.to_owned());
        let Some((prefix, rest)) = item.split_once('[') else {
            let id: ParticipantId = item.parse().map_err(|_| syntax())?;
            return match self.singles.insert(id) {
                true => Ok(()),
                false => Err(InvalidParticipants::Duplicate(item.to_owned())),
            };
        };
        for part in rest.strip_suffix(']').ok_or_else(syntax)?.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            self.ranges.extend(range(prefix, first, last, item)?.split());
        }
        Ok(())
    }

    /// Sizes and duplicates, once everything has been read.
    fn check(mut self) -> Result<Self, InvalidParticipants> {
        let listed = self.singles.len();
        if listed > caps::PARTICIPANTS_LISTED_MAX || self.ranges.len() > caps::PARTICIPANTS_LISTED_MAX {
            return Err(InvalidParticipants::TooManyListed {
                given: listed.max(self.ranges.len()),
                limit: caps::PARTICIPANTS_LISTED_MAX,
            });
        }
        let bytes = self.singles.iter().map(|id| id.as_str().len()).sum::<usize>()
            + self.ranges.iter().map(|range| range.prefix.len()).sum::<usize>();
        if bytes > caps::PARTICIPANTS_LISTED_BYTES_MAX {
            return Err(InvalidParticipants::TooLong { given: bytes, limit: caps::PARTICIPANTS_LISTED_BYTES_MAX });
        }
        let ranged = self.ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.last - range.first + 1));
        let given = ranged.saturating_add(listed as u64);
        self.len = u32::try_from(given)
            .ok()
            .filter(|len| *len <= caps::PARTICIPANTS_PER_REGION_MAX)
            .ok_or(InvalidParticipants::TooMany { given, limit: caps::PARTICIPANTS_PER_REGION_MAX })?;
        if self.len == 0 {
            return Err(InvalidParticipants::Empty);
        }
        self.ranges.sort();
        let overlap =
            self.ranges.windows(2).find(|pair| pair[0].overlaps(&pair[1])).map(|pair| pair[1].id(pair[1].first));
        let doubled = || {
            self.singles.iter().find(|id| {
                Numbered::of(id.as_str()).is_some_and(|n| self.ranges.iter().any(|range| range.contains(&n)))
            })
        };
        match overlap.or_else(|| doubled().map(ToString::to_string)) {
            Some(id) => Err(InvalidParticipants::Duplicate(id)),
            None => Ok(self),
        }
    }
}

fn range(prefix: &str, first: &str, last: &str, item: &str) -> Result<Range, InvalidParticipants> {
    let syntax = || InvalidParticipants::Syntax(item.to_owned());
    let number = |digits: &str| {
        let good = !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| digits.parse::<u64>().ok()).flatten().ok_or_else(syntax)
    };
    // A prefix that ends in a digit would make the number ambiguous.
    if prefix.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(syntax());
    }
    let range = Range { prefix: prefix.to_owned(), width: width(first), first: number(first)?, last: number(last)? };
    if range.width > 0 && last.len() != first.len() || range.width == 0 && width(last) > 0 {
        return Err(syntax());
    }
    if range.last < range.first {
        return Err(InvalidParticipants::Backwards(item.to_owned()));
    }
    // Both ends within the grammar and length of an id means all are.
    for end in [range.first, range.last] {
        range.id(end).parse::<ParticipantId>().map_err(|_| syntax())?;
    }
    Ok(range)
}

impl TryFrom<Vec<String>> for IdSet {
    type Error = InvalidParticipants;

    fn try_from(items: Vec<String>) -> Result<Self, InvalidParticipants> {
        Self::parse(items)
    }
}

impl From<IdSet> for Vec<String> {
    fn from(set: IdSet) -> Self {
        set.items()
    }
}

impl IdSet {
    /// The set as ids and ranges, one per item, the way it is written.
    #[must_use]
    pub fn items(&self) -> Vec<String> {
        let mut spans = Spans::default();
        for range in &self.ranges {
            spans.numbers.entry((&range.prefix, range.width)).or_default().push((range.first, range.last));
        }
        let mut items = spans.items();
        items.extend(self.singles.iter().map(ToString::to_string));
        items
    }
}

impl IdSet {
    /// Everybody who is in either set.
    pub fn union(&self, other: &Self) -> Result<Self, InvalidParticipants> {
        let all: BTreeSet<ParticipantId> = self.iter().chain(other.iter()).collect();
        Self::parse(ranges_of(&all))
    }

    /// The first of this set that `admits` refuses.
    pub fn first_not(&self, admits: impl Fn(&ParticipantId) -> bool) -> Option<ParticipantId> {
        self.iter().find(|id| !admits(id))
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.items().join(","))
    }
}

/// Writes ids as compressed ranges: `[17,204-206],p-[0-3],x`.
pub fn compress<'a>(ids: impl IntoIterator<Item = &'a ParticipantId>) -> String {
    ranges_of(ids).join(",")
}

fn ranges_of<'a>(ids: impl IntoIterator<Item = &'a ParticipantId>) -> Vec<String> {
    let mut spans = Spans::default();
    let mut plain = Vec::new();
    for id in ids {
        match Numbered::of(id.as_str()) {
            Some(n) => spans.numbers.entry((n.prefix, n.width)).or_default().push((n.number, n.number)),
            None => plain.push(id.as_str()),
        }
    }
    let mut items = spans.items();
    plain.sort_unstable();
    items.extend(plain.into_iter().map(ToOwned::to_owned));
    items
}

/// Inclusive spans of numbers by (prefix, width).
#[derive(Default)]
struct Spans<'a> {
    numbers: BTreeMap<(&'a str, u8), Vec<(u64, u64)>>,
}

impl Spans<'_> {
    fn items(self) -> Vec<String> {
        self.numbers
            .into_iter()
            .map(|((prefix, width), mut spans)| {
                spans.sort_unstable();
                let mut merged: Vec<(u64, u64)> = Vec::new();
                for (first, last) in spans {
                    match merged.last_mut() {
                        Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
                        _ => merged.push((first, last)),
                    }
                }
                let digits = |number: u64| format!("{number:0width$}", width = usize::from(width));
                let parts: Vec<String> = merged
                    .iter()
                    .map(|&(first, last)| match first == last {
                        true => digits(first),
                        false => format!("{}-{}", digits(first), digits(last)),
                    })
                    .collect();
                match merged.as_slice() {
                    [(first, last)] if first == last => format!("{prefix}{}", digits(*first)),
                    _ => format!("{prefix}[{}]", parts.join(",")),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(items: &[&str]) -> Result<IdSet, InvalidParticipants> {
        IdSet::parse(items)
    }

    fn id(text: &str) -> ParticipantId {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_hold_exactly_their_numbers() {
        let set = set(&["[0-1023]", "p-[007-120]", "x"]).unwrap();
        assert_eq!(set.len(), 1024 + 114 + 1);
        for inside in ["0", "1023", "p-007", "p-120", "x"] {
            assert!(set.contains(&id(inside)), "{inside}");
        }
        for outside in ["1024", "007", "p-7", "p-121", "y", "00"] {
            assert!(!set.contains(&id(outside)), "{outside}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        use InvalidParticipants as E;
        assert!(matches!(set(&[]), Err(E::Empty)));
        assert!(matches!(set(&["[5-1]"]), Err(E::Backwards(_))));
        assert!(matches!(set(&["a", "a"]), Err(E::Duplicate(_))));
        assert!(matches!(set(&["[0-9]", "[5-12]"]), Err(E::Duplicate(id)) if id == "5"));
        assert!(matches!(set(&["[0-9]", "7"]), Err(E::Duplicate(id)) if id == "7"));
        assert!(matches!(set(&["[0-200]", "[007-120]"]), Err(E::Duplicate(id)) if id == "100"));
        assert!(matches!(set(&["[0-1000000]"]), Err(E::TooMany { given: 1_000_001, .. })));
        for bad in ["[0-", "[]", "[a-b]", "[-1]", "[0-3]x", "p1[0-3]", "[07-9]", "[0-09]", "", " "] {
            assert!(matches!(set(&[bad]), Err(E::Syntax(_))), "{bad:?}");
        }
    }

    #[test]
    fn missing_ids_print_as_people_write_them() {
        let ids: Vec<_> = ["204", "17", "205", "206", "w-3", "x", "007"].map(id).into();
        assert_eq!(compress(&ids), "[17,204-206],007,w-3,x");
        assert_eq!(compress(&[id("17")]), "17");
    }

    proptest! {
        #[test]
        fn writing_and_reading_a_set_is_the_identity(numbers in prop::collection::btree_set(0_u64..300, 1..60)) {
            let ids: Vec<_> = numbers.iter().map(|n| id(&format!("w-{n}"))).collect();
            let set = IdSet::parse([compress(&ids)]).unwrap();
            prop_assert_eq!(set.len() as usize, ids.len());
            let read: BTreeSet<_> = set.iter().collect();
            prop_assert_eq!(read, ids.into_iter().collect::<BTreeSet<_>>());
            prop_assert_eq!(IdSet::parse(set.items()).unwrap(), set);
        }
    }
}
