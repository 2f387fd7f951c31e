//! The ladder: what one node needs next, from its state alone.
//!
//! Pure and deterministic. A pass never looks at the event that caused it, so a missed event, a repeated
//! one and a lost pass all heal in the next one.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::CommandKind;
use crate::failure::{NodeFault, after};
use crate::gate::Gate;
use crate::id::OperationId;
use crate::node::{Intent, ManagedNode, Stage};
use crate::policy::Policy;
use crate::template::Template;

/// A transition of the driver: it completes the node's step of this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The slot is empty and desired.
    Insert,
    /// The attempt is to go.
    BeginDelete(DeleteReason),
    /// The attempt took too long.
    FailAttempt(Overdue),
    /// Nothing is left of the attempt.
    MarkDestroyed,
    /// The slot gets a fresh attempt.
    Restart,
    /// The slot is wanted no more.
    Reap,
}

/// Why an attempt is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeleteReason {
    /// It failed.
    Failed,
    /// Its spec is no longer the desired one.
    Drifted,
    /// Somebody asked for a replacement.
    Replaced,
    /// Its slot is wanted no more.
    Undesired,
}

impl fmt::Display for DeleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Failed => "failed",
            Self::Drifted => "its spec changed",
            Self::Replaced => "a replacement was asked for",
            Self::Undesired => "no longer desired",
        })
    }
}

/// What an attempt did not do in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overdue {
    /// It was not ready in time.
    Ready,
    /// Its session reported nothing for too long.
    Stall,
    /// Its session ended and no join came.
    Join,
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ready => "not ready in time",
            Self::Stall => "its bootstrap session fell silent",
            Self::Join => "its session ended and its agent did not join",
        })
    }
}

/// What a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WaitReason {
    /// A provider's first look.
    FirstLook,
    /// The moment at which the slot may be tried again.
    Restart,
    /// The result of an operation.
    Operation {
        /// Which.
        operation: OperationId,
        /// What it does.
        kind: CommandKind,
    },
    /// A call that may still be at work.
    CallEnd(OperationId),
    /// The moment at which a command may be sent again.
    Backoff(CommandKind),
    /// A place at its provider.
    Pace(CommandKind),
    /// The groups that its group depends on.
    Dependencies,
    /// The groups that depend on its group.
    Dependents,
    /// A resource of another attempt of its slot that is not gone yet.
    Orphan,
    /// Its bootstrap session.
    Bootstrap,
    /// Its agent's join, the session being over.
    Join,
}

/// What one node needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Decision {
    /// A transition, now.
    Step(Step),
    /// This command, as soon as the provider's pace has a place.
    Dispatch(CommandKind),
    /// Nothing before something happens, or this moment comes.
    Wait {
        /// What it waits for.
        on: WaitReason,
        /// When it may have something to do at the latest, if that is known.
        until: Option<Timestamp>,
    },
    /// Nothing, and nothing to wait for.
    Settled,
    /// Nothing, until its spec changes or somebody asks.
    Halted {
        /// When it may have something to do all the same.
        until: Option<Timestamp>,
    },
    /// Something about it cannot go on.
    Faulty {
        /// What.
        fault: NodeFault,
        /// When it may have something to do all the same.
        until: Option<Timestamp>,
    },
}

impl Decision {
    /// The moment that the decision waits for.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Wait { until, .. } | Self::Halted { until } | Self::Faulty { until, .. } => *until,
            _ => None,
        }
    }
}

/// Walks the ladder for one slot; the first rung that matches decides.
///
/// `desired` is the template of a slot that the shape wants. Moments in the decision always lie after `now`.
pub fn reconcile_node(
    node: Option<&ManagedNode>,
    desired: Option<&Template>,
    gate: Gate,
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    match (node, desired) {
        (None, None) => Decision::Settled,
        (None, Some(_)) if gate.looked => Decision::Step(Step::Insert),
        (None, Some(_)) => Decision::Wait {
            on: WaitReason::FirstLook,
            until: None,
        },
        (Some(node), desired) if node.stage == Stage::Destroyed => destroyed(node, desired, gate, now),
        (Some(node), desired) => Ladder {
            node,
            desired,
            gate,
            policy,
            now,
        }
        .climb(),
    }
}

/// Rows 1 to 3: nothing is left of the attempt.
fn destroyed(node: &ManagedNode, desired: Option<&Template>, gate: Gate, now: Timestamp) -> Decision {
    let Some(desired) = desired else {
        return Decision::Step(Step::Reap);
    };
    if node
        .retry
        .halted
        .as_ref()
        .is_some_and(|halt| halt.spec == Some(desired.digest()))
    {
        return Decision::Halted { until: None };
    }
    if !gate.looked {
        return Decision::Wait {
            on: WaitReason::FirstLook,
            until: None,
        };
    }
    match node.retry.restart_at {
        Some(at) if at > now && node.is_made_from(desired) => Decision::Wait {
            on: WaitReason::Restart,
            until: Some(at),
        },
        _ => Decision::Step(Step::Restart),
    }
}

struct Ladder<'a> {
    node: &'a ManagedNode,
    desired: Option<&'a Template>,
    gate: Gate,
    policy: &'a Policy,
    now: Timestamp,
}

