//! Which crate may depend on which: the directions of the architecture, the one
//! owner of each service's driver, and what keeps the protocol pure.

use crate::workspace::{Crate, Dependency, Workspace};

const PROTOCOL: &str = "muster-protocol";
const AGENT: &str = "muster-regional-agent";
const COORDINATOR: &str = "muster-global-coordinator";
const TESTS: &str = "muster-tests";
const SIMULATION: &str = "muster-simulation";
const MODEL: &str = "muster-model";
const BENCHMARKS: &str = "muster-benchmarks";

const SHARED: &[&str] = &[PROTOCOL, "muster-wire", "muster-bus", "muster-http", "muster-telemetry", "muster-client"];

/// Crate by crate, the groups of own crates it may depend on: protocol, wire,
/// {bus, http, telemetry, client}, {agent, coordinator}, embedded, {cli, tests},
/// benchmarks, each only on those before it.
const DIRECTIONS: &[(&str, &[&[&str]])] = &[
    (PROTOCOL, &[]),
    ("muster-telemetry", &[]),
    ("muster-wire", &[&[PROTOCOL]]),
    ("muster-bus", &[&[PROTOCOL, "muster-wire", "muster-telemetry"]]),
    ("muster-http", &[&[PROTOCOL, "muster-wire", "muster-telemetry"]]),
    ("muster-client", &[&[PROTOCOL, "muster-wire"]]),
    (AGENT, &[SHARED]),
    (COORDINATOR, &[SHARED]),
    ("muster-embedded", &[SHARED, &[AGENT, COORDINATOR]]),
    ("muster", &[SHARED, &[AGENT, COORDINATOR, "muster-embedded"]]),
    (SIMULATION, &[&[PROTOCOL]]),
    (MODEL, &[&[PROTOCOL]]),
    (TESTS, &[SHARED, &[AGENT, COORDINATOR, "muster-embedded"]]),
    (BENCHMARKS, &[SHARED, &[AGENT, COORDINATOR, "muster-embedded", TESTS]]),
    ("xtask", &[]),
];

/// Who may use a service's driver. Tests and benchmarks use what they measure.
const OWNERS: &[(&str, &[&str])] = &[
    ("etcd-client", &[AGENT, TESTS, BENCHMARKS]),
    ("rdkafka", &["muster-bus", TESTS, BENCHMARKS]),
    ("sqlx", &[AGENT, COORDINATOR, TESTS, BENCHMARKS]),
];

/// What only tests of a crate may use: what stands in for an adapter faces the
/// adapters' own suites, and the adapters beside it.
const IN_TESTS: &[(&str, &[&str])] = &[(SIMULATION, &[AGENT, COORDINATOR, "sqlx"])];

fn in_tests(one: &Crate, dependency: &Dependency) -> bool {
    let allowed = IN_TESTS.iter().filter(|(name, _)| *name == one.name).flat_map(|(_, allowed)| *allowed);
    dependency.dev && allowed.into_iter().any(|name| *name == dependency.name)
}

/// All that the protocol may use: none of these knows a clock, a socket or chance.
const PURE: &[&str] = &["serde", "postcard", "blake3", "thiserror"];

/// They need a C library or a toolchain that a fresh machine does not have.
const BANNED: &[&str] = &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

/// The findings, one line each.
pub(crate) fn check(workspace: &Workspace) -> Vec<String> {
    let own: Vec<&str> = workspace.crates.iter().map(|one| one.name.as_str()).collect();
    let mut findings = Vec::new();
    for one in &workspace.crates {
        findings.extend(direction(one, &own));
        findings.extend(ownership(one));
        findings.extend(purity(one));
    }
    let banned = workspace.resolved.iter().filter(|name| BANNED.contains(&name.as_str()));
    findings.extend(
        banned.map(|name| format!("{name} is in the dependency graph: find who brings it with `cargo tree -i {name}`")),
    );
    findings
}

fn direction(one: &Crate, own: &[&str]) -> Vec<String> {
    let Some((_, allowed)) = DIRECTIONS.iter().find(|(name, _)| *name == one.name) else {
        return vec![format!("{}: has no place in the table of dependency directions", one.name)];
    };
    one.dependencies
        .iter()
        .filter(|dependency| !in_tests(one, dependency))
        .map(|dependency| dependency.name.as_str())
        .filter(|name| own.contains(name))
        .filter(|name| !allowed.iter().any(|group| group.contains(name)))
        .map(|name| format!("{}: may not depend on {name}, dependencies point one way", one.name))
        .collect()
}

