//! A provider whose backend has a flaw.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, LossSink,
    ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;

use super::flaw::{Flaw, Inside, Notes, undisguised};
use crate::subject::{Living, Pump, Subject};

/// A provider whose backend has a flaw.
pub struct Wrong<S, F> {
    subject: S,
    notes: Arc<Notes>,
    flaw: PhantomData<F>,
}

/// A backend with a flaw.
pub struct Flawed<B, F> {
    inside: Inside<B>,
    flaw: PhantomData<F>,
}

impl<S: Subject, F: Flaw> Subject for Wrong<S, F> {
    type Backend = Flawed<S::Backend, F>;

    fn new() -> Self {
        Self {
            subject: S::new(),
            notes: Arc::default(),
            flaw: PhantomData,
        }
    }

    fn open(&self) -> Arc<Self::Backend> {
        let inside = Inside {
            honest: self.subject.open(),
            provider: self.notes.clone(),
            process: Notes::default(),
        };
        Arc::new(Flawed {
            inside,
            flaw: PhantomData,
        })
    }

    fn living(&self) -> Vec<Living> {
        let living = self.subject.living().into_iter();
        let known = living.map(|one| Living {
            identity: undisguised(one.identity),
            name: one.name,
        });
        known.collect()
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        self.subject.kill(identity)
    }

    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        self.subject.vanish(identity)
    }

    fn pump(&self) -> Pump {
        self.subject.pump()
    }
}

impl<B: EffectBackend, F: Flaw> EffectBackend for Flawed<B, F> {
    fn capabilities(&self) -> Capabilities {
        F::capabilities(&self.inside)
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        F::create(&self.inside, call, spec).await
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        F::find(&self.inside, call).await
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        F::endpoint(&self.inside, call, lease).await
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        F::start(&self.inside, call, spec, sink).await
    }

    async fn observe_convergence(&self, call: &Call, session: BootstrapSessionId) -> Result<(), EffectError> {
        F::observe(&self.inside, call, session).await
    }

    async fn cancel_bootstrap(&self, call: &Call) -> Result<(), EffectError> {
        F::cancel(&self.inside, call).await
    }

    async fn destroy_lease(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        F::destroy(&self.inside, call, lease).await
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        F::list(&self.inside, run).await
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        F::watch(&self.inside, run, sink).await;
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Wrong<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wrong").field(&self.subject).finish()
    }
}

impl<B, F> fmt::Debug for Flawed<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flawed")
    }
}
