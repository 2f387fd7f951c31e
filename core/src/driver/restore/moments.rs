//! Moments that another process wrote down, by a wall clock that may have been set since.
//!
//! A clock that was set back leaves moments far ahead: a wait of a second would last an hour. They are taken back
//! to where this process's own would lie at most. A clock that was set forward makes waits end early, which hurts
//! nobody but where time stands for proof: a remembered call counts as ended now.

use std::time::Duration;

use jiff::Timestamp;

use crate::failure::after;
use crate::node::ManagedNode;
use crate::orphan::Orphan;
use crate::policy::Policy;
use crate::state::ProviderState;

/// The latest that a moment of each kind may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latest {
    /// Of what has happened.
    now: Timestamp,
    /// Of what is waited for.
    wait: Timestamp,
}

impl Latest {
    pub(super) fn new(policy: &Policy, now: Timestamp) -> Self {
        let waits = [policy.max_delay, policy.max_throttle, policy.probe_interval];
        let longest = waits.into_iter().max().unwrap_or(Duration::ZERO);
        Self {
            now,
            wait: after(now, longest).unwrap_or(Timestamp::MAX),
        }
    }

    pub(super) fn bound_node(self, node: &mut ManagedNode) {
        let retry = &mut node.retry;
        for waits in [&mut retry.next_effect_at, &mut retry.restart_at] {
            *waits = waits.map(|at| at.min(self.wait));
        }
        retry.last_command = retry.last_command.map(|(kind, at)| (kind, at.min(self.now)));
        for call in [&mut retry.create, &mut retry.start].into_iter().flatten() {
            call.ended = Some(self.now);
        }
    }

    pub(super) fn bound_orphan(self, orphan: &mut Orphan) {
        orphan.next_effect_at = orphan.next_effect_at.map(|at| at.min(self.wait));
        orphan.last_dispatch = orphan.last_dispatch.map(|at| at.min(self.now));
        orphan.first_seen = orphan.first_seen.min(self.now);
        orphan.last_seen = orphan.last_seen.min(self.now);
    }

    pub(super) fn bound_provider(self, provider: &mut ProviderState) {
        provider.pace.bound(self.now, self.wait);
    }
}