fn ownership(one: &Crate) -> Vec<String> {
    let mut findings = Vec::new();
    for (driver, owners) in OWNERS {
        let uses = one.dependencies.iter().any(|dependency| dependency.name == *driver && !in_tests(one, dependency));
        if uses && !owners.contains(&one.name.as_str()) {
            findings.push(format!("{}: may not depend on {driver}, only {owners:?} may", one.name));
        }
    }
    findings
}

fn purity(one: &Crate) -> Vec<String> {
    if one.name != PROTOCOL {
        return Vec::new();
    }
    let mut findings: Vec<String> = one
        .dependencies
        .iter()
        .filter(|dependency| !dependency.dev && !PURE.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{PROTOCOL}: may not depend on {}, only on {PURE:?}", dependency.name))
        .collect();
    if !one.lib.lines().any(|line| line.trim() == "#![no_std]") {
        findings.push(format!("{PROTOCOL}: src/lib.rs lacks #![no_std], which keeps it from clocks and sockets"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(name: &str, dependencies: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            lib: "#![no_std]".to_owned(),
            dependencies: dependencies.iter().map(|name| Dependency { name: (*name).to_owned(), dev: false }).collect(),
            ..Crate::default()
        }
    }

    fn findings(crates: Vec<Crate>) -> Vec<String> {
        check(&Workspace { crates, resolved: Vec::new() })
    }

    #[test]
    fn layout_of_the_architecture_passes() {
        let crates = vec![
            made_up(PROTOCOL, &["serde", "blake3"]),
            made_up("muster-wire", &[PROTOCOL, "serde_json"]),
            made_up("muster-bus", &["muster-wire", "rdkafka"]),
            made_up(AGENT, &["muster-bus", "etcd-client", "sqlx"]),
            made_up(COORDINATOR, &["muster-bus", "sqlx"]),
            made_up("muster-embedded", &[AGENT, COORDINATOR]),
            made_up(TESTS, &["muster-embedded", "sqlx", "rdkafka"]),
        ];
        assert_eq!(findings(crates), Vec::<String>::new());
    }

    #[test]
    fn dependency_against_the_direction_is_refused() {
        let pairs = [(PROTOCOL, "muster-wire"), (AGENT, COORDINATOR), (COORDINATOR, AGENT), (TESTS, "muster")];
        for (from, to) in pairs {
            let found = findings(vec![made_up(from, &[to]), made_up(to, &[])]);
            assert!(found.iter().any(|line| line.contains(&format!("{from}: may not depend on {to}"))), "{found:?}");
        }
    }

    #[test]
    fn the_simulator_uses_adapters_in_its_tests_alone() {
        let mut simulation = made_up(SIMULATION, &[PROTOCOL, AGENT, "sqlx"]);
        assert_eq!(findings(vec![simulation.clone(), made_up(AGENT, &[])]).len(), 2);
        simulation.dependencies.iter_mut().for_each(|dependency| dependency.dev = true);
        assert_eq!(findings(vec![simulation, made_up(AGENT, &[])]), Vec::<String>::new());
    }

    #[test]
    fn crate_without_a_place_is_refused() {
        let found = findings(vec![made_up("muster-extra", &[])]);
        assert!(found[0].contains("no place"), "{found:?}");
    }

    #[test]
    fn driver_outside_its_owner_is_refused() {
        for (user, driver) in
            [("muster-bus", "sqlx"), (COORDINATOR, "etcd-client"), (AGENT, "rdkafka"), ("muster", "sqlx")]
        {
            let found = findings(vec![made_up(user, &[driver])]);
            assert_eq!(found.len(), 1, "{user} {driver}");
            assert!(found[0].contains(driver), "{found:?}");
        }
    }

    #[test]
    fn impure_protocol_is_refused_but_its_tests_are_free() {
        let found = findings(vec![made_up(PROTOCOL, &["tokio"])]);
        assert!(found[0].contains("may not depend on tokio"), "{found:?}");
        let mut protocol = made_up(PROTOCOL, &["proptest"]);
        protocol.dependencies[0].dev = true;
        assert_eq!(findings(vec![protocol]), Vec::<String>::new());
    }

    #[test]
    fn protocol_with_std_is_refused() {
        let mut protocol = made_up(PROTOCOL, &[]);
        protocol.lib = "// #![no_std]\npub fn now() {}".to_owned();
        assert!(findings(vec![protocol])[0].contains("no_std"));
    }

    #[test]
    fn banned_package_anywhere_is_refused() {
        let resolved = vec!["ring".to_owned(), "openssl-sys".to_owned()];
        let found = check(&Workspace { crates: Vec::new(), resolved });
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("openssl-sys "), "{found:?}");
    }
}
