//! What the supervisor holds, and how it folds, passes, publishes and ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::driver::{Accepted, ClusterDriver, DriveReport, EffectSink, Refused};
use nodewright_core::effect::{EffectError, PlannedEffect};
use nodewright_core::id::{NodeAttemptId, ProviderKind};
use nodewright_core::shape::{ClusterShape, Generation};
use nodewright_core::state::ClusterState;
use ractor::ActorRef;
use tokio::sync::watch;

use super::sweeps::{Sweeps, Swept};
use super::{Port, SupervisorMessage, UpdateError, reply};
use crate::clock::Clock;
use crate::config::Assembly;
use crate::events::Publisher;
use crate::executor::ExecutorMessage;
use crate::inbox::{Inbox, Incoming};
use crate::supervisor::children::Children;
use crate::timer::TimerMessage;
use crate::view::View;

/// What a supervisor starts with.
pub(crate) struct SupervisorStart {
    pub(crate) assembly: Assembly,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) view: View,
    pub(crate) published: watch::Sender<Arc<ClusterState>>,
}

/// What a supervisor holds.
pub(crate) struct Supervision {
    pub(super) driver: ClusterDriver,
    pub(super) clock: Clock,
    pub(super) children: Children,
    inbox: Arc<Inbox>,
    view: View,
    publisher: Publisher,
    published: watch::Sender<Arc<ClusterState>>,
    grace: Duration,
    publish_every: Duration,
    publish_at: Option<Timestamp>,
    published_at: Timestamp,
    /// Whether anything may have changed since.
    unpublished: bool,
    pass_queued: bool,
    pub(super) armed: Option<Timestamp>,
    waiters: Vec<(Generation, Port<()>)>,
    sweeps: Sweeps,
    draining: Vec<Port<ClusterState>>,
    stopping: bool,
}

impl Supervision {
    pub(super) fn new(start: SupervisorStart) -> Self {
        let SupervisorStart {
            assembly,
            inbox,
            view,
            published,
        } = start;
        let children = Children::new(assembly.seats(&inbox));
        let Assembly {
            driver,
            clock,
            patience,
            publish_every,
            publisher,
            ..
        } = assembly;
        Self {
            driver,
            clock,
            children,
            inbox,
            view,
            publisher,
            published,
            grace: patience.abort_grace,
            publish_every,
            publish_at: None,
            published_at: clock.now(),
            unpublished: true,
            pass_queued: false,
            armed: None,
            waiters: Vec::new(),
            sweeps: Sweeps::default(),
            draining: Vec::new(),
            stopping: false,
        }
    }

    /// Sees to it that a pass is run after all that is in the mailbox now; one pass serves it all.
    pub(super) fn queue_pass(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if !self.pass_queued && !self.stopping {
            self.pass_queued = myself.cast(SupervisorMessage::Pass).is_ok();
        }
    }

    /// Folds all that was reported.
    pub(super) fn fold_inbox(&mut self) {
        let reported = self.inbox.take();
        self.unpublished |= !reported.is_empty();
        // Read after what was reported, so that nothing of it lies in the future.
        let now = self.clock.now();
        for incoming in reported {
            match incoming {
                Incoming::Node(node, attempt, observation) => {
                    let _ = self.driver.fold(&node, attempt, &observation, now);
                }
                Incoming::Look {
                    provider,
                    asked,
                    asked_at,
                    answer,
                } => {
                    let failed = answer.as_ref().err().cloned();
                    let findings = self.driver.inventory(&provider, asked, asked_at, answer, now);
                    let answer = failed.map_or(Ok(findings), Err);
                    self.sweeps.answered(&provider, Some(asked), &answer);
                }
            }
        }
    }

    pub(super) fn update(&mut self, shape: ClusterShape) -> Result<Accepted, UpdateError> {
        if !self.draining.is_empty() || self.stopping {
            return Err(UpdateError::Draining);
        }
        let accepted = self.driver.update_desired(shape, self.clock.now())?;
        self.unpublished = true;
        Ok(accepted)
    }

    /// Runs a pass, and tells everybody what came of it.
    pub(super) fn pass(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.pass_queued = false;
        if self.stopping {
            return;
        }
        self.fold_inbox();
        let span = tracing::info_span!(parent: None, "pass", run = %self.driver.state().run_id);
        let _entered = span.enter();
        let now = self.clock.now();
        self.expire(now);
        for look in self.driver.due_looks(now) {
            self.sweeps.asked(&look);
            let message = ExecutorMessage::Look(look.asked);
            if !self.children.tell(&look.provider, message) {
                let error = EffectError::ambiguous("there is no executor");
                self.look_lost(&look.provider, error);
            }
        }
        let Self { driver, children, .. } = self;
        let report = driver.drive(now, &mut Batches { children });
        self.unpublished |= report.passes > 0 || !report.touched.is_empty();
        self.tell(report, now);
        self.answer();
        self.publish(now);
        if self.is_drained() {
            self.stop(myself, "drained");
        } else {
            self.arm();
        }
    }

    /// A question will not be answered.
    pub(super) fn look_lost(&mut self, provider: &ProviderKind, error: EffectError) {
        self.driver.look_lost(provider, &error, self.clock.now());
        self.sweeps.answered(provider, None, &Err(error));
    }

