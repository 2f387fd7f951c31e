//! Taking a state back that another process left: what still lives is kept.

mod moments;

use std::collections::BTreeMap;

use jiff::Timestamp;

use self::moments::Latest;
use super::{ClusterDriver, DriverError, ProviderSetup};
use crate::effect::CommandKind;
use crate::failure::after;
use crate::id::{BootstrapSessionId, OperationId, ProviderKind};
use crate::node::{ManagedNode, RememberedCall, Stage};
use crate::policy::Policy;
use crate::shape::ClusterShape;
use crate::state::ClusterState;

impl ClusterDriver {
    /// Goes on with a state that a driver of this run left, detached or journalled.
    ///
    /// Known leases are kept. What was under way when the state was taken counts as ended now, with an
    /// unknown outcome; every first look is to be done again, so that what the state does not know of is
    /// found. The wall clock may have been set in between, back or forward.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); and a state that breaks an invariant, is of another run, has seen a later
    /// generation, or has machines of a provider that is not registered.
    pub fn restore(
        mut state: ClusterState,
        shape: ClusterShape,
        policy: Policy,
        providers: BTreeMap<ProviderKind, ProviderSetup>,
        now: Timestamp,
    ) -> Result<Self, DriverError> {
        let run = state.run_id.clone();
        if shape.run_id != run {
            return Err(DriverError::OtherRun {
                run,
                offered: shape.run_id,
            });
        }
        if shape.generation < state.observed_generation {
            let (accepted, offered) = (state.observed_generation, shape.generation);
            return Err(DriverError::OldGeneration { accepted, offered });
        }
        if let Err(problems) = state.check() {
            return Err(DriverError::BrokenState {
                run,
                problems: problems.join("; "),
            });
        }
        let nodes = state.nodes.iter().map(|(_, node)| &node.provider);
        let orphans = state.orphans.keys().map(|key| &key.provider);
        let mut missing: Vec<String> = nodes
            .chain(orphans)
            .filter(|provider| !providers.contains_key(provider))
            .map(ToString::to_string)
            .collect();
        missing.sort();
        missing.dedup();
        if !missing.is_empty() {
            return Err(DriverError::UnknownProviders {
                run,
                missing: missing.join(", "),
            });
        }
        state.providers.retain(|kind, _| providers.contains_key(kind));
        let latest = Latest::new(&policy, now);
        let ids: Vec<_> = state.nodes.iter().map(|(id, _)| id).collect();
        for id in ids {
            let slot = state.nodes.slot(&id).expect("it was listed");
            let node = state.nodes.at_mut(slot).expect("it was listed");
            node_restored(node, &policy, now);
            latest.bound_node(node);
            let attempt = node.attempt;
            state.seen_attempt(attempt);
        }
        let orphaned: Vec<_> = state.orphans.keys().map(|key| key.attempt).collect();
        for attempt in orphaned {
            state.seen_attempt(attempt);
        }
        for orphan in state.orphans.values_mut() {
            orphan.pending = None;
            orphan.unended = None;
            orphan.waiting_since = None;
            latest.bound_orphan(orphan);
        }
        for provider in state.providers.values_mut() {
            latest.bound_provider(provider);
        }
        Self::assemble(state, shape, policy, providers)
    }
}

fn node_restored(node: &mut ManagedNode, policy: &Policy, now: Timestamp) {
    let ended = Some(now);
    let remember = |operation: OperationId, kind: CommandKind, node: &mut ManagedNode| match kind {
        CommandKind::CreateLease => node.retry.create = Some(RememberedCall { operation, ended }),
        CommandKind::StartBootstrap => node.retry.start = Some(RememberedCall { operation, ended }),
        _ => {}
    };
    if let Some(pending) = node.pending.take() {
        remember(pending.id, pending.kind, node);
    }
    if let Some(call) = node.unended.take() {
        remember(call.operation, call.kind, node);
    }
    node.retry.waiting_since = None;
    // What was asked in between is not known, so the row of questions that missed it is not one any more.
    node.missing_since = None;
    let session = node.active_bootstrap.take();
    if node.lease.is_none() {
        node.retry.start = None;
    }
    if !node.is_lively() {
        if let Some(BootstrapSessionId(operation)) = session {
            node.retry.start = Some(RememberedCall { operation, ended });
        }
        return;
    }
    if node.ready {
        // The session's process is gone, and so is the session; its node is the application's.
        node.ended_bootstrap = session.or(node.ended_bootstrap);
        node.stage = Stage::Dormant;
        node.retry.start = None;
        return;
    }
    if let Some(BootstrapSessionId(operation)) = session {
        node.retry.start = Some(RememberedCall { operation, ended });
    }
    let awaits_join = node.retry.join_by.is_some();
    node.clear_startup();
    if awaits_join {
        node.retry.join_by = Some(after(now, policy.join_grace).unwrap_or(Timestamp::MAX));
    }
    if node.lease.is_some() {
        node.retry.ready_by = Some(after(now, policy.startup_timeout).unwrap_or(Timestamp::MAX));
    }
    if node.join.is_some() && node.endpoint.is_some() && node.retry.start.take().is_some() {
        node.ended_bootstrap = session.or(node.ended_bootstrap);
        node.hand_off(Stage::Dormant);
    } else if matches!(node.stage, Stage::BootstrapRunning | Stage::Joined) {
        node.stage = Stage::EndpointKnown;
    }
}
