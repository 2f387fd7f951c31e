//! The trait that a provider implements, and the doors through which it reports back.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BootstrapSpec, Call, Destroyed, EffectError};
use crate::bootstrap::{Session, StreamObservation};
use crate::facts::{CreatedLease, Endpoint, LeaseFacts};
use crate::id::{AttemptIdentity, BootstrapSessionId, LogicalNodeId, NodeAttemptId, RunId};
use crate::template::LogicalNodeSpec;

/// What a provider can do, as its backend states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Capabilities {
    /// How long after a create call has ended the resource may still be missing from look-ups and lists,
    /// including what a request may take to come through after its caller gave up.
    pub visibility: Duration,
    /// Whether `list_leases` works.
    pub inventory: bool,
    /// Whether `watch` works.
    pub watch: bool,
    /// Whether a call ends when it is cancelled or its task is dropped.
    pub abortable: bool,
}

/// One resource that an inventory lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// Whose it is, by its labels.
    pub identity: AttemptIdentity,
    /// The resource.
    pub lease: LeaseFacts,
    /// How to reach it, if the provider knows.
    pub endpoint: Option<Endpoint>,
    /// Whether it still lives. A dead resource that is still to be given back is listed as dead; one that was given
    /// back, and that a provider shows for a while longer, is not listed at all: it would be given back again and
    /// again.
    pub alive: bool,
}

/// All that a provider holds of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inventory {
    /// One entry per resource.
    pub entries: Vec<InventoryEntry>,
}

/// A stream observation, with the node that it speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamReport {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt whose machine is booted.
    pub attempt: NodeAttemptId,
    /// What was seen.
    pub observation: StreamObservation,
}

/// A machine that a backend saw die.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeLoss {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt whose machine it was.
    pub attempt: NodeAttemptId,
    /// What was seen, for people.
    pub reason: Arc<str>,
}

macro_rules! sinks {
    ($($(#[$doc:meta])* $name:ident($report:ty);)*) => {$(
        $(#[$doc])*
        ///
        /// A clone reports to the same place. Reporting never blocks and may be done from any thread.
        #[derive(Clone)]
        pub struct $name(Arc<dyn Fn($report) + Send + Sync>);

        impl $name {
            /// A sink that hands every report to this function.
            pub fn new(report: impl Fn($report) + Send + Sync + 'static) -> Self {
                Self(Arc::new(report))
            }

            /// Reports.
            pub fn report(&self, report: $report) {
                (self.0)(report);
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

sinks! {
    /// Where a bootstrap session reports what it sees.
    ObservationSink(StreamReport);
    /// Where a backend's watch reports machines that died.
    LossSink(NodeLoss);
}

/// A provider. One typed method per command: a reply of the wrong kind cannot be written.
///
/// # Guarantees that an implementation gives
///
/// - Every external request is keyed on the call's [`AttemptIdentity`], and the resource is stamped with it
///   and with the template's digest *in the call that creates*, not after it.
/// - `create_lease` and `start_bootstrap` look for an existing resource of that identity and adopt it
///   before they make one.
/// - `find_lease` also finds what a half-made create left; `destroy_lease` takes down exactly that lease and
///   what its half-made create left.
/// - `cancel_bootstrap` and `destroy_lease` treat "already gone" as success, `observe_convergence` a session
///   that is unknown or over.
/// - An error says honestly whether something may have happened ([`EffectError::ambiguous`]) or cannot have.
///
/// # Cancel safety
///
/// Where [`Capabilities::abortable`] is stated, dropping a call's future ends it, and what it had begun is
/// found again by identity.
pub trait EffectBackend: Send + Sync + 'static {
    /// What this provider can do. Plain data: the same answer every time.
    fn capabilities(&self) -> Capabilities;

    /// Rents a machine for this slot, or adopts the one that this attempt has.
    fn create_lease(
        &self,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> impl Future<Output = Result<CreatedLease, EffectError>> + Send;

    /// Looks for the machine of this attempt, whole or half-made. Never creates.
    fn find_lease(
        &self,
        call: &Call,
    ) -> impl Future<Output = Result<Option<CreatedLease>, EffectError>> + Send;

    /// Asks how to reach the machine; `None` while that is not known yet.
    fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> impl Future<Output = Result<Option<Endpoint>, EffectError>> + Send;

    /// Starts the session that boots the agent, or adopts the one that lives. The caller runs it.
    fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> impl Future<Output = Result<Session, EffectError>> + Send;

    /// Tells the session that its node has joined and it may end.
    fn observe_convergence(
        &self,
        call: &Call,
        session: BootstrapSessionId,
    ) -> impl Future<Output = Result<(), EffectError>> + Send;

    /// Ends whatever session this attempt has.
    fn cancel_bootstrap(&self, call: &Call) -> impl Future<Output = Result<(), EffectError>> + Send;

    /// Gives the machine back.
    fn destroy_lease(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> impl Future<Output = Result<Destroyed, EffectError>> + Send;

    /// Lists all that this provider holds of the run, half-made resources included.
    fn list_leases(&self, run: &RunId) -> impl Future<Output = Result<Inventory, EffectError>> + Send;

    /// Reports machines of the run that die, until it is dropped. By default it never reports.
    fn watch(&self, run: &RunId, sink: LossSink) -> impl Future<Output = ()> + Send {
        let _ = (run, sink);
        std::future::pending()
    }
}
