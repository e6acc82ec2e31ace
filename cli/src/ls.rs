//! Lists: what is open everywhere, and the generations of one barrier.

use clap::Args;
use muster_client::Filter;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::BarrierName;
use muster_wire::answer::{Barrier, GenerationRow};

use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

/// `muster ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    /// Finished generations too, and which barriers have none at all
    #[arg(long)]
    all: bool,
    /// Only barriers whose name begins so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only barriers with this label
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
}

/// `muster history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The barrier
    #[arg(value_name = "BARRIER")]
    barrier: BarrierName,
}

pub(crate) async fn ls(arguments: LsArguments, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let filter = Filter { prefix: arguments.prefix, label: arguments.label, ..Filter::default() };
    let mut rows = client.generations(&filter).await?;
    if arguments.all {
        for state in ["released", "broken"] {
            rows.extend(client.generations(&Filter { state: Some(state.to_owned()), ..filter.clone() }).await?);
        }
        rows.sort_by(|a, b| (&a.barrier, b.n).cmp(&(&b.barrier, a.n)));
        rows.dedup_by(|a, b| (&a.barrier, a.n) == (&b.barrier, b.n));
    }
    show(&rows, context)?;
    match arguments.all {
        true => context.tell(&idle(&client.barriers().await?, &rows)),
        false if rows.is_empty() => context.tell("nothing is open; `muster ls --all` lists finished generations too"),
        false => {}
    }
    Ok(())
}

/// A word about barriers that no row is of.
fn idle(barriers: &[Barrier], rows: &[GenerationRow]) -> String {
    let none = barriers.iter().filter(|barrier| rows.iter().all(|row| row.barrier != barrier.name));
    let names: Vec<&str> = none.map(|barrier| barrier.name.as_str()).collect();
    match (barriers.is_empty(), names.is_empty()) {
        (true, _) => "no barriers yet; `muster apply FILE` defines one".to_owned(),
        (false, true) => format!("{} defined", render::count(barriers.len() as u64, "barrier")),
        (false, false) => format!("without a generation: {}", names.join(", ")),
    }
}

pub(crate) async fn history(arguments: HistoryArguments, context: &Context) -> Result<(), Failure> {
    let rows = context.client()?.history(&arguments.barrier).await?;
    show(&rows, context)
}

fn show(rows: &[GenerationRow], context: &Context) -> Result<(), Failure> {
    let names = || rows.iter().map(name).collect();
    context.show(&rows, names, || table(rows, render::now()))
}

fn name(row: &GenerationRow) -> String {
    format!("{}@{}", row.barrier, row.generation)
}

fn table(rows: &[GenerationRow], now: Timestamp) -> String {
    let line = |row: &GenerationRow| {
        let end = match (&row.decided_at, &row.deadline_at) {
            (Some(decided), _) => format!("ended {}", render::ago(now, decided)),
            (None, Some(deadline)) => format!("deadline {}", render::until(now, deadline)),
            (None, None) => "no deadline".to_owned(),
        };
        let reason = serde_json::to_value(row.reason).ok().and_then(|reason| reason.as_str().map(str::to_owned));
        [
            name(row),
            row.state.as_str().to_owned(),
            format!("{}/{}", row.arrived, row.expected),
            render::ago(now, &row.opened_at),
            end,
            reason.unwrap_or_default(),
        ]
    };
    match rows.is_empty() {
        true => String::new(),
        false => render::table(["GENERATION", "STATE", "ARRIVED", "OPENED", "END", "REASON"], rows.iter().map(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::time::parse_rfc3339;

    #[test]
    fn generations_are_a_table() {
        let rows: Vec<GenerationRow> = serde_json::from_str(
            r#"[{"barrier":"etl/map","generation":"2026-10-07","n":7,"state":"gathering","reason":"waiting-for-participants",
                "arrived":3069,"expected":3072,"openedAt":"2026-10-07T11:22:00Z","deadlineAt":"2026-10-07T13:22:00Z","decidedAt":null},
               {"barrier":"etl/x","generation":"1","n":1,"state":"broken","reason":"aborted","arrived":0,"expected":2,
                "openedAt":"2026-10-07T10:00:00Z","deadlineAt":null,"decidedAt":"2026-10-07T11:59:00Z"}]"#,
        )
        .unwrap();
        let expected = "\
GENERATION          STATE      ARRIVED    OPENED   END                REASON
etl/map@2026-10-07  gathering  3069/3072  38m ago  deadline in 1h22m  waiting-for-participants
etl/x@1             broken     0/2        2h ago   ended 1m ago       aborted
";
        assert_eq!(table(&rows, parse_rfc3339("2026-10-07T12:00:00Z").unwrap()), expected);
        assert_eq!(table(&[], Timestamp(0)), "");
        let barriers: Vec<Barrier> =
            serde_json::from_str(r#"[{"name":"etl/y","revision":1,"spec":{},"effective":{},"gathering":0}]"#).unwrap();
        assert_eq!(idle(&barriers, &rows), "without a generation: etl/y");
        assert_eq!(idle(&[], &[]), "no barriers yet; `muster apply FILE` defines one");
    }
}
