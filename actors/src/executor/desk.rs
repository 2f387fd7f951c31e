//! The desk of an executor: ledger and backend, which outlive any incarnation of it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use nodewright_core::driver::DueOperation;
use nodewright_core::effect::{
    Call, Cancel, Capabilities, EffectBackend, EffectError, LossSink, Outcome, PlannedEffect, perform,
};
use nodewright_core::id::{
    AttemptIdentity, BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind, RunId,
};
use nodewright_core::ledger::{Completion, Expiry, Ledger, Verdict};
use nodewright_core::node::PassId;
use nodewright_core::observation::Observation;
use ractor::ActorRef;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::inbox::{Inbox, Incoming};
use crate::streams::{Guarded, Seen, StreamsMessage};

/// How patient an executor is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// How long an inventory call may take.
    pub(crate) look: Duration,
    /// How long it waits before it begins a watch again that ended.
    pub(crate) rewatch: Duration,
    /// How long a cancelled call may take to end.
    pub(crate) abort_grace: Duration,
}

/// A call that is at work: how to end it, and whether it is over.
#[derive(Debug, Clone, Default)]
struct Running {
    cancel: Cancel,
    over: Cancel,
}

/// Where a desk stands, and what it works by.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) kind: ProviderKind,
    pub(crate) run: RunId,
    pub(crate) clock: Clock,
    pub(crate) patience: Patience,
    pub(crate) inbox: Arc<Inbox>,
}

/// Ledger, backend and what is at work, for one provider.
pub(crate) struct Desk<B> {
    place: Place,
    backend: Arc<B>,
    /// As the backend stated them when the desk was set up.
    capabilities: Capabilities,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    running: BTreeMap<OperationId, Running>,
    streams: Option<ActorRef<StreamsMessage>>,
}

impl<B> fmt::Debug for Desk<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("place", &self.place)
            .field("books", &self.books)
            .finish_non_exhaustive()
    }
}

