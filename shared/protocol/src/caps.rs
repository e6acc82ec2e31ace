//! Every size has a limit that is refused when it is asked for, not when it
//! hurts. `GET /v1/limits` prints these.

/// Bytes of one encoded log entry.
pub const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// Commands in one log entry.
pub const ENTRY_COMMANDS_MAX: usize = 4_096;
/// Commands waiting at one agent for their turn to be appended.
pub const QUEUED_COMMANDS_MAX: usize = 32_768;
/// Barriers defined in one namespace.
pub const BARRIERS_PER_NAMESPACE_MAX: u32 = 10_000;
/// Regions of one barrier.
pub const REGIONS_PER_BARRIER_MAX: usize = 128;
/// Participants of one region, given as a number or as ranges.
pub const PARTICIPANTS_PER_REGION_MAX: u32 = 1_000_000;
/// Participants of one region, given one by one.
pub const PARTICIPANTS_LISTED_MAX: usize = 2_000;
/// Bytes of a region's participants given one by one.
pub const PARTICIPANTS_LISTED_BYTES_MAX: usize = 64 * 1024;
/// Labels of one barrier.
pub const LABELS_MAX: usize = 16;
/// Bytes of a label's key or value, a description or an owner.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of the note an arrival carries.
pub const NOTE_BYTES_MAX: usize = 1_024;
/// Bytes of the output an arrival carries.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of all outputs of one generation, shared evenly by its regions.
pub const OUTPUTS_PER_GENERATION_BYTES_MAX: usize = 128 * 1024;
/// Bytes of an HTTP request body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a batch of arrivals.
pub const BATCH_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a definition.
pub const DEFINITION_BYTES_MAX: usize = 1024 * 1024;
/// Arrivals in one batch.
pub const BATCH_ARRIVALS_MAX: usize = 1_000;
/// Keyed generations that may gather at once.
pub const MAX_OPEN_MAX: u32 = 1_000;
/// Keyed generations that may gather at once, when the definition is silent.
pub const MAX_OPEN_DEFAULT: u32 = 16;
/// Milliseconds of the longest deadline (30 days).
pub const DEADLINE_MS_MAX: u64 = 30 * 24 * 3_600 * 1_000;
/// Milliseconds that details of finished generations are kept at most (90 days).
pub const RETENTION_MS_MAX: u64 = 90 * 24 * 3_600 * 1_000;
/// Milliseconds that they are kept when the definition is silent (30 days).
pub const RETENTION_MS_DEFAULT: u64 = 30 * 24 * 3_600 * 1_000;
/// Finished generations of one barrier that keep their details.
pub const RETENTION_GENERATIONS_MAX: u32 = 1_000;
/// How many times as long, and as many, bare verdicts are kept.
pub const VERDICTS_FACTOR: u32 = 10;
/// Levels of a release rule.
pub const RULE_DEPTH_MAX: usize = 8;
/// Parts of a release rule, on all levels.
pub const RULE_NODES_MAX: usize = 256;
/// Attempts a participant may have.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Sessions of one region.
pub const SESSIONS_PER_REGION_MAX: usize = 200_000;
/// Participants that one session stands for.
pub const SESSION_PARTICIPANTS_MAX: usize = 1_000;
/// Milliseconds of the shortest and the longest time a session may be silent.
pub const SESSION_TTL_MS_MIN: u64 = 3_000;
/// See [`SESSION_TTL_MS_MIN`] (1 day).
pub const SESSION_TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Overrides that a region's own audit log keeps.
pub const REGION_AUDIT_MAX: usize = 1_000;
/// Names of missing participants that a report carries; the region has all.
pub const MISSING_NAMES_MAX: usize = 100;
/// Failures that a report names.
pub const FAILURES_NAMED_MAX: usize = 16;
/// Milliseconds that one wait may last.
pub const WAIT_MS_MAX: u64 = 600_000;
/// Withdrawn attempts remembered beyond the number of participants.
pub const WITHDRAWN_EXTRA_MAX: usize = 1_024;
/// State hashes a replica keeps to compare with those of its peers.
pub const HASHES_KEPT: usize = 4_096;
