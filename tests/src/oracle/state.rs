//! What must hold of every state by itself.

use std::collections::{BTreeMap, BTreeSet};

use nodewright_core::id::{LogicalNodeId, NodeAttemptId};
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::state::ClusterState;

use super::{Broken, demand};

/// G4, G5, G7, G9, G11, G12, G13 and G17, of every node and orphan.
///
/// # Errors
///
/// What did not hold, and of whom.
pub fn check_state(state: &ClusterState) -> Result<(), Broken> {
    g4_attempts_are_unique_and_below_the_allocator(state)?;
    g9_an_attempt_has_one_operation_pending(state)?;
    g7_orphans_are_nobodys(state)?;
    g5_an_orphans_operation_is_its_attempts(state)?;
    for (id, node) in state.nodes.iter() {
        g5_a_pending_operation_is_of_its_attempt(&id, node)?;
        g7_sessions_are_of_their_attempt(&id, node)?;
        g11_what_is_destroyed_holds_nothing(&id, node)?;
        g12_what_is_deleting_is_not_ready(&id, node)?;
        g13_ready_means_it(&id, node)?;
        g17_ready_resets_the_count(&id, node)?;
    }
    // Core checks itself, too: it must not see less.
    state.check().map_err(|broken| Broken(broken.join("; ")))
}

fn g4_attempts_are_unique_and_below_the_allocator(state: &ClusterState) -> Result<(), Broken> {
    let mut seen = BTreeSet::new();
    let below = |attempt: NodeAttemptId| state.next_attempt_id.is_none_or(|next| attempt < next);
    for (id, node) in state.nodes.iter() {
        demand!(
            seen.insert(node.attempt),
            "G4: attempt {} fills {id} and another slot",
            node.attempt
        );
        demand!(
            below(node.attempt),
            "G4: attempt {} of {id} is not below the allocator",
            node.attempt
        );
    }
    for key in state.orphans.keys() {
        demand!(below(key.attempt), "G4: orphan {key} is not below the allocator");
    }
    Ok(())
}

fn g5_a_pending_operation_is_of_its_attempt(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    let own = |pending: &nodewright_core::node::PendingOperation| {
        pending.id.attempt == node.attempt && pending.id.sequence < node.next_sequence
    };
    demand!(
        node.pending.as_ref().is_none_or(own),
        "G5: {id}, attempt {}, has {:?} pending, and its next sequence is {}",
        node.attempt,
        node.pending,
        node.next_sequence
    );
    Ok(())
}

/// The next sequence of every attempt: its node and its orphans share one row.
fn next_sequences(state: &ClusterState) -> BTreeMap<NodeAttemptId, u32> {
    let nodes = state
        .nodes
        .iter()
        .map(|(_, node)| (node.attempt, node.next_sequence));
    let orphans = state.orphans.iter();
    let orphans = orphans.map(|(key, orphan)| (key.attempt, orphan.next_sequence));
    let mut next = BTreeMap::new();
    for (attempt, sequence) in nodes.chain(orphans) {
        let known = next.entry(attempt).or_insert(sequence);
        *known = sequence.max(*known);
    }
    next
}

fn g5_an_orphans_operation_is_its_attempts(state: &ClusterState) -> Result<(), Broken> {
    let next = next_sequences(state);
    for (key, orphan) in &state.orphans {
        let own = |pending: &nodewright_core::node::PendingOperation| {
            pending.id.attempt == key.attempt && pending.id.sequence < next[&key.attempt]
        };
        demand!(
            orphan.pending.as_ref().is_none_or(own),
            "G5: orphan {key} has {:?} pending",
            orphan.pending
        );
    }
    Ok(())
}

fn g7_sessions_are_of_their_attempt(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    let facts = node.bootstrap.as_ref().map(|facts| facts.session);
    let sessions = [node.active_bootstrap, node.ended_bootstrap, facts];
    for session in sessions.into_iter().flatten() {
        demand!(
            session.attempt() == node.attempt,
            "G7: {id}, attempt {}, knows session {session} of another",
            node.attempt
        );
    }
    let calls = [&node.retry.create, &node.retry.start].into_iter().flatten();
    for call in calls {
        demand!(
            call.operation.attempt == node.attempt,
            "G7: {id}, attempt {}, remembers {} of another",
            node.attempt,
            call.operation
        );
    }
    Ok(())
}

/// A resource is a node's or an orphan, never both; a surplus is beside a node.
fn g7_orphans_are_nobodys(state: &ClusterState) -> Result<(), Broken> {
    for (key, orphan) in &state.orphans {
        let node = state.nodes.get(&key.node);
        let node = node.filter(|node| node.attempt == key.attempt);
        let current = node.filter(|node| node.stage != Stage::Destroyed);
        let held = current.is_some_and(|node| {
            let lease = node.lease.as_ref();
            node.provider == key.provider && lease.is_some_and(|lease| lease.id == key.lease)
        });
        demand!(!held, "G7: {key} is an orphan and held by its node");
        demand!(
            !orphan.surplus || node.is_some(),
            "G7: orphan {key} is a surplus of no attempt"
        );
    }
    Ok(())
}

fn g9_an_attempt_has_one_operation_pending(state: &ClusterState) -> Result<(), Broken> {
    let nodes = state.nodes.iter().filter(|(_, node)| node.pending.is_some());
    let orphans = state
        .orphans
        .iter()
        .filter(|(_, orphan)| orphan.pending.is_some());
    let mut busy = BTreeSet::new();
    let attempts = nodes.map(|(_, node)| node.attempt);
    for attempt in attempts.chain(orphans.map(|(key, _)| key.attempt)) {
        demand!(
            busy.insert(attempt),
            "G9: attempt {attempt} has several operations pending"
        );
    }
    Ok(())
}

fn g11_what_is_destroyed_holds_nothing(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    demand!(
        node.stage != Stage::Destroyed
            || (node.lease.is_none()
                && node.active_bootstrap.is_none()
                && node.pending.is_none()
                && node.unended.is_none()),
        "G11: {id} is destroyed and holds something: {node:?}"
    );
    demand!(
        node.stage != Stage::Destroyed || node.retry.create.is_none(),
        "G15: {id} is destroyed and an ambiguous create is not settled: {node:?}"
    );
    Ok(())
}

fn g12_what_is_deleting_is_not_ready(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    demand!(node.is_active() || !node.ready, "G12: {id} is deleting and ready");
    Ok(())
}

fn g13_ready_means_it(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    let steady = matches!(node.stage, Stage::HandedOff | Stage::Dormant);
    let whole = node.lease.is_some()
        && node.endpoint.is_some()
        && node.join.is_some()
        && node.spec.is_some()
        && node.is_active();
    demand!(
        !node.ready || (steady && whole),
        "G13: {id} is ready without all that it takes: {node:?}"
    );
    demand!(
        node.ready || !steady || !node.is_active(),
        "G13: {id} is handed off and not ready"
    );
    Ok(())
}

fn g17_ready_resets_the_count(id: &LogicalNodeId, node: &ManagedNode) -> Result<(), Broken> {
    demand!(
        !node.ready || node.retry.failed_attempts == 0,
        "G17: {id} is ready and still counts {} failed attempts",
        node.retry.failed_attempts
    );
    Ok(())
}
