//! Where things are in etcd.
//!
//! ```text
//! <prefix>/<region>/meta                          who the log is, for all shards
//! <prefix>/<region>/<shard>/agents/<name>-<instance>
//! <prefix>/<region>/<shard>/log/!head             its version counts the entries
//! <prefix>/<region>/<shard>/log/<writer>/<seq>    one entry
//! <prefix>/<region>/<shard>/leader
//! <prefix>/<region>/<shard>/manifest              which snapshot is in place
//! <prefix>/<region>/<shard>/snap/<index>/<chunk>
//! ```
//!
//! Every range ends with a separator, so that no name is the prefix of
//! another. Numbers have a fixed width, so that the order of keys is theirs.

use muster_protocol::fact::AgentId;
use muster_protocol::identity::Writer;
use muster_protocol::name::RegionName;

/// The largest sequence number its 12 digits can hold.
pub(super) const SEQ_MAX: u64 = 999_999_999_999;

/// A half-open range of keys.
pub(super) type KeyRange = (String, String);

/// The keys of one shard of one region.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    region: String,
    shard: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, region: &RegionName, shard: u16) -> Self {
        let region = format!("{prefix}/{region}");
        let shard = format!("{region}/{shard}");
        Self { region, shard }
    }

    pub(super) fn meta(&self) -> String {
        format!("{}/meta", self.region)
    }

    /// The head of this shard.
    pub(super) fn head(&self) -> String {
        format!("{}/log/!head", self.shard)
    }

    /// The head of any shard of the region.
    pub(super) fn head_of(&self, shard: u16) -> String {
        format!("{}/{shard}/log/!head", self.region)
    }

    pub(super) fn agents(&self) -> String {
        format!("{}/agents/", self.shard)
    }

    pub(super) fn agent(&self, agent: &AgentId) -> String {
        format!("{}/agents/{}-{}", self.shard, agent.name, agent.instance)
    }

    /// The entries and the head.
    pub(super) fn log(&self) -> String {
        format!("{}/log/", self.shard)
    }

    /// The entries alone: `:` follows the digits, and `!` comes before them.
    pub(super) fn entries(&self) -> KeyRange {
        (format!("{}/log/0", self.shard), format!("{}/log/:", self.shard))
    }

    pub(super) fn entry(&self, writer: Writer, seq: u64) -> String {
        format!("{}/log/{:020}/{seq:012}", self.shard, writer.0)
    }

    /// A writer's entries up to a sequence number.
    pub(super) fn entries_up_to(&self, writer: Writer, seq: u64) -> KeyRange {
        (self.entry(writer, 0), after(&self.entry(writer, seq)))
    }

    /// The place an entry's key names; `None` if it is no entry's.
    pub(super) fn place(&self, key: &[u8]) -> Option<(Writer, u64)> {
        let place = std::str::from_utf8(key).ok()?.strip_prefix(&self.shard)?.strip_prefix("/log/")?;
        let (writer, seq) = place.split_once('/')?;
        if writer.len() != 20 || seq.len() != 12 {
            return None;
        }
        Some((Writer(writer.parse().ok()?), seq.parse().ok()?))
    }

    pub(super) fn leader(&self) -> String {
        format!("{}/leader", self.shard)
    }

    /// What a recovery is about to put in place.
    pub(super) fn recovery(&self) -> String {
        format!("{}/recovery", self.region)
    }

    pub(super) fn manifest(&self) -> String {
        format!("{}/manifest", self.shard)
    }

    pub(super) fn chunk(&self, index: u64, chunk: usize) -> String {
        format!("{}/snap/{index:020}/{chunk:06}", self.shard)
    }

    /// The chunks of the snapshot at an index.
    pub(super) fn chunks(&self, index: u64) -> KeyRange {
        (format!("{}/snap/{index:020}/", self.shard), format!("{}/snap/{index:020}0", self.shard))
    }

    /// The chunks of every snapshot before an index.
    pub(super) fn chunks_before(&self, index: u64) -> KeyRange {
        (format!("{}/snap/", self.shard), format!("{}/snap/{index:020}/", self.shard))
    }
}

/// The least key behind another.
pub(super) fn after(key: &str) -> String {
    format!("{key}\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new("/muster/v1", &"us-east".parse().unwrap(), 3)
    }

    #[test]
    fn keys_are_what_the_architecture_says() {
        let keys = keys();
        let agent = AgentId { name: "a1".to_owned(), instance: "beef".to_owned() };
        assert_eq!(keys.meta(), "/muster/v1/us-east/meta");
        assert_eq!(keys.head(), "/muster/v1/us-east/3/log/!head");
        assert_eq!(keys.head(), keys.head_of(3));
        assert_eq!(keys.agent(&agent), "/muster/v1/us-east/3/agents/a1-beef");
        assert_eq!(keys.entry(Writer(7), 12), "/muster/v1/us-east/3/log/00000000000000000007/000000000012");
        assert_eq!(keys.chunk(9, 1), "/muster/v1/us-east/3/snap/00000000000000000009/000001");
    }

    #[test]
    fn a_place_is_read_back_and_nothing_else_is_one() {
        let keys = keys();
        let place = (Writer(u64::MAX), SEQ_MAX);
        assert_eq!(keys.place(keys.entry(place.0, place.1).as_bytes()), Some(place));
        let foreign = Keys::new("/muster/v1", &"us-east".parse().unwrap(), 30);
        for key in [keys.head(), keys.meta(), foreign.entry(Writer(7), 1), "x".to_owned(), keys.log() + "1/2"] {
            assert_eq!(keys.place(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn ranges_hold_their_own_and_no_neighbour() {
        let keys = keys();
        let within = |(from, to): KeyRange, key: String| from <= key && key < to;
        assert!(within(keys.entries(), keys.entry(Writer(0), 0)));
        assert!(within(keys.entries(), keys.entry(Writer(u64::MAX), SEQ_MAX)));
        assert!(!within(keys.entries(), keys.head()));
        assert!(within(keys.entries_up_to(Writer(7), 5), keys.entry(Writer(7), 5)));
        assert!(!within(keys.entries_up_to(Writer(7), 5), keys.entry(Writer(7), 6)));
        assert!(!within(keys.entries_up_to(Writer(7), 5), keys.entry(Writer(8), 1)));
        assert!(within(keys.chunks(9), keys.chunk(9, 0)));
        assert!(!within(keys.chunks(9), keys.chunk(10, 0)));
        assert!(within(keys.chunks_before(9), keys.chunk(8, 999_999)));
        assert!(!within(keys.chunks_before(9), keys.chunk(9, 0)));
    }
}
