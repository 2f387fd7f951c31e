//! The sessions that a backend has live, one per attempt.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Bootstrap, Session, SessionLimits, StreamEvent, StreamObservation, Transport, run_session};
use crate::effect::{BootstrapSpec, Call, Cancel, ObservationSink, StreamReport};
use crate::id::{AttemptIdentity, BootstrapSessionId};

/// The live sessions of a backend: it starts, adopts, ends and cancels them by attempt.
///
/// A clone shares the registry. A session is live from [`start`](Self::start) until its `run` is done or
/// dropped, also one that is never polled.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    live: Arc<Mutex<BTreeMap<AttemptIdentity, Live>>>,
    limits: SessionLimits,
}

#[derive(Debug)]
struct Live {
    begun: Begun,
    signals: Arc<Signals>,
}

/// Whether somebody has begun to run a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    No,
    Yes,
}

/// What reaches a session from outside, and its end from inside.
#[derive(Debug)]
struct Signals {
    session: BootstrapSessionId,
    sink: ObservationSink,
    cancel: Cancel,
    may_end: Cancel,
    /// Raised when it has made its last observation, or was dropped.
    over: Cancel,
}

impl Sessions {
    /// No sessions, and these limits for the transport calls of all that will be.
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            live: Arc::default(),
            limits,
        }
    }

    /// Starts a session of the call's attempt, named after its operation, or adopts the one that lives: that
    /// keeps its name, transport and sink, whoever has it goes on running it, and nothing is made.
    ///
    /// What comes back is a backend's answer to `start_bootstrap`. Nothing happens before it is polled.
    pub fn start<T: Transport>(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        make_transport: impl FnOnce() -> T,
        sink: ObservationSink,
    ) -> Session {
        let session = BootstrapSessionId(call.operation);
        let signals = {
            let mut live = self.lock();
            if let Some(live) = live.get(&call.identity) {
                return Session {
                    id: live.signals.session,
                    run: Box::pin(std::future::ready(())),
                };
            }
            let signals = Arc::new(Signals {
                session,
                sink,
                cancel: Cancel::new(),
                may_end: Cancel::new(),
                over: Cancel::new(),
            });
            let entry = Live {
                begun: Begun::No,
                signals: signals.clone(),
            };
            live.insert(call.identity.clone(), entry);
            signals
        };
        let running = Running {
            sessions: self.clone(),
            identity: call.identity.clone(),
            signals,
        };
        let bootstrap = Bootstrap::new(session, spec, self.limits);
        let transport = make_transport();
        Session {
            id: session,
            run: Box::pin(async move { running.run(bootstrap, transport).await }),
        }
    }

    /// Tells this session of the attempt that its node has joined and it may end. One that is unknown or
    /// over needs no telling.
    pub fn may_end(&self, identity: &AttemptIdentity, session: BootstrapSessionId) {
        let told = self
            .lock()
            .get(identity)
            .filter(|live| live.signals.session == session)
            .map(|live| live.signals.may_end.clone());
        if let Some(may_end) = told {
            may_end.cancel();
        }
    }

    /// Ends whatever session the attempt has, and waits until it is over: nothing is observed of it after
    /// this returned. One that is unknown or over is as good as ended.
    ///
    /// One that nobody has begun to run is ended here, with its terminal observation; one that is dropped
    /// while this waits is over.
    ///
    /// # Cancel safety
    ///
    /// The session ends also when this is dropped; only the waiting is given up.
    pub async fn cancel(&self, identity: &AttemptIdentity) {
        match self.take_unless_begun(identity) {
            None => {}
            Some((Begun::Yes, signals)) => {
                signals.cancel.cancel();
                signals.over.cancelled().await;
            }
            Some((Begun::No, signals)) => {
                let cancelled = StreamObservation {
                    session: signals.session,
                    sequence: 1,
                    event: StreamEvent::Cancelled,
                };
                signals.report(identity, cancelled);
                signals.over.cancel();
            }
        }
    }

    /// The attempt's session. One that nobody has begun to run leaves the registry with this.
    fn take_unless_begun(&self, identity: &AttemptIdentity) -> Option<(Begun, Arc<Signals>)> {
        let mut live = self.lock();
        let entry = live.get(identity)?;
        let found = (entry.begun, entry.signals.clone());
        if found.0 == Begun::No {
            live.remove(identity);
        }
        Some(found)
    }

    /// The session that the attempt has live.
    pub fn of(&self, identity: &AttemptIdentity) -> Option<BootstrapSessionId> {
        self.lock().get(identity).map(|live| live.signals.session)
    }

    /// How many are live.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is live.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptIdentity, Live>> {
        // Nothing that can panic runs under the lock, and each change is one insertion or removal.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signals {
    fn report(&self, identity: &AttemptIdentity, observation: StreamObservation) {
        self.sink.report(StreamReport {
            node: identity.node.clone(),
            attempt: identity.attempt,
            observation,
        });
    }
}

/// The right to run a session. Dropping it, run or not, takes the session out of the registry and wakes
/// whoever waits for its end.
struct Running {
    sessions: Sessions,
    identity: AttemptIdentity,
    signals: Arc<Signals>,
}

impl Running {
    async fn run<T: Transport>(self, bootstrap: Bootstrap, transport: T) {
        if !self.begin() {
            return;
        }
        let Signals { cancel, may_end, .. } = &*self.signals;
        run_session(
            bootstrap,
            transport,
            cancel.clone(),
            may_end.clone(),
            |observation| {
                self.signals.report(&self.identity, observation);
            },
        )
        .await;
    }

    /// False where the session was cancelled before anybody ran it.
    fn begin(&self) -> bool {
        match self.sessions.lock().get_mut(&self.identity) {
            Some(live) if Arc::ptr_eq(&live.signals, &self.signals) => {
                live.begun = Begun::Yes;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut live = self.sessions.lock();
        // Where this session was cancelled before it began, the entry may be that of a later one.
        let own = live
            .get(&self.identity)
            .is_some_and(|live| Arc::ptr_eq(&live.signals, &self.signals));
        let removed = own.then(|| live.remove(&self.identity));
        drop(live);
        drop(removed);
        self.signals.over.cancel();
    }
}

#[cfg(test)]
mod tests;
