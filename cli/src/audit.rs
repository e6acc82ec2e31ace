//! Who overrode what.

use clap::Args;
use muster_client::AuditFilter;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::BarrierName;
use muster_wire::answer::AuditRow;

use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

/// `muster audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Only of this barrier
    #[arg(long, value_name = "BARRIER")]
    barrier: Option<BarrierName>,
    /// Only by this person or program
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only so lately, such as 7d, or since an instant (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only the latest so many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

pub(crate) async fn audit(arguments: AuditArguments, context: &Context) -> Result<(), Failure> {
    let AuditArguments { barrier, actor, since, limit } = arguments;
    let rows = context.client()?.audit(&AuditFilter { actor, barrier, since, limit }).await?;
    let names = || rows.iter().map(what).collect();
    context.show(&rows, names, || table(&rows, render::now()))?;
    if rows.is_empty() {
        context.tell("nobody has overridden anything");
    }
    Ok(())
}

/// What it was done to: a generation, a barrier or a region.
fn what(row: &AuditRow) -> String {
    match (&row.barrier, &row.generation) {
        (Some(barrier), Some(generation)) => format!("{barrier}@{generation}"),
        (Some(barrier), None) => barrier.clone(),
        (None, _) => row.object.clone(),
    }
}

fn table(rows: &[AuditRow], now: Timestamp) -> String {
    let line = |row: &AuditRow| {
        let object = if row.barrier.is_some() { row.object.clone() } else { String::new() };
        let actor = row.actor.clone().unwrap_or_else(|| "unknown".to_owned());
        [render::ago(now, &row.at), row.action.clone(), what(row), object, actor, row.reason.clone()]
    };
    match rows.is_empty() {
        true => String::new(),
        false => render::table(["WHEN", "ACTION", "WHAT", "DETAIL", "WHO", "REASON"], rows.iter().map(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::time::parse_rfc3339;

    #[test]
    fn overrides_are_a_table() {
        let rows: Vec<AuditRow> = serde_json::from_str(
            r#"[{"at":"2026-10-07T11:59:00Z","action":"waive","barrier":"etl/map","generation":"k","actor":"ann",
                 "reason":"disk died","object":"ap-south/[17]"},
                {"at":"2026-10-07T10:00:00Z","action":"drain","barrier":null,"generation":null,"actor":null,
                 "reason":"upgrade","object":"us-east"}]"#,
        )
        .unwrap();
        let expected = "\
WHEN    ACTION  WHAT       DETAIL         WHO      REASON
1m ago  waive   etl/map@k  ap-south/[17]  ann      disk died
2h ago  drain   us-east                   unknown  upgrade
";
        assert_eq!(table(&rows, parse_rfc3339("2026-10-07T12:00:00Z").unwrap()), expected);
        assert_eq!(table(&[], Timestamp(0)), "");
    }
}
