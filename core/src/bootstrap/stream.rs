//! What a session reports, and the session as it is handed to whoever runs it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::facts::{AgentId, BootstrapStage};
use crate::id::BootstrapSessionId;

/// One thing that a session reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamObservation {
    /// The session.
    pub session: BootstrapSessionId,
    /// Its number in the session, from 1: an older one never overwrites a newer one.
    pub sequence: u64,
    /// What was seen.
    pub event: StreamEvent,
}

/// What a session may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamEvent {
    /// A stage was reached; none of the terminal ones.
    Stage(BootstrapStage),
    /// Output came; the numbers are the lines so far.
    Lines {
        /// Lines of standard output so far.
        stdout: u64,
        /// Lines of standard error so far.
        stderr: u64,
    },
    /// The started command printed the join marker.
    Joined(AgentId),
    /// Terminal: the session was told that it may end, and ended.
    Converged,
    /// Terminal: the stream ended in order.
    Closed,
    /// Terminal: the session was cancelled.
    Cancelled,
    /// Terminal: a failure stage, and why, with the last lines of output.
    Failed {
        /// One of the failure stages.
        stage: BootstrapStage,
        /// For people.
        reason: Arc<str>,
    },
}

impl StreamEvent {
    /// Whether nothing may follow it.
    pub const fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Converged | Self::Closed | Self::Cancelled | Self::Failed { .. }
        )
    }
}

/// A session, handed to whoever called `start_bootstrap`, to be run.
///
/// Dropping `run` before it is done ends the session without a terminal observation; whoever runs it
/// reports that as a failure.
pub struct Session {
    /// Its name. An adopted session keeps the name of the operation that started it.
    pub id: BootstrapSessionId,
    /// Drives the session to its end. Of an adopted session that somebody else runs it is ready at once.
    pub run: BoxFuture<'static, ()>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
