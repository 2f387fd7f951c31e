//! What groups that depend on each other promise: they start from below, and go from above.

mod departed;
mod going;
mod random;
mod starting;
mod telling;

use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::decide::WaitReason;
use nodewright_core::effect::{CommandKind, PlannedEffect};
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::ClusterShape;
use nodewright_core::status::{Awaited, Why};

/// A group: its name, how many nodes, and what it depends on.
type Group<'a> = (&'a str, u32, &'a [&'a str]);

fn wanted(generation: u64, groups: &[Group<'_>]) -> ClusterShape {
    let groups = groups.iter().map(|(name, count, depends_on)| {
        let mut group = group(name, *count, template("alpha", "one"));
        group.depends_on = depends_on.iter().map(|name| name.parse().unwrap()).collect();
        group
    });
    shape(generation, groups.collect())
}

fn run(groups: &[Group<'_>]) -> ByHand {
    ByHand::fresh(wanted(1, groups), policy(), PaceConfig::default())
}

/// One node each in a chain: `web` needs `api`, and that needs `db`.
const CHAIN: [Group<'static>; 3] = [("db", 1, &[]), ("api", 1, &["db"]), ("web", 1, &["api"])];

fn converged(groups: &[Group<'_>]) -> ByHand {
    let mut run = run(groups);
    run.succeed_all();
    assert!(run.driver.is_converged());
    run
}

fn update(run: &mut ByHand, generation: u64, groups: &[Group<'_>]) {
    let accepted = run.driver.update_desired(wanted(generation, groups), run.now);
    accepted.unwrap();
}

fn lose(run: &mut ByHand, node: &str) {
    let attempt = run.node(node).attempt;
    let reason = "gone".into();
    let folded = run.observe(&node.parse().unwrap(), attempt, &Observation::NodeLost { reason });
    assert_eq!(folded, Folded::Applied);
}

/// What is sent, as slot and command.
fn said(sent: &[PlannedEffect]) -> Vec<String> {
    let said = sent
        .iter()
        .map(|effect| format!("{} {}", effect.node, effect.command.kind()));
    said.collect()
}

#[track_caller]
fn sends(run: &mut ByHand, expected: &[&str]) -> Vec<PlannedEffect> {
    let sent = run.drive();
    assert_eq!(said(&sent), expected);
    sent
}

/// Drives and lets everything succeed, in passes: what each of them sent that makes or ends a machine.
fn waves(run: &mut ByHand) -> Vec<String> {
    let mut waves = Vec::new();
    loop {
        let sent = run.drive();
        let told = sent.iter().filter(|effect| {
            let kind = effect.command.kind();
            matches!(kind, CommandKind::CreateLease | CommandKind::DestroyLease)
        });
        let told: Vec<String> = told
            .map(|effect| format!("{} {}", effect.command.kind(), effect.node))
            .collect();
        if !told.is_empty() {
            waves.push(told.join(", "));
        }
        if sent.is_empty() {
            return waves;
        }
        for effect in &sent {
            let _ = run.succeed(effect);
        }
    }
}

/// The groups that a slot waits for, and why.
#[track_caller]
fn waits(run: &ByHand, node: &str, why: WaitReason) -> Vec<Awaited> {
    match run.driver.why(&node.parse().unwrap(), run.now) {
        Why::WaitingFor { reason, groups, .. } if reason == why => groups,
        other => panic!("{node}: {other:?}"),
    }
}

fn names(groups: &[Awaited]) -> Vec<&str> {
    groups.iter().map(|awaited| awaited.group.as_str()).collect()
}
