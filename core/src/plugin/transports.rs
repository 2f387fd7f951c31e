//! How the ways into a plugin's machines are made.

use crate::bootstrap::Transport;
use crate::effect::BootstrapSpec;
use crate::id::AttemptIdentity;

/// Makes the ways into machines: one per session, to the machine of one attempt.
///
/// A function of an identity and a spec that returns a [`Transport`] is one.
pub trait Transports: Send + Sync + 'static {
    /// The ways that it makes.
    type Transport: Transport;

    /// Makes the way to this machine, by its lease and endpoint, without opening it: it is asked when a
    /// session is started, answers at once and touches nothing. What cannot be reached fails when it is
    /// opened.
    fn reach(&self, identity: &AttemptIdentity, spec: &BootstrapSpec) -> Self::Transport;
}

impl<F, T> Transports for F
where
    F: Fn(&AttemptIdentity, &BootstrapSpec) -> T + Send + Sync + 'static,
    T: Transport,
{
    type Transport = T;

    fn reach(&self, identity: &AttemptIdentity, spec: &BootstrapSpec) -> T {
        self(identity, spec)
    }
}
