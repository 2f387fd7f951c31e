//! The observed state of one slot.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::CommandKind;
use crate::facts::{BootstrapFacts, Endpoint, JoinFacts, LeaseFacts};
use crate::id::{BootstrapSessionId, NodeAttemptId, OperationId, ProviderKind, TemplateDigest};
use crate::pace::Class;
use crate::template::Template;

/// How far an attempt got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Slot inserted, nothing dispatched.
    New,
    /// `CreateLease` dispatched.
    LeaseRequested,
    /// Lease known, endpoint not yet.
    LeaseCreated,
    /// Lease and reachable endpoint known.
    EndpointKnown,
    /// A session is live, observations flow.
    BootstrapRunning,
    /// The node's agent joined the swarm.
    Joined,
    /// The application took the node over itself: ready.
    HandedOff,
    /// Bootstrap over, handoff recorded: ready, the usual steady state.
    Dormant,
    /// The attempt ended by a failure; cleanup follows.
    Failed,
    /// Nothing is left of the attempt.
    Destroyed,
}

impl Stage {
    /// All of them, in the order of a node's life.
    pub const ALL: [Self; 10] = [
        Self::New,
        Self::LeaseRequested,
        Self::LeaseCreated,
        Self::EndpointKnown,
        Self::BootstrapRunning,
        Self::Joined,
        Self::HandedOff,
        Self::Dormant,
        Self::Failed,
        Self::Destroyed,
    ];

    /// Its name, as events and tables carry it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::LeaseRequested => "lease-requested",
            Self::LeaseCreated => "lease-created",
            Self::EndpointKnown => "endpoint-known",
            Self::BootstrapRunning => "bootstrap-running",
            Self::Joined => "joined",
            Self::HandedOff => "handed-off",
            Self::Dormant => "dormant",
            Self::Failed => "failed",
            Self::Destroyed => "destroyed",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is to become of an attempt. Once `Deleting`, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intent {
    /// It is to become, or to stay, ready.
    Active,
    /// It is to go.
    Deleting,
}

/// Counts the passes that changed something; tells whether a fact is newer than a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PassId(pub u64);

/// An operation that was recorded and handed to an executor, and has not been answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingOperation {
    /// Its identity.
    pub id: OperationId,
    /// What it does.
    pub kind: CommandKind,
    /// When it was dispatched.
    pub dispatched_at: Timestamp,
    /// When it expires.
    pub deadline: Timestamp,
    /// Whether it was handed out as due: its executor classifies it now.
    #[serde(default)]
    pub expiring: bool,
    /// Whether it began before the attempt began to be deleted: what comes of it sets no new wait.
    #[serde(default)]
    pub before_delete: bool,
}

/// A call whose outcome was folded while nobody knows whether it still runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnendedCall {
    /// Its operation.
    pub operation: OperationId,
    /// What it does.
    pub kind: CommandKind,
}

/// A call that may have had an effect, remembered until something settles it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RememberedCall {
    /// The last call of that kind.
    pub operation: OperationId,
    /// When it ended; unknown while it may still be at work.
    pub ended: Option<Timestamp>,
}

/// A slot that is not tried again until its spec changes or somebody asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Halt {
    /// The spec that it was halted for.
    pub spec: Option<TemplateDigest>,
    /// Why, for people.
    pub reason: Arc<str>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// For people.
    pub reason: Arc<str>,
    /// When it was folded.
    pub at: Timestamp,
}

/// Counts, moments and memories that decide what is tried again, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// Counted failures per kind of command; a success of that kind forgets them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<CommandKind, u32>,
    /// Failed attempts of the slot in a row.
    pub failed_attempts: u32,
    /// Cancels that failed.
    pub failed_cancels: u32,
    /// No effect before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_effect_at: Option<Timestamp>,
    /// No new attempt before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Timestamp>,
    /// The attempt fails unless it is ready by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_by: Option<Timestamp>,
    /// The attempt fails unless its live session reports something by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_at: Option<Timestamp>,
    /// The attempt fails unless its agent joins by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_by: Option<Timestamp>,
    /// A create that may have had an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<RememberedCall>,
    /// A start that may have had an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<RememberedCall>,
    /// The last command and when it was dispatched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_command: Option<(CommandKind, Timestamp)>,
    /// Since when the node waits for its provider's pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Whether the slot is halted, and for which spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<Halt>,
    /// Whether somebody asked for a replacement.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The last thing that went wrong, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<str>>,
}

impl Retry {
    /// Counts one more failure of this kind and says how many there are.
    pub(crate) fn count(&mut self, kind: CommandKind) -> u32 {
        let count = self.failures.entry(kind).or_default();
        *count = count.saturating_add(1);
        *count
    }
}

