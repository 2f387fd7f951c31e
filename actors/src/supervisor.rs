//! The supervisor: owns the driver, and is the only one that writes.
//!
//! An actor is glue: it receives, translates, calls the driver and sends. What is policy is in core.

mod children;
mod pass;
mod sweeps;

use jiff::Timestamp;
use nodewright_core::driver::{Accepted, DriverError};
use nodewright_core::id::{LogicalNodeId, ProviderKind};
use nodewright_core::shape::{ClusterShape, Generation};
use nodewright_core::state::ClusterState;
use nodewright_core::status::{NodeStatus, Summary};
use ractor::{ActorProcessingErr, ActorRef, SupervisionEvent};

pub(crate) use self::pass::{Supervision, SupervisorStart};
pub use self::sweeps::Swept;

/// Where an answer is sent. Whoever asked sees it dropped if the supervisor dies first.
pub(crate) type Port<T> = tokio::sync::oneshot::Sender<T>;

/// How a cluster ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// Everything is taken down, groups that depend on others before those; it is over when nothing is left at
    /// any provider. A node that cannot be destroyed holds what its group depends on:
    /// [`Cluster::node`](crate::Cluster::node) of a node that waits names it.
    Drain,
    /// At once; machines stay. The state that is handed back can be resumed.
    Detach,
}

/// Why a shape was not taken.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The driver refused it; the accepted shape is untouched.
    #[error(transparent)]
    Refused(#[from] DriverError),
    /// The cluster is being drained: it takes no shape any more.
    #[error("cluster is being drained: start another one for a new shape")]
    Draining,
    /// The cluster has stopped.
    #[error(transparent)]
    Stopped(#[from] crate::cluster::Stopped),
}

/// What the supervisor is told. Questions come from the [`Cluster`](crate::Cluster) handle; one that is lost
/// with the supervisor is answered by its dropped port.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From the supervisor to itself, first of all: spawn the children.
    Start,
    /// From the inbox: it turned from empty to filled.
    Wake,
    /// From the supervisor to itself: run a pass. All that was in the mailbox before it is folded by then.
    Pass,
    /// From the timer: a moment has come. The timer's next incarnation is armed anew if it is lost.
    Due,
    /// Take this shape.
    Update(ClusterShape, Port<Result<Accepted, UpdateError>>),
    /// Answer once this or a later generation has converged.
    Converged(Generation, Port<()>),
    /// How is the run?
    Status(Port<Summary>),
    /// How is this slot?
    Node(LogicalNodeId, Port<Option<NodeStatus>>),
    /// Try this slot again.
    Retry(LogicalNodeId, Port<bool>),
    /// Replace this slot's node.
    Replace(LogicalNodeId, Port<bool>),
    /// Ask every provider for its inventory, and answer once each has answered.
    Sweep(Port<Swept>),
    /// The run is known to have nothing at this provider.
    DeclareFresh(ProviderKind, Port<()>),
    /// End.
    Shutdown(Shutdown, Port<ClusterState>),
}

#[cfg(feature = "cluster")]
impl ractor::Message for SupervisorMessage {}

/// The supervisor's actor.
#[derive(Debug)]
pub(crate) struct ClusterSupervisor;

#[ractor::actor(message = SupervisorMessage, state = Supervision, arguments = SupervisorStart)]
impl ClusterSupervisor {
    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        start: SupervisorStart,
    ) -> Result<Supervision, ActorProcessingErr> {
        start.inbox.belongs_to(myself.clone());
        myself.cast(SupervisorMessage::Start)?;
        Ok(Supervision::new(start))
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut Supervision,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(child, _, _) | SupervisionEvent::ActorFailed(child, _) => {
                state.child_died(&myself, &child).await;
                state.queue_pass(&myself);
            }
            _ => {}
        }
        Ok(())
    }

    #[ractor::message(SupervisorMessage::Start)]
    async fn start(&self, myself: ActorRef<SupervisorMessage>, state: &mut Supervision) {
        state.spawn_children(&myself).await;
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Wake)]
    fn wake(&self, myself: ActorRef<SupervisorMessage>, state: &mut Supervision) {
        state.fold_inbox();
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Pass)]
    fn pass(&self, myself: ActorRef<SupervisorMessage>, state: &mut Supervision) {
        state.pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Due)]
    fn due(&self, myself: ActorRef<SupervisorMessage>, state: &mut Supervision) {
        state.armed = None;
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Update(shape, port))]
    fn update(
        &self,
        myself: ActorRef<SupervisorMessage>,
        shape: ClusterShape,
        port: Port<Result<Accepted, UpdateError>>,
        state: &mut Supervision,
    ) {
        let answer = state.update(shape);
        state.queue_pass(&myself);
        reply(port, answer);
    }

    #[ractor::message(SupervisorMessage::Converged(generation, port))]
    fn converged(
        &self,
        myself: ActorRef<SupervisorMessage>,
        generation: Generation,
        port: Port<()>,
        state: &mut Supervision,
    ) {
        state.wait_for(generation, port);
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Status(port))]
    fn status(&self, port: Port<Summary>, state: &mut Supervision) {
        reply(port, state.driver.summary());
    }

    #[ractor::message(SupervisorMessage::Node(id, port))]
    fn node(&self, id: LogicalNodeId, port: Port<Option<NodeStatus>>, state: &mut Supervision) {
        let now: Timestamp = state.clock.now();
        let known = state.driver.knows(&id);
        reply(port, known.then(|| state.driver.node_status(&id, now)));
    }

    #[ractor::message(SupervisorMessage::Retry(id, port))]
    fn retry(
        &self,
        myself: ActorRef<SupervisorMessage>,
        id: LogicalNodeId,
        port: Port<bool>,
        state: &mut Supervision,
    ) {
        reply(port, state.driver.retry(&id));
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Replace(id, port))]
    fn replace(
        &self,
        myself: ActorRef<SupervisorMessage>,
        id: LogicalNodeId,
        port: Port<bool>,
        state: &mut Supervision,
    ) {
        reply(port, state.driver.replace(&id));
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Sweep(port))]
    fn sweep(&self, myself: ActorRef<SupervisorMessage>, port: Port<Swept>, state: &mut Supervision) {
        state.sweep(port);
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::DeclareFresh(provider, port))]
    fn declare_fresh(
        &self,
        myself: ActorRef<SupervisorMessage>,
        provider: ProviderKind,
        port: Port<()>,
        state: &mut Supervision,
    ) {
        state.driver.declare_fresh(&provider);
        reply(port, ());
        state.queue_pass(&myself);
    }

    #[ractor::message(SupervisorMessage::Shutdown(how, port))]
    fn shutdown(
        &self,
        myself: ActorRef<SupervisorMessage>,
        how: Shutdown,
        port: Port<ClusterState>,
        state: &mut Supervision,
    ) {
        match how {
            Shutdown::Drain => state.drain(port),
            Shutdown::Detach => state.detach(&myself, port),
        }
        state.queue_pass(&myself);
    }
}

/// Answers a question. Whoever asked may have gone.
fn reply<T>(port: Port<T>, answer: T) {
    let _ = port.send(answer);
}
