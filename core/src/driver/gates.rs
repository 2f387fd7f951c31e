//! The gates of every group, kept as slots change.
//!
//! Every group counts which of the groups that it is tied to hold it back, themselves or through others. So a
//! change is told along the ties only as far as it makes a difference, what a gate says is there to be read,
//! and a gate that moves knows who stands at it. What the gates mean is defined by the full pass.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::Share;
use crate::desired::Desired;
use crate::gate::Gate;
use crate::id::GroupId;
use crate::node::ManagedNode;
use crate::state::{Nodes, Slot};

/// Which of its group's two gates a slot stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// It is about to be leased.
    Start,
    /// It is undesired, and held.
    Stop,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Start, Self::Stop];
}

/// One of a group's gates.
#[derive(Debug, Clone, Default)]
struct Half {
    /// Slots of the group that hold others back: those that are lacking, or those that are going.
    holding: u64,
    /// Whether it told that it holds back: itself, or because it is held back.
    holds: bool,
    /// Whom it tells: for starts the groups above, for stops those below.
    tells: Vec<u32>,
    /// How many groups tell it.
    ears: u32,
    /// How many of these hold it back. None, and the gate is open.
    blocked: u32,
    /// The slots that look at it: it has them considered again when it moves.
    standing: BTreeSet<u32>,
}

/// A gate that opened or shut.
pub(super) type Moved = (Side, u32);

/// The gates of all interned groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    groups: Vec<[Half; 2]>,
}

impl Gates {
    /// Makes room for this many groups.
    pub(super) fn reserve(&mut self, groups: usize) {
        if self.groups.len() < groups {
            self.groups.resize_with(groups, Default::default);
        }
    }

    fn half(&mut self, side: Side, group: u32) -> &mut Half {
        &mut self.groups[group as usize][side as usize]
    }

    /// The gate of all slots of a group, as far as other groups are concerned.
    pub(super) fn of(&self, group: u32) -> Gate {
        let [start, stop] = &self.groups[group as usize];
        Gate {
            may_start: start.blocked == 0,
            may_stop: stop.blocked == 0,
            ..Gate::OPEN
        }
    }

    /// The gate that this slot has to be considered again for when it moves.
    pub(super) fn side_of(&self, slot: Slot, node: &ManagedNode, desired: bool) -> Option<Side> {
        let [start, stop] = &self.groups[slot.group as usize];
        if !node.is_active() {
            return None;
        }
        let starts = || {
            let under_way = node.pending.is_some() || node.unended.is_some() || node.retry.create.is_some();
            node.lease.is_none() && !under_way && node.retry.halted.is_none()
        };
        match desired {
            true if start.ears > 0 && starts() => Some(Side::Start),
            // An open one is not waited at: what is undesired goes at once.
            false if stop.blocked > 0 => Some(Side::Stop),
            _ => None,
        }
    }

    pub(super) fn join(&mut self, side: Side, slot: Slot) {
        self.half(side, slot.group).standing.insert(slot.index);
    }

    pub(super) fn leave(&mut self, side: Side, slot: Slot) {
        self.half(side, slot.group).standing.remove(&slot.index);
    }

    /// Hands out those that stand at a gate, and forgets them.
    pub(super) fn take_standing(&mut self, (side, group): Moved) -> BTreeSet<u32> {
        std::mem::take(&mut self.half(side, group).standing)
    }

    /// Counts a slot of this group, or another count of it. Nobody is told before [`settle`](Self::settle).
    pub(super) fn count(&mut self, group: u32, before: Option<Share>, after: Option<Share>) {
        let holds_back = |share: Option<Share>| share.map_or([false; 2], Share::holds_back);
        let (before, after) = (holds_back(before), holds_back(after));
        for side in Side::BOTH {
            let half = self.half(side, group);
            half.holding += u64::from(after[side as usize]);
            half.holding -= u64::from(before[side as usize]);
        }
    }

    /// Counts desired slots that hold no node.
    pub(super) fn count_empty(&mut self, group: u32, slots: u64) {
        self.half(Side::Start, group).holding += slots;
    }

