//! The machines of one state directory: how they are made, found, listed and taken down.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nodewright_core::effect::{Call, Cancel, Destroyed, EffectError, Inventory, InventoryEntry};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, RunId, TemplateDigest};
use nodewright_core::template::LogicalNodeSpec;
use nodewright_core::workflow::Verdict;

use super::ProcessConfig;
use super::handle::ProcessKey;
use super::machine::{Machine, Machines, running_holder};
use super::place::{Place, Places, Record, boot_id};
use super::stamp::Stamp;
use super::steps::{Elapsed, steps};
use super::table::Scans;
use super::turns::Turns;

/// What a backend shares with its clones.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) places: Places,
    pub(super) config: ProcessConfig,
    pub(super) boot: String,
    pub(super) machines: Arc<Machines>,
    pub(super) scans: Arc<Scans>,
    turns: Turns,
    next_lease: AtomicU64,
}

impl Host {
    pub(super) fn open(config: ProcessConfig) -> io::Result<Self> {
        let places = Places::open(&config.state_dir)?;
        let boot = boot_id()?;
        let scans = Arc::new(Scans::new(places.machines.clone()));
        Ok(Self {
            machines: Arc::new(Machines::new(scans.clone(), boot.clone(), config.output_limit)?),
            scans,
            places,
            config,
            boot,
            turns: Turns::default(),
            next_lease: AtomicU64::new(0),
        })
    }
}

/// Turns a failure of a look-up into one: nothing happened.
fn looking(what: &str) -> impl Fn(io::Error) -> EffectError + '_ {
    move |error| EffectError::definite(format!("{what}: {error}"))
}

impl Host {
    pub(super) async fn create(
        self: &Arc<Self>,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> Result<CreatedLease, EffectError> {
        let place = self.places.of(&call.identity);
        let _turn = self.turns.take(&place.directory).await;
        let found = Record::read(&place.directory).map_err(looking("looking for the machine"))?;
        if let Some(record) = &found
            && let Some(machine) = self
                .complete(&place, record)
                .map_err(looking("looking for the machine"))?
        {
            return Ok(machine.record.created(&place));
        }
        // What an earlier create left half-made, or somebody killed, is ended first: never two for one slot.
        if self.end(&place, found, &call.cancel).await? == Destroyed::Going {
            return Err(EffectError::ambiguous(
                "what is left of an earlier create does not end",
            ));
        }
        self.make(&place, call, spec.template.digest()).await
    }

    pub(super) async fn find(&self, identity: &AttemptIdentity) -> io::Result<Option<CreatedLease>> {
        let place = self.places.of(identity);
        if let Some(record) = Record::read(&place.directory)? {
            self.machines.meet(&place, &record)?;
            return Ok(Some(record.created(&place)));
        }
        let table = self.scans.fresh().await?;
        let stray = table.machines().find(|stamp| stamp.machine == place.directory);
        Ok(stray.map(|stamp| CreatedLease {
            lease: facts_of(stamp),
            endpoint: Some(place.endpoint()),
        }))
    }

    pub(super) async fn destroy(
        self: &Arc<Self>,
        call: &Call,
        lease: &LeaseId,
    ) -> Result<Destroyed, EffectError> {
        let place = self.places.of(&call.identity);
        let _turn = self.turns.take(&place.directory).await;
        let looking =
            |error: io::Error| EffectError::ambiguous(format!("looking for what is to be ended: {error}"));
        let record = Record::read(&place.directory).map_err(looking)?;
        let other = |held: &LeaseId| held != lease;
        if record.as_ref().is_some_and(|record| other(&record.lease)) {
            return Ok(Destroyed::Gone);
        }
        if record.is_none() {
            let table = self.scans.fresh().await.map_err(looking)?;
            let stamp = table.machines().find(|stamp| stamp.machine == place.directory);
            if stamp.is_none_or(|stamp| other(&stamp.lease)) {
                if stamp.is_none() {
                    // Somebody deleted its directory, and nothing of it runs: it is remembered no longer.
                    self.machines.forget(&place);
                }
                place.remove_prepared().map_err(looking)?;
                return Ok(Destroyed::Gone);
            }
        }
        self.end(&place, record, &call.cancel).await
    }

    pub(super) async fn list(&self, run: &RunId) -> io::Result<Inventory> {
        let table = self.scans.fresh().await?;
        let mut entries = Vec::new();
        let mut listed = BTreeSet::new();
        for (place, record) in self.places.records()? {
            if record.identity.run != *run {
                continue;
            }
            let met = self.machines.meet(&place, &record)?;
            entries.push(InventoryEntry {
                identity: record.identity.clone(),
                lease: record.facts(),
                endpoint: Some(place.endpoint()),
                alive: met.is_some_and(|machine| machine.is_alive()),
            });
            listed.insert(place.directory);
        }
        for stamp in table.machines().filter(|stamp| stamp.identity.run == *run) {
            // Without a record that can be read it is found by what its processes carry.
            if !listed.contains(&stamp.machine) {
                entries.push(InventoryEntry {
                    identity: stamp.identity.clone(),
                    lease: facts_of(stamp),
                    endpoint: None,
                    // Without its record nothing can be done in it.
                    alive: false,
                });
            }
        }
        entries.sort_by(|a, b| a.identity.cmp(&b.identity));
        Ok(Inventory { entries })
    }

    /// Meets all machines of the run, and reports those that died while nobody listened.
    pub(super) fn meet_all(&self, run: &RunId) -> io::Result<()> {
        for (place, record) in self.places.records()? {
            if record.identity.run != *run || record.holder.is_none() {
                continue;
            }
            let met = match self.machines.meet(&place, &record) {
                Ok(met) => met,
                Err(error) => {
                    // The others are watched all the same.
                    tracing::error!(machine = %record.identity, %error, "machine cannot be watched");
                    continue;
                }
            };
            let lost = match &met {
                Some(machine) => machine.lost.get().map(String::as_str),
                None => Some("the machine's holder is dead"),
            };
            if let Some(reason) = lost {
                self.machines.losses.report(&record.identity, reason);
            }
        }
        Ok(())
    }
}

fn facts_of(stamp: &Stamp) -> LeaseFacts {
    LeaseFacts {
        template: Some(stamp.template),
        ..LeaseFacts::new(stamp.lease.clone())
    }
}

impl Host {
    /// The machine of this record, where nothing is missing of it.
    fn complete(&self, place: &Place, record: &Record) -> io::Result<Option<Arc<Machine>>> {
        if running_holder(record, &self.boot)?.is_none() || !place.fifo().exists() {
            return Ok(None);
        }
        self.machines.meet(place, record)
    }

