//! Orphans: resources of this run that no node owns. They are planned like a node that is being deleted, of
//! which only the waiting and the destroying remain.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decide::{Decision, WaitReason, net};
use crate::effect::{CallEnd, CommandKind, Destroyed, FailureKind, Outcome};
use crate::facts::{LeaseFacts, LeaseId};
use crate::failure::{Context, NodeFault, PaceSignal, after, throttle_wait};
use crate::fold::answers;
use crate::id::{LogicalNodeId, NodeAttemptId, OperationId, ProviderKind};
use crate::node::{PendingOperation, Stage, UnendedCall};
use crate::observation::Observation;
use crate::policy::Policy;
use crate::state::ClusterState;

/// What names an orphan: who has it, whose it was, and the provider's own name for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrphanKey {
    /// The slot that it was made for.
    pub node: LogicalNodeId,
    /// The attempt that it was made for.
    pub attempt: NodeAttemptId,
    /// Who has it.
    pub provider: ProviderKind,
    /// The provider's name for it.
    pub lease: LeaseId,
}

impl fmt::Display for OrphanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.node, self.attempt, self.provider, self.lease
        )
    }
}

impl Serialize for OrphanKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OrphanKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut parts = text.splitn(4, ' ');
        let mut part = || {
            parts
                .next()
                .ok_or_else(|| serde::de::Error::custom("orphan key has four parts"))
        };
        Ok(Self {
            node: part()?.parse().map_err(serde::de::Error::custom)?,
            attempt: part()?.parse().map_err(serde::de::Error::custom)?,
            provider: part()?.parse().map_err(serde::de::Error::custom)?,
            lease: LeaseId::new(part()?),
        })
    }
}

/// A resource that no node owns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    /// The resource.
    pub lease: Arc<LeaseFacts>,
    /// The first question whose answer showed it.
    pub first_seen: Timestamp,
    /// The last question whose answer showed it.
    pub last_seen: Timestamp,
    /// Whether it is a second resource of a current attempt: kept until that attempt is retired.
    #[serde(default)]
    pub surplus: bool,
    /// The sequence of the next operation; all orphans of an attempt share one row.
    pub next_sequence: u32,
    /// The one operation that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingOperation>,
    /// A call that may still run though its outcome was folded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unended: Option<UnendedCall>,
    /// Counted failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// No effect before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_effect_at: Option<Timestamp>,
    /// When the last command was dispatched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_dispatch: Option<Timestamp>,
    /// Since when it waits for its provider's pace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// The last thing that went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<str>>,
}

impl Orphan {
    pub(crate) fn new(lease: Arc<LeaseFacts>, seen: Timestamp, next_sequence: u32) -> Self {
        Self {
            lease,
            first_seen: seen,
            last_seen: seen,
            surplus: false,
            next_sequence,
            pending: None,
            unended: None,
            failures: 0,
            next_effect_at: None,
            last_dispatch: None,
            waiting_since: None,
            last_error: None,
        }
    }

    /// Whether it takes a place at its provider.
    pub(crate) fn holds_place(&self) -> bool {
        self.pending.is_some() || self.unended.is_some()
    }
}

/// Which attempts' orphans act in this pass already: orphans of one attempt take turns.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeSet<(LogicalNodeId, NodeAttemptId)>);

/// What an orphan needs next: of the ladder only the waiting and the destroying remain.
pub(crate) fn reconcile_orphan(
    state: &ClusterState,
    key: &OrphanKey,
    orphan: &Orphan,
    turns: &mut Turns,
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let wait = |on, until| Decision::Wait { on, until };
    let faulty = |fault| Decision::Faulty { fault, until: None };
    if let Some(pending) = &orphan.pending {
        let until = Some(pending.deadline).filter(|at| !pending.expiring && *at > now);
        return wait(
            WaitReason::Operation {
                operation: pending.id,
                kind: pending.kind,
            },
            until,
        );
    }
    if let Some(call) = &orphan.unended {
        return wait(WaitReason::CallEnd(call.operation), None);
    }
    let node = state
        .nodes
        .get(&key.node)
        .filter(|node| node.attempt == key.attempt);
    let current = node.is_some_and(|node| node.stage != Stage::Destroyed);
    if current {
        return Decision::Settled;
    }
    let net = match orphan
        .last_dispatch
        .map(|at| after(at, net(policy, CommandKind::DestroyLease)))
    {
        Some(Err(fault)) => return faulty(fault),
        Some(Ok(at)) => Some(at),
        None => None,
    };
    if let Some(at) = orphan.next_effect_at.max(net).filter(|at| *at > now) {
        return wait(WaitReason::Backoff(CommandKind::DestroyLease), Some(at));
    }
    let busy = |other: &Orphan| other.holds_place() || other.waiting_since.is_some();
    let mut siblings = state
        .orphans_of(&key.node)
        .filter(|(other, _)| other.attempt == key.attempt);
    let turn = (key.node.clone(), key.attempt);
    if siblings.any(|(other, sibling)| other != key && busy(sibling)) || turns.0.contains(&turn) {
        return wait(WaitReason::Orphan, None);
    }
    if state.next_sequence(&key.node, key.attempt) == u32::MAX {
        return faulty(NodeFault::SequencesExhausted);
    }
    if let Err(fault) = after(now, policy.operation_timeout) {
        return faulty(fault);
    }
    turns.0.insert(turn);
    Decision::Dispatch(CommandKind::DestroyLease)
}

/// What became of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Gone,
}

/// Folds an observation into an orphan; none if it speaks of something else.
pub(crate) fn fold(
    orphan: &mut Orphan,
    attempt: NodeAttemptId,
    observation: &Observation,
    cx: &mut Context<'_>,
) -> Option<Fate> {
    let mut take = |operation: &OperationId| orphan.pending.take_if(|pending| pending.id == *operation);
    match observation {
        Observation::CallEnded { operation, .. } => {
            orphan.unended.take_if(|call| call.operation == *operation)?;
        }
        Observation::Refused { operation, reason } => {
            take(operation)?;
            orphan.last_error = Some(reason.clone());
            orphan.next_effect_at = Some(cx.after(cx.policy.initial_delay));
        }
        Observation::Finished {
            operation,
            outcome,
            end,
        } => {
            if !answers(outcome, CommandKind::DestroyLease) {
                return None;
            }
            let pending = take(operation)?;
            if *end == CallEnd::Unknown {
                orphan.unended = Some(UnendedCall {
                    operation: *operation,
                    kind: pending.kind,
                });
            }
            match outcome {
                Outcome::Failed(error) => {
                    orphan.last_error = Some(error.reason.clone());
                    if let FailureKind::Throttled { retry_after } = error.kind {
                        let resume_at = cx.after(throttle_wait(cx.policy, retry_after));
                        let dispatched_at = pending.dispatched_at;
                        cx.signal = Some(PaceSignal::Throttled {
                            dispatched_at,
                            resume_at,
                        });
                        orphan.next_effect_at = Some(resume_at);
                    } else {
                        orphan.failures = orphan.failures.saturating_add(1);
                        orphan.next_effect_at = Some(cx.backoff(attempt, orphan.failures));
                    }
                }
                outcome => {
                    cx.signal = Some(PaceSignal::Succeeded);
                    orphan.failures = 0;
                    if *outcome == Outcome::LeaseDestroyed(Destroyed::Gone) {
                        return Some(Fate::Gone);
                    }
                    orphan.next_effect_at = Some(cx.after(cx.policy.probe_interval));
                }
            }
        }
        _ => return None,
    }
    Some(Fate::Stays)
}
