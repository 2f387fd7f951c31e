//! Flaws in sessions and in taking down.

use std::future::pending;

use futures_util::FutureExt;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Destroyed, EffectBackend, EffectError, Inventory, ObservationSink,
};
use nodewright_core::facts::LeaseFacts;
use nodewright_core::id::RunId;

use super::super::{Flaw, Inside};

/// Whatever the attempt has is destroyed, and not the lease that was named.
#[derive(Debug)]
pub struct DestroysAnything;

impl Flaw for DestroysAnything {
    async fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        match inside.honest.find_lease(call).await? {
            Some(found) => inside.honest.destroy_lease(call, &found.lease).await,
            None => inside.honest.destroy_lease(call, lease).await,
        }
    }
}

/// The first machine that is listed is destroyed, whosever it is.
#[derive(Debug)]
pub struct DestroysTheFirst;

impl Flaw for DestroysTheFirst {
    async fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        let inventory = inside.honest.list_leases(&call.identity.run).await?;
        match inventory.entries.into_iter().next() {
            Some(first) => {
                let mut call = call.clone();
                call.identity = first.identity;
                inside.honest.destroy_lease(&call, &first.lease).await
            }
            None => inside.honest.destroy_lease(call, lease).await,
        }
    }
}

/// The first destroy of a lease fails, and that is told as success.
#[derive(Debug)]
pub struct SaysGone;

impl Flaw for SaysGone {
    async fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        if inside.provider.count(&lease.id) == 0 {
            return Ok(Destroyed::Gone);
        }
        inside.honest.destroy_lease(call, lease).await
    }
}

/// That the provider began to take a machine down is told as if it had ended.
#[derive(Debug)]
pub struct GoingIsGone;

impl Flaw for GoingIsGone {
    async fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        inside.provider.tick().await;
        let (honest, call, lease) = (inside.honest.clone(), call.clone(), lease.clone());
        let work = async move { drop(honest.destroy_lease(&call, &lease).await) };
        inside.provider.later(2, work.boxed());
        Ok(Destroyed::Gone)
    }

    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        inside.provider.tick().await;
        inside.honest.list_leases(run).await
    }
}

/// To take down what is gone already is an error.
#[derive(Debug)]
pub struct GoneIsAnError;

impl Flaw for GoneIsAnError {
    async fn destroy<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        let found = inside.honest.find_lease(call).await?;
        if found.is_none_or(|found| found.lease.id != lease.id) {
            return Err(EffectError::definite(format!("there is no {}", lease.id)));
        }
        inside.honest.destroy_lease(call, lease).await
    }
}

/// Calls are said to end when they are told to, and a destroy never ends.
#[derive(Debug)]
pub struct HangsForEver;

impl Flaw for HangsForEver {
    async fn destroy<B: EffectBackend>(
        _: &Inside<B>,
        _: &Call,
        _: &LeaseFacts,
    ) -> Result<Destroyed, EffectError> {
        pending().await
    }
}

/// A start never adopts: it ends the session that lives, and makes another.
#[derive(Debug)]
pub struct StartsAnother;

impl Flaw for StartsAnother {
    async fn start<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        inside.honest.cancel_bootstrap(call).await?;
        inside.honest.start_bootstrap(call, spec, sink).await
    }
}

/// A cancel ends nothing.
#[derive(Debug)]
pub struct CancelsNothing;

impl Flaw for CancelsNothing {
    async fn cancel<B: EffectBackend>(_: &Inside<B>, _: &Call) -> Result<(), EffectError> {
        Ok(())
    }
}
