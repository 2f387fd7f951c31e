//! Samples of nodes, so that a test of the ladder or of the fold reads like a row of its table.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::effect::{CommandKind, EffectError};
use crate::facts::{AgentId, BootstrapFacts, BootstrapStage, Endpoint, JoinFacts, LeaseFacts, LeaseId};
use crate::id::{BootstrapSessionId, NodeAttemptId, OperationId};
use crate::node::{Failure, Halt, Intent, ManagedNode, PendingOperation, RememberedCall, Stage, UnendedCall};
use crate::policy::Policy;
use crate::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

/// The attempt of every sample.
pub(crate) const ATTEMPT: NodeAttemptId = NodeAttemptId::new(7);

/// The moment at which samples are looked at.
pub(crate) const NOW: i64 = 1000;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The defaults without jitter, so that every wait is a whole number.
pub(crate) fn policy() -> Policy {
    Policy {
        jitter_per_mille: 0,
        ..Policy::default()
    }
}

pub(crate) fn template(image: &str) -> Template {
    Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "fake".parse().unwrap(),
        shape: NodeShape::new(image),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    })
}

pub(crate) fn operation(sequence: u32) -> OperationId {
    OperationId {
        attempt: ATTEMPT,
        sequence,
    }
}

pub(crate) fn session(sequence: u32) -> BootstrapSessionId {
    BootstrapSessionId(operation(sequence))
}

pub(crate) fn endpoint(host: &str) -> Endpoint {
    Endpoint {
        host: host.into(),
        port: Some(22),
    }
}

pub(crate) fn lease(name: &str) -> LeaseFacts {
    LeaseFacts::new(LeaseId::new(name))
}

/// A call that was remembered and ended at this second, if it did.
pub(crate) fn remembered(sequence: u32, ended: Option<i64>) -> RememberedCall {
    RememberedCall {
        operation: operation(sequence),
        ended: ended.map(at),
    }
}

pub(crate) fn halt(spec: &Template) -> Halt {
    Halt {
        spec: Some(spec.digest()),
        reason: "no such image".into(),
    }
}

/// One error of every kind, the throttle asking for half a minute.
pub(crate) fn errors() -> [EffectError; 4] {
    [
        EffectError::definite("definite"),
        EffectError::ambiguous("ambiguous"),
        EffectError::throttled("throttled", Some(seconds(30))),
        EffectError::fatal("fatal"),
    ]
}

/// Changes a sample on the way.
pub(crate) trait But: Sized {
    fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl But for ManagedNode {}

pub(crate) fn fresh() -> ManagedNode {
    ManagedNode::new(ATTEMPT, template("plain")).but(|node| node.next_sequence = 20)
}

pub(crate) fn leased() -> ManagedNode {
    fresh().but(|node| {
        node.stage = Stage::LeaseCreated;
        node.lease = Some(Arc::new(lease("m")));
        node.retry.ready_by = Some(at(NOW + 900));
    })
}

pub(crate) fn reachable() -> ManagedNode {
    leased().but(|node| {
        node.stage = Stage::EndpointKnown;
        node.endpoint = Some(endpoint("m"));
    })
}

/// A session, named after operation 3, is live.
pub(crate) fn running() -> ManagedNode {
    reachable().but(|node| {
        node.stage = Stage::BootstrapRunning;
        node.active_bootstrap = Some(session(3));
        node.bootstrap = Some(BootstrapFacts {
            session: session(3),
            stage: BootstrapStage::WaitingForJoin,
            sequence: 4,
            stdout_lines: 0,
            stderr_lines: 0,
        });
        node.retry.stall_at = Some(at(NOW + 300));
    })
}

pub(crate) fn join() -> JoinFacts {
    JoinFacts {
        agent: AgentId::new("agent"),
        at: at(900),
    }
}

/// Joined, with its session live.
pub(crate) fn joined() -> ManagedNode {
    running().but(|node| {
        node.stage = Stage::Joined;
        node.join = Some(join());
        node.retry.stall_at = None;
    })
}

pub(crate) fn dormant() -> ManagedNode {
    joined().but(|node| {
        node.stage = Stage::Dormant;
        node.ready = true;
        node.ended_bootstrap = node.active_bootstrap.take();
        node.retry.ready_by = None;
    })
}

/// Ready, with its session live.
pub(crate) fn handed_off() -> ManagedNode {
    joined().but(|node| {
        node.stage = Stage::HandedOff;
        node.ready = true;
        node.retry.ready_by = None;
    })
}

pub(crate) fn failed(node: ManagedNode) -> ManagedNode {
    node.but(|node| {
        node.stage = Stage::Failed;
        node.ready = false;
        node.failure = Some(Failure {
            reason: "broke".into(),
            at: at(900),
        });
        node.retry.failed_attempts = 1;
        node.retry.restart_at = Some(at(NOW + 50));
    })
}

pub(crate) fn deleting(node: ManagedNode) -> ManagedNode {
    node.but(|node| {
        node.intent = Intent::Deleting;
        node.ready = false;
        node.retry.next_effect_at = None;
        node.clear_startup();
        if let Some(pending) = &mut node.pending {
            pending.before_delete = true;
        }
    })
}

pub(crate) fn destroyed() -> ManagedNode {
    deleting(fresh()).but(|node| {
        node.stage = Stage::Destroyed;
        node.destroyed_at = Some(at(900));
    })
}

/// An operation of this kind is pending, named 10, dispatched ten seconds ago and due in 110.
pub(crate) fn pending(kind: CommandKind) -> PendingOperation {
    PendingOperation {
        id: operation(10),
        kind,
        dispatched_at: at(NOW - 10),
        deadline: at(NOW + 110),
        expiring: false,
        before_delete: false,
    }
}

pub(crate) fn busy(node: ManagedNode, kind: CommandKind) -> ManagedNode {
    node.but(|node| {
        node.pending = Some(pending(kind));
        node.retry.last_command = Some((kind, at(NOW - 10)));
    })
}

pub(crate) fn unended(kind: CommandKind) -> UnendedCall {
    UnendedCall {
        operation: operation(10),
        kind,
    }
}
