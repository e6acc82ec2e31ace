//! `GET /v1/limits`: every limit under its name, so that nobody finds one by
//! running into it.

use muster_protocol::caps;
use serde_json::{Value, json};

/// The limits as an object; units stand in the names.
pub(crate) fn document() -> Value {
    json!({
        "entryBytesMax": caps::ENTRY_BYTES_MAX,
        "entryCommandsMax": caps::ENTRY_COMMANDS_MAX,
        "queuedCommandsMax": caps::QUEUED_COMMANDS_MAX,
        "barriersPerNamespaceMax": caps::BARRIERS_PER_NAMESPACE_MAX,
        "regionsPerBarrierMax": caps::REGIONS_PER_BARRIER_MAX,
        "participantsPerRegionMax": caps::PARTICIPANTS_PER_REGION_MAX,
        "participantsListedMax": caps::PARTICIPANTS_LISTED_MAX,
        "participantsListedBytesMax": caps::PARTICIPANTS_LISTED_BYTES_MAX,
        "labelsMax": caps::LABELS_MAX,
        "textBytesMax": caps::TEXT_BYTES_MAX,
        "noteBytesMax": caps::NOTE_BYTES_MAX,
        "outputBytesMax": caps::OUTPUT_BYTES_MAX,
        "outputsPerGenerationBytesMax": caps::OUTPUTS_PER_GENERATION_BYTES_MAX,
        "bodyBytesMax": caps::BODY_BYTES_MAX,
        "batchBodyBytesMax": caps::BATCH_BODY_BYTES_MAX,
        "definitionBytesMax": caps::DEFINITION_BYTES_MAX,
        "batchArrivalsMax": caps::BATCH_ARRIVALS_MAX,
        "maxOpenMax": caps::MAX_OPEN_MAX,
        "maxOpenDefault": caps::MAX_OPEN_DEFAULT,
        "deadlineSecondsMax": caps::DEADLINE_MS_MAX / 1_000,
        "missingNamesMax": caps::MISSING_NAMES_MAX,
        "failuresNamedMax": caps::FAILURES_NAMED_MAX,
        "attemptsMax": caps::ATTEMPTS_MAX,
        "ruleDepthMax": caps::RULE_DEPTH_MAX,
        "ruleNodesMax": caps::RULE_NODES_MAX,
        "retentionSecondsMax": caps::RETENTION_MS_MAX / 1_000,
        "retentionSecondsDefault": caps::RETENTION_MS_DEFAULT / 1_000,
        "retentionGenerationsMax": caps::RETENTION_GENERATIONS_MAX,
        "verdictsFactor": caps::VERDICTS_FACTOR,
        "sessionsPerRegionMax": caps::SESSIONS_PER_REGION_MAX,
        "sessionParticipantsMax": caps::SESSION_PARTICIPANTS_MAX,
        "sessionTtlSecondsMin": caps::SESSION_TTL_MS_MIN / 1_000,
        "sessionTtlSecondsMax": caps::SESSION_TTL_MS_MAX / 1_000,
        "regionAuditMax": caps::REGION_AUDIT_MAX,
        "waitSecondsMax": caps::WAIT_MS_MAX / 1_000,
    })
}
