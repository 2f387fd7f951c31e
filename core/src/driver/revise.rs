//! Taking the next revision of the shape.

use std::cmp::Ordering;
use std::ops::Range;

use jiff::Timestamp;

use super::departed::ties;
use super::tally::Share;
use super::{Accepted, ClusterDriver, DriverError, accept};
use crate::desired::{Desired, DesiredGroup};
use crate::event::EventKind;
use crate::id::GroupId;
use crate::shape::{ClusterShape, Generation};
use crate::state::Slot;

impl ClusterDriver {
    pub(super) fn revise(&mut self, shape: ClusterShape, now: Timestamp) -> Result<Accepted, DriverError> {
        if shape.run_id != self.state.run_id {
            let run = self.state.run_id.clone();
            return Err(DriverError::OtherRun {
                run,
                offered: shape.run_id,
            });
        }
        let (accepted, offered) = (self.desired.generation(), shape.generation);
        let desired = accept(shape, &self.limits, &self.setups)?;
        if offered < accepted {
            return Err(DriverError::OldGeneration { accepted, offered });
        }
        if offered == accepted {
            return if desired == self.desired {
                Ok(Accepted::Unchanged(accepted))
            } else {
                Err(DriverError::SilentChange { generation: accepted })
            };
        }
        self.replace_desired(desired);
        let nodes = self.desired.node_count();
        self.event(
            now,
            EventKind::ShapeAccepted {
                generation: offered,
                nodes,
            },
        );
        Ok(Accepted::Changed(offered))
    }

    pub(super) fn want_nothing(&mut self, now: Timestamp) {
        let generation = Generation(self.desired.generation().0.saturating_add(1));
        let shape = ClusterShape {
            run_id: self.state.run_id.clone(),
            generation,
            groups: Vec::new(),
        };
        let nothing =
            accept(shape, &self.limits, &self.setups).expect("a shape without groups has no mistake");
        self.replace_desired(nothing);
        self.event(now, EventKind::ShapeAccepted { generation, nodes: 0 });
    }

    /// Puts another desired shape in place, touching only the groups and slots that it changes.
    fn replace_desired(&mut self, next: Desired) {
        let changes = changes(&self.desired, &next);
        let same_names = self.desired.graph().names() == next.graph().names();
        let same_ties = self.desired.graph() == next.graph();
        let retied = self.note_departed(&next) | !same_ties;
        let mut slots = Vec::with_capacity(changes.len());
        for change in &changes {
            let (group, _) = self.state.nodes.intern(&change.name);
            self.state.nodes.reserve(group, change.count);
            self.index.slots.reserve(group, change.count);
            self.index.gates.reserve(group as usize + 1);
            slots.push((group, change.slots.clone(), change.count));
        }
        for (group, changed, _) in &slots {
            for index in changed.clone() {
                let slot = Slot { group: *group, index };
                let share = Share::of(self.state.nodes.at(slot), self.template(slot));
                self.index.discount(slot, share);
            }
        }
        self.desired = next;
        if !same_ties {
            self.state.depends_on = ties(&self.desired);
        }
        if !same_names {
            self.index.learn_names(&self.state.nodes, &self.desired);
        }
        for (group, changed, count) in slots {
            for index in changed {
                let slot = Slot { group, index };
                let share = Share::of(self.state.nodes.at(slot), self.template(slot));
                self.index.count(slot, share);
                self.index.mark(slot);
            }
            if !retied {
                self.index.settle_gates(group);
            }
            self.state.nodes.trim(group, count);
            self.index.trim(group, count);
        }
        if retied {
            self.index.tie(&self.state, &self.desired);
        }
    }
}

/// What another shape changes about a group.
struct Change {
    name: GroupId,
    /// The slots that are desired no more, or from now on, or made from something else.
    slots: Range<u32>,
    /// How many are desired from now on.
    count: u32,
}

/// What another shape changes, by the groups of both in one go. O(groups).
fn changes(old: &Desired, next: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut note = |old: Option<&DesiredGroup>, new: Option<&DesiredGroup>| {
        let Some(group) = new.or(old) else { return };
        let (was, count) = (
            old.map_or(0, |group| group.count),
            new.map_or(0, |group| group.count),
        );
        let template = |group: Option<&DesiredGroup>| group.map(|group| group.template.digest());
        let first = if template(old) == template(new) {
            was.min(count)
        } else {
            0
        };
        let slots = first..was.max(count);
        // A group may come or go without a slot.
        if !slots.is_empty() || old.is_some() != new.is_some() {
            let name = group.id.clone();
            changes.push(Change { name, slots, count });
        }
    };
    let (mut old, mut new) = (old.groups().iter().peekable(), next.groups().iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.id.cmp(&new.id),
        };
        let old = (order != Ordering::Greater).then(|| old.next()).flatten();
        let new = (order != Ordering::Less).then(|| new.next()).flatten();
        note(old, new);
    }
    changes
}
