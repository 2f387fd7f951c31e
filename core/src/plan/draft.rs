//! A pass while it is being drafted, in interned slots; the full pass and the driver's share it.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Action, Plan};
use crate::decide::{Decision, Step};
use crate::effect::{BootstrapSpec, Command, CommandKind, PlannedEffect};
use crate::failure::{NodeError, NodeFault};
use crate::id::{LogicalNodeId, OperationId};
use crate::node::ManagedNode;
use crate::orphan::{Orphan, OrphanKey};
use crate::pace::{Claim, Class, Pace, Queue, Who};
use crate::state::{ClusterState, Slot};
use crate::template::{LogicalNodeSpec, Template};

/// What a node or orphan does in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Step(Step),
    Dispatch(CommandKind),
}

/// One act of a pass, and where it stands in the order of the nodes.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) order: (u32, u32),
    pub(crate) who: Who,
    pub(crate) act: Act,
}

impl Claim {
    /// What the claim's owner does once it has its place.
    pub(crate) fn into_move(self) -> Move {
        Move {
            order: self.order,
            who: self.who,
            act: Act::Dispatch(self.kind),
        }
    }
}

/// A pass that is being drafted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    /// What is done, in order once the draft is finished.
    pub(crate) moves: Vec<Move>,
    /// Who cannot go on.
    pub(crate) faults: Vec<(Who, NodeFault)>,
    /// Who asked for a place first in this pass; once the draft is finished, who of them got none.
    pub(crate) newly_waiting: Vec<Claim>,
    /// Who waited for a place and needs none any more.
    pub(crate) no_longer_waiting: Vec<Slot>,
    /// The earliest moment that somebody waits for.
    pub(crate) requeue_at: Option<Timestamp>,
}

impl Draft {
    /// Empties it; what room it has stays.
    pub(crate) fn clear(&mut self) {
        self.moves.clear();
        self.faults.clear();
        self.newly_waiting.clear();
        self.no_longer_waiting.clear();
        self.requeue_at = None;
    }

    /// Takes a slot's decision; a wish for a place is handed back as a claim.
    pub(crate) fn consider(
        &mut self,
        order: (u32, u32),
        slot: Slot,
        node: Option<&ManagedNode>,
        decision: Decision,
        now: Timestamp,
    ) -> Option<(Class, Claim)> {
        let who = Who::Node(slot);
        match decision {
            Decision::Step(step) => self.moves.push(Move {
                order,
                who,
                act: Act::Step(step),
            }),
            Decision::Dispatch(kind) => {
                let node = node?;
                let claim = self.claim(order, who, kind, node.retry.waiting_since, now);
                return Some((node.class_of(kind), claim));
            }
            Decision::Faulty { fault, until } => {
                self.faults.push((who, fault));
                self.requeue(until);
            }
            waits => self.requeue(waits.until()),
        }
        None
    }

    /// Takes an orphan's decision, likewise.
    pub(crate) fn consider_orphan(
        &mut self,
        order: (u32, u32),
        key: &OrphanKey,
        orphan: &Orphan,
        decision: Decision,
        now: Timestamp,
    ) -> Option<Claim> {
        match decision {
            Decision::Dispatch(kind) => {
                let who = Who::Orphan(Arc::new(key.clone()));
                Some(self.claim(order, who, kind, orphan.waiting_since, now))
            }
            Decision::Faulty { fault, .. } => {
                self.faults.push((Who::Orphan(Arc::new(key.clone())), fault));
                None
            }
            waits => {
                self.requeue(waits.until());
                None
            }
        }
    }

