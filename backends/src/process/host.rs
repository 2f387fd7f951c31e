//! The machines of one state directory: how they are made, found, listed and taken down.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nodewright_core::effect::{Call, Destroyed, EffectError, Inventory, InventoryEntry};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, RunId, TemplateDigest};
use nodewright_core::template::LogicalNodeSpec;

use super::ProcessConfig;
use super::ending::end_all;
use super::handle::{ProcessKey, kill_child};
use super::holder;
use super::machine::{Machine, Machines, running_holder};
use super::place::{Place, Places, Record, boot_id};
use super::stamp::Stamp;
use super::steps::Steps;
use super::table::Scans;
use super::turns::Turns;

/// What a backend shares with its clones.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) places: Places,
    config: ProcessConfig,
    boot: String,
    pub(super) machines: Arc<Machines>,
    scans: Arc<Scans>,
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
        &self,
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
        let left = self.end(&place, found.as_ref()).await;
        let left = left.map_err(|error| EffectError::ambiguous(format!("ending what is left: {error}")))?;
        if left == Destroyed::Going {
            return Err(EffectError::ambiguous(
                "what is left of an earlier create does not end",
            ));
        }
        self.make(&place, &call.identity, spec.template.digest())
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

    pub(super) async fn destroy(&self, identity: &AttemptIdentity, lease: &LeaseId) -> io::Result<Destroyed> {
        let place = self.places.of(identity);
        let _turn = self.turns.take(&place.directory).await;
        let record = Record::read(&place.directory)?;
        let other = |held: &LeaseId| held != lease;
        if record.as_ref().is_some_and(|record| other(&record.lease)) {
            return Ok(Destroyed::Gone);
        }
        if record.is_none() {
            let table = self.scans.fresh().await?;
            let stamp = table.machines().find(|stamp| stamp.machine == place.directory);
            if stamp.is_none_or(|stamp| other(&stamp.lease)) {
                remove_prepared(&place)?;
                return Ok(Destroyed::Gone);
            }
        }
        self.end(&place, record.as_ref()).await
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
                alive: met.is_some_and(|machine| !machine.holder.has_ended()),
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

fn remove_prepared(place: &Place) -> io::Result<()> {
    match fs::remove_dir_all(&place.prepared) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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

    /// Ends a machine, and removes its files once nothing of it runs.
    async fn end(&self, place: &Place, record: Option<&Record>) -> io::Result<Destroyed> {
        self.machines.begin_end(place);
        let holder = record.and_then(|record| record.holder_under(&self.boot));
        let ended = end_all(&self.scans, &place.directory, holder, self.config.term_grace).await?;
        if ended == Destroyed::Gone {
            self.machines.forget(place);
            remove_prepared(place)?;
            self.places.remove(place, &self.name_lease()).await?;
        }
        Ok(ended)
    }

    /// Makes a machine, all at once: nothing here waits.
    fn make(
        &self,
        place: &Place,
        identity: &AttemptIdentity,
        template: TemplateDigest,
    ) -> Result<CreatedLease, EffectError> {
        let token = identity.token();
        let mut record = Record {
            identity: identity.clone(),
            lease: LeaseId::new(format!("{token}.{}", self.name_lease())),
            template,
            boot: self.boot.clone(),
            holder: None,
        };
        let stamp = Stamp {
            identity: identity.clone(),
            machine: place.directory.clone(),
            lease: record.lease.clone(),
            template,
        };
        let mut steps = Steps::default();
        // Directory and record appear together: neither is ever seen without the other.
        steps.run(
            "directory",
            || {
                remove_prepared(place)?;
                fs::create_dir_all(place.prepared.join("jobs"))?;
                record.write(&place.prepared)?;
                fs::rename(&place.prepared, &place.directory)
            },
            |()| fs::remove_dir_all(&place.directory),
        )?;
        let fifo = place.fifo();
        steps.run(
            "fifo",
            || holder::make_fifo(place),
            move |()| fs::remove_file(fifo),
        )?;
        let holder = steps.run(
            "holder",
            || holder::spawn(place, &self.config.env, &stamp),
            kill_child,
        )?;
        steps.run(
            "record",
            || {
                let dead = || io::Error::other("the holder ended at once");
                record.holder = Some(ProcessKey::of(holder)?.ok_or_else(dead)?);
                record.write(&place.directory)
            },
            |()| Ok(()),
        )?;
        steps.run(
            "watch",
            || {
                let met = self.machines.meet(place, &record)?;
                met.map(|_| ())
                    .ok_or_else(|| io::Error::other("the holder ended at once"))
            },
            |()| Ok(()),
        )?;
        Ok(record.created(place))
    }

    /// A name that no other lease of this kernel's life has.
    fn name_lease(&self) -> String {
        let own = std::process::id();
        let started = ProcessKey::of(own).ok().flatten().map_or(0, |key| key.start);
        let number = self.next_lease.fetch_add(1, Ordering::Relaxed);
        format!("{own:x}-{started:x}-{number:x}")
    }
}
