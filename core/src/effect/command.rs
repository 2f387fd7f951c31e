//! What the driver may ask of a provider, and what it may hear back.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Cancel, EffectError};
use crate::facts::{CreatedLease, Endpoint, LeaseFacts};
use crate::id::{AttemptIdentity, BootstrapSessionId, LogicalNodeId, OperationId, ProviderKind};
use crate::template::{BootSpec, LogicalNodeSpec, SwarmJoinSpec, Template};

/// The seven commands, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandKind {
    /// Rent a machine.
    CreateLease,
    /// Look whether an earlier create left one; never creates.
    FindLease,
    /// Ask how to reach the machine.
    LookupEndpoint,
    /// Start the session that boots its agent.
    StartBootstrap,
    /// Tell the session that it may end.
    ObserveConvergence,
    /// End the session before its time.
    CancelBootstrap,
    /// Give the machine back.
    DestroyLease,
}

impl CommandKind {
    /// All of them, in the order of a node's life.
    pub const ALL: [Self; 7] = [
        Self::CreateLease,
        Self::FindLease,
        Self::LookupEndpoint,
        Self::StartBootstrap,
        Self::ObserveConvergence,
        Self::CancelBootstrap,
        Self::DestroyLease,
    ];

    /// Whether it only looks: such calls repeat at the probe interval.
    pub const fn is_look_up(self) -> bool {
        matches!(self, Self::FindLease | Self::LookupEndpoint)
    }

    /// Its name, as events and traces carry it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateLease => "create-lease",
            Self::FindLease => "find-lease",
            Self::LookupEndpoint => "lookup-endpoint",
            Self::StartBootstrap => "start-bootstrap",
            Self::ObserveConvergence => "observe-convergence",
            Self::CancelBootstrap => "cancel-bootstrap",
            Self::DestroyLease => "destroy-lease",
        }
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a bootstrap session works with: the machine, and what is to run on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootstrapSpec {
    /// The machine.
    pub lease: Arc<LeaseFacts>,
    /// How to reach it.
    pub endpoint: Endpoint,
    /// The template that it was made from.
    pub template: Template,
}

impl BootstrapSpec {
    /// What is to run on the machine.
    pub fn boot(&self) -> &BootSpec {
        &self.template.boot
    }

    /// What its agent needs to join.
    pub fn join(&self) -> &SwarmJoinSpec {
        &self.template.join
    }
}

/// One provider call, with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Rent a machine for this slot.
    CreateLease(LogicalNodeSpec),
    /// Look for what an earlier create left.
    FindLease,
    /// Ask how to reach this lease.
    LookupEndpoint(Arc<LeaseFacts>),
    /// Boot the agent on the machine.
    StartBootstrap(BootstrapSpec),
    /// Tell this session that it may end.
    ObserveConvergence(BootstrapSessionId),
    /// End whatever session the attempt has.
    CancelBootstrap,
    /// Give this lease back.
    DestroyLease(Arc<LeaseFacts>),
}

impl Command {
    /// Its name.
    pub const fn kind(&self) -> CommandKind {
        match self {
            Self::CreateLease(_) => CommandKind::CreateLease,
            Self::FindLease => CommandKind::FindLease,
            Self::LookupEndpoint(_) => CommandKind::LookupEndpoint,
            Self::StartBootstrap(_) => CommandKind::StartBootstrap,
            Self::ObserveConvergence(_) => CommandKind::ObserveConvergence,
            Self::CancelBootstrap => CommandKind::CancelBootstrap,
            Self::DestroyLease(_) => CommandKind::DestroyLease,
        }
    }
}

/// A command that is to be dispatched, with the identity of the dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedEffect {
    /// The slot.
    pub node: LogicalNodeId,
    /// Who is asked.
    pub provider: ProviderKind,
    /// The dispatch; its attempt is the one acted for.
    pub operation: OperationId,
    /// What is asked.
    pub command: Command,
}

/// What a backend is told about the call that it makes.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whose machine it is: every external request is keyed on this.
    pub identity: AttemptIdentity,
    /// The dispatch.
    pub operation: OperationId,
    /// Raised when nobody waits for the call any more.
    pub cancel: Cancel,
}

/// How far the giving back of a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destroyed {
    /// Nothing is left of it.
    Gone,
    /// The provider still works on it; ask again.
    Going,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// `CreateLease` made or adopted a lease.
    LeaseCreated(CreatedLease),
    /// `FindLease` found one, or that there is none.
    LeaseFound(Option<CreatedLease>),
    /// `LookupEndpoint` found one, or none yet.
    EndpointFound(Option<Endpoint>),
    /// `StartBootstrap` started or adopted this session.
    BootstrapStarted(BootstrapSessionId),
    /// `ObserveConvergence` was accepted.
    ConvergenceAccepted,
    /// `CancelBootstrap` ended the session, or there was none.
    BootstrapCancelled,
    /// `DestroyLease` was accepted.
    LeaseDestroyed(Destroyed),
    /// Any of them failed.
    Failed(EffectError),
}

/// When a provider call itself ended, which may be later than when its outcome was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallEnd {
    /// It was answered, or its task was gone, at this moment.
    At(Timestamp),
    /// It could not be ended, and may still be at work.
    Unknown,
}

/// A result as an executor reports it, tagged with what it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectResult {
    /// The slot.
    pub node: LogicalNodeId,
    /// The dispatch.
    pub operation: OperationId,
    /// What came of it.
    pub outcome: Outcome,
    /// When the call ended.
    pub end: CallEnd,
}