    /// Ends a machine, and removes its files once nothing of it runs: its steps, backwards.
    async fn end(
        self: &Arc<Self>,
        place: &Place,
        record: Option<Record>,
        cancel: &Cancel,
    ) -> Result<Destroyed, EffectError> {
        let steps = steps(self, place, record);
        let report = steps.reversed().run(&Elapsed::new(), cancel).await;
        match report.effect() {
            Ok(()) => Ok(Destroyed::Gone),
            Err(_) if report.verdict() == Verdict::Again && steps.shared().is_going() => Ok(Destroyed::Going),
            Err(error) => Err(error),
        }
    }

    /// Makes a machine, all at once: nothing here waits, unless it fails and what was made is taken back.
    pub(super) async fn make(
        self: &Arc<Self>,
        place: &Place,
        call: &Call,
        template: TemplateDigest,
    ) -> Result<CreatedLease, EffectError> {
        let record = Record {
            identity: call.identity.clone(),
            lease: LeaseId::new(format!("{}.{}", call.identity.token(), self.name_lease())),
            template,
            boot: self.boot.clone(),
            holder: None,
        };
        let created = record.created(place);
        let mut steps = steps(self, place, Some(record));
        let timing = Elapsed::new();
        let report = steps.run(&timing, &call.cancel).await;
        let Err(mut error) = report.effect() else {
            return Ok(created);
        };
        if report.called() {
            // Whoever cancelled the call wants nothing left of it, either.
            let undone = steps.reversed().run(&timing, &Cancel::new()).await;
            if let Err(left) = undone.effect() {
                error.reason = format!("{error}; taking it down again: {left}").into();
            }
        }
        Err(error)
    }

    /// A name that no other lease of this kernel's life has.
    pub(super) fn name_lease(&self) -> String {
        let own = std::process::id();
        let started = ProcessKey::of(own).ok().flatten().map_or(0, |key| key.start);
        let number = self.next_lease.fetch_add(1, Ordering::Relaxed);
        format!("{own:x}-{started:x}-{number:x}")
    }
}
