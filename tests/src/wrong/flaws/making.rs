//! Flaws in making.

use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use nodewright_core::effect::{Call, Capabilities, EffectBackend, EffectError, Inventory};
use nodewright_core::facts::CreatedLease;
use nodewright_core::id::RunId;
use nodewright_core::template::LogicalNodeSpec;

use super::super::flaw::disguised;
use super::super::{Flaw, Inside, Notes};
use crate::shapes::RUN;

/// Every create makes another machine: none looks for what its attempt has.
#[derive(Debug)]
pub struct NeverAdopts;

impl Flaw for NeverAdopts {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let beside = inside.provider.count(&call.identity);
        inside.honest.create_lease(&disguised(call, beside), spec).await
    }
}

/// What an older attempt of the slot has is adopted, as if it were this one's.
#[derive(Debug)]
pub struct AdoptsAnotherAttempts;

impl AdoptsAnotherAttempts {
    async fn another<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        let inventory = inside.honest.list_leases(&call.identity.run).await?;
        let mut entries = inventory.entries.into_iter();
        let found = entries.find(|entry| entry.identity.node == call.identity.node);
        Ok(found.map(|entry| CreatedLease {
            lease: entry.lease,
            endpoint: entry.endpoint,
        }))
    }
}

impl Flaw for AdoptsAnotherAttempts {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        match Self::another(inside, call).await? {
            Some(created) => Ok(created),
            None => inside.honest.create_lease(call, spec).await,
        }
    }

    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        Self::another(inside, call).await
    }
}

/// The run is no part of what a machine is known by.
#[derive(Debug)]
pub struct AdoptsAnotherRuns;

impl AdoptsAnotherRuns {
    fn of_any(call: &Call) -> Call {
        let mut call = call.clone();
        call.identity.run = RUN.parse().expect("a name");
        call
    }
}

impl Flaw for AdoptsAnotherRuns {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        inside.honest.create_lease(&Self::of_any(call), spec).await
    }

    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        inside.honest.find_lease(&Self::of_any(call)).await
    }
}

/// Of every third create the answer is lost after it took effect, and that is told as "nothing happened".
#[derive(Debug)]
pub struct SaysDefinite;

impl Flaw for SaysDefinite {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let created = inside.honest.create_lease(call, spec).await?;
        if inside.provider.count("created") % 3 == 2 {
            return Err(EffectError::definite("the connection was closed"));
        }
        Ok(created)
    }
}

/// Nothing carries the template that it was made from.
#[derive(Debug)]
pub struct StampsNothing;

impl Flaw for StampsNothing {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let mut created = inside.honest.create_lease(call, spec).await?;
        created.lease.template = None;
        Ok(created)
    }

    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        let mut found = inside.honest.find_lease(call).await?;
        if let Some(found) = &mut found {
            found.lease.template = None;
        }
        Ok(found)
    }

    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(run).await?;
        for entry in &mut inventory.entries {
            entry.lease.template = None;
        }
        Ok(inventory)
    }
}

/// What is adopted is told as made from what was asked for, whatever it was made from.
#[derive(Debug)]
pub struct StampsAnything;

impl Flaw for StampsAnything {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let mut created = inside.honest.create_lease(call, spec).await?;
        created.lease.template = Some(spec.template.digest());
        Ok(created)
    }
}

/// A create takes its time, and goes on when it is dropped, although calls are said to end then.
#[derive(Debug)]
pub struct WorksOn;

/// How many inventories and destroys later such a create comes through.
const TICKS: u32 = 4;

/// Work that is kept going when this is dropped.
struct Detaches<'a> {
    notes: &'a Notes,
    work: Option<BoxFuture<'static, ()>>,
}

impl Drop for Detaches<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.notes.later(TICKS, work);
        }
    }
}

/// Is pending once.
async fn takes_its_time() {
    let mut polled = false;
    future::poll_fn(|_| match std::mem::replace(&mut polled, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

impl Flaw for WorksOn {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let (honest, late, wanted) = (inside.honest.clone(), call.clone(), spec.clone());
        let work = async move { drop(honest.create_lease(&late, &wanted).await) };
        let mut detaches = Detaches {
            notes: &inside.provider,
            work: Some(work.boxed()),
        };
        takes_its_time().await;
        detaches.work = None;
        inside.honest.create_lease(call, spec).await
    }

    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let listed = inside.honest.list_leases(run).await;
        inside.provider.tick().await;
        listed
    }
}

/// What it states changes once it has made something.
#[derive(Debug)]
pub struct ChangesWhatItStates;

impl Flaw for ChangesWhatItStates {
    fn capabilities<B: EffectBackend>(inside: &Inside<B>) -> Capabilities {
        let mut capabilities = inside.honest.capabilities();
        if inside.provider.knows("created") {
            capabilities.visibility += Duration::from_secs(60);
        }
        capabilities
    }

    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        inside.provider.count("created");
        inside.honest.create_lease(call, spec).await
    }
}
