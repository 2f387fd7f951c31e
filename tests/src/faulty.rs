//! A wrapper round any backend, in which calls go wrong as they are told to.
//!
//! [`Faulty`] does what a bad day does to a provider: it loses answers, delays, hangs, panics, throttles, and
//! shows what it made only a while later. What it makes of the calls that reach it is kept in a [`Control`],
//! which outlives the process that has the backend: the same provider meets the next one.
//!
//! It stays within what a backend promises (an error never says that nothing happened where something did,
//! and nothing is hidden for longer than the stated visibility). Backends that break their promises are in
//! [`wrong`](crate::wrong).
//!
//! On the way it watches its caller: at most one call of an attempt is ever at work (G9), and whatever is
//! asked was recorded before (G8).

mod control;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, CommandKind, Destroyed, EffectBackend, EffectError, Inventory,
    LossSink, ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright_core::id::{BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;

pub use self::control::{Control, Stated, Time};
use crate::trace::{Failing, Listing, Reply};

/// How long a call that cannot be ended still takes after it was told to: longer than the usual grace.
const LINGERS: Duration = Duration::from_secs(7);

/// A backend whose calls go as its [`Control`] says. A clone shares both.
#[derive(Debug)]
pub struct Faulty<B> {
    inner: Arc<B>,
    control: Control,
}

impl<B> Clone for Faulty<B> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            control: self.control.clone(),
        }
    }
}

impl<B: EffectBackend> Faulty<B> {
    /// Wraps a backend. The control may have been that of an earlier one for the same provider, in a process that
    /// has ended.
    pub fn new(inner: Arc<B>, control: Control) -> Self {
        control.forget_operations();
        Self { inner, control }
    }

    /// The backend inside.
    pub const fn inner(&self) -> &Arc<B> {
        &self.inner
    }

    /// What its calls go by.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Has a create come through after so many quarters of the visibility, although nobody waits for it.
    pub fn strand(&self, call: &Call, spec: &LogicalNodeSpec, quarters: u8) {
        let (inner, call, spec) = (self.inner.clone(), call.clone(), spec.clone());
        let work = async move { drop(inner.create_lease(&call, &spec).await) };
        self.control.come_later(quarters, work.boxed());
    }

    async fn play<T: Send>(
        &self,
        reply: Reply,
        call: &Call,
        honest: impl Future<Output = Result<T, EffectError>> + Send,
    ) -> Result<T, EffectError> {
        self.control.pass_gate(call, true).await;
        let answer = self.go(reply, call, honest).await;
        self.control.pass_gate(call, false).await;
        answer
    }

    async fn go<T: Send>(
        &self,
        reply: Reply,
        call: &Call,
        honest: impl Future<Output = Result<T, EffectError>> + Send,
    ) -> Result<T, EffectError> {
        match reply {
            Reply::Honest | Reply::NotYet => honest.await,
            Reply::Before(failing) => Err(failing.error()),
            Reply::Lost | Reply::Later(_) => {
                let _ = honest.await;
                Err(EffectError::ambiguous("the answer was lost"))
            }
            Reply::Late(seconds) => {
                let answer = honest.await;
                self.control
                    .hold(call, self.control.sleep(Duration::from_secs(seconds.into())))
                    .await;
                answer
            }
            Reply::Slow => {
                let answer = honest.await;
                self.control.hold(call, call.cancel.cancelled()).await;
                answer
            }
            Reply::Hang if self.control.stated().abortable => {
                self.control.hold(call, std::future::pending()).await;
                Err(EffectError::ambiguous("it was never answered"))
            }
            Reply::Hang => {
                let lingers = async {
                    call.cancel.cancelled().await;
                    self.control.sleep(LINGERS).await;
                };
                self.control.hold(call, lingers).await;
                Err(EffectError::ambiguous("it was never answered"))
            }
            Reply::PanicBefore => panics(),
            Reply::PanicAfter => {
                let _ = honest.await;
                panics()
            }
        }
    }
}

/// Panics without a word on the terminal.
fn panics() -> ! {
    std::panic::resume_unwind(Box::new("as scripted"))
}

impl Failing {
    /// The error of a call that fails so.
    pub fn error(self) -> EffectError {
        match self {
            Self::Definite => EffectError::definite("it said no"),
            Self::Ambiguous => EffectError::ambiguous("the wire was cut"),
            Self::Throttled(seconds) => {
                let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                EffectError::throttled("slow down", retry_after)
            }
            Self::Fatal => EffectError::fatal("never"),
        }
    }
}

impl<B: EffectBackend> EffectBackend for Faulty<B> {
    fn capabilities(&self) -> Capabilities {
        let Stated {
            visibility,
            abortable,
            ..
        } = self.control.stated();
        let inner = self.inner.capabilities();
        Capabilities {
            visibility: visibility.max(inner.visibility),
            abortable: abortable && inner.abortable,
            ..inner
        }
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::CreateLease);
        if let Reply::Later(quarters) = reply {
            self.strand(call, spec, quarters);
            return Err(EffectError::ambiguous("the answer was lost"));
        }
        let created = self
            .play(reply, call, self.inner.create_lease(call, spec))
            .await?;
        let endpoint = created.endpoint.filter(|_| reply != Reply::NotYet);
        Ok(CreatedLease {
            lease: created.lease,
            endpoint,
        })
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::FindLease);
        let found = self.play(reply, call, self.inner.find_lease(call)).await?;
        Ok(found.filter(|_| self.control.shows(&call.identity)))
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::LookupEndpoint);
        let found = self
            .play(reply, call, self.inner.lookup_endpoint(call, lease))
            .await?;
        Ok(found.filter(|_| reply != Reply::NotYet))
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::StartBootstrap);
        let started = self.inner.start_bootstrap(call, spec, sink);
        self.play(reply, call, started).await
    }

    async fn observe_convergence(&self, call: &Call, session: BootstrapSessionId) -> Result<(), EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::ObserveConvergence);
        let observed = self.inner.observe_convergence(call, session);
        self.play(reply, call, observed).await
    }

    async fn cancel_bootstrap(&self, call: &Call) -> Result<(), EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::CancelBootstrap);
        self.play(reply, call, self.inner.cancel_bootstrap(call)).await
    }

    async fn destroy_lease(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        let (reply, _entered) = self.control.enter(call, CommandKind::DestroyLease);
        if reply == Reply::NotYet {
            return Ok(Destroyed::Going);
        }
        self.play(reply, call, self.inner.destroy_lease(call, lease))
            .await
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        let listing = self.control.next_listing();
        if listing == Listing::Fails {
            return Err(EffectError::ambiguous("no answer"));
        }
        let mut inventory = self.inner.list_leases(run).await?;
        let entries = &mut inventory.entries;
        entries.retain(|entry| self.control.shows(&entry.identity));
        match listing {
            Listing::Full | Listing::Fails => {}
            Listing::Empty => entries.clear(),
            Listing::Truncated => entries.truncate(entries.len() / 2),
        }
        Ok(inventory)
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        self.inner.watch(run, sink).await;
    }
}