    fn claim(
        &mut self,
        order: (u32, u32),
        who: Who,
        kind: CommandKind,
        waiting_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Claim {
        let claim = Claim {
            since: waiting_since.unwrap_or(now),
            order,
            who,
            kind,
        };
        if waiting_since.is_none() {
            self.newly_waiting.push(claim.clone());
        }
        claim
    }

    /// Gives out a provider's places; says to whom.
    pub(crate) fn grant(
        &mut self,
        queue: &Queue,
        pace: &mut Pace,
        holding: [u32; 3],
        now: Timestamp,
    ) -> Vec<(Class, Claim)> {
        let granted: Vec<(Class, Claim)> = queue
            .grant(pace, holding, now)
            .into_iter()
            .map(|(class, claim)| (class, claim.clone()))
            .collect();
        self.moves
            .extend(granted.iter().map(|(_, claim)| claim.clone().into_move()));
        let held = holding.iter().sum::<u32>() as usize + granted.len();
        if queue.len() > granted.len() && held < pace.places() as usize {
            self.requeue(pace.opens_at(now));
        }
        granted
    }

    pub(crate) fn requeue(&mut self, at: Option<Timestamp>) {
        self.requeue_at = self.requeue_at.into_iter().chain(at).min();
    }

    /// Puts everything in order once all decisions are taken and all places given out.
    pub(crate) fn finish(&mut self) {
        let key = |one: &Move| (one.order, one.who.clone());
        if self.moves.len() > 1 {
            self.moves.sort_by_cached_key(key);
        }
        if !self.newly_waiting.is_empty() {
            let moves = &self.moves;
            let acts = |claim: &Claim| {
                let found =
                    moves.binary_search_by(|one| (one.order, &one.who).cmp(&(claim.order, &claim.who)));
                found.is_ok()
            };
            self.newly_waiting.retain(|claim| !acts(claim));
            self.newly_waiting
                .sort_by(|one, other| (one.order, &one.who).cmp(&(other.order, &other.who)));
        }
    }

    /// Spells the draft out as a plan.
    pub(crate) fn into_plan(
        self,
        state: &ClusterState,
        id: impl Fn(Slot) -> LogicalNodeId,
        template: impl Fn(Slot) -> Option<Template>,
    ) -> Plan {
        let mut plan = Plan {
            requeue_at: self.requeue_at,
            ..Plan::default()
        };
        let mut next_attempt = state.next_attempt_id;
        let mut allocate = || {
            let attempt = next_attempt;
            next_attempt = attempt.and_then(|attempt| attempt.next());
            attempt
        };
        for Move { who, act, .. } in self.moves {
            let slot = match who {
                Who::Node(slot) => slot,
                Who::Orphan(key) => {
                    let effect = planned_orphan(state, &key);
                    plan.actions.push(Action::DispatchOrphan {
                        orphan: (*key).clone(),
                        effect,
                    });
                    continue;
                }
            };
            let node_id = id(slot);
            let node = state.nodes.get(&node_id);
            let attempt = node.map(|node| node.attempt);
            let spec = || {
                Some(LogicalNodeSpec {
                    id: node_id.clone(),
                    template: template(slot)?,
                })
            };
            let action = match act {
                Act::Step(Step::Insert) => match allocate() {
                    Some(attempt) => spec().map(|spec| Action::Insert { attempt, spec }),
                    None => {
                        plan.attempts_exhausted = true;
                        None
                    }
                },
                Act::Step(Step::Restart) => match allocate() {
                    Some(new_attempt) => attempt.zip(spec()).map(|(attempt, spec)| Action::Restart {
                        attempt,
                        new_attempt,
                        spec,
                    }),
                    None => {
                        plan.attempts_exhausted = true;
                        None
                    }
                },
                Act::Step(Step::BeginDelete(reason)) => attempt.map(|attempt| Action::BeginDelete {
                    node: node_id,
                    attempt,
                    reason,
                }),
                Act::Step(Step::FailAttempt(overdue)) => attempt.map(|attempt| Action::FailAttempt {
                    node: node_id,
                    attempt,
                    overdue,
                }),
                Act::Step(Step::MarkDestroyed) => attempt.map(|attempt| Action::MarkDestroyed {
                    node: node_id,
                    attempt,
                }),
                Act::Step(Step::Reap) => attempt.map(|attempt| Action::Reap {
                    node: node_id,
                    attempt,
                }),
                Act::Dispatch(kind) => node
                    .and_then(|node| planned(node_id, node, kind))
                    .map(Action::Dispatch),
            };
            plan.actions.extend(action);
        }
        plan.faults
            .extend(self.faults.into_iter().filter_map(|(who, fault)| {
                let (node, attempt) = match who {
                    Who::Node(slot) => {
                        let node = id(slot);
                        let attempt = state.nodes.get(&node)?.attempt;
                        (node, attempt)
                    }
                    Who::Orphan(key) => (key.node.clone(), key.attempt),
                };
                Some(NodeError { node, attempt, fault })
            }));
        plan.newly_waiting
            .extend(self.newly_waiting.into_iter().map(|claim| match claim.who {
                Who::Node(slot) => id(slot),
                Who::Orphan(key) => key.node.clone(),
            }));
        plan
    }
}

/// The effect that dispatches a command for a node.
pub(crate) fn planned(id: LogicalNodeId, node: &ManagedNode, kind: CommandKind) -> Option<PlannedEffect> {
    let spec = || node.spec.clone();
    let lease = || node.lease.clone();
    let command = match kind {
        CommandKind::CreateLease => Command::CreateLease(LogicalNodeSpec {
            id: id.clone(),
            template: spec()?,
        }),
        CommandKind::FindLease => Command::FindLease,
        CommandKind::LookupEndpoint => Command::LookupEndpoint(lease()?),
        CommandKind::StartBootstrap => Command::StartBootstrap(BootstrapSpec {
            lease: lease()?,
            endpoint: node.endpoint.clone()?,
            template: spec()?,
        }),
        CommandKind::ObserveConvergence => Command::ObserveConvergence(node.active_bootstrap?),
        CommandKind::CancelBootstrap => Command::CancelBootstrap,
        CommandKind::DestroyLease => Command::DestroyLease(lease()?),
    };
    let operation = OperationId {
        attempt: node.attempt,
        sequence: node.next_sequence,
    };
    Some(PlannedEffect {
        node: id,
        provider: node.provider.clone(),
        operation,
        command,
    })
}

/// The effect that destroys an orphan.
pub(crate) fn planned_orphan(state: &ClusterState, key: &OrphanKey) -> PlannedEffect {
    let sequence = state.next_sequence(&key.node, key.attempt);
    PlannedEffect {
        node: key.node.clone(),
        provider: key.provider.clone(),
        operation: OperationId {
            attempt: key.attempt,
            sequence,
        },
        command: Command::DestroyLease(state.orphans[key].lease.clone()),
    }
}