impl Ladder<'_> {
    /// Rows 4 to 19.
    fn climb(&self) -> Decision {
        let Self { node, gate, now, .. } = *self;
        let active = node.intent == Intent::Active;
        if active {
            if let Some(reason) = self.reason_to_go() {
                return Decision::Step(Step::BeginDelete(reason));
            }
            if let Some(overdue) = self.overdue() {
                return Decision::Step(Step::FailAttempt(overdue));
            }
        }
        if let Some(pending) = &node.pending {
            let deadline = Some(pending.deadline).filter(|at| !pending.expiring && *at > now);
            let on = WaitReason::Operation {
                operation: pending.id,
                kind: pending.kind,
            };
            return self.wait(on, deadline);
        }
        if let Some(call) = &node.unended {
            return self.wait(WaitReason::CallEnd(call.operation), None);
        }
        if node.retry.create.is_some() {
            return self.dispatch(CommandKind::FindLease);
        }
        if !active {
            return self.clean_up();
        }
        let Some(_) = self.desired else {
            return self.wait(WaitReason::Dependents, None);
        };
        if node.retry.halted.is_some() && node.lease.is_none() {
            return Decision::Halted { until: self.moment() };
        }
        if node.ready {
            return Decision::Settled;
        }
        match (&node.lease, &node.endpoint) {
            // A state that was handed back may be older than a machine that a look will show.
            (None, _) if !gate.looked => self.wait(WaitReason::FirstLook, None),
            (None, _) if gate.orphaned => self.wait(WaitReason::Orphan, None),
            (None, _) if !gate.may_start => self.wait(WaitReason::Dependencies, None),
            (None, _) => self.dispatch(CommandKind::CreateLease),
            (Some(_), None) => self.dispatch(CommandKind::LookupEndpoint),
            (Some(_), Some(_)) if node.active_bootstrap.is_some() && node.stage == Stage::Joined => {
                self.dispatch(CommandKind::ObserveConvergence)
            }
            (Some(_), Some(_)) if node.active_bootstrap.is_some() => self.wait(WaitReason::Bootstrap, None),
            (Some(_), Some(_)) if node.retry.join_by.is_some() => self.wait(WaitReason::Join, None),
            (Some(_), Some(_)) => self.dispatch(CommandKind::StartBootstrap),
        }
    }

    /// Row 4.
    fn reason_to_go(&self) -> Option<DeleteReason> {
        let node = self.node;
        match self.desired {
            _ if node.stage == Stage::Failed => Some(DeleteReason::Failed),
            Some(desired) if !node.is_made_from(desired) => Some(DeleteReason::Drifted),
            _ if node.retry.replace => Some(DeleteReason::Replaced),
            None if self.gate.may_stop || node.holds_nothing() => Some(DeleteReason::Undesired),
            _ => None,
        }
    }

    /// Row 5's moments, as far as they count now. Our own slowness ends no attempt: while the node waits for
    /// its provider's pace `ready_by` does not count.
    fn moments(&self) -> [(Option<Timestamp>, Overdue); 3] {
        let retry = &self.node.retry;
        let live = self.node.active_bootstrap.is_some();
        [
            (
                retry.ready_by.filter(|_| retry.waiting_since.is_none()),
                Overdue::Ready,
            ),
            (retry.stall_at.filter(|_| live), Overdue::Stall),
            (retry.join_by, Overdue::Join),
        ]
    }

    fn overdue(&self) -> Option<Overdue> {
        if self.node.ready {
            return None;
        }
        let due = self
            .moments()
            .into_iter()
            .filter_map(|(at, overdue)| Some((at?, overdue)));
        due.filter(|(at, _)| *at <= self.now)
            .min_by_key(|(at, _)| *at)
            .map(|(_, overdue)| overdue)
    }

    /// The earliest of row 5's moments that still lies ahead.
    fn moment(&self) -> Option<Timestamp> {
        if self.node.ready || self.node.intent != Intent::Active {
            return None;
        }
        self.moments().into_iter().filter_map(|(at, _)| at).min()
    }

    fn wait(&self, on: WaitReason, until: Option<Timestamp>) -> Decision {
        Decision::Wait {
            on,
            until: until.into_iter().chain(self.moment()).min(),
        }
    }

    /// Rows 8 to 10: find, cancel, destroy, mark.
    fn clean_up(&self) -> Decision {
        let node = self.node;
        let session = node.active_bootstrap.is_some() || node.retry.start.is_some();
        if session && node.retry.failed_cancels < self.policy.cancel_attempts {
            self.dispatch(CommandKind::CancelBootstrap)
        } else if node.lease.is_some() {
            self.dispatch(CommandKind::DestroyLease)
        } else {
            Decision::Step(Step::MarkDestroyed)
        }
    }

    /// What every row asks before it dispatches: the backoff, the net under it, and whether the operation
    /// could be recorded at all.
    fn dispatch(&self, kind: CommandKind) -> Decision {
        let Self {
            node, policy, now, ..
        } = *self;
        let net = match node.retry.last_command {
            Some((last, at)) if last == kind => match after(at, net(policy, kind)) {
                Ok(at) => Some(at),
                Err(fault) => return self.faulty(fault),
            },
            _ => None,
        };
        if let Some(at) = node.retry.next_effect_at.max(net).filter(|at| *at > now) {
            return self.wait(WaitReason::Backoff(kind), Some(at));
        }
        if node.next_sequence == u32::MAX {
            return self.faulty(NodeFault::SequencesExhausted);
        }
        match after(now, policy.operation_timeout) {
            Ok(_) => Decision::Dispatch(kind),
            Err(fault) => self.faulty(fault),
        }
    }

    /// A node that cannot go on still fails when its time is up.
    fn faulty(&self, fault: NodeFault) -> Decision {
        Decision::Faulty {
            fault,
            until: self.moment(),
        }
    }
}

/// The net under everything: one attempt repeats a command no sooner than this.
pub(crate) fn net(policy: &Policy, kind: CommandKind) -> std::time::Duration {
    if kind.is_look_up() {
        policy.probe_interval
    } else {
        policy.initial_delay
    }
}

#[cfg(test)]
mod tests;
