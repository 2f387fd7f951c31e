//! Counts what became of machines, from the events of their cluster.

use std::collections::BTreeSet;

use nodewright::event::EventKind;
use nodewright::id::NodeAttemptId;
use nodewright::node::Stage;

/// What was made, replaced and taken down while somebody listened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) created: u64,
    pub(crate) replaced: u64,
    pub(crate) destroyed: u64,
    /// Attempts whose machine was lost.
    pub(crate) lost: u64,
    /// Machines that no slot owned.
    pub(crate) orphans: u64,
    /// Events that came too fast to be counted.
    pub(crate) missed: u64,
    /// The attempts that hold a machine.
    holding: BTreeSet<NodeAttemptId>,
}

impl Tally {
    /// A count that begins with the machines of these attempts.
    pub(crate) fn new(holding: impl IntoIterator<Item = NodeAttemptId>) -> Self {
        Self {
            holding: holding.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Counts one event.
    pub(crate) fn count(&mut self, event: &EventKind) {
        match event {
            EventKind::StageReached { attempt, stage, .. } => match stage {
                Stage::New | Stage::LeaseRequested | Stage::Failed => {}
                Stage::Destroyed => self.destroyed += u64::from(self.holding.remove(attempt)),
                // However far the event says it got: it holds a machine.
                _ => self.created += u64::from(self.holding.insert(*attempt)),
            },
            EventKind::MachineFound { attempt, .. } => {
                self.holding.insert(*attempt);
            }
            EventKind::Restarted { .. } => self.replaced += 1,
            EventKind::AttemptFailed { lost: true, .. } => self.lost += 1,
            EventKind::OrphanFound { .. } => self.orphans += 1,
            EventKind::OrphanGone { .. } => self.destroyed += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nodewright::facts::LeaseId;

    use super::*;

    fn reached(attempt: u64, stage: Stage) -> EventKind {
        EventKind::StageReached {
            node: "w-0".parse().unwrap(),
            attempt: NodeAttemptId::new(attempt),
            stage,
            ready: false,
        }
    }

    fn counted(mut tally: Tally, events: &[EventKind]) -> (u64, u64, u64) {
        for event in events {
            tally.count(event);
        }
        (tally.created, tally.replaced, tally.destroyed)
    }

    #[test]
    fn a_machine_counts_once_however_many_stages_it_reaches() {
        let life = [
            reached(1, Stage::LeaseRequested),
            reached(1, Stage::LeaseCreated),
            reached(1, Stage::EndpointKnown),
            reached(1, Stage::Dormant),
            reached(1, Stage::Destroyed),
        ];
        assert_eq!(counted(Tally::default(), &life), (1, 0, 1));
    }

    #[test]
    fn an_attempt_that_never_held_a_machine_made_and_destroyed_none() {
        let life = [reached(1, Stage::LeaseRequested), reached(1, Stage::Destroyed)];
        assert_eq!(counted(Tally::default(), &life), (0, 0, 0));
    }

    #[test]
    fn a_lost_machine_and_one_that_nobody_owns_are_counted_and_another_failure_is_not() {
        let (node, attempt) = ("w-0".parse().unwrap(), NodeAttemptId::new(1));
        let failed = |lost| EventKind::AttemptFailed {
            node: "w-0".parse().unwrap(),
            attempt,
            reason: "a reason".into(),
            lost,
            restart_at: None,
        };
        let orphan = EventKind::OrphanFound {
            node,
            attempt,
            lease: LeaseId::new("l"),
            surplus: false,
        };
        let mut tally = Tally::default();
        for event in [failed(true), failed(false), orphan] {
            tally.count(&event);
        }
        assert_eq!((tally.lost, tally.orphans), (1, 1));
    }

    #[test]
    fn a_machine_that_was_there_before_is_destroyed_but_was_not_created() {
        let found = EventKind::MachineFound {
            node: "w-0".parse().unwrap(),
            attempt: NodeAttemptId::new(1),
            lease: LeaseId::new("l"),
        };
        assert_eq!(
            counted(Tally::default(), &[found, reached(1, Stage::Destroyed)]),
            (0, 0, 1)
        );
        let resumed = Tally::new([NodeAttemptId::new(1)]);
        let life = [reached(1, Stage::Dormant), reached(1, Stage::Destroyed)];
        assert_eq!(counted(resumed, &life), (0, 0, 1));
    }
}
