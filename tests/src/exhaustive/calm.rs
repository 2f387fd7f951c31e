//! What follows once nothing goes wrong any more: from every state, in every order, to the end (G22, G23).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use nodewright_core::decide::Overdue;
use nodewright_core::event::EventKind;
use nodewright_core::id::{GroupId, LogicalNodeId};
use nodewright_core::node::Stage;

use super::action::Action;
use super::setup::Setup;
use super::world::{Violation, World, hold};

/// The most slots that a setup may have.
pub(super) const SLOTS: usize = 4;

/// The most that a slot still does, whatever the order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Most {
    /// Attempts that it begins.
    pub attempts: u8,
    /// Actions that passes take for it: transitions and dispatches.
    pub actions: u8,
}

impl Most {
    fn max(self, other: Self) -> Self {
        Self {
            attempts: self.attempts.max(other.attempts),
            actions: self.actions.max(other.actions),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            attempts: self.attempts + other.attempts,
            actions: self.actions + other.actions,
        }
    }
}

/// More steps than any way to rest takes.
const LONGEST: usize = 200;

/// What follows from a state, slot by slot.
pub(super) type Tail = [Most; SLOTS];

/// A way that leads to something that may not be, from the state that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Astray {
    pub(super) way: Vec<Action>,
    pub(super) violation: Violation,
}

const SHARDS: usize = 64;

/// All states from which it is known what follows, by their prints.
#[derive(Debug)]
pub(super) struct Calm {
    known: Vec<Mutex<HashMap<u64, Tail>>>,
}

