//! Events, published: to subscribers, and as traces.

use nodewright_core::event::{Event, EventKind};
use tokio::sync::broadcast;

/// How many events a slow subscriber may lag behind before it loses the oldest.
const CAPACITY: usize = 8192;

/// One thing that a subscriber hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// An event.
    Event(Event),
    /// The subscriber was too slow: this many events are lost to it.
    Missed(u64),
}

/// A subscription. Events come in order; a slow subscriber never slows the supervisor.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// The next event, once it happens; `None` when the cluster has stopped and all was heard. Cancel safe.
    pub async fn recv(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where the supervisor publishes.
#[derive(Debug, Clone)]
pub(crate) struct Publisher(broadcast::Sender<Event>);

impl Publisher {
    /// A publisher, and the door through which others subscribe without keeping it alive.
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(CAPACITY).0)
    }

    pub(crate) fn door(&self) -> broadcast::WeakSender<Event> {
        self.0.downgrade()
    }

    pub(crate) fn publish(&self, event: Event) {
        trace(&event.kind);
        if self.0.receiver_count() > 0 {
            // Nobody listening any more is no fault of the cluster.
            let _ = self.0.send(event);
        }
    }
}

/// Subscribes at a publisher that may be gone: such a subscription ends at once.
pub(crate) fn subscribe_at(door: &broadcast::WeakSender<Event>) -> Events {
    Events(
        door.upgrade()
            .unwrap_or_else(|| broadcast::channel(1).0)
            .subscribe(),
    )
}

/// info: the world changed; warn: we will retry; error: a person is needed; debug: the rest.
fn trace(kind: &EventKind) {
    match kind {
        EventKind::Halted {
            node,
            attempt,
            reason,
        } => {
            tracing::error!(%node, %attempt, %reason, "node halted");
        }
        EventKind::NodeFaulty { node, attempt, fault } => {
            tracing::error!(%node, %attempt, %fault, "node cannot go on");
        }
        EventKind::AttemptsExhausted => tracing::error!("no attempt id is left"),
        EventKind::AttemptFailed {
            node,
            attempt,
            reason,
            ..
        } => {
            tracing::warn!(%node, %attempt, %reason, "attempt failed");
        }
        EventKind::Finished {
            node,
            operation,
            command,
            error: Some(error),
        } => {
            tracing::warn!(%node, attempt = %operation.attempt, %operation, kind = %command, %error, "operation failed");
        }
        EventKind::Looked {
            provider,
            error: Some(error),
            ..
        } => {
            tracing::warn!(%provider, %error, "first look failed");
        }
        EventKind::Swept {
            provider,
            error: Some(error),
            ..
        } => {
            tracing::warn!(%provider, %error, "sweep failed");
        }
        EventKind::Swept {
            provider, findings, ..
        } if findings.held => {
            tracing::error!(%provider, %findings, "too much is missing at once to be believed yet");
        }
        EventKind::Swept {
            provider, findings, ..
        } if findings.is_as_known() => {
            tracing::debug!(%provider, %findings, "swept");
        }
        EventKind::Dispatched {
            node,
            operation,
            command,
        } => {
            tracing::debug!(%node, attempt = %operation.attempt, %operation, kind = %command, "operation dispatched");
        }
        EventKind::Finished {
            node,
            operation,
            command,
            error: None,
        } => {
            tracing::debug!(%node, attempt = %operation.attempt, %operation, kind = %command, "operation done");
        }
        EventKind::Stale {
            node,
            attempt,
            observation,
        } => {
            tracing::debug!(%node, %attempt, %observation, "stale observation");
        }
        EventKind::RetryScheduled {
            node,
            attempt,
            retry_at,
        } => {
            tracing::debug!(%node, %attempt, %retry_at, "retry scheduled");
        }
        other => tracing::info!(event = %other, "cluster changed"),
    }
}
