//! Numbers that are kept as nodes change, so that nobody has to count.

use crate::node::{Intent, ManagedNode};
use crate::template::Template;

/// What one slot adds to the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    stage: Option<usize>,
    ready: bool,
    deleting: bool,
    halted: bool,
    pending: bool,
    waiting: bool,
    unsatisfied: bool,
    /// Whether it is desired and not available: it keeps those above its group from starting.
    lacking: bool,
    /// Whether it is undesired and holds a node: it keeps those below its group from stopping.
    going: bool,
}

impl Share {
    pub(super) fn of(node: Option<&ManagedNode>, desired: Option<&Template>) -> Self {
        let available = match (node, desired) {
            (Some(node), Some(template)) => node.is_available(template),
            _ => false,
        };
        let lacking = desired.is_some() && !available;
        let going = desired.is_none() && node.is_some();
        let pending = node.is_some_and(|node| node.pending.is_some());
        Self {
            stage: node.map(|node| node.stage as usize),
            ready: node.is_some_and(|node| node.ready),
            deleting: node.is_some_and(|node| node.intent == Intent::Deleting),
            halted: node.is_some_and(|node| node.retry.halted.is_some()),
            pending,
            waiting: node.is_some_and(|node| node.retry.waiting_since.is_some()),
            unsatisfied: lacking || going || pending,
            lacking,
            going,
        }
    }

    pub(super) fn is_halted(self) -> bool {
        self.halted
    }

    /// Whether the slot holds back starts, and stops.
    pub(super) fn holds_back(self) -> [bool; 2] {
        [self.lacking, self.going]
    }
}

/// The numbers of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) stages: [u64; 10],
    pub(super) ready: u64,
    pub(super) deleting: u64,
    pub(super) halted: u64,
    pub(super) pending: u64,
    pub(super) waiting: u64,
    /// Slots that are not as the shape wants them.
    pub(super) unsatisfied: u64,
    /// Providers whose first look is not done.
    pub(super) unlooked: u64,
    pub(super) orphans: u64,
    /// Orphans that are kept until their attempt is retired.
    pub(super) surplus: u64,
    pub(super) stale: u64,
}

impl Tally {
    pub(super) fn add(&mut self, share: Share) {
        self.count(share, u64::wrapping_add);
    }

    pub(super) fn remove(&mut self, share: Share) {
        self.count(share, u64::wrapping_sub);
    }

    fn count(&mut self, share: Share, step: fn(u64, u64) -> u64) {
        if let Some(stage) = share.stage {
            self.stages[stage] = step(self.stages[stage], 1);
        }
        for (number, counts) in [
            (&mut self.ready, share.ready),
            (&mut self.deleting, share.deleting),
            (&mut self.halted, share.halted),
            (&mut self.pending, share.pending),
            (&mut self.waiting, share.waiting),
            (&mut self.unsatisfied, share.unsatisfied),
        ] {
            *number = step(*number, u64::from(counts));
        }
    }
}