    /// Adds somebody who waits for a sweep of all providers.
    pub(super) fn sweep(&mut self, port: Port<Swept>) {
        let providers = self.driver.sweep(self.clock.now());
        self.sweeps.wait_for(providers, port);
    }

    /// Has the operations classified whose deadline has come.
    fn expire(&mut self, now: Timestamp) {
        let mut due = Vec::new();
        self.driver.due_operations(now, &mut due);
        let mut by_provider: BTreeMap<ProviderKind, Vec<_>> = BTreeMap::new();
        for operation in due {
            by_provider
                .entry(operation.provider.clone())
                .or_default()
                .push(operation);
        }
        for (provider, due) in by_provider {
            self.children.tell(&provider, ExecutorMessage::Expire(due));
        }
    }

    /// Brings the view up to date and publishes the events.
    fn tell(&mut self, report: DriveReport, now: Timestamp) {
        for node in report.touched {
            if self.driver.knows(&node) {
                self.view.set(self.driver.node_glance(&node, now));
            } else {
                self.view.remove(&node);
            }
        }
        for event in report.events {
            self.publisher.publish(event);
        }
    }

    /// Answers those whose generation has converged.
    fn answer(&mut self) {
        // What a drain reaches is nobody's generation.
        if self.waiters.is_empty() || !self.draining.is_empty() || !self.driver.is_converged() {
            return;
        }
        let reached = self.driver.desired().generation();
        let waiters = std::mem::take(&mut self.waiters);
        let (reached, later) = waiters
            .into_iter()
            .partition(|(generation, _)| *generation <= reached);
        self.waiters = later;
        for (_, port) in reached as Vec<_> {
            reply(port, ());
        }
    }

    /// Publishes what changed of the state, but not too often: a publication copies it.
    fn publish(&mut self, now: Timestamp) {
        if !self.unpublished {
            return;
        }
        let due = self
            .published_at
            .checked_add(self.publish_every)
            .unwrap_or(Timestamp::MAX);
        if now < due {
            self.publish_at = Some(due);
            return;
        }
        self.publish_at = None;
        self.published_at = now;
        self.unpublished = false;
        self.published.send_replace(Arc::new(self.driver.state().clone()));
    }

    /// Has the timer wake us at the next moment, if that is another than it is armed for.
    pub(super) fn arm(&mut self) {
        let moments = [self.driver.requeue_at(), self.driver.sweep_at(), self.publish_at];
        let next = moments.into_iter().flatten().min();
        if next != self.armed {
            self.armed = next;
            let after = next.map(|at| self.clock.until(at));
            self.children.tell_timer(TimerMessage::Arm(after));
        }
    }

    /// Stops at once; whoever waits for a drain is told what is left, too.
    pub(super) fn detach(&mut self, myself: &ActorRef<SupervisorMessage>, port: Port<ClusterState>) {
        self.fold_inbox();
        self.draining.push(port);
        self.stop(myself, "detached");
    }

    /// Adds somebody who waits for a generation; those who gave up are forgotten.
    pub(super) fn wait_for(&mut self, generation: Generation, port: Port<()>) {
        self.waiters.retain(|(_, port)| !port.is_closed());
        self.waiters.push((generation, port));
    }

    /// Begins to take everything down.
    pub(super) fn drain(&mut self, port: Port<ClusterState>) {
        if self.draining.is_empty() {
            self.driver.drain(self.clock.now());
        }
        self.draining.push(port);
    }

    fn is_drained(&self) -> bool {
        !self.draining.is_empty() && self.driver.is_converged() && self.driver.holds_nothing()
    }

    /// Ends: the children go first, and whoever asked for it is answered once nothing is at work any more: a
    /// state that is taken back has to be all there is.
    ///
    /// A call that blocks its thread cannot be ended, and is waited for no longer than its grace.
    pub(super) fn stop(&mut self, myself: &ActorRef<SupervisorMessage>, reason: &str) {
        self.stopping = true;
        let state = Arc::new(self.driver.state().clone());
        self.published.send_replace(state.clone());
        // Our own state may lie in our parent's mailbox for long; whoever waits must not.
        self.waiters.clear();
        let ports = std::mem::take(&mut self.draining);
        let ended = tokio::time::timeout(self.grace, self.children.stop());
        tokio::spawn(async move {
            let _ = ended.await;
            for port in ports {
                reply(port, ClusterState::clone(&state));
            }
        });
        myself.stop(Some(reason.to_owned()));
    }
}

/// Hands the effects of a pass to the executors, in one message each.
struct Batches<'a> {
    children: &'a Children,
}

impl EffectSink for Batches<'_> {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        let mut batches: BTreeMap<ProviderKind, Vec<PlannedEffect>> = BTreeMap::new();
        for effect in effects {
            batches.entry(effect.provider.clone()).or_default().push(effect);
        }
        let mut refused = Vec::new();
        for (provider, batch) in batches {
            if let Err(batch) = self.children.submit(&provider, batch) {
                let reason: Arc<str> = "the executor is restarting".into();
                refused.extend(batch.into_iter().map(|effect| {
                    let (node, operation) = (effect.node, effect.operation);
                    Refused {
                        node,
                        operation,
                        reason: reason.clone(),
                    }
                }));
            }
        }
        refused
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        self.children.retire(attempt);
    }
}
