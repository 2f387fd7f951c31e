//! The supervisor's children, and what follows when one of them dies.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use nodewright_core::effect::{EffectError, PlannedEffect};
use nodewright_core::id::{NodeAttemptId, ProviderKind};
use ractor::{Actor, ActorCell, ActorRef, MessagingErr, SpawnErr};

use super::SupervisorMessage;
use super::pass::Supervision;
use crate::config::Seat;
use crate::executor::ExecutorMessage;
use crate::streams::{BootstrapStreams, StreamsMessage};
use crate::timer::{TimerActor, TimerMessage};

/// The children of a supervisor. Which is which is known by actor id, never by name.
pub(crate) struct Children {
    timer: Option<ActorRef<TimerMessage>>,
    providers: BTreeMap<ProviderKind, ProviderChildren>,
}

struct ProviderChildren {
    seat: Box<dyn Seat>,
    executor: Option<ActorRef<ExecutorMessage>>,
    streams: Option<ActorRef<StreamsMessage>>,
}

impl Children {
    pub(super) fn new(seats: BTreeMap<ProviderKind, Box<dyn Seat>>) -> Self {
        let providers = seats.into_iter().map(|(kind, seat)| {
            (
                kind,
                ProviderChildren {
                    seat,
                    executor: None,
                    streams: None,
                },
            )
        });
        Self {
            timer: None,
            providers: providers.collect(),
        }
    }

    /// Sends a message to a provider's executor; `false` if there is none that would take it.
    pub(super) fn tell(&self, provider: &ProviderKind, message: ExecutorMessage) -> bool {
        let executor = self
            .providers
            .get(provider)
            .and_then(|children| children.executor.as_ref());
        executor.is_some_and(|executor| executor.cast(message).is_ok())
    }

    /// Hands a batch to a provider's executor, or back if there is none that would take it.
    pub(super) fn submit(
        &self,
        provider: &ProviderKind,
        batch: Vec<PlannedEffect>,
    ) -> Result<(), Vec<PlannedEffect>> {
        let executor = self
            .providers
            .get(provider)
            .and_then(|children| children.executor.as_ref());
        let Some(executor) = executor else {
            return Err(batch);
        };
        match executor.cast(ExecutorMessage::Submit(batch)) {
            Err(MessagingErr::SendErr(ExecutorMessage::Submit(batch))) => Err(batch),
            _ => Ok(()),
        }
    }

    pub(super) fn retire(&self, attempt: NodeAttemptId) {
        for children in self.providers.values() {
            children.seat.retire(attempt);
        }
    }

    pub(super) fn tell_timer(&self, message: TimerMessage) {
        if let Some(timer) = &self.timer {
            // A timer that is gone is armed when its next incarnation is spawned.
            let _ = timer.cast(message);
        }
    }

    /// Stops them all, leaves first. Resolves once nothing of theirs is at work any more, for which it need
    /// not be waited here.
    pub(super) fn stop(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = Vec::new();
        let mut seats = Vec::new();
        for (_, children) in std::mem::take(&mut self.providers) {
            if let Some(streams) = children.streams {
                streams.stop(None);
                stopping.push(streams.get_cell());
            }
            if let Some(executor) = children.executor {
                executor.stop(None);
                stopping.push(executor.get_cell());
            }
            seats.push(children.seat);
        }
        if let Some(timer) = self.timer.take() {
            timer.stop(None);
        }
        async move {
            for child in stopping {
                // It waits no longer than for the handler that runs just now; none of them waits for anything.
                let _ = child.wait(None).await;
            }
            join_all(seats.into_iter().map(Seat::close)).await;
        }
    }
}

impl Supervision {
    /// Spawns every child that is not there.
    pub(super) async fn spawn_children(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if self.children.timer.is_none() {
            let spawned = Actor::spawn_linked(None, TimerActor, myself.clone(), myself.get_cell()).await;
            self.children.timer = started("timer", spawned.map(|(timer, _)| timer));
            self.armed = None;
            self.arm();
        }
        let kinds: Vec<ProviderKind> = self.children.providers.keys().cloned().collect();
        for kind in kinds {
            let children = self.children.providers.get_mut(&kind).expect("it was listed");
            if children.streams.is_none() {
                let spawned = Actor::spawn_linked(None, BootstrapStreams, (), myself.get_cell()).await;
                children.streams = started("streams", spawned.map(|(streams, _)| streams));
                if let Some(streams) = &children.streams {
                    children.seat.hand_sessions_to(streams.clone());
                }
            }
            if children.executor.is_none() {
                let spawned = children.seat.spawn(myself.get_cell()).await;
                children.executor = started("executor", spawned);
                let pending = self.driver.pending_at(&kind);
                self.children.tell(&kind, ExecutorMessage::Open(pending));
            }
        }
    }

    /// A child has died: its place is filled again. What it had in hand is known from the driver and from
    /// the ledger that outlives it.
    pub(super) async fn child_died(&mut self, myself: &ActorRef<SupervisorMessage>, child: &ActorCell) {
        let id = child.get_id();
        let children = &mut self.children;
        children.timer.take_if(|timer| timer.get_id() == id);
        let mut executors_lost = Vec::new();
        for (kind, provider) in &mut children.providers {
            provider.streams.take_if(|streams| streams.get_id() == id);
            if provider
                .executor
                .take_if(|executor| executor.get_id() == id)
                .is_some()
            {
                executors_lost.push(kind.clone());
            }
        }
        for kind in executors_lost {
            tracing::error!(provider = %kind, "executor died, a new one takes over");
            self.look_lost(&kind, EffectError::ambiguous("the executor died"));
        }
        self.spawn_children(myself).await;
    }
}

fn started<M>(what: &'static str, spawned: Result<ActorRef<M>, SpawnErr>) -> Option<ActorRef<M>> {
    match spawned {
        Ok(child) => Some(child),
        Err(error) => {
            tracing::error!(child = what, %error, "child could not be spawned");
            None
        }
    }
}
