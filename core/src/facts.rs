//! Facts: what is known of an attempt's lease, endpoint, bootstrap and join.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{BootstrapSessionId, TemplateDigest};

macro_rules! provider_text {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is: nodewright reads nothing into it.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )*};
}

provider_text! {
    /// The provider's own name for a resource.
    LeaseId;
    /// The agent's own name in the swarm.
    AgentId;
}

/// The provider resource that an attempt holds: VM, container, claimed host, process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseFacts {
    /// The provider's name for it.
    pub id: LeaseId,
    /// The digest of the template that it was made from, where the provider can carry one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateDigest>,
    /// What the backend wants to remember of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

impl LeaseFacts {
    /// A lease of this name, without further facts.
    pub fn new(id: LeaseId) -> Self {
        Self {
            id,
            template: None,
            details: BTreeMap::new(),
        }
    }
}

/// How to reach a leased machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// A host name or address; for a local machine its directory.
    pub host: Arc<str>,
    /// The port, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// A lease as a provider answers it, with the endpoint where that is known at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreatedLease {
    /// The lease.
    pub lease: LeaseFacts,
    /// How to reach it, if that is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
}

/// How far a bootstrap session got. Decisions look only at whether a stage means failure or convergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BootstrapStage {
    /// The transport is being opened.
    Connecting,
    /// The transport is open.
    Connected,
    /// The verify commands run.
    BootChecking,
    /// The start command is being started.
    AgentStarting,
    /// The start command runs; its agent has not joined.
    WaitingForJoin,
    /// The agent joined, and the session may end.
    Converged,
    /// The stream ended in order.
    Closed,
    /// The session was cancelled.
    Cancelled,
    /// The transport could not be opened.
    ConnectFailed,
    /// A verify command failed.
    BootCheckFailed,
    /// The start command failed.
    StartFailed,
    /// The agent said that it cannot join.
    JoinFailed,
    /// The stream broke.
    StreamFailed,
}

impl BootstrapStage {
    /// Whether nothing follows it: the session has ended.
    pub const fn is_terminal(self) -> bool {
        self.is_failure() || matches!(self, Self::Converged | Self::Closed | Self::Cancelled)
    }

    /// Whether the stage says that the bootstrap failed.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::ConnectFailed
                | Self::BootCheckFailed
                | Self::StartFailed
                | Self::JoinFailed
                | Self::StreamFailed
        )
    }
}

impl fmt::Display for BootstrapStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::BootChecking => "boot checking",
            Self::AgentStarting => "agent starting",
            Self::WaitingForJoin => "waiting for the join",
            Self::Converged => "converged",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::ConnectFailed => "connect failed",
            Self::BootCheckFailed => "boot check failed",
            Self::StartFailed => "start failed",
            Self::JoinFailed => "join failed",
            Self::StreamFailed => "stream failed",
        })
    }
}

/// What the last addressable session of an attempt reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootstrapFacts {
    /// The session.
    pub session: BootstrapSessionId,
    /// How far it got.
    pub stage: BootstrapStage,
    /// The number of its newest observation: older ones never overwrite what is here.
    pub sequence: u64,
    /// Lines of standard output so far.
    pub stdout_lines: u64,
    /// Lines of standard error so far.
    pub stderr_lines: u64,
}

/// The proof that a node works: its own agent has joined the swarm.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinFacts {
    /// The agent.
    pub agent: AgentId,
    /// When its join was folded.
    pub at: Timestamp,
}
