//! How a trace ends, once nothing goes wrong any more.

use std::collections::BTreeMap;

use nodewright_core::id::{LogicalNodeId, NodeAttemptId, ProviderKind};

use super::{Broken, demand};
use crate::sim::Sim;
use crate::subject::Subject;

type Held = BTreeMap<(ProviderKind, LogicalNodeId, NodeAttemptId), usize>;

/// How many attempts a slot takes at most after the last fault. One replaces what the faults have spoilt. What
/// was under way at that moment may still spoil a second: an answer that is already lost, a machine that is
/// already dead, a session that has already failed.
const ATTEMPTS: u64 = 2;

impl<S: Subject> Sim<S> {
    /// G22, G23 and G3, once nothing is left to do.
    pub(crate) fn check_settled(&mut self) -> Result<(), Broken> {
        demand!(
            self.driver.is_converged(),
            "G22: at rest and not converged: {}",
            self.describe()
        );
        self.g22_a_bounded_number_of_attempts()?;
        self.g23_what_lives_is_what_is_known()?;
        self.g3_a_forced_pass_changes_nothing()
    }

    fn g22_a_bounded_number_of_attempts(&self) -> Result<(), Broken> {
        for (id, taken) in self.history.taken_since_the_faults() {
            demand!(
                *taken <= ATTEMPTS,
                "G22: {id} took {taken} attempts after the last fault"
            );
        }
        Ok(())
    }

    fn g23_what_lives_is_what_is_known(&self) -> Result<(), Broken> {
        let state = self.driver.state();
        let mut held = Held::new();
        for (id, node) in state.nodes.iter().filter(|(_, node)| node.lease.is_some()) {
            *held.entry((node.provider.clone(), id, node.attempt)).or_default() += 1;
        }
        for key in state.orphans.keys().cloned() {
            *held.entry((key.provider, key.node, key.attempt)).or_default() += 1;
        }
        let mut live = Held::new();
        for (kind, living) in self.living() {
            for one in living {
                let key = (kind.clone(), one.identity.node, one.identity.attempt);
                *live.entry(key).or_default() += 1;
            }
        }
        demand!(
            held == live,
            "G23: the state holds {held:?}, and there live {live:?}"
        );
        Ok(())
    }

    fn g3_a_forced_pass_changes_nothing(&mut self) -> Result<(), Broken> {
        demand!(
            self.driver.requeue_at().is_none(),
            "G3: converged, and a moment is waited for"
        );
        let before = self.driver.state().clone();
        let calls = self.call_count();
        self.driver.trigger();
        self.drive()?;
        demand!(
            *self.driver.state() == before
                && self.call_count() == calls
                && self.running().is_empty()
                && self.driver.requeue_at().is_none(),
            "G3: a forced pass changed something"
        );
        Ok(())
    }

    /// What keeps it from being converged, for people.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.driver.summary());
        for (id, node) in self.driver.state().nodes.iter() {
            if !node.ready || !node.is_active() {
                let why = self.driver.why(&id, self.now);
                text.push_str(&format!("\n{id}: {why:?} {node:?}"));
            }
        }
        for (key, orphan) in &self.driver.state().orphans {
            text.push_str(&format!("\norphan {key}: {orphan:?}"));
        }
        text.push_str(&format!("\n{self:?}"));
        text
    }
}
