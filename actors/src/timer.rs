//! The timer: one sleep for the next moment at which the driver may have something to do.

use std::time::Duration;

use ractor::{ActorProcessingErr, ActorRef};

use crate::supervisor::SupervisorMessage;

/// What the timer is told.
#[derive(Debug)]
pub(crate) enum TimerMessage {
    /// From the supervisor: wake me after this long, and not for what was armed before; `None` disarms. If it
    /// is lost with the timer, the next incarnation is armed anew from the driver's stored moments.
    Arm(Option<Duration>),
    /// From the timer to itself: the sleep of this token is over. A token that is not the latest is ignored.
    Over(u64),
}

#[cfg(feature = "cluster")]
impl ractor::Message for TimerMessage {}

#[derive(Debug)]
pub(crate) struct TimerActor;

#[derive(Debug)]
pub(crate) struct TimerState {
    supervisor: ActorRef<SupervisorMessage>,
    token: u64,
    sleep: Option<tokio::task::JoinHandle<()>>,
}

impl TimerState {
    fn disarm(&mut self) {
        self.token += 1;
        if let Some(sleep) = self.sleep.take() {
            sleep.abort();
        }
    }
}

impl Drop for TimerState {
    fn drop(&mut self) {
        self.disarm();
    }
}

#[ractor::actor(message = TimerMessage, state = TimerState, arguments = ActorRef<SupervisorMessage>)]
impl TimerActor {
    async fn pre_start(
        &self,
        _myself: ActorRef<TimerMessage>,
        supervisor: ActorRef<SupervisorMessage>,
    ) -> Result<TimerState, ActorProcessingErr> {
        Ok(TimerState {
            supervisor,
            token: 0,
            sleep: None,
        })
    }

    #[ractor::message(TimerMessage::Arm(after))]
    fn arm(&self, myself: ActorRef<TimerMessage>, after: Option<Duration>, state: &mut TimerState) {
        state.disarm();
        if let Some(after) = after {
            let token = state.token;
            state.sleep = Some(tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let _ = myself.cast(TimerMessage::Over(token));
            }));
        }
    }

    #[ractor::message(TimerMessage::Over(token))]
    fn over(&self, token: u64, state: &mut TimerState) {
        if token == state.token {
            state.sleep = None;
            let _ = state.supervisor.cast(SupervisorMessage::Due);
        }
    }
}
