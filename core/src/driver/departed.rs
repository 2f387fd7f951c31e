//! Edges outlive their group: what groups that left the shape depended on, as long as it matters.
//!
//! A group that leaves keeps what it depended on, directly or not, when it left: of what stays everything, and
//! of what leaves with it only the next group, for that has an entry of its own. So a whole chain that is
//! taken down costs its edges, not its pairs. An entry goes with the last slot of its group, unless another
//! entry still leads through it.

use std::collections::{BTreeMap, BTreeSet};

use super::ClusterDriver;
use crate::desired::Desired;
use crate::graph::Graph;
use crate::id::GroupId;
use crate::state::ClusterState;

/// What groups depend on.
type Ties = BTreeMap<GroupId, BTreeSet<GroupId>>;

/// Forgets the entry of a group that is back in the shape: that says what the group depends on now. Entries
/// that led through it keep what they led to.
fn welcome_back(departed: &mut Ties, name: &GroupId) -> bool {
    let Some(below) = departed.remove(name) else {
        return false;
    };
    for led_to in departed.values_mut() {
        if led_to.contains(name) {
            led_to.extend(below.iter().cloned());
        }
    }
    true
}

/// Forgets the entries of groups that a shape has, and what matters no more without them. Says whether there
/// was any.
fn welcome_all_back(state: &mut ClusterState, desired: &Desired) -> bool {
    let mut any = false;
    if !state.departed.is_empty() {
        for group in desired.groups() {
            any |= welcome_back(&mut state.departed, &group.id);
        }
    }
    if any {
        forget_all(state);
    }
    any
}

/// Brings the entries of a state that was handed back in line with the shape and with the slots that are left.
/// The shape may lack groups that the state's own still had.
pub(super) fn settle_departed(state: &mut ClusterState, desired: &Desired) {
    welcome_all_back(state, desired);
    let accepted = std::mem::take(&mut state.depends_on);
    let names: BTreeSet<&GroupId> = accepted.keys().chain(accepted.values().flatten()).collect();
    let names: Vec<&GroupId> = names.into_iter().collect();
    let below = |name| accepted.get(name).into_iter().flatten().map(GroupId::as_str);
    let graph = Graph::new(names.iter().map(|name| (name.as_str(), below(*name))));
    let graph = graph.expect("the state was checked, and a new one has no ties");
    note_leaving(state, &names, &graph, desired);
    forget_all(state);
    state.depends_on = ties(desired);
}

/// What the groups of a shape depend on directly, where they depend on any.
pub(super) fn ties(desired: &Desired) -> Ties {
    let groups = desired.groups();
    let tied = groups.iter().filter(|group| !group.depends_on.is_empty());
    tied.map(|group| {
        let below = group.depends_on.iter().map(|place| groups[*place].id.clone());
        (group.id.clone(), below.collect())
    })
    .collect()
}

/// Notes what the groups of this graph that another shape lacks depend on. Says whether an entry came.
fn note_leaving(state: &mut ClusterState, names: &[&GroupId], graph: &Graph, next: &Desired) -> bool {
    let stays: Vec<bool> = names.iter().map(|name| next.find(name).is_some()).collect();
    // An entry leads through these.
    let mut needed = vec![false; names.len()];
    let mut changed = false;
    for &place in graph.reversed().filter(|place| !stays[**place]) {
        let interned = state.nodes.group(names[place]);
        let has_slots = interned.is_some_and(|group| !state.nodes.is_empty_group(group));
        if !has_slots && !needed[place] {
            continue;
        }
        let mut below = BTreeSet::new();
        for &next in graph.requires(place) {
            below.insert(names[next].clone());
            needed[next] = true;
            if stays[next] {
                for further in graph.requires_all(next) {
                    below.insert(names[further].clone());
                    needed[further] = true;
                }
            }
        }
        if !below.is_empty() {
            state.departed.insert(names[place].clone(), below);
            changed = true;
        }
    }
    changed
}

/// Forgets every entry whose group has no slot and that nothing leads through.
fn forget_all(state: &mut ClusterState) {
    let ClusterState { departed, nodes, .. } = state;
    let mut named: BTreeMap<GroupId, usize> = BTreeMap::new();
    for name in departed.values().flatten() {
        *named.entry(name.clone()).or_default() += 1;
    }
    let mut to_check: Vec<GroupId> = departed.keys().cloned().collect();
    while let Some(name) = to_check.pop() {
        let empty = nodes.group(&name).is_none_or(|group| nodes.is_empty_group(group));
        if !empty || named.get(&name).is_some_and(|count| *count > 0) {
            continue;
        }
        for below in departed.remove(&name).into_iter().flatten() {
            if let Some(count) = named.get_mut(&below) {
                *count -= 1;
            }
            to_check.push(below);
        }
    }
}

impl ClusterDriver {
    /// Before another shape is put in place: notes what the groups that leave depended on. Says whether an
    /// entry came or went.
    pub(super) fn note_departed(&mut self, next: &Desired) -> bool {
        let changed = welcome_all_back(&mut self.state, next);
        let (groups, graph) = (self.desired.groups(), self.desired.graph());
        let names: Vec<&GroupId> = groups.iter().map(|group| &group.id).collect();
        changed | note_leaving(&mut self.state, &names, graph, next)
    }

    /// Forgets the entry of a departed group once its last slot is gone and nothing leads through it.
    pub(super) fn forget_departed(&mut self, group: u32) {
        if self.state.departed.is_empty() {
            return;
        }
        let mut to_check = vec![group];
        while let Some(group) = to_check.pop() {
            if !self.state.nodes.is_empty_group(group) || self.index.gates.has_dependents(group) {
                continue;
            }
            let name = self.state.nodes.name(group).clone();
            if let Some(below) = self.state.departed.remove(&name) {
                self.index.gates.untie(group);
                let nodes = &self.state.nodes;
                to_check.extend(below.iter().filter_map(|name| nodes.group(name)));
            }
        }
    }
}
