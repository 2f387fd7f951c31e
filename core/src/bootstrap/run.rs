//! Drives the machine over a transport, without a runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::{Bootstrap, BootstrapInput, StreamObservation, Transport, TransportCommand};
use crate::effect::Cancel;

/// Drives a session to its end: does what the machine wants, and reports what it sees, in order.
///
/// `cancel` ends it at once; `may_end` says that the node has joined and the session may end. When both and
/// an answer of the transport are there at the same time, the cancel is taken first, then `may_end`.
///
/// # Guarantees
///
/// Exactly one terminal observation, the last one; then the transport is closed, within its limit. Only
/// cancelling drops a call of the transport other than [`Transport::next`] before it has answered.
///
/// # Cancel safety
///
/// Dropping it drops the transport and ends the session without a terminal observation.
pub async fn run_session<T: Transport>(
    mut bootstrap: Bootstrap,
    mut transport: T,
    cancel: Cancel,
    may_end: Cancel,
    mut report: impl FnMut(StreamObservation),
) {
    let mut cancelled = pin!(cancel.cancelled());
    let mut allowed = pin!(may_end.cancelled());
    let mut told = false;
    bootstrap.begin().into_iter().for_each(&mut report);
    while let Some(wanted) = bootstrap.wants() {
        let mut call = pin!(perform(&mut transport, &wanted));
        // The same call is waited for until it answers or the machine wants something else.
        while bootstrap.wants().as_ref() == Some(&wanted) {
            let input = poll_fn(|context| {
                if !bootstrap.is_over() {
                    if cancelled.as_mut().poll(context).is_ready() {
                        return Poll::Ready(BootstrapInput::Cancelled);
                    }
                    if !told && allowed.as_mut().poll(context).is_ready() {
                        return Poll::Ready(BootstrapInput::MayEnd);
                    }
                }
                call.as_mut().poll(context)
            })
            .await;
            told |= input == BootstrapInput::MayEnd;
            let answered = !matches!(input, BootstrapInput::MayEnd | BootstrapInput::Cancelled);
            bootstrap.handle(input).into_iter().for_each(&mut report);
            if answered {
                break;
            }
        }
    }
}

/// Does what the machine wants and says how it went.
async fn perform<T: Transport>(transport: &mut T, wanted: &TransportCommand) -> BootstrapInput {
    match wanted {
        TransportCommand::Open(limit) => BootstrapInput::Opened(transport.open(*limit).await),
        TransportCommand::Run(job, limit) => BootstrapInput::JobEnded(transport.run(job, *limit).await),
        TransportCommand::Start(job, limit) => BootstrapInput::Started(transport.start(job, *limit).await),
        TransportCommand::Next => BootstrapInput::Happened(transport.next().await),
        TransportCommand::Close(limit) => {
            transport.close(*limit).await;
            BootstrapInput::LetGo
        }
    }
}

#[cfg(test)]
mod tests;
