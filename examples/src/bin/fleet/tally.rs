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
    /// Machines that were lost after they had been ready. What ends before that may be told as lost or as a
    /// failed start, whichever comes first.
    pub(crate) lost: u64,
    /// Machines that no slot owned.
    pub(crate) orphans: u64,
    /// Events that came too fast to be counted.
    pub(crate) missed: u64,
    /// The attempts that hold a machine.
    holding: BTreeSet<NodeAttemptId>,
    /// Those of them that have been ready.
    were_ready: BTreeSet<NodeAttemptId>,
}

impl Tally {
    /// A count that begins with the machines of these attempts, each with whether it is ready.
    pub(crate) fn new(holding: impl IntoIterator<Item = (NodeAttemptId, bool)>) -> Self {
        let mut tally = Self::default();
        for (attempt, ready) in holding {
            tally.holding.insert(attempt);
            tally.note_ready(attempt, ready);
        }
        tally
    }

    fn note_ready(&mut self, attempt: NodeAttemptId, ready: bool) {
        if ready {
            self.were_ready.insert(attempt);
        }
    }

    /// Counts one event.
    pub(crate) fn count(&mut self, event: &EventKind) {
        match event {
            EventKind::StageReached {
                attempt,
                stage,
                ready,
                ..
            } => {
                self.note_ready(*attempt, *ready);
                match stage {
                    Stage::New | Stage::LeaseRequested | Stage::Failed => {}
                    Stage::Destroyed => {
                        self.were_ready.remove(attempt);
                        self.destroyed += u64::from(self.holding.remove(attempt));
                    }
                    // However far the event says it got: it holds a machine.
                    _ => self.created += u64::from(self.holding.insert(*attempt)),
                }
            }
            EventKind::MachineFound { attempt, .. } => {
                self.holding.insert(*attempt);
            }
            EventKind::Restarted { .. } => self.replaced += 1,
            EventKind::AttemptFailed {
                attempt, lost: true, ..
            } => self.lost += u64::from(self.were_ready.contains(attempt)),
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
    fn what_is_lost_after_it_was_ready_is_counted_and_what_fails_otherwise_is_not() {
        let failed = |attempt, lost| EventKind::AttemptFailed {
            node: "w-0".parse().unwrap(),
            attempt: NodeAttemptId::new(attempt),
            reason: "a reason".into(),
            lost,
            restart_at: None,
        };
        let ready = EventKind::StageReached {
            node: "w-0".parse().unwrap(),
            attempt: NodeAttemptId::new(2),
            stage: Stage::Dormant,
            ready: true,
        };
        let mut tally = Tally::new([(NodeAttemptId::new(1), true)]);
        for (event, lost) in [
            (failed(1, true), 1),
            (failed(2, true), 1),
            (ready, 1),
            (failed(2, false), 1),
            (failed(2, true), 2),
        ] {
            tally.count(&event);
            assert_eq!(tally.lost, lost, "{event:?}");
        }
    }

    #[test]
    fn a_machine_that_nobody_owned_is_an_orphan_and_was_destroyed_once_it_is_gone() {
        let (node, attempt, lease) = ("w-0".parse().unwrap(), NodeAttemptId::new(1), LeaseId::new("l"));
        let orphan = EventKind::OrphanFound {
            node,
            attempt,
            lease: lease.clone(),
            surplus: false,
        };
        let gone = EventKind::OrphanGone {
            node: "w-0".parse().unwrap(),
            attempt,
            lease,
        };
        let mut tally = Tally::default();
        tally.count(&orphan);
        tally.count(&gone);
        assert_eq!((tally.orphans, tally.destroyed), (1, 1));
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
        let resumed = Tally::new([(NodeAttemptId::new(1), true)]);
        let life = [reached(1, Stage::Dormant), reached(1, Stage::Destroyed)];
        assert_eq!(counted(resumed, &life), (0, 0, 1));
    }
}
