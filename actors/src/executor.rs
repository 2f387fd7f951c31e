//! Executors: one per provider, making its calls, each in a task of its own.
//!
//! An executor decides nothing. Whether a submission may call the provider is the ledger's answer; when a
//! call has taken too long is the driver's.

mod calls;
mod desk;

use std::sync::Arc;

use nodewright_core::driver::DueOperation;
use nodewright_core::effect::{EffectBackend, PlannedEffect};
use nodewright_core::id::{LogicalNodeId, OperationId};
use nodewright_core::node::PassId;
use ractor::{ActorProcessingErr, ActorRef};

pub(crate) use self::calls::Calls;
pub(crate) use self::desk::{Desk, Patience, Place};

/// What an executor is told.
#[derive(Debug)]
pub(crate) enum ExecutorMessage {
    /// From the supervisor, first of all: take over from an incarnation before, whose operations these are
    /// as far as the driver waits for them. Work is taken once its calls have ended. If it is lost with the
    /// executor, the next incarnation is sent it again.
    Open(Vec<(LogicalNodeId, OperationId)>),
    /// From the executor to itself: the calls of the incarnation before have ended.
    Opened,
    /// From the supervisor: the effects of one pass; all are recorded as pending. What is lost with the
    /// executor is refused when the next one takes over.
    Submit(Vec<PlannedEffect>),
    /// From the supervisor: the deadlines of these have come; classify them.
    Expire(Vec<DueOperation>),
    /// From the supervisor: ask for the inventory of the run, as of this pass. If it is lost, the supervisor
    /// counts it as failed when the executor is restarted.
    Look(PassId),
}

#[cfg(feature = "cluster")]
impl ractor::Message for ExecutorMessage {}

/// The executor of a provider.
#[derive(Debug)]
pub(crate) struct ExecutorActor<B>(std::marker::PhantomData<fn() -> B>);

impl<B> ExecutorActor<B> {
    pub(crate) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

/// What an executor works with: the desk and the calls outlive it.
#[derive(Debug)]
pub(crate) struct ExecutorState<B: EffectBackend> {
    desk: Arc<Desk<B>>,
    calls: Arc<Calls>,
    open: bool,
}

impl<B: EffectBackend> ExecutorState<B> {
    pub(crate) fn new(desk: Arc<Desk<B>>, calls: Arc<Calls>) -> Self {
        Self {
            desk,
            calls,
            open: false,
        }
    }

    fn open(&mut self) {
        self.open = true;
        self.calls.watch(self.desk.clone().watch());
    }
}

#[ractor::actor(message = ExecutorMessage, state = ExecutorState<B>, arguments = ExecutorState<B>)]
impl<B: EffectBackend> ExecutorActor<B> {
    async fn pre_start(
        &self,
        _myself: ActorRef<ExecutorMessage>,
        arguments: ExecutorState<B>,
    ) -> Result<ExecutorState<B>, ActorProcessingErr> {
        Ok(arguments)
    }

    #[ractor::message(ExecutorMessage::Open(pending))]
    fn take_over(
        &self,
        myself: ActorRef<ExecutorMessage>,
        pending: Vec<(LogicalNodeId, OperationId)>,
        state: &mut ExecutorState<B>,
    ) {
        let ending = state.desk.take_over(pending);
        if ending.is_empty() {
            // At once: what is in the mailbox already may be the effects of the first pass.
            state.open();
            return;
        }
        state.calls.spawn(async move {
            for over in ending {
                over.cancelled().await;
            }
            let _ = myself.cast(ExecutorMessage::Opened);
        });
    }

    #[ractor::message(ExecutorMessage::Opened)]
    fn opened(&self, state: &mut ExecutorState<B>) {
        state.open();
    }

    #[ractor::message(ExecutorMessage::Submit(effects))]
    fn submit(&self, effects: Vec<PlannedEffect>, state: &mut ExecutorState<B>) {
        for effect in effects {
            if !state.open {
                state.desk.refuse(&effect, "the executor is restarting");
            } else if let Some(call) = state.desk.clone().submit(effect) {
                state.calls.spawn(call);
            }
        }
    }

    #[ractor::message(ExecutorMessage::Expire(due))]
    fn expire(&self, due: Vec<DueOperation>, state: &mut ExecutorState<B>) {
        due.iter().for_each(|due| state.desk.expire(due));
    }

    #[ractor::message(ExecutorMessage::Look(asked))]
    fn look(&self, asked: PassId, state: &mut ExecutorState<B>) {
        state.calls.spawn(state.desk.clone().look(asked));
    }
}
