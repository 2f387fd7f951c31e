//! The kept numbers are what counting gives.

use std::collections::BTreeMap;

use nodewright_core::id::GroupId;
use nodewright_core::node::{Intent, ManagedNode, Stage};

use super::{Broken, demand};
use crate::sim::Sim;
use crate::subject::Subject;

impl<S: Subject> Sim<S> {
    /// What `summary` and `is_converged` say is what their definitions say.
    pub(super) fn check_numbers(&self) -> Result<(), Broken> {
        let (state, desired) = (self.driver.state(), self.driver.desired());
        let summary = self.driver.summary();
        let count = |what: &dyn Fn(&ManagedNode) -> bool| {
            state.nodes.iter().filter(|(_, node)| what(node)).count() as u64
        };
        let mut stages = [0; 10];
        for (_, node) in state.nodes.iter() {
            stages[node.stage as usize] += 1;
        }
        for (what, kept, counted) in [
            ("nodes", summary.nodes, count(&|_| true)),
            ("desired", summary.desired, desired.expand().count() as u64),
            ("ready", summary.ready, count(&|node| node.ready)),
            (
                "deleting",
                summary.deleting,
                count(&|node| node.intent == Intent::Deleting),
            ),
            (
                "halted",
                summary.halted,
                count(&|node| node.retry.halted.is_some()),
            ),
            ("pending", summary.pending, count(&|node| node.pending.is_some())),
            (
                "waiting",
                summary.waiting,
                count(&|node| node.retry.waiting_since.is_some()),
            ),
            ("orphans", summary.orphans, state.orphans.len() as u64),
        ] {
            demand!(
                kept == counted,
                "summary says {kept} {what}, and there are {counted}"
            );
        }
        demand!(
            summary.stages == stages,
            "summary says {:?}, and there are {stages:?}",
            summary.stages
        );
        let mut halted: BTreeMap<GroupId, u64> = BTreeMap::new();
        for (id, _) in state.nodes.iter().filter(|(_, node)| node.retry.halted.is_some()) {
            *halted.entry(id.group).or_default() += 1;
        }
        let degraded = summary.degraded.iter();
        let degraded: BTreeMap<_, _> = degraded.map(|one| (one.group.clone(), one.halted)).collect();
        demand!(
            degraded == halted,
            "summary says {degraded:?} are degraded, and {halted:?} are"
        );
        let satisfied = desired.expand().all(|spec| {
            state.nodes.get(&spec.id).is_some_and(|node| {
                node.ready
                    && node.intent == Intent::Active
                    && !node.retry.replace
                    && node.is_made_from(&spec.template)
                    && node.pending.is_none()
            })
        });
        let nothing_else = state
            .nodes
            .iter()
            .all(|(id, _)| desired.template_of(&id).is_some());
        let orphaned = state.orphans.iter().any(|(key, _)| {
            let node = state
                .nodes
                .get(&key.node)
                .filter(|node| node.attempt == key.attempt);
            node.is_none_or(|node| node.stage == Stage::Destroyed)
        });
        let evaluated = state.observed_generation == desired.generation();
        let converged = satisfied && nothing_else && !orphaned && state.looks_done() && evaluated;
        demand!(
            self.driver.is_converged() == converged && summary.converged == converged,
            "is_converged says {}, and by definition it is {converged}",
            self.driver.is_converged()
        );
        Ok(())
    }
}