    /// Tells along the ties of a group what its counts mean now; adds the gates that moved by that.
    pub(super) fn settle(&mut self, group: u32, moved: &mut Vec<Moved>) {
        for side in Side::BOTH {
            let from = moved.len();
            let mut next = self.tell(side, group, moved).then_some(from);
            // Each gate that moved may have made its group hold others back, or let them go.
            while let Some(place) = next.filter(|place| *place < moved.len()) {
                let (_, group) = moved[place];
                self.tell(side, group, moved);
                next = Some(place + 1);
            }
        }
    }

    /// Tells the groups that one is tied to directly, if there is something new.
    fn tell(&mut self, side: Side, group: u32, moved: &mut Vec<Moved>) -> bool {
        let half = self.half(side, group);
        let holds = half.holding > 0 || half.blocked > 0;
        if holds == half.holds {
            return false;
        }
        half.holds = holds;
        let tells = std::mem::take(&mut half.tells);
        for &other in &tells {
            let told = self.half(side, other);
            let was = told.blocked > 0;
            if holds {
                told.blocked += 1;
            } else {
                told.blocked -= 1;
            }
            if was != (told.blocked > 0) {
                moved.push((side, other));
            }
        }
        self.half(side, group).tells = tells;
        true
    }

    /// Ties the groups anew, by the shape and by what departed groups left behind. Adds the gates that moved;
    /// says which groups depend on others now and did not before: nobody stood at their gate. O(groups + ties).
    pub(super) fn tie(
        &mut self,
        nodes: &Nodes,
        desired: &Desired,
        departed: &BTreeMap<GroupId, BTreeSet<GroupId>>,
        moved: &mut Vec<Moved>,
    ) -> Vec<u32> {
        let before: Vec<[bool; 3]> = self.groups.iter().map(facts).collect();
        for half in self.groups.iter_mut().flatten() {
            half.holds = false;
            half.tells.clear();
            half.ears = 0;
            half.blocked = 0;
        }
        let group_of = |name: &GroupId| nodes.group(name).expect("all that are named are interned");
        let interned: Vec<u32> = desired.groups().iter().map(|group| group_of(&group.id)).collect();
        for (above, group) in interned.iter().zip(desired.groups()) {
            for below in group.depends_on.iter().map(|place| interned[*place]) {
                self.add(Side::Start, below, *above);
                self.add(Side::Stop, *above, below);
            }
        }
        for (above, below) in departed {
            let above = group_of(above);
            for below in below {
                self.add(Side::Stop, above, group_of(below));
            }
        }
        let mut ignored = Vec::new();
        for group in 0..self.groups.len() as u32 {
            self.settle(group, &mut ignored);
        }
        let mut newly_tied = Vec::new();
        for ((group, before), halves) in (0..).zip(before).zip(&self.groups) {
            let after = facts(halves);
            for side in Side::BOTH {
                if before[side as usize] != after[side as usize] {
                    moved.push((side, group));
                }
            }
            if after[2] && !before[2] {
                newly_tied.push(group);
            }
        }
        newly_tied
    }

    fn add(&mut self, side: Side, teller: u32, told: u32) {
        self.half(side, teller).tells.push(told);
        self.half(side, told).ears += 1;
    }

    /// Whether a group that is still there depends on this one.
    pub(super) fn has_dependents(&self, group: u32) -> bool {
        self.groups[group as usize][Side::Stop as usize].ears > 0
    }

    /// Unties a departed group that has no slots and no dependents from those that it depended on.
    pub(super) fn untie(&mut self, group: u32) {
        let half = self.half(Side::Stop, group);
        debug_assert!(!half.holds, "nothing is left that could hold anybody back");
        for below in std::mem::take(&mut half.tells) {
            self.half(Side::Stop, below).ears -= 1;
        }
    }
}

/// Whether each gate of a group is shut, and whether the group depends on others.
fn facts([start, stop]: &[Half; 2]) -> [bool; 3] {
    [start.blocked > 0, stop.blocked > 0, start.ears > 0]
}
