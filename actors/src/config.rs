//! What a cluster is made of: a shape, a policy, and providers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use nodewright_core::driver::{ClusterDriver, DriverError, ProviderSetup};
use nodewright_core::effect::{Capabilities, EffectBackend};
use nodewright_core::id::{NodeAttemptId, ProviderKind, RunId};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::ClusterShape;
use nodewright_core::state::ClusterState;
use ractor::{Actor, ActorCell, ActorRef, SpawnErr};

use crate::clock::Clock;
use crate::events::{Events, Publisher, subscribe_at};
use crate::executor::{Calls, Desk, ExecutorActor, ExecutorMessage, ExecutorState, Patience, Place};
use crate::inbox::Inbox;
use crate::streams::StreamsMessage;

/// What a cluster is made of.
///
/// Every provider that the shape names is to be registered. A provider without an inventory needs a run id
/// that was never used before: what an earlier run of that id left there cannot be found.
#[must_use]
pub struct Config {
    shape: ClusterShape,
    policy: Policy,
    providers: BTreeMap<ProviderKind, Registered>,
    all_fresh: bool,
    resumed: Option<ClusterState>,
    clock: Option<Clock>,
    publish_every: Duration,
    publisher: Publisher,
}

struct Registered {
    provider: Box<dyn Provider>,
    pace: PaceConfig,
    fresh: bool,
}

impl Config {
    /// How often a changed state is published at most, unless it is said otherwise.
    pub const PUBLISH_EVERY: Duration = Duration::from_secs(1);

    /// A cluster of this shape, with the default policy and no provider.
    pub fn new(shape: ClusterShape) -> Self {
        Self {
            shape,
            policy: Policy::default(),
            providers: BTreeMap::new(),
            all_fresh: false,
            resumed: None,
            clock: None,
            publish_every: Self::PUBLISH_EVERY,
            publisher: Publisher::new(),
        }
    }

    /// How patient it is.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Registers a provider under the name by which shapes know it.
    pub fn provider(self, kind: ProviderKind, backend: impl EffectBackend) -> Self {
        self.provider_at(kind, backend, PaceConfig::default())
    }

    /// Registers a provider, with what nodewright may ask of it at once.
    pub fn provider_at(mut self, kind: ProviderKind, backend: impl EffectBackend, pace: PaceConfig) -> Self {
        let provider = Box::new(Backend(Arc::new(backend)));
        self.providers.insert(
            kind,
            Registered {
                provider,
                pace,
                fresh: false,
            },
        );
        self
    }

    /// Says that the run is new everywhere: no first look is taken. Say it only of a run id that was never
    /// used, or machines of an earlier run stay unseen.
    pub fn fresh(mut self) -> Self {
        self.all_fresh = true;
        self
    }

    /// Says that the run is new at one provider.
    pub fn fresh_at(mut self, kind: &ProviderKind) -> Self {
        if let Some(registered) = self.providers.get_mut(kind) {
            registered.fresh = true;
        }
        self
    }

    /// Takes back the state that a detached cluster handed over: what of it still lives is kept.
    pub fn resume(mut self, state: ClusterState) -> Self {
        self.resumed = Some(state);
        self
    }

    /// The clock to go by; the system's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How often a changed state is published at most. A publication copies the state: O(nodes).
    pub fn publish_every(mut self, interval: Duration) -> Self {
        self.publish_every = interval;
        self
    }

    /// Subscribes to all events of the cluster that this will become, from its very first on.
    pub fn subscribe(&self) -> Events {
        subscribe_at(&self.publisher.door())
    }

