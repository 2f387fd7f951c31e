//! What may be wrong with a backend.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, LossSink,
    ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, NodeAttemptId, RunId};
use nodewright_core::template::LogicalNodeSpec;

/// Something that is wrong with a backend. Every call goes as it should but for those that are overridden.
pub trait Flaw: Send + Sync + 'static {
    /// Instead of [`EffectBackend::capabilities`].
    fn capabilities<B: EffectBackend>(inside: &Inside<B>) -> Capabilities {
        inside.honest.capabilities()
    }

    /// Instead of [`EffectBackend::create_lease`].
    fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> impl Future<Output = Result<CreatedLease, EffectError>> + Send {
        inside.honest.create_lease(call, spec)
    }

    /// Instead of [`EffectBackend::find_lease`].
    fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> impl Future<Output = Result<Option<CreatedLease>, EffectError>> + Send {
        inside.honest.find_lease(call)
    }

    /// Instead of [`EffectBackend::lookup_endpoint`].
    fn endpoint<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> impl Future<Output = Result<Option<Endpoint>, EffectError>> + Send {
        inside.honest.lookup_endpoint(call, lease)
    }

    /// Instead of [`EffectBackend::start_bootstrap`].
    fn start<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> impl Future<Output = Result<Session, EffectError>> + Send {
        inside.honest.start_bootstrap(call, spec, sink)
    }

    /// Instead of [`EffectBackend::observe_convergence`].
    fn observe<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        session: BootstrapSessionId,
    ) -> impl Future<Output = Result<(), EffectError>> + Send {
        inside.honest.observe_convergence(call, session)
    }

    /// Instead of [`EffectBackend::cancel_bootstrap`].
    fn cancel<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> impl Future<Output = Result<(), EffectError>> + Send {
        inside.honest.cancel_bootstrap(call)
    }

    /// Instead of [`EffectBackend::destroy_lease`].
    fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> impl Future<Output = Result<Destroyed, EffectError>> + Send {
        inside.honest.destroy_lease(call, lease)
    }

    /// Instead of [`EffectBackend::list_leases`].
    fn list<B: EffectBackend>(
        inside: &Inside<B>,
        run: &RunId,
    ) -> impl Future<Output = Result<Inventory, EffectError>> + Send {
        inside.honest.list_leases(run)
    }

    /// Instead of [`EffectBackend::watch`].
    fn watch<B: EffectBackend>(
        inside: &Inside<B>,
        run: &RunId,
        sink: LossSink,
    ) -> impl Future<Output = ()> + Send {
        inside.honest.watch(run, sink)
    }
}

/// What a flaw has to work with.
#[derive(Debug)]
pub struct Inside<B> {
    /// The backend that keeps its promises.
    pub honest: Arc<B>,
    /// What is remembered at the provider, whatever becomes of the process.
    pub provider: Arc<Notes>,
    /// What is remembered by the process, and ends with it.
    pub process: Notes,
}

/// What a flaw remembers.
#[derive(Default)]
pub struct Notes(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    counts: BTreeMap<String, u64>,
    late: Vec<Late>,
}

/// Work that goes on although nobody waits for it, and comes through after so many ticks.
struct Late {
    ticks: u32,
    work: BoxFuture<'static, ()>,
}

impl Notes {
    /// How often this was counted before; counts it.
    pub fn count(&self, what: impl fmt::Display) -> u64 {
        let mut noted = self.noted();
        let count = noted.counts.entry(what.to_string()).or_default();
        *count += 1;
        *count - 1
    }

    /// Whether this was ever counted.
    pub fn knows(&self, what: impl fmt::Display) -> bool {
        self.noted().counts.contains_key(&what.to_string())
    }

    /// Keeps work that is to come through at a later tick.
    pub fn later(&self, ticks: u32, work: BoxFuture<'static, ()>) {
        self.noted().late.push(Late { ticks, work });
    }

    /// A tick of what goes on by itself.
    pub async fn tick(&self) {
        let due: Vec<Late> = {
            let late = &mut self.noted().late;
            for late in late.iter_mut() {
                late.ticks = late.ticks.saturating_sub(1);
            }
            late.extract_if(.., |late| late.ticks == 0).collect()
        };
        for late in due {
            late.work.await;
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notes").field(&self.noted().counts).finish()
    }
}

/// What the attempts of disguises begin at, far beyond any of a trace.
const DISGUISED: u64 = 1_000_000_000;

/// The same call for a machine beside the attempt's own: an honest provider takes it for another attempt's,
/// and the kit is told that it is this one's.
pub(super) fn disguised(call: &Call, beside: u64) -> Call {
    let mut call = call.clone();
    let attempt = call.identity.attempt.number();
    call.identity.attempt = NodeAttemptId::new(attempt + beside * DISGUISED);
    call
}

/// Whose a machine really is.
pub(super) fn undisguised(mut identity: AttemptIdentity) -> AttemptIdentity {
    identity.attempt = NodeAttemptId::new(identity.attempt.number() % DISGUISED);
    identity
}
