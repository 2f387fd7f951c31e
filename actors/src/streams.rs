//! Bootstrap streams: runs the live sessions of one provider as tasks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nodewright_core::bootstrap::{Session, StreamEvent, StreamObservation};
use nodewright_core::effect::{ObservationSink, StreamReport};
use nodewright_core::facts::BootstrapStage;
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId};
use ractor::{ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::inbox::Inbox;

/// What the streams are told.
#[derive(Debug)]
pub(crate) enum StreamsMessage {
    /// From an executor's call: run this session to its end. If it is lost, the session is dropped, and its
    /// guard reports that it failed.
    Run(Guarded),
}

#[cfg(feature = "cluster")]
impl ractor::Message for StreamsMessage {}

/// A session that is seen to end, whatever becomes of it: if it is dropped, or its task panics, without a
/// terminal report, a failure is reported in its place.
#[derive(Debug)]
pub(crate) struct Guarded {
    identity: AttemptIdentity,
    session: Option<Session>,
    guard: Guard,
}

impl Guarded {
    /// Guards what a start made. A session that the start only adopted is guarded where it runs.
    pub(crate) fn new(identity: AttemptIdentity, session: Session, seen: Seen) -> Self {
        let guard = Guard {
            identity: identity.clone(),
            session: session.id,
            seen,
        };
        Self {
            identity,
            session: Some(session),
            guard,
        }
    }

    async fn run(mut self) {
        if let Some(session) = self.session.take() {
            session.run.await;
        }
        drop(self.guard);
    }
}

/// Sees what a session reports on its way to the inbox.
#[derive(Debug, Clone)]
pub(crate) struct Seen(Arc<SeenInner>);

#[derive(Debug)]
struct SeenInner {
    inbox: Arc<Inbox>,
    last: AtomicU64,
    open: Mutex<bool>,
}

impl Seen {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self(Arc::new(SeenInner {
            inbox,
            last: AtomicU64::new(0),
            open: Mutex::new(true),
        }))
    }

    /// The sink to hand to the backend.
    pub(crate) fn sink(&self) -> ObservationSink {
        let seen = self.clone();
        ObservationSink::new(move |report| seen.report(report))
    }

    /// Passes a report on; nothing follows a terminal one.
    fn report(&self, report: StreamReport) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open {
            *open = !report.observation.event.is_terminal();
            self.0
                .last
                .fetch_max(report.observation.sequence, Ordering::Relaxed);
            self.0.inbox.push(report);
        }
    }
}

#[derive(Debug)]
struct Guard {
    identity: AttemptIdentity,
    session: BootstrapSessionId,
    seen: Seen,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let sequence = self.seen.0.last.load(Ordering::Relaxed) + 1;
        let reason = "its task ended without a word".into();
        let event = StreamEvent::Failed {
            stage: BootstrapStage::StreamFailed,
            reason,
        };
        self.seen.report(StreamReport {
            node: self.identity.node.clone(),
            attempt: self.identity.attempt,
            observation: StreamObservation {
                session: self.session,
                sequence,
                event,
            },
        });
    }
}

#[derive(Debug)]
pub(crate) struct BootstrapStreams;

#[ractor::actor(message = StreamsMessage, state = JoinSet<()>)]
impl BootstrapStreams {
    async fn pre_start(
        &self,
        _myself: ActorRef<StreamsMessage>,
        _arguments: (),
    ) -> Result<JoinSet<()>, ActorProcessingErr> {
        Ok(JoinSet::new())
    }

    #[ractor::message(StreamsMessage::Run(guarded))]
    fn run(&self, guarded: Guarded, sessions: &mut JoinSet<()>) {
        while sessions.try_join_next().is_some() {}
        let AttemptIdentity { run, node, attempt } = &guarded.identity;
        let session = guarded.guard.session;
        let span =
            tracing::info_span!(parent: None, "bootstrap", %run, %node, %attempt, operation = %session.0);
        sessions.spawn(guarded.run().instrument(span));
    }
}
