//! The handle of a running cluster.

use std::sync::Arc;

use nodewright_core::driver::{Accepted, DriverError};
use nodewright_core::event::Event;
use nodewright_core::facts::AgentId;
use nodewright_core::id::{LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::observation::Observation;
use nodewright_core::shape::{ClusterShape, Generation};
use nodewright_core::state::ClusterState;
use nodewright_core::status::{NodeStatus, Summary};
use ractor::{Actor, ActorCell, ActorRef, ActorStatus, SpawnErr};
use tokio::sync::{broadcast, oneshot, watch};

use crate::config::Config;
use crate::events::{Events, subscribe_at};
use crate::inbox::{Inbox, Incoming};
use crate::supervisor::{
    ClusterSupervisor, Port, Shutdown, SupervisorMessage, SupervisorStart, Swept, UpdateError,
};
use crate::view::View;

/// The cluster has stopped: it was shut down, or its supervisor died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cluster has stopped")]
pub struct Stopped;

/// Why a cluster could not be started. Nothing was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// Shape, policy or resumed state are wrong.
    #[error(transparent)]
    Config(#[from] DriverError),
    /// The supervisor could not be spawned.
    #[error("cluster supervisor could not be spawned")]
    Actor(#[from] SpawnErr),
}

/// A running cluster. A clone speaks to the same one; dropping all handles leaves it running.
///
/// # Cancel safety
///
/// Dropping the future of a question drops the question's answer, never the question.
///
/// ```no_run
/// # async fn example(shape: nodewright::shape::ClusterShape, backend: impl nodewright::effect::EffectBackend)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use nodewright::{Cluster, Config, Shutdown};
///
/// let generation = shape.generation;
/// let cluster = Cluster::spawn(Config::new(shape).provider("cloud".parse()?, backend)).await?;
/// cluster.converged(generation).await?;
/// cluster.shutdown(Shutdown::Drain).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Cluster {
    supervisor: ActorRef<SupervisorMessage>,
    inbox: Arc<Inbox>,
    view: View,
    events: broadcast::WeakSender<Event>,
    published: watch::Receiver<Arc<ClusterState>>,
}

impl Cluster {
    /// Starts a cluster that nobody supervises.
    ///
    /// # Errors
    ///
    /// A shape, policy or resumed state that is wrong, with all that is wrong. Nothing was started then.
    pub async fn spawn(config: Config) -> Result<Self, SpawnError> {
        Self::start(config, None).await
    }

    /// Starts a cluster under a supervisor of the application's.
    ///
    /// If the cluster's supervisor dies, `supervisor` hears it; the machines live on, and a new cluster may
    /// resume from what was [published](Self::published) last, or find them by its first look.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub async fn spawn_linked(config: Config, supervisor: ActorCell) -> Result<Self, SpawnError> {
        Self::start(config, Some(supervisor)).await
    }

    async fn start(config: Config, parent: Option<ActorCell>) -> Result<Self, SpawnError> {
        let assembly = config.assemble()?;
        let inbox = Arc::new(Inbox::default());
        let view = View::default();
        let events = assembly.publisher.door();
        let (sender, published) = watch::channel(Arc::new(assembly.driver.state().clone()));
        let start = SupervisorStart {
            assembly,
            inbox: inbox.clone(),
            view: view.clone(),
            published: sender,
        };
        let (supervisor, _) = match parent {
            Some(parent) => Actor::spawn_linked(None, ClusterSupervisor, start, parent).await?,
            None => Actor::spawn(None, ClusterSupervisor, start).await?,
        };
        Ok(Self {
            supervisor,
            inbox,
            view,
            events,
            published,
        })
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Port<T>) -> SupervisorMessage,
    ) -> Result<T, Stopped> {
        let (sender, answer) = oneshot::channel();
        self.supervisor.cast(question(sender)).map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Offers the next revision of the shape. Resolves once it is accepted or refused, not once it is
    /// reached: see [`converged`](Self::converged).
    ///
    /// # Errors
    ///
    /// A shape that is wrong, of another run, older, or changed without a new generation; the accepted shape
    /// is untouched then. A cluster that is being drained takes none.
    pub async fn update(&self, shape: ClusterShape) -> Result<Accepted, UpdateError> {
        self.ask(|port| SupervisorMessage::Update(shape, port)).await?
    }

    /// Resolves when this or a later generation has converged.
    ///
    /// # Errors
    ///
    /// The cluster stopped first.
    pub async fn converged(&self, generation: Generation) -> Result<(), Stopped> {
        self.ask(|port| SupervisorMessage::Converged(generation, port))
            .await
    }

    /// The run in numbers.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub async fn status(&self) -> Result<Summary, Stopped> {
        self.ask(SupervisorMessage::Status).await
    }

    /// How a slot is now, and why; `None` for one that is neither wanted nor filled. Of one that waits for
    /// groups it names these, and what went wrong there, which the [`view`](Self::view) does not.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub async fn node(&self, node: &LogicalNodeId) -> Result<Option<NodeStatus>, Stopped> {
        self.ask(|port| SupervisorMessage::Node(node.clone(), port)).await
    }

    /// Reports something about an attempt of a slot. It is folded with whatever else is there; one that is
    /// stale changes nothing.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub fn observe(
        &self,
        node: LogicalNodeId,
        attempt: NodeAttemptId,
        observation: Observation,
    ) -> Result<(), Stopped> {
        if self.supervisor.get_status() >= ActorStatus::Stopping {
            return Err(Stopped);
        }
        self.inbox.push(Incoming::Node(node, attempt, observation));
        Ok(())
    }

    /// Reports that the node's agent joined the swarm.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub fn joined(&self, node: LogicalNodeId, attempt: NodeAttemptId, agent: AgentId) -> Result<(), Stopped> {
        self.observe(node, attempt, Observation::Joined(agent))
    }

    /// Takes a node over whose agent has joined: it is ready, and its session may end when it likes.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub fn handed_off(&self, node: LogicalNodeId, attempt: NodeAttemptId) -> Result<(), Stopped> {
        self.observe(node, attempt, Observation::HandedOff)
    }

    /// Reports that a node is lost: its attempt fails and is replaced.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub fn lost(
        &self,
        node: LogicalNodeId,
        attempt: NodeAttemptId,
        reason: impl Into<Arc<str>>,
    ) -> Result<(), Stopped> {
        self.observe(
            node,
            attempt,
            Observation::NodeLost {
                reason: reason.into(),
            },
        )
    }

    /// Lifts a slot's halt and forgets its backoffs. `false` if it is empty.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub async fn retry(&self, node: &LogicalNodeId) -> Result<bool, Stopped> {
        self.ask(|port| SupervisorMessage::Retry(node.clone(), port))
            .await
    }

    /// Has a slot's node replaced, without failure or backoff. `false` if it is empty.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub async fn replace(&self, node: &LogicalNodeId) -> Result<bool, Stopped> {
        self.ask(|port| SupervisorMessage::Replace(node.clone(), port))
            .await
    }

    /// Asks every provider that has an inventory for it, now and beside the policy's interval, and compares it with
    /// what is known. Resolves once each has answered a question that was asked after this; what follows from the
    /// answers has begun then and need not be over. What is missing, or owned by no node, is believed only once a
    /// second answer says so, half an interval later.
    ///
    /// Who keeps asking asks the provider that often.
    ///
    /// # Errors
    ///
    /// The cluster stopped first. That a provider failed to answer is told in its place.
    pub async fn sweep(&self) -> Result<Swept, Stopped> {
        self.ask(SupervisorMessage::Sweep).await
    }

    /// Says that the run is known to have nothing at a provider, so that its first look holds nothing back.
    ///
    /// # Errors
    ///
    /// The cluster has stopped.
    pub async fn declare_fresh(&self, provider: &ProviderKind) -> Result<(), Stopped> {
        self.ask(|port| SupervisorMessage::DeclareFresh(provider.clone(), port))
            .await
    }

    /// Subscribes to all events from now on.
    pub fn subscribe(&self) -> Events {
        subscribe_at(&self.events)
    }

    /// How every node is, readable without a message.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// The state as it was published last, at most one publication interval ago while it changes.
    pub fn published(&self) -> watch::Receiver<Arc<ClusterState>> {
        self.published.clone()
    }

    /// Ends the cluster; resolves with its last state once that is done. A detach ends a drain that is under
    /// way.
    ///
    /// # Errors
    ///
    /// The cluster had stopped already.
    pub async fn shutdown(&self, how: Shutdown) -> Result<ClusterState, Stopped> {
        self.ask(|port| SupervisorMessage::Shutdown(how, port)).await
    }
}
