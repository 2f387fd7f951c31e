//! What must hold of groups that depend on each other. Nothing here asks the driver's numbers or its gates: it
//! walks the shape's edges by name.

use std::collections::BTreeSet;

use nodewright_core::desired::Desired;
use nodewright_core::effect::{Command, PlannedEffect};
use nodewright_core::id::{GroupId, LogicalNodeId};
use nodewright_core::node::Intent;
use nodewright_core::state::ClusterState;

use super::{Broken, demand};

/// All groups that a group of the shape depends on, directly or not.
fn dependencies(desired: &Desired, group: &GroupId) -> BTreeSet<GroupId> {
    let mut found = BTreeSet::new();
    let mut next = vec![group.clone()];
    while let Some(name) = next.pop() {
        let groups = &desired.shape().groups;
        let group = groups.iter().find(|group| group.group_id == name);
        for name in group.into_iter().flat_map(|group| &group.depends_on) {
            if found.insert(name.clone()) {
                next.push(name.clone());
            }
        }
    }
    found
}

/// G25: no dependent starts before its dependencies are available.
pub(crate) fn g25_what_it_depends_on_is_available(
    state: &ClusterState,
    desired: &Desired,
    node: &LogicalNodeId,
) -> Result<(), Broken> {
    let below = dependencies(desired, &node.group);
    for spec in desired.expand().filter(|spec| below.contains(&spec.id.group)) {
        let found = state.nodes.get(&spec.id);
        demand!(
            found.is_some_and(|found| found.is_available(&spec.template)),
            "G25: {node} is leased for, and {}, which it depends on, is not available: {found:?}",
            spec.id
        );
    }
    Ok(())
}

/// Whether a slot is wanted no more and not gone yet.
fn goes_away(desired: &Desired, id: &LogicalNodeId) -> bool {
    desired.template_of(id).is_none()
}

/// G25, of what a drive sent and began: starts from below, goes from above.
pub(crate) fn g25_order(
    before: &ClusterState,
    after: &ClusterState,
    desired: &Desired,
    sent: &[PlannedEffect],
) -> Result<(), Broken> {
    for effect in sent {
        if matches!(effect.command, Command::CreateLease(_)) {
            g25_what_it_depends_on_is_available(before, desired, &effect.node)?;
        }
    }
    for (id, old) in before.nodes.iter() {
        let new = after.nodes.get(&id).filter(|new| new.attempt == old.attempt);
        let Some(new) = new else { continue };
        let begins = old.intent == Intent::Active && new.intent == Intent::Deleting;
        let replaced = new.failure.is_some() || old.retry.replace;
        if begins && goes_away(desired, &id) && !replaced && !old.holds_nothing() {
            g25_dependents_are_gone(after, desired, &id)?;
        }
    }
    Ok(())
}

/// G25: none is asked to go before its departing dependents are gone.
fn g25_dependents_are_gone(
    state: &ClusterState,
    desired: &Desired,
    node: &LogicalNodeId,
) -> Result<(), Broken> {
    for (id, other) in state.nodes.iter().filter(|(id, _)| goes_away(desired, id)) {
        let departed = state.departed.get(&id.group);
        let depends = dependencies(desired, &id.group).contains(&node.group)
            || departed.is_some_and(|below| below.contains(&node.group));
        demand!(
            !depends,
            "G25: {node} is asked to go, and {id}, attempt {}, which depends on it, is not gone",
            other.attempt
        );
    }
    Ok(())
}