impl<B: EffectBackend> Desk<B> {
    pub(crate) fn new(backend: Arc<B>, place: Place) -> Self {
        let capabilities = backend.capabilities();
        Self {
            place,
            backend,
            capabilities,
            books: Mutex::default(),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // The ledger is changed in one call each time: a panic elsewhere cannot leave it half-changed.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whom sessions are handed to from now on.
    pub(crate) fn hand_sessions_to(&self, streams: ActorRef<StreamsMessage>) {
        self.books().streams = Some(streams);
    }

    /// Takes over from an incarnation before: its calls are told to end. What is handed back is raised by each
    /// as it is over.
    pub(crate) fn take_over(&self, pending: Vec<(LogicalNodeId, OperationId)>) -> Vec<Cancel> {
        let mut books = self.books();
        let restart = books
            .ledger
            .executor_restarted(pending.iter().map(|(_, operation)| *operation));
        let ending = restart
            .end
            .iter()
            .filter_map(|operation| books.running.get(operation).cloned());
        let ending: Vec<Running> = ending.collect();
        drop(books);
        for result in restart.report {
            self.place.inbox.push(result);
        }
        let refused: BTreeSet<OperationId> = restart.refused.into_iter().collect();
        for (node, operation) in pending {
            if refused.contains(&operation) {
                let reason = "the executor was restarted before it began".into();
                let observation = Observation::Refused { operation, reason };
                self.place
                    .inbox
                    .push(Incoming::Node(node, operation.attempt, observation));
            }
        }
        ending.iter().for_each(|running| running.cancel.cancel());
        ending.into_iter().map(|running| running.over).collect()
    }

    /// Asks the ledger about a submission; the call to run if it is to be run.
    pub(crate) fn submit(self: Arc<Self>, effect: PlannedEffect) -> Option<impl Future<Output = ()> + Send> {
        let mut books = self.books();
        let verdict = books.ledger.submit(&effect);
        match verdict {
            Verdict::Run => {
                let running = Running::default();
                books.running.insert(effect.operation, running.clone());
                drop(books);
                let (node, operation) = (&effect.node, effect.operation);
                let (run, attempt, kind) = (&self.place.run, operation.attempt, effect.command.kind());
                let span =
                    tracing::info_span!(parent: None, "operation", %run, %node, %attempt, %operation, %kind);
                Some(self.clone().conduct(effect, running).instrument(span))
            }
            Verdict::AlreadyRunning => None,
            Verdict::Replay(result) => {
                drop(books);
                self.place.inbox.push(result);
                None
            }
            Verdict::Refused(refusal) => {
                drop(books);
                self.refuse(&effect, &refusal.to_string());
                None
            }
        }
    }

    pub(crate) fn refuse(&self, effect: &PlannedEffect, reason: &str) {
        let observation = Observation::Refused {
            operation: effect.operation,
            reason: reason.into(),
        };
        self.place.inbox.push(Incoming::Node(
            effect.node.clone(),
            effect.operation.attempt,
            observation,
        ));
    }

    /// Makes a call and sees it to its end: an answer, a panic, or the end of its grace after it was told to
    /// end.
    async fn conduct(self: Arc<Self>, effect: PlannedEffect, running: Running) {
        let operation = effect.operation;
        let call = AssertUnwindSafe(self.perform(&effect, running.cancel.clone())).catch_unwind();
        let mut call = Box::pin(call.map(|answer| answer.unwrap_or_else(|panic| panicked(&*panic))));
        let answer = tokio::select! {
            biased;
            outcome = &mut call => Some(outcome),
            () = running.cancel.cancelled() => {
                tokio::time::timeout(self.place.patience.abort_grace, &mut call).await.ok()
            }
        };
        if answer.is_none() && !self.capabilities.abortable {
            let abandoned = self.books().ledger.abandoned(operation);
            if let Some(result) = abandoned {
                self.place.inbox.push(result);
            }
            // Nobody waits for it any more, but it holds its place until it has ended.
            running.over.cancel();
            let outcome = call.await;
            self.finish(operation, Some(outcome));
            return;
        }
        // Whatever it still does when it is dropped belongs to it: only then has it ended.
        drop(call);
        self.finish(operation, answer);
        running.over.cancel();
    }

    fn finish(&self, operation: OperationId, answer: Option<Outcome>) {
        let now = self.place.clock.now();
        let mut books = self.books();
        books.running.remove(&operation);
        let completion = match answer {
            Some(outcome) => books.ledger.complete(operation, outcome, now),
            None => books.ledger.ended(operation, now),
        };
        drop(books);
        match completion {
            Completion::Report(result) => self.place.inbox.push(result),
            Completion::EndedLate { node, operation, at } => {
                let observation = Observation::CallEnded { operation, at };
                self.place
                    .inbox
                    .push(Incoming::Node(node, operation.attempt, observation));
            }
            Completion::Stale => {}
        }
    }

    /// One provider call, whose answer is of the kind of its command.
    async fn perform(&self, effect: &PlannedEffect, cancel: Cancel) -> Outcome {
        let identity = AttemptIdentity {
            run: self.place.run.clone(),
            node: effect.node.clone(),
            attempt: effect.operation.attempt,
        };
        let call = Call {
            identity,
            operation: effect.operation,
            cancel,
        };
        let mut seen = None;
        let sink = || seen.insert(Seen::new(self.place.inbox.clone())).sink();
        let (outcome, session) = perform(&*self.backend, &call, &effect.command, sink).await;
        if let Some((session, seen)) = session.zip(seen) {
            self.run_session(call.identity, call.operation, session, seen);
        }
        outcome
    }

    /// Hands a session to the streams. One that was only adopted runs elsewhere.
    fn run_session(
        &self,
        identity: AttemptIdentity,
        operation: OperationId,
        session: nodewright_core::bootstrap::Session,
        seen: Seen,
    ) {
        if session.id != BootstrapSessionId(operation) {
            return;
        }
        let guarded = Guarded::new(identity, session, seen);
        if let Some(streams) = self.books().streams.clone() {
            // If the streams are gone the session is dropped, and reports so itself.
            let _ = streams.cast(StreamsMessage::Run(guarded));
        }
    }

    /// The deadline of an operation has come.
    pub(crate) fn expire(&self, due: &DueOperation) {
        let mut books = self.books();
        let expiry = books
            .ledger
            .expire(&due.node, due.operation, self.place.clock.now());
        let running = books.running.get(&due.operation).cloned();
        drop(books);
        match (expiry, running) {
            (Expiry::Cancel, Some(running)) => running.cancel.cancel(),
            (Expiry::Cancel, None) => self.finish(due.operation, None),
            (Expiry::Settled(result), _) => self.place.inbox.push(result),
            (Expiry::Ending, _) => {}
        }
    }

    /// Nothing will be asked for this attempt any more.
    pub(crate) fn retire(&self, attempt: NodeAttemptId) {
        self.books().ledger.retire(attempt);
    }

    /// Asks for the inventory of the run.
    pub(crate) async fn look(self: Arc<Self>, asked: PassId) {
        let asked_at: Timestamp = self.place.clock.now();
        // What panics before it has made a future panics in here, too.
        let call = AssertUnwindSafe(async { self.backend.list_leases(&self.place.run).await }).catch_unwind();
        let answer = match tokio::time::timeout(self.place.patience.look, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(EffectError::ambiguous(panic_text(&*panic))),
            Err(_) => Err(EffectError::ambiguous("the inventory was not answered in time")),
        };
        let provider = self.place.kind.clone();
        self.place.inbox.push(Incoming::Look {
            provider,
            asked,
            asked_at,
            answer,
        });
    }

    /// Reports machines that die, for as long as the executor's calls live. A watch that ends, or panics, is
    /// begun again: without it nobody would hear of them.
    pub(crate) async fn watch(self: Arc<Self>) {
        if !self.capabilities.watch {
            return;
        }
        loop {
            let inbox = self.place.inbox.clone();
            let sink = LossSink::new(move |loss| inbox.push(loss));
            let watch =
                AssertUnwindSafe(async { self.backend.watch(&self.place.run, sink).await }).catch_unwind();
            match watch.await {
                Ok(()) => tracing::warn!(provider = %self.place.kind, "watch ended, it is begun again"),
                Err(panic) => {
                    let error = panic_text(&*panic);
                    tracing::error!(provider = %self.place.kind, %error, "watch panicked, it is begun again");
                }
            }
            tokio::time::sleep(self.place.patience.rewatch).await;
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    Outcome::Failed(EffectError::ambiguous(panic_text(panic)))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the backend panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use nodewright_backends::MemoryBackend;
    use nodewright_core::effect::Command;

    use super::*;

    fn desk() -> Arc<Desk<MemoryBackend>> {
        let patience = Duration::from_secs(5);
        Arc::new(Desk::new(
            Arc::new(MemoryBackend::new()),
            Place {
                kind: "memory".parse().unwrap(),
                run: "run".parse().unwrap(),
                clock: Clock::anchored("2030-01-01T00:00:00Z".parse().unwrap()),
                patience: Patience {
                    look: patience,
                    abort_grace: patience,
                    rewatch: patience,
                },
                inbox: Arc::default(),
            },
        ))
    }

    fn effect(operation: &str) -> PlannedEffect {
        PlannedEffect {
            node: "w-0".parse().unwrap(),
            provider: "memory".parse().unwrap(),
            operation: operation.parse().unwrap(),
            command: Command::FindLease,
        }
    }

    fn reported(desk: &Desk<MemoryBackend>) -> Vec<Observation> {
        let incoming = desk
            .place
            .inbox
            .take()
            .into_iter()
            .map(|incoming| match incoming {
                Incoming::Node(_, _, observation) => observation,
                Incoming::Look { .. } => panic!("nobody looked"),
            });
        incoming.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn g31_what_was_lost_with_an_executor_before_it_began_is_refused() {
        let desk = desk();
        let lost = effect("1.1");
        assert!(
            desk.take_over(vec![(lost.node.clone(), lost.operation)])
                .is_empty()
        );
        let reported = reported(&desk);
        assert!(
            matches!(&reported[..], [Observation::Refused { operation, .. }] if *operation == lost.operation),
            "{reported:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn g31_a_result_that_may_have_been_lost_with_an_executor_is_reported_again() {
        let desk = desk();
        let done = effect("1.1");
        desk.clone().submit(done.clone()).unwrap().await;
        let first = reported(&desk);
        assert!(matches!(first[..], [Observation::Finished { .. }]), "{first:?}");
        assert!(
            desk.take_over(vec![(done.node.clone(), done.operation)])
                .is_empty()
        );
        assert_eq!(reported(&desk), first);
    }
}
