//! Observations: everything that the driver learns, whoever says it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::bootstrap::StreamObservation;
use crate::effect::{CallEnd, Outcome};
use crate::facts::{AgentId, Endpoint};
use crate::id::OperationId;

/// Something that happened, in the past tense. An observation is a hint to look again: losing, repeating or
/// reordering one may cost time, never correctness.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// A provider call was answered, or classified.
    Finished {
        /// The call's operation.
        operation: OperationId,
        /// What came of it.
        outcome: Outcome,
        /// When the call itself ended.
        end: CallEnd,
    },
    /// An executor would not take a submission; the provider was not called.
    Refused {
        /// The operation that was submitted.
        operation: OperationId,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// A call whose end had been unknown has ended.
    CallEnded {
        /// The call's operation.
        operation: OperationId,
        /// When.
        at: Timestamp,
    },
    /// A bootstrap session reported something.
    Stream(StreamObservation),
    /// The node's own agent joined the swarm, as the application saw it.
    Joined(AgentId),
    /// The application took the node over.
    HandedOff,
    /// The provider shows another endpoint for the node's machine than the one that is known.
    EndpointMoved(Endpoint),
    /// The machine, or what makes it worth having, is gone.
    NodeLost {
        /// What was seen, for people.
        reason: Arc<str>,
    },
}

/// What folding an observation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Folded {
    /// It became facts.
    Applied,
    /// It spoke of another attempt, operation, session or slot: nothing was changed, and it was counted.
    Stale,
    /// It showed a resource that no node owns; it was recorded to be destroyed.
    Orphaned,
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished { operation, .. } => write!(f, "result of {operation}"),
            Self::Refused { operation, .. } => write!(f, "refusal of {operation}"),
            Self::CallEnded { operation, .. } => write!(f, "end of the call {operation}"),
            Self::Stream(stream) => write!(f, "report {} of session {}", stream.sequence, stream.session),
            Self::Joined(agent) => write!(f, "join of agent {agent}"),
            Self::HandedOff => f.write_str("handoff"),
            Self::EndpointMoved(endpoint) => write!(f, "move to {endpoint}"),
            Self::NodeLost { reason } => write!(f, "loss: {reason}"),
        }
    }
}
