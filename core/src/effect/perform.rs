//! A command becomes the one call that it stands for, and what that answered becomes its outcome.

use super::{Call, Command, EffectBackend, ObservationSink, Outcome};
use crate::bootstrap::Session;

/// Makes the one call of a backend that a command stands for: all that an executor does with it.
///
/// A started session comes with the outcome, to be run by the caller; `sink` makes the place
/// where it reports.
///
/// # Cancel safety
///
/// As the backend's.
pub async fn perform<B: EffectBackend>(
    backend: &B,
    call: &Call,
    command: &Command,
    sink: impl FnOnce() -> ObservationSink + Send,
) -> (Outcome, Option<Session>) {
    let mut session = None;
    let answer = match command {
        Command::CreateLease(spec) => backend.create_lease(call, spec).await.map(Outcome::LeaseCreated),
        Command::FindLease => backend.find_lease(call).await.map(Outcome::LeaseFound),
        Command::LookupEndpoint(lease) => {
            let answer = backend.lookup_endpoint(call, lease).await;
            answer.map(Outcome::EndpointFound)
        }
        Command::StartBootstrap(spec) => backend.start_bootstrap(call, spec, sink()).await.map(|started| {
            let id = started.id;
            session = Some(started);
            Outcome::BootstrapStarted(id)
        }),
        Command::ObserveConvergence(session) => {
            let answer = backend.observe_convergence(call, *session).await;
            answer.map(|()| Outcome::ConvergenceAccepted)
        }
        Command::CancelBootstrap => {
            let answer = backend.cancel_bootstrap(call).await;
            answer.map(|()| Outcome::BootstrapCancelled)
        }
        Command::DestroyLease(lease) => {
            let answer = backend.destroy_lease(call, lease).await;
            answer.map(Outcome::LeaseDestroyed)
        }
    };
    (answer.unwrap_or_else(Outcome::Failed), session)
}
