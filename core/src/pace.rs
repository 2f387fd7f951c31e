//! Pace: what a provider may be asked now, and who goes first.
//!
//! Owns the number of places that a provider has at this moment, its rate, its slow-down after a throttle,
//! and the order among those who wait. In flight is what the nodes and orphans say is pending: there is no
//! count of its own to go wrong.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::CommandKind;
use crate::orphan::OrphanKey;
use crate::state::Slot;

/// How fast a provider may be called at most: `calls` per `per`, `burst` of them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rate {
    /// Calls in each period.
    pub calls: NonZeroU32,
    /// The period.
    pub per: Duration,
    /// How many may come at once after a quiet time.
    pub burst: NonZeroU32,
}

/// What an application grants nodewright at a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PaceConfig {
    /// Calls under way at once. Sixty-four by default: enough to hide latency, few enough to be polite.
    pub max_in_flight: NonZeroU32,
    /// A rate on top, where the provider has one.
    pub rate: Option<Rate>,
}

impl Default for PaceConfig {
    fn default() -> Self {
        Self {
            max_in_flight: NonZeroU32::new(64).expect("64 is not zero"),
            rate: None,
        }
    }
}

/// What an operation is for; the order is the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It ends something.
    Cleanup,
    /// It brings a node on that holds a lease.
    Leased,
    /// It makes a lease, or looks for one that was to be made.
    Creation,
}

/// A provider's pace.
///
/// A throttle halves the places, and the rate in the same measure; each success adds one place again. The
/// rate is kept as the moment at which the next call would be due if calls came exactly at the rate: the
/// generic cell rate algorithm (ITU-T I.371).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pace {
    config: PaceConfig,
    places: NonZeroU32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    halved_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_due: Option<Timestamp>,
    /// Whose turn it is while classes contend: cleanup against the rest, leased against creation.
    #[serde(default)]
    turns: (u8, u8),
}

/// Of four turns among contending classes, the preferred one gets three.
const TURNS: u8 = 4;

impl Pace {
    /// A pace at its configured values.
    pub fn new(config: PaceConfig) -> Self {
        Self {
            config,
            places: config.max_in_flight,
            halved_at: None,
            not_before: None,
            next_due: None,
            turns: (0, 0),
        }
    }

    /// The configured values.
    pub fn config(&self) -> PaceConfig {
        self.config
    }

    /// How many calls may be under way now.
    pub fn places(&self) -> u32 {
        self.places.get()
    }

