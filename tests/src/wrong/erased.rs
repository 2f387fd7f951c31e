//! Providers without their type: a simulation is compiled once for all of them.

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, LossSink,
    ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;

use crate::subject::{Living, Pump, Subject};

/// A provider that stands for one of another type.
pub struct Erased(Box<dyn AnySubject>);

thread_local! {
    /// What a new provider on this thread stands for.
    static STANDS_FOR: Cell<Option<fn() -> Erased>> = const { Cell::new(None) };
}

impl Erased {
    /// Has every provider that this makes stand for one of this type.
    pub fn standing_for<S: Subject, R>(makes: impl FnOnce() -> R) -> R {
        let before = STANDS_FOR.replace(Some(|| Self(Box::new(S::new()))));
        let made = makes();
        STANDS_FOR.set(before);
        made
    }
}

impl Subject for Erased {
    type Backend = ErasedBackend;

    fn new() -> Self {
        let make = STANDS_FOR.get();
        make.expect("it is said what a provider stands for")()
    }

    fn open(&self) -> Arc<ErasedBackend> {
        Arc::new(ErasedBackend(self.0.open()))
    }

    fn living(&self) -> Vec<Living> {
        self.0.living()
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        self.0.kill(identity)
    }

    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        self.0.vanish(identity)
    }

    fn pump(&self) -> Pump {
        self.0.pump()
    }
}

/// A [`Subject`] without its type.
trait AnySubject {
    fn open(&self) -> Arc<dyn AnyBackend>;
    fn living(&self) -> Vec<Living>;
    fn kill(&self, identity: &AttemptIdentity) -> bool;
    fn vanish(&self, identity: &AttemptIdentity) -> bool;
    fn pump(&self) -> Pump;
    fn name(&self) -> &'static str;
}

impl<S: Subject> AnySubject for S {
    fn open(&self) -> Arc<dyn AnyBackend> {
        Subject::open(self)
    }

    fn living(&self) -> Vec<Living> {
        Subject::living(self)
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        Subject::kill(self, identity)
    }

    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        Subject::vanish(self, identity)
    }

    fn pump(&self) -> Pump {
        Subject::pump(self)
    }

    fn name(&self) -> &'static str {
        type_name::<S>()
    }
}

/// The backend of a provider that stands for another.
pub struct ErasedBackend(Arc<dyn AnyBackend>);

type Answer<'a, T> = BoxFuture<'a, Result<T, EffectError>>;

/// An [`EffectBackend`] without its type.
trait AnyBackend: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn create<'a>(&'a self, call: &'a Call, spec: &'a LogicalNodeSpec) -> Answer<'a, CreatedLease>;
    fn find<'a>(&'a self, call: &'a Call) -> Answer<'a, Option<CreatedLease>>;
    fn endpoint<'a>(&'a self, call: &'a Call, lease: &'a LeaseFacts) -> Answer<'a, Option<Endpoint>>;
    fn start<'a>(
        &'a self,
        call: &'a Call,
        spec: &'a BootstrapSpec,
        sink: ObservationSink,
    ) -> Answer<'a, Session>;
    fn observe<'a>(&'a self, call: &'a Call, session: BootstrapSessionId) -> Answer<'a, ()>;
    fn cancel<'a>(&'a self, call: &'a Call) -> Answer<'a, ()>;
    fn destroy<'a>(&'a self, call: &'a Call, lease: &'a LeaseFacts) -> Answer<'a, Destroyed>;
    fn list<'a>(&'a self, run: &'a RunId) -> Answer<'a, Inventory>;
    fn watch<'a>(&'a self, run: &'a RunId, sink: LossSink) -> BoxFuture<'a, ()>;
}

impl<B: EffectBackend> AnyBackend for B {
    fn capabilities(&self) -> Capabilities {
        EffectBackend::capabilities(self)
    }

    fn create<'a>(&'a self, call: &'a Call, spec: &'a LogicalNodeSpec) -> Answer<'a, CreatedLease> {
        self.create_lease(call, spec).boxed()
    }

    fn find<'a>(&'a self, call: &'a Call) -> Answer<'a, Option<CreatedLease>> {
        self.find_lease(call).boxed()
    }

    fn endpoint<'a>(&'a self, call: &'a Call, lease: &'a LeaseFacts) -> Answer<'a, Option<Endpoint>> {
        self.lookup_endpoint(call, lease).boxed()
    }

    fn start<'a>(
        &'a self,
        call: &'a Call,
        spec: &'a BootstrapSpec,
        sink: ObservationSink,
    ) -> Answer<'a, Session> {
        self.start_bootstrap(call, spec, sink).boxed()
    }

    fn observe<'a>(&'a self, call: &'a Call, session: BootstrapSessionId) -> Answer<'a, ()> {
        self.observe_convergence(call, session).boxed()
    }

    fn cancel<'a>(&'a self, call: &'a Call) -> Answer<'a, ()> {
        self.cancel_bootstrap(call).boxed()
    }

    fn destroy<'a>(&'a self, call: &'a Call, lease: &'a LeaseFacts) -> Answer<'a, Destroyed> {
        self.destroy_lease(call, lease).boxed()
    }

    fn list<'a>(&'a self, run: &'a RunId) -> Answer<'a, Inventory> {
        self.list_leases(run).boxed()
    }

    fn watch<'a>(&'a self, run: &'a RunId, sink: LossSink) -> BoxFuture<'a, ()> {
        EffectBackend::watch(self, run, sink).boxed()
    }
}

impl EffectBackend for ErasedBackend {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        self.0.create(call, spec).await
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        self.0.find(call).await
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        self.0.endpoint(call, lease).await
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        self.0.start(call, spec, sink).await
    }

    async fn observe_convergence(&self, call: &Call, session: BootstrapSessionId) -> Result<(), EffectError> {
        self.0.observe(call, session).await
    }

    async fn cancel_bootstrap(&self, call: &Call) -> Result<(), EffectError> {
        self.0.cancel(call).await
    }

    async fn destroy_lease(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        self.0.destroy(call, lease).await
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        self.0.list(run).await
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        self.0.watch(run, sink).await;
    }
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Erased({})", self.0.name())
    }
}

impl fmt::Debug for ErasedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErasedBackend")
    }
}
