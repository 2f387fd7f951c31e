//! Bootstrap streams: runs the live sessions of one provider as tasks.

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
    reported: Mutex<Reported>,
}

impl Seen {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self(Arc::new(SeenInner {
            inbox,
            reported: Mutex::default(),
        }))
    }

    /// The sink to hand to the backend.
    pub(crate) fn sink(&self) -> ObservationSink {
        let seen = self.clone();
        ObservationSink::new(move |report| seen.report(report))
    }

    /// Passes a report on; nothing follows a terminal one.
    fn report(&self, report: StreamReport) {
        self.follow(|_| report);
    }

    /// Reports what follows on the last sequence number, which no other report can overtake.
    fn follow(&self, report: impl FnOnce(u64) -> StreamReport) {
        let mut reported = self.0.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.over {
            let report = report(reported.last);
            reported.over = report.observation.event.is_terminal();
            reported.last = reported.last.max(report.observation.sequence);
            self.0.inbox.push(report);
        }
    }
}

/// What was reported of a session.
#[derive(Debug, Default)]
struct Reported {
    last: u64,
    over: bool,
}

#[derive(Debug)]
struct Guard {
    identity: AttemptIdentity,
    session: BootstrapSessionId,
    seen: Seen,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let reason = "its task ended without a word".into();
        let event = StreamEvent::Failed {
            stage: BootstrapStage::StreamFailed,
            reason,
        };
        self.seen.follow(|last| StreamReport {
            node: self.identity.node.clone(),
            attempt: self.identity.attempt,
            observation: StreamObservation {
                session: self.session,
                sequence: last.saturating_add(1),
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
