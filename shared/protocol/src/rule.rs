//! What must be complete for a release: a recursive rule, whose leaves are
//! regions or zones inside a region. That is the hierarchy: zone, region,
//! area, world, evaluated in one place without more hops.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{RegionName, ZoneName};

/// What must be complete for a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// Every region of the barrier.
    All,
    /// Every one of these.
    Every(Vec<Rule>),
    /// So many of these.
    AtLeast {
        /// How many.
        count: u32,
        /// Of which.
        of: Vec<Rule>,
    },
    /// A region or a zone.
    Leaf(Leaf),
}

/// What arrives for itself: a region, or a zone inside a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaf {
    /// The region.
    pub region: RegionName,
    /// The zone, unless the whole region is meant.
    pub zone: Option<ZoneName>,
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)?;
        self.zone.as_ref().map_or(Ok(()), |zone| write!(f, "/{zone}"))
    }
}

impl Rule {
    /// Whether the rule holds, with `promised` saying of a leaf whether it is
    /// complete. `regions` are those of the barrier.
    pub fn holds<'a>(
        &'a self,
        regions: impl Iterator<Item = &'a RegionName> + Clone,
        promised: &impl Fn(&Leaf) -> bool,
    ) -> bool {
        match self {
            Self::All => {
                let mut leaves = regions.map(|region| Leaf { region: region.clone(), zone: None });
                leaves.all(|leaf| promised(&leaf))
            }
            Self::Every(parts) => parts.iter().all(|part| part.part_holds(promised)),
            Self::AtLeast { count, of } => {
                of.iter().filter(|part| part.part_holds(promised)).count() >= *count as usize
            }
            Self::Leaf(leaf) => promised(leaf),
        }
    }

    /// A part of a rule never is `All`, which only stands alone.
    fn part_holds(&self, promised: &impl Fn(&Leaf) -> bool) -> bool {
        self.holds(core::iter::empty(), promised)
    }

    /// The regions and zones that the rule names; none for `All`.
    #[must_use]
    pub fn leaves(&self) -> BTreeSet<&Leaf> {
        match self {
            Self::All => BTreeSet::new(),
            Self::Every(parts) | Self::AtLeast { of: parts, .. } => parts.iter().flat_map(Self::leaves).collect(),
            Self::Leaf(leaf) => BTreeSet::from([leaf]),
        }
    }

    /// What the rule still needs, as people say it: `us-east and 1 of
    /// [eu-west, eu-north]`. `None` when it holds.
    pub fn needs<'a>(
        &'a self,
        regions: impl Iterator<Item = &'a RegionName> + Clone,
        promised: &impl Fn(&Leaf) -> bool,
    ) -> Option<String> {
        let open: Vec<String> = match self {
            Self::All => regions
                .map(|region| Leaf { region: region.clone(), zone: None })
                .filter(|leaf| !promised(leaf))
                .map(|leaf| leaf.to_string())
                .collect(),
            Self::Every(parts) => parts.iter().filter_map(|part| part.part_needs(promised)).collect(),
            Self::AtLeast { count, of } => {
                let open: Vec<String> = of.iter().filter_map(|part| part.part_needs(promised)).collect();
                let held = of.len() - open.len();
                return match (*count as usize).saturating_sub(held) {
                    0 => None,
                    more if more == open.len() => Some(open.join(" and ")),
                    more => Some(format!("{more} of [{}]", open.join(", "))),
                };
            }
            Self::Leaf(leaf) if promised(leaf) => Vec::new(),
            Self::Leaf(leaf) => Vec::from([leaf.to_string()]),
        };
        (!open.is_empty()).then(|| open.join(" and "))
    }

    fn part_needs(&self, promised: &impl Fn(&Leaf) -> bool) -> Option<String> {
        self.needs(core::iter::empty(), promised)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use std::prelude::v1::*;

    use super::*;

    fn leaf(text: &str) -> Leaf {
        let (region, zone) = text.split_once('/').map_or((text, None), |(region, zone)| (region, Some(zone)));
        Leaf { region: region.parse().unwrap(), zone: zone.map(|zone| zone.parse().unwrap()) }
    }

    fn of(names: &[&str]) -> Vec<Rule> {
        names.iter().map(|name| Rule::Leaf(leaf(name))).collect()
    }

    fn regions() -> Vec<RegionName> {
        ["a", "b", "c"].map(|name| name.parse().unwrap()).into()
    }

    fn check(rule: &Rule, promised: &[&str]) -> (bool, Option<String>) {
        let (regions, promised) = (regions(), promised.iter().map(|name| leaf(name)).collect::<Vec<_>>());
        let promised = |leaf: &Leaf| promised.contains(leaf);
        (rule.holds(regions.iter(), &promised), rule.needs(regions.iter(), &promised))
    }

    #[test]
    fn rules_hold_and_say_what_they_need() {
        let nested = Rule::Every(vec![Rule::Leaf(leaf("a")), Rule::AtLeast { count: 1, of: of(&["b", "c/z1"]) }]);
        let two = Rule::AtLeast { count: 2, of: of(&["a", "b", "c"]) };
        let cases: [(&Rule, &[&str], Option<&str>); 10] = [
            (&Rule::All, &["a", "b", "c"], None),
            (&Rule::All, &["b"], Some("a and c")),
            (&two, &[], Some("2 of [a, b, c]")),
            (&two, &["b"], Some("1 of [a, c]")),
            (&two, &["b", "c"], None),
            (&nested, &["a"], Some("1 of [b, c/z1]")),
            (&nested, &["a", "c"], Some("1 of [b, c/z1]")),
            (&nested, &["c/z1"], Some("a")),
            (&nested, &["a", "c/z1"], None),
            (&Rule::AtLeast { count: 2, of: of(&["a", "b"]) }, &[], Some("a and b")),
        ];
        for (rule, promised, needs) in cases {
            assert_eq!(
                check(rule, promised),
                (needs.is_none(), needs.map(ToString::to_string)),
                "{rule:?} {promised:?}"
            );
        }
    }

    #[test]
    fn a_rule_names_its_leaves_once() {
        let rule = Rule::Every(vec![Rule::Leaf(leaf("a")), Rule::AtLeast { count: 1, of: of(&["b", "a"]) }]);
        assert_eq!(rule.leaves().into_iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);
        assert!(Rule::All.leaves().is_empty());
    }
}
