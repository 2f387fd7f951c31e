//! Flaws in looking: what is found, listed and told of.

use std::future::pending;

use nodewright_core::effect::{Call, EffectBackend, EffectError, Inventory, LossSink};
use nodewright_core::facts::CreatedLease;
use nodewright_core::id::{AttemptIdentity, RunId};
use nodewright_core::template::LogicalNodeSpec;

use super::super::flaw::disguised;
use super::super::{Flaw, Inside};
use crate::shapes::{RUN, template};

/// Its book is in memory: what an earlier process made is not seen by the next.
#[derive(Debug)]
pub struct ForgetsOnRestart;

impl Flaw for ForgetsOnRestart {
    async fn create<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let known = inside.process.knows(&call.identity);
        inside.process.count(&call.identity);
        let beside = match inside.honest.find_lease(call).await? {
            Some(_) if !known => inside.provider.count(&call.identity) + 1,
            _ => 0,
        };
        inside.honest.create_lease(&disguised(call, beside), spec).await
    }

    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        if inside.process.knows(&call.identity) {
            inside.honest.find_lease(call).await
        } else {
            Ok(None)
        }
    }

    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(run).await?;
        inventory
            .entries
            .retain(|entry| inside.process.knows(&entry.identity));
        Ok(inventory)
    }
}

/// The first look-up after a create does not see what it made, at however late a moment.
#[derive(Debug)]
pub struct SeesLate;

impl Flaw for SeesLate {
    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        let found = inside.honest.find_lease(call).await?;
        // Only what is there can be missed.
        Ok(found.filter(|_| inside.provider.count(&call.identity) > 0))
    }
}

/// A look-up makes what it does not find.
#[derive(Debug)]
pub struct FindsByMaking;

impl Flaw for FindsByMaking {
    async fn find<B: EffectBackend>(
        inside: &Inside<B>,
        call: &Call,
    ) -> Result<Option<CreatedLease>, EffectError> {
        let spec = LogicalNodeSpec {
            id: call.identity.node.clone(),
            template: template("alpha", "image"),
        };
        inside.honest.create_lease(call, &spec).await.map(Some)
    }
}

/// An inventory is stated, and there is none.
#[derive(Debug)]
pub struct ListsNothing;

impl Flaw for ListsNothing {
    async fn list<B: EffectBackend>(_: &Inside<B>, _: &RunId) -> Result<Inventory, EffectError> {
        Err(EffectError::fatal("there is no such interface"))
    }
}

/// Of what is listed only the first page is read, and pages are short.
#[derive(Debug)]
pub struct ListsHalf;

impl Flaw for ListsHalf {
    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(run).await?;
        inventory.entries.truncate(1);
        Ok(inventory)
    }
}

/// The machines of every run are listed as this one's.
#[derive(Debug)]
pub struct ListsStrangers;

impl Flaw for ListsStrangers {
    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(&RUN.parse().expect("a name")).await?;
        for entry in &mut inventory.entries {
            entry.identity = AttemptIdentity {
                run: run.clone(),
                ..entry.identity.clone()
            };
        }
        Ok(inventory)
    }
}

/// A dead machine is listed as one that lives.
#[derive(Debug)]
pub struct RaisesTheDead;

impl Flaw for RaisesTheDead {
    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(run).await?;
        for entry in &mut inventory.entries {
            entry.alive = true;
        }
        Ok(inventory)
    }
}

/// A dead machine is taken for one that was given back.
#[derive(Debug)]
pub struct HidesTheDead;

impl Flaw for HidesTheDead {
    async fn list<B: EffectBackend>(inside: &Inside<B>, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = inside.honest.list_leases(run).await?;
        inventory.entries.retain(|entry| entry.alive);
        Ok(inventory)
    }
}

/// A watch is stated, and nobody is ever told.
#[derive(Debug)]
pub struct NeverTellsOfDeaths;

impl Flaw for NeverTellsOfDeaths {
    async fn watch<B: EffectBackend>(_: &Inside<B>, _: &RunId, _: LossSink) {
        pending().await
    }
}