    /// Checks everything and puts the driver together; nothing is started.
    pub(crate) fn assemble(self) -> Result<Assembly, DriverError> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        let run = self.shape.run_id.clone();
        let patience = Patience {
            look: self.policy.operation_timeout,
            rewatch: self.policy.max_delay,
            abort_grace: self.policy.abort_grace,
        };
        let setups = self.providers.iter().map(|(kind, registered)| {
            let capabilities = registered.provider.capabilities();
            let fresh = self.all_fresh || registered.fresh;
            (
                kind.clone(),
                ProviderSetup {
                    capabilities,
                    pace: registered.pace,
                    fresh,
                },
            )
        });
        let setups = setups.collect();
        let driver = match self.resumed {
            None => ClusterDriver::new(self.shape, self.policy, setups)?,
            Some(state) => ClusterDriver::restore(state, self.shape, self.policy, setups, clock.now())?,
        };
        let providers = self
            .providers
            .into_iter()
            .map(|(kind, registered)| (kind, registered.provider));
        Ok(Assembly {
            driver,
            clock,
            run,
            patience,
            providers: providers.collect(),
            publish_every: self.publish_every,
            publisher: self.publisher,
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("shape", &self.shape)
            .field("policy", &self.policy)
            .field("providers", &self.providers.keys())
            .finish_non_exhaustive()
    }
}

/// A checked configuration.
pub(crate) struct Assembly {
    pub(crate) driver: ClusterDriver,
    pub(crate) clock: Clock,
    pub(crate) run: RunId,
    pub(crate) patience: Patience,
    providers: BTreeMap<ProviderKind, Box<dyn Provider>>,
    pub(crate) publish_every: Duration,
    pub(crate) publisher: Publisher,
}

impl Assembly {
    /// A seat for the executor of every provider.
    pub(crate) fn seats(&self, inbox: &Arc<Inbox>) -> BTreeMap<ProviderKind, Box<dyn Seat>> {
        let seats = self.providers.iter().map(|(kind, provider)| {
            let seat = provider.seat(Place {
                kind: kind.clone(),
                run: self.run.clone(),
                clock: self.clock,
                patience: self.patience,
                inbox: inbox.clone(),
            });
            (kind.clone(), seat)
        });
        seats.collect()
    }
}

/// A backend whose type is forgotten.
trait Provider: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn seat(&self, place: Place) -> Box<dyn Seat>;
}

struct Backend<B>(Arc<B>);

impl<B: EffectBackend> Provider for Backend<B> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn seat(&self, place: Place) -> Box<dyn Seat> {
        Box::new(DeskSeat {
            desk: Arc::new(Desk::new(self.0.clone(), place)),
            calls: Arc::default(),
        })
    }
}

/// What of a provider's executor outlives its incarnations.
pub(crate) trait Seat: Send + Sync {
    /// Spawns the next incarnation.
    fn spawn(&self, supervisor: ActorCell) -> BoxFuture<'_, Result<ActorRef<ExecutorMessage>, SpawnErr>>;

    /// Tells whom sessions are handed to from now on.
    fn hand_sessions_to(&self, streams: ActorRef<StreamsMessage>);

    /// Says that nothing will be asked for an attempt any more. Not by a message: one that was lost with an
    /// incarnation would leave its entry behind for ever.
    fn retire(&self, attempt: NodeAttemptId);

    /// Aborts all calls, and resolves once each has ended.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

struct DeskSeat<B> {
    desk: Arc<Desk<B>>,
    calls: Arc<Calls>,
}

impl<B: EffectBackend> Seat for DeskSeat<B> {
    fn spawn(&self, supervisor: ActorCell) -> BoxFuture<'_, Result<ActorRef<ExecutorMessage>, SpawnErr>> {
        Box::pin(async move {
            let state = ExecutorState::new(self.desk.clone(), self.calls.clone());
            let (executor, _) =
                Actor::spawn_linked(None, ExecutorActor::<B>::new(), state, supervisor).await?;
            Ok(executor)
        })
    }

    fn hand_sessions_to(&self, streams: ActorRef<StreamsMessage>) {
        self.desk.hand_sessions_to(streams);
    }

    fn retire(&self, attempt: NodeAttemptId) {
        self.desk.retire(attempt);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.calls.close().await })
    }
}