/// The observed state of one slot: the attempt that fills it, and all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ManagedNode {
    /// The incarnation.
    pub attempt: NodeAttemptId,
    /// Its provider.
    pub provider: ProviderKind,
    /// The exact spec that it was made from; unknown, and equal to none, for what a first look found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Template>,
    /// Whether it is to stay or to go.
    pub intent: Intent,
    /// How far it got.
    pub stage: Stage,
    /// Whether it counts as converged.
    pub ready: bool,
    /// The resource that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Arc<LeaseFacts>>,
    /// How to reach that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// What the last session reported; outlives the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapFacts>,
    /// The proof that it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinFacts>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When nothing was left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_at: Option<Timestamp>,
    /// The session that is addressable now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_bootstrap: Option<BootstrapSessionId>,
    /// The last session whose end was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_bootstrap: Option<BootstrapSessionId>,
    /// The one operation that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingOperation>,
    /// A call that may still run though its outcome was folded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unended: Option<UnendedCall>,
    /// The pass in which the lease last changed.
    #[serde(default)]
    pub lease_changed: PassId,
    /// The first question of a row of questions whose answers missed the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
    /// The sequence of the next operation.
    pub next_sequence: u32,
    /// What is tried again, and when.
    #[serde(default)]
    pub retry: Retry,
}

impl ManagedNode {
    /// A fresh incarnation of a slot.
    pub fn new(attempt: NodeAttemptId, spec: Template) -> Self {
        let provider = spec.provider.clone();
        Self {
            spec: Some(spec),
            ..Self::unknown(attempt, provider)
        }
    }

    /// What a first look found in a slot that nobody knew of: it is ended before the slot is filled anew.
    pub(crate) fn found(attempt: NodeAttemptId, provider: ProviderKind, lease: LeaseFacts) -> Self {
        Self {
            intent: Intent::Deleting,
            stage: Stage::LeaseCreated,
            lease: Some(Arc::new(lease)),
            ..Self::unknown(attempt, provider)
        }
    }

    /// An attempt of which nothing is known but that it is.
    fn unknown(attempt: NodeAttemptId, provider: ProviderKind) -> Self {
        Self {
            attempt,
            provider,
            spec: None,
            intent: Intent::Active,
            stage: Stage::New,
            ready: false,
            lease: None,
            endpoint: None,
            bootstrap: None,
            join: None,
            failure: None,
            destroyed_at: None,
            active_bootstrap: None,
            ended_bootstrap: None,
            pending: None,
            unended: None,
            lease_changed: PassId::default(),
            missing_since: None,
            next_sequence: 1,
            retry: Retry::default(),
        }
    }

    /// Whether it is to stay.
    pub fn is_active(&self) -> bool {
        self.intent == Intent::Active
    }

    /// Whether it was made from exactly this template.
    pub fn is_made_from(&self, template: &Template) -> bool {
        self.spec.as_ref() == Some(template)
    }

    /// Whether nothing can be left behind if it goes: no lease, no session, nothing pending or remembered.
    pub fn holds_nothing(&self) -> bool {
        self.lease.is_none()
            && self.active_bootstrap.is_none()
            && self.pending.is_none()
            && self.unended.is_none()
            && self.retry.create.is_none()
            && self.retry.start.is_none()
    }

    /// Whether it counts as converged for a slot that should be made from this template.
    pub fn is_available(&self, template: &Template) -> bool {
        self.ready && self.is_active() && !self.retry.replace && self.is_made_from(template)
    }

    /// The class that an operation of this kind has at its provider's pace.
    pub(crate) fn class_of(&self, kind: CommandKind) -> Class {
        match kind {
            _ if !self.is_active() => Class::Cleanup,
            CommandKind::CreateLease | CommandKind::FindLease => Class::Creation,
            _ => Class::Leased,
        }
    }

    /// The place that it takes at its provider, if an operation is pending or a call's end is unknown.
    pub(crate) fn held_class(&self) -> Option<Class> {
        let pending = self.pending.as_ref().map(|pending| pending.kind);
        pending
            .or(self.unended.as_ref().map(|call| call.kind))
            .map(|kind| self.class_of(kind))
    }

    /// Checks what must hold of every node in every state.
    ///
    /// # Errors
    ///
    /// The first guarantee that is broken, by number, and how.
    pub fn check(&self) -> Result<(), String> {
        let broken = |rule: &str, what: &str| Err(format!("{rule}: attempt {}: {what}", self.attempt));
        for session in [self.active_bootstrap, self.ended_bootstrap]
            .into_iter()
            .flatten()
        {
            if session.attempt() != self.attempt {
                return broken("G7", "holds a session of another attempt");
            }
        }
        if let Some(pending) = &self.pending {
            if pending.id.attempt != self.attempt || pending.id.sequence >= self.next_sequence {
                return broken("G5", "pending operation is not one of its own");
            }
            if self.unended.is_some() {
                return broken("G9", "dispatched while a call's end is unknown");
            }
        }
        if self.stage == Stage::Destroyed && !self.holds_nothing() {
            return broken("G11", "is destroyed and holds something");
        }
        if self.ready && !self.is_active() {
            return broken("G12", "is deleting and ready");
        }
        let steady = matches!(self.stage, Stage::HandedOff | Stage::Dormant);
        if self.ready
            && !(steady
                && self.lease.is_some()
                && self.endpoint.is_some()
                && self.join.is_some()
                && self.spec.is_some())
        {
            return broken("G13", "is ready without lease, endpoint, join, handoff or spec");
        }
        if self.is_active() && steady && !self.ready {
            return broken("G13", "is handed off and not ready");
        }
        Ok(())
    }
}