    /// Nothing is sent before this moment.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.not_before
    }

    /// Takes new configured values; a slow-down that is under way keeps its measure.
    pub(crate) fn configure(&mut self, config: PaceConfig) {
        if self.config != config {
            *self = Self {
                halved_at: self.halved_at,
                not_before: self.not_before,
                ..Self::new(config)
            };
        }
    }

    /// Takes moments back that lie further ahead than a provider can have asked for: the clock was set back since.
    pub(crate) fn bound(&mut self, now: Timestamp, latest: Timestamp) {
        self.halved_at = self.halved_at.map(|at| at.min(now));
        self.not_before = self.not_before.map(|at| at.min(latest));
        let burst = self.config.rate.map_or(1, |rate| rate.burst.get());
        let owed = self.interval().map(|interval| interval.saturating_mul(burst));
        let owed = owed.and_then(|owed| now.checked_add(owed).ok());
        if let Some(owed) = owed {
            self.next_due = self.next_due.map(|due| due.min(owed));
        }
    }

    /// A call succeeded: one place more, up to the configured number.
    pub(crate) fn succeeded(&mut self, now: Timestamp) {
        let more = self.places.saturating_add(1);
        self.set_places(more.min(self.config.max_in_flight), now);
    }

    /// What is owed to the rate are calls, whatever the time of each: calls that were made at a slow rate are paid
    /// off at the rate of this moment. Otherwise a provider that has recovered would be left alone for as long as a
    /// whole burst takes at its slowest.
    fn set_places(&mut self, places: NonZeroU32, now: Timestamp) {
        let before = std::mem::replace(&mut self.places, places);
        if let Some(due) = self.next_due.filter(|due| *due > now && before != places) {
            let owed = due.duration_since(now).unsigned_abs().as_nanos();
            let owed = (owed * u128::from(before.get())).div_ceil(u128::from(places.get()));
            let owed = Duration::from_nanos(u64::try_from(owed).unwrap_or(u64::MAX));
            self.next_due = Some(now.checked_add(owed).unwrap_or(Timestamp::MAX));
        }
    }

    /// The provider asked to slow down. One crowd of calls halves the pace once: a call that was dispatched
    /// before the last halving says nothing new.
    pub(crate) fn throttled(&mut self, dispatched_at: Timestamp, resume_at: Timestamp, now: Timestamp) {
        if self.halved_at.is_none_or(|halved_at| dispatched_at > halved_at) {
            self.set_places(
                NonZeroU32::new(self.places.get() / 2).unwrap_or(NonZeroU32::MIN),
                now,
            );
            self.halved_at = Some(now);
        }
        self.not_before = self.not_before.max(Some(resume_at));
    }

    /// The time between two calls at the rate of this moment.
    fn interval(&self) -> Option<Duration> {
        let rate = self.config.rate?;
        let share = u64::from(self.config.max_in_flight.get()) * 1_000_000 / u64::from(self.places.get());
        let nanos = rate.per.as_nanos() * u128::from(share) / 1_000_000 / u128::from(rate.calls.get());
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The earliest moment at which one more call may be sent, places aside; `None` is now.
    pub(crate) fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let by_rate = self.interval().zip(self.next_due).and_then(|(interval, due)| {
            let burst = self.config.rate.map_or(1, |rate| rate.burst.get());
            due.checked_sub(interval.saturating_mul(burst - 1)).ok()
        });
        by_rate.max(self.not_before).filter(|opens_at| *opens_at > now)
    }

    /// Whether so many calls more may all be sent now, without any order among them.
    pub(crate) fn has_room(&self, holding: [u32; 3], calls: usize, now: Timestamp) -> bool {
        let held = holding.iter().sum::<u32>() as usize;
        self.config.rate.is_none()
            && self.opens_at(now).is_none()
            && held + calls <= self.places.get() as usize
    }

    /// Notes that a call is sent.
    fn spend(&mut self, now: Timestamp) {
        if let Some(interval) = self.interval() {
            let from = self.next_due.map_or(now, |due| due.max(now));
            self.next_due = Some(from.checked_add(interval).unwrap_or(Timestamp::MAX));
        }
    }

    /// Which of the waiting classes goes next, given what each holds; advances the turns if they contend.
    fn choose(&mut self, holding: &[u32; 3], waiting: [bool; 3]) -> Class {
        let share = |places: u32| places.saturating_sub(places.div_ceil(4)).max(1);
        let [cleanup, leased, creation] = waiting;
        if cleanup {
            let others = leased || creation;
            let turn = self.turns.0;
            let places = self.places.get();
            let within = holding[0] < share(places) || places == 1;
            if !others {
                return Class::Cleanup;
            }
            self.turns.0 = (turn + 1) % TURNS;
            if within && turn < TURNS - 1 {
                return Class::Cleanup;
            }
        }
        if leased && creation {
            let turn = self.turns.1;
            let places = self.places.get().saturating_sub(holding[0]);
            let within = holding[1] < share(places) || places <= 1;
            self.turns.1 = (turn + 1) % TURNS;
            return if within && turn < TURNS - 1 {
                Class::Leased
            } else {
                Class::Creation
            };
        }
        if leased { Class::Leased } else { Class::Creation }
    }
}

/// Who asks for a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    /// A slot's node.
    Node(Slot),
    /// An orphan.
    Orphan(Arc<OrphanKey>),
}

/// A wish for a place. Orders by how long it has waited, then in node order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) since: Timestamp,
    pub(crate) order: (u32, u32),
    pub(crate) who: Who,
    pub(crate) kind: CommandKind,
}

/// Those who wait for a place at one provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    classes: [BTreeSet<Claim>; 3],
}

impl Queue {
    pub(crate) fn insert(&mut self, class: Class, claim: Claim) {
        self.classes[class as usize].insert(claim);
    }

    pub(crate) fn remove(&mut self, class: Class, claim: &Claim) {
        self.classes[class as usize].remove(claim);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(BTreeSet::is_empty)
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(BTreeSet::len).sum()
    }

    /// All claims, class by class.
    pub(crate) fn drain(&mut self) -> Vec<(Class, Claim)> {
        let classes = [Class::Cleanup, Class::Leased, Class::Creation];
        let claims = self.classes.each_mut().map(std::mem::take);
        classes
            .into_iter()
            .zip(claims)
            .flat_map(|(class, claims)| claims.into_iter().map(move |c| (class, c)))
            .collect()
    }

    /// Gives out what the pace allows now, in its order. Changes the pace; leaves the queue as it is, so
    /// that a plan can be made of it and thrown away.
    pub(crate) fn grant<'q>(
        &'q self,
        pace: &mut Pace,
        mut holding: [u32; 3],
        now: Timestamp,
    ) -> Vec<(Class, &'q Claim)> {
        let mut granted = Vec::new();
        let mut claims = self.classes.each_ref().map(|claims| claims.iter().peekable());
        let classes = [Class::Cleanup, Class::Leased, Class::Creation];
        while holding.iter().sum::<u32>() < pace.places.get() && pace.opens_at(now).is_none() {
            let waiting = [0, 1, 2].map(|class: usize| claims[class].peek().is_some());
            if waiting == [false; 3] {
                break;
            }
            let class = classes[pace.choose(&holding, waiting) as usize];
            let Some(claim) = claims[class as usize].next() else {
                break;
            };
            pace.spend(now);
            holding[class as usize] += 1;
            granted.push((class, claim));
        }
        granted
    }
}

#[cfg(test)]
mod tests;
