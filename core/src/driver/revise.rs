//! Taking the next revision of the shape.

use std::collections::BTreeSet;

use jiff::Timestamp;

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

    /// Puts another desired shape in place, touching only the slots that it changes.
    fn replace_desired(&mut self, next: Desired) {
        let mut changes = Vec::new();
        let names: BTreeSet<&GroupId> = self
            .desired
            .groups()
            .iter()
            .chain(next.groups())
            .map(|group| &group.id)
            .collect();
        for name in names {
            let find = |desired: &Desired| desired.find(name).map(|place| desired.groups()[place].clone());
            let (old, new) = (find(&self.desired), find(&next));
            let count = |group: &Option<DesiredGroup>| group.as_ref().map_or(0, |group| group.count);
            let (low, high) = (count(&old).min(count(&new)), count(&old).max(count(&new)));
            let template = |group: &Option<DesiredGroup>| group.as_ref().map(|group| group.template.clone());
            let same = template(&old) == template(&new);
            changes.push((name.clone(), if same { low } else { 0 }..high, count(&new)));
        }
        self.note_departed(&next);
        for (name, _, count) in &changes {
            let (group, _) = self.state.nodes.intern(name);
            self.state.nodes.reserve(group, *count);
            self.index.slots.reserve(group, *count);
        }
        for (name, changed, _) in &changes {
            let group = self.state.nodes.group(name).expect("it was interned");
            for index in changed.clone() {
                let slot = Slot { group, index };
                self.index
                    .tally
                    .remove(Share::of(self.state.nodes.at(slot), self.template(slot)));
            }
        }
        self.desired = next;
        self.index.learn_names(&self.state.nodes, &self.desired);
        for (name, changed, count) in changes {
            let group = self.state.nodes.group(&name).expect("it was interned");
            for index in changed {
                let slot = Slot { group, index };
                self.index
                    .tally
                    .add(Share::of(self.state.nodes.at(slot), self.template(slot)));
                self.index.mark(slot);
            }
            self.state.nodes.trim(group, count);
            self.index.trim(group, count);
        }
    }

    /// Edges outlive their group: while a group that left the shape still has slots, all that it depended on
    /// when it left is kept.
    fn note_departed(&mut self, next: &Desired) {
        for group in next.groups() {
            self.state.departed.remove(&group.id);
        }
        for (place, group) in self.desired.groups().iter().enumerate() {
            let leaves = next.find(&group.id).is_none();
            let interned = self.state.nodes.group(&group.id);
            if leaves && interned.is_some_and(|group| !self.state.nodes.is_empty_group(group)) {
                let requires = self.desired.graph().requires_all(place);
                let names = requires
                    .map(|place| self.desired.groups()[place].id.clone())
                    .collect();
                self.state.departed.insert(group.id.clone(), names);
            }
        }
    }

    /// Forgets the edges of a departed group once its last slot is gone.
    pub(super) fn forget_departed(&mut self, group: u32) {
        if !self.state.departed.is_empty() && self.state.nodes.is_empty_group(group) {
            let name = self.state.nodes.name(group).clone();
            self.state.departed.remove(&name);
        }
    }
}