impl Default for Calm {
    fn default() -> Self {
        Self {
            known: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Calm {
    /// How many states it knows.
    pub(super) fn len(&self) -> usize {
        let shards = self.known.iter();
        shards
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    fn shard(&self, print: u64) -> std::sync::MutexGuard<'_, HashMap<u64, Tail>> {
        let shard = &self.known[print as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known what follows from a state of this print.
    pub(super) fn get(&self, print: u64) -> Option<Tail> {
        self.shard(print).get(&print).copied()
    }

    /// Follows a state to all its ends, and holds what every slot does on the way to the bounds of G22.
    pub(super) fn follow(&self, setup: &Setup, world: &World) -> Result<Tail, Astray> {
        let tail = match self.get(world.print) {
            Some(tail) => tail,
            None => self.walk(setup, world, &mut HashSet::new())?,
        };
        let bound = setup.most();
        for most in tail {
            if most.attempts > bound.attempts || most.actions > bound.actions {
                let what = format!("a slot may still do {most:?}, and {bound:?} is the bound");
                let violation = Violation { rule: "G22", what };
                let way = self.farthest(setup, world);
                return Err(Astray { way, violation });
            }
        }
        Ok(tail)
    }

    /// A way on which some slot does the most.
    fn farthest(&self, setup: &Setup, world: &World) -> Vec<Action> {
        let measure = |tail: Tail| tail.iter().map(|most| (most.attempts, most.actions)).max();
        let mut actions = Vec::new();
        world.by_itself(setup, &mut actions);
        let next = actions
            .into_iter()
            .map(|action| (world.step(setup, &action), action));
        let farthest = next.max_by_key(|(next, _)| {
            let follows = self.get(next.print).unwrap_or_default();
            let did = next.did(setup);
            let mut tail = Tail::default();
            for slot in 0..SLOTS {
                tail[slot] = did[slot].plus(follows[slot]);
            }
            measure(tail)
        });
        let Some((next, action)) = farthest else {
            return Vec::new();
        };
        let mut way = self.farthest(setup, &next);
        way.insert(0, action);
        way
    }

    fn walk(&self, setup: &Setup, world: &World, on_the_way: &mut HashSet<u64>) -> Result<Tail, Astray> {
        let mut actions = Vec::new();
        world.by_itself(setup, &mut actions);
        if setup.backwards {
            actions.reverse();
        }
        if world.is_at_rest(&actions) {
            let settled = world.check_settled(setup);
            settled.map_err(|violation| Astray {
                way: Vec::new(),
                violation,
            })?;
        }
        on_the_way.insert(world.print);
        let mut tail = Tail::default();
        for action in actions {
            let next = world.step(setup, &action);
            let astray = |violation| Astray {
                way: vec![action.clone()],
                violation,
            };
            if let Some(violation) = &next.violation {
                return Err(astray(violation.clone()));
            }
            let follows = match self.get(next.print) {
                Some(tail) => tail,
                None if on_the_way.len() == LONGEST => {
                    let what = format!("it goes on after {LONGEST} steps, and nothing goes wrong");
                    return Err(astray(Violation { rule: "G22", what }));
                }
                None if on_the_way.contains(&next.print) => {
                    let what = "it goes round in circles, and nothing goes wrong".to_owned();
                    return Err(astray(Violation { rule: "G22", what }));
                }
                None => self.walk(setup, &next, on_the_way).map_err(|mut astray| {
                    astray.way.insert(0, action.clone());
                    astray
                })?,
            };
            let did = next.did(setup);
            for slot in 0..SLOTS {
                tail[slot] = tail[slot].max(did[slot].plus(follows[slot]));
            }
        }
        on_the_way.remove(&world.print);
        self.shard(world.print).insert(world.print, tail);
        Ok(tail)
    }
}

impl World {
    /// What the step to this state did, slot by slot.
    fn did(&self, setup: &Setup) -> Tail {
        let mut did = Tail::default();
        if self.done.events.is_empty() {
            return did;
        }
        let slots = setup.slots();
        let overdue = [Overdue::Ready, Overdue::Stall, Overdue::Join].map(|overdue| overdue.to_string());
        for event in &self.done.events {
            let begins = matches!(
                event.kind,
                EventKind::Inserted { .. } | EventKind::Restarted { .. }
            );
            let acts = match &event.kind {
                EventKind::Dispatched { .. } | EventKind::DeleteBegan { .. } | EventKind::Reaped { .. } => {
                    true
                }
                EventKind::StageReached { stage, .. } => *stage == Stage::Destroyed,
                // What is told fails an attempt, too, and is no action.
                EventKind::AttemptFailed { reason, .. } => {
                    overdue.iter().any(|overdue| **overdue == **reason)
                }
                _ => begins,
            };
            let slot = event
                .kind
                .node()
                .and_then(|node| slots.iter().position(|slot| slot == node));
            if let Some(slot) = slot {
                did[slot].attempts += u8::from(begins);
                did[slot].actions += u8::from(acts);
            }
        }
        did
    }

    /// G22, G23 and G3, once nothing is left to happen.
    fn check_settled(&self, setup: &Setup) -> Result<(), Violation> {
        let (state, desired) = (self.driver.state(), self.driver.desired());
        hold!("G22", state.looks_done(), "a first look is never done");
        for spec in desired.expand() {
            let id = &spec.id;
            let node = state.nodes.get(id);
            let halted = self.is_halted(id);
            let ready = node.is_some_and(|node| node.is_available(&spec.template) && node.pending.is_none());
            let held_back = node.is_none_or(|node| node.lease.is_none()) && self.waits_for_halted(&id.group);
            hold!(
                "G22",
                ready || halted || held_back,
                "{id} stays as it is: {:?} {node:?}",
                self.driver.why(id, self.now)
            );
        }
        for (id, node) in state.nodes.iter() {
            let wanted = desired.template_of(&id).is_some();
            hold!(
                "G22",
                wanted,
                "{id} is not wanted, and stays: {:?} {node:?}",
                self.driver.why(&id, self.now)
            );
        }
        hold!(
            "G3",
            self.driver.requeue_at().is_none(),
            "at rest, and {:?} is waited for",
            self.driver.requeue_at()
        );
        let surplus = state.orphans.values().all(|orphan| orphan.surplus);
        hold!("G23", surplus, "orphans stay: {:?}", state.orphans);
        let leases = state
            .nodes
            .iter()
            .filter_map(|(_, node)| node.lease.as_ref().map(|lease| lease.id.clone()));
        let mut held: Vec<_> = leases
            .chain(state.orphans.keys().map(|key| key.lease.clone()))
            .collect();
        let mut live: Vec<_> = self
            .cloud
            .listed()
            .map(|machine| machine.lease.id.clone())
            .collect();
        held.sort();
        live.sort();
        hold!(
            "G23",
            held == live,
            "the state holds {held:?}, and there live {live:?}"
        );
        hold!(
            "G23",
            self.driver.holds_nothing() == (state.nodes.is_empty() && live.is_empty()),
            "there live {live:?}, and it is said that nothing is held: {}",
            self.driver.holds_nothing()
        );
        let mut forced = self.clone();
        forced.driver.trigger();
        forced.done = super::world::Done::default();
        forced.drive(setup)?;
        let before = (state, &self.calls.len());
        let same = (forced.driver.state(), &forced.calls.len()) == before;
        hold!(
            "G3",
            same && forced.done.sent.is_empty(),
            "a forced pass changed something"
        );
        Ok(())
    }

    fn is_halted(&self, id: &LogicalNodeId) -> bool {
        let node = self.driver.state().nodes.get(id);
        node.is_some_and(|node| node.retry.halted.is_some())
    }

    /// Whether a group depends, directly or not, on one that has a halted slot.
    fn waits_for_halted(&self, group: &GroupId) -> bool {
        let desired = self.driver.desired();
        let group = desired.shape().groups.iter().find(|of| of.group_id == *group);
        let mut below = group.into_iter().flat_map(|group| &group.depends_on);
        below.any(|below| {
            let mut slots = desired.expand().filter(|spec| spec.id.group == *below);
            slots.any(|spec| self.is_halted(&spec.id)) || self.waits_for_halted(below)
        })
    }
}
