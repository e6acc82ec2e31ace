//! Why a generation is not released yet.

use muster_protocol::identity::Timestamp;
use muster_wire::answer::{Explanation, Participant, ParticipantState};

use super::table::aligned;
use super::time::{ago, short};
use super::visible::visible_line;

/// What is so, who is missing, and what can be done.
pub(crate) fn why(explanation: &Explanation, now: Timestamp) -> String {
    let mut lines = explanation.lines.iter();
    let first = lines.next().unwrap_or(&explanation.status.message);
    let mut text = format!("{}\n", visible_line(first));
    let rows: Vec<[String; 4]> = explanation.participants.iter().map(|one| row(one, now)).collect();
    text.push_str(&aligned(&rows, "  "));
    lines.for_each(|line| text.push_str(&format!("{}\n", visible_line(line))));
    let actions: Vec<[String; 2]> =
        explanation.actions.iter().map(|one| [&one.command, &one.effect].map(|word| visible_line(word))).collect();
    let width = actions.iter().map(|[command, _]| command.chars().count()).max().unwrap_or(0);
    for (index, [command, effect]) in actions.iter().enumerate() {
        let lead = if index == 0 { "You can:  " } else { "          " };
        text.push_str(&format!("{lead}{command:width$}   ({effect})\n"));
    }
    text
}

fn row(participant: &Participant, now: Timestamp) -> [String; 4] {
    let state = match participant.state {
        ParticipantState::Missing => "missing",
        ParticipantState::Retrying => "retrying",
        ParticipantState::Arrived => "arrived",
        ParticipantState::Failed => "failed",
        ParticipantState::Working => "working",
        ParticipantState::Lost => "lost",
        ParticipantState::Excluded => "excluded",
        ParticipantState::Waived => "waived",
        _ => "unknown",
    };
    let seen = participant.last_seen_seconds.map(|seconds| format!("last heartbeat {} ago", short(seconds)));
    let when = seen.or_else(|| participant.arrived_at.as_ref().map(|at| ago(now, at)));
    let rest = [
        participant.rejoin_seconds.map(|seconds| format!("{} left to rejoin", short(seconds))),
        participant.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!("attempt {attempt}")),
        participant.withdrawn.map(|attempt| format!("attempts up to {attempt} are spent")),
        participant.progress.clone(),
        participant.note.clone(),
    ];
    let rest: Vec<String> = rest.into_iter().flatten().collect();
    [participant.participant.clone(), state.to_owned(), when.unwrap_or_default(), rest.join(", ")]
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::{at_noon, gathering};
    use super::*;
    use muster_wire::answer::Action;
    use serde_json::json;

    #[test]
    fn an_explanation_reads_as_a_text() {
        let participants = json!([
            {"participant": "ap-south/17", "state": "missing"},
            {"participant": "ap-south/205", "state": "retrying", "attempt": 2, "arrivedAt": "2026-10-07T11:55:48Z", "note": "signal 9"},
            {"participant": "ap-south/206", "state": "working", "lastSeenSeconds": 2.0, "progress": "41 of 60 files"},
            {"participant": "ap-south/207", "state": "lost", "lastSeenSeconds": 252.0, "rejoinSeconds": 48.0, "attempt": 2},
        ]);
        let explanation = Explanation {
            status: gathering(),
            lines: vec![
                "etl/map@2026-10-07 has not released because 2 participants in ap-south have not arrived.".into(),
                "us-east and eu-west are complete.".into(),
                "It breaks in 1h22m (deadline).".into(),
            ],
            participants: serde_json::from_value(participants).unwrap(),
            actions: vec![
                Action {
                    command: "muster abort etl/map@2026-10-07 --reason …".into(), effect: "nobody passes".into()
                },
                Action { command: "muster status etl/map@2026-10-07 -w".into(), effect: "watch it".into() },
            ],
        };
        let expected = "\
etl/map@2026-10-07 has not released because 2 participants in ap-south have not arrived.
  ap-south/17   missing
  ap-south/205  retrying  4m12s ago                 attempt 2, signal 9
  ap-south/206  working   last heartbeat 2.0s ago   41 of 60 files
  ap-south/207  lost      last heartbeat 4m12s ago  48s left to rejoin, attempt 2
us-east and eu-west are complete.
It breaks in 1h22m (deadline).
You can:  muster abort etl/map@2026-10-07 --reason …   (nobody passes)
          muster status etl/map@2026-10-07 -w          (watch it)
";
        assert_eq!(why(&explanation, at_noon()), expected);
    }
}
