//! Killing machines as an accident would, and waiting until they are replaced.

use std::collections::BTreeMap;

use nodewright::event::{Event, EventKind};
use nodewright::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, RunId};
use nodewright::{Cluster, Events, Heard, Stopped, View};
use nodewright_backends::process::ProcessBackend;
use rand::seq::SliceRandom as _;

use crate::note::Note;
use crate::reporter::Notes;

/// The slots whose machines were killed, with the attempts that they had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Victims(BTreeMap<LogicalNodeId, NodeAttemptId>);

impl Victims {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes what an event says of them.
    fn hear(&mut self, event: &EventKind) {
        match event {
            EventKind::StageReached {
                node,
                attempt,
                ready: true,
                ..
            } => self.is_ready(node, *attempt),
            // The shape does not want the slot any more.
            EventKind::Reaped { node, .. } => {
                self.0.remove(node);
            }
            _ => {}
        }
    }

    /// Looks at all of them: what was heard is only a hint, and some of it may have been missed.
    fn look(&mut self, view: &View) {
        let nodes: Vec<LogicalNodeId> = self.0.keys().cloned().collect();
        for node in nodes {
            match view.get(&node) {
                Some(status) if status.ready => {
                    if let Some(attempt) = status.attempt {
                        self.is_ready(&node, attempt);
                    }
                }
                Some(_) => {}
                None => drop(self.0.remove(&node)),
            }
        }
    }

    /// A slot is ready; whether it is another attempt tells whether it was replaced.
    fn is_ready(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        if self.0.get(node).is_some_and(|killed| attempt > *killed) {
            self.0.remove(node);
        }
    }
}

/// Kills the holders of this many ready machines, chosen at random. Fewer, and says so, where there are not
/// so many.
pub(crate) fn kill(
    cluster: &Cluster,
    backend: &ProcessBackend,
    run: &RunId,
    count: usize,
    notes: &Notes,
) -> Victims {
    let mut ready: Vec<_> = cluster.view().all();
    ready.retain(|status| status.ready);
    ready.shuffle(&mut rand::rng());
    let mut victims = Victims::default();
    for status in ready {
        if victims.len() == count {
            break;
        }
        let Some(attempt) = status.attempt else { continue };
        let identity = AttemptIdentity {
            run: run.clone(),
            node: status.node,
            attempt,
        };
        match backend.kill_holder(&identity) {
            Ok(true) => {
                let AttemptIdentity { node, attempt, .. } = identity;
                notes.tell(Note::Killed {
                    node: node.clone(),
                    attempt,
                });
                victims.0.insert(node, attempt);
            }
            // It died by itself in the meantime.
            Ok(false) => {}
            Err(error) => {
                let trouble = format!("{identity}: holder cannot be killed: {error}");
                notes.tell(Note::Trouble { trouble });
            }
        }
    }
    if victims.len() < count {
        let trouble = format!("{} machines were there to be killed, not {count}", victims.len());
        notes.tell(Note::Trouble { trouble });
    }
    victims
}

/// Waits until each slot is ready on another attempt, or is wanted no more. `events` has to be subscribed
/// before the killing.
///
/// # Errors
///
/// The cluster stopped first.
pub(crate) async fn healed(mut victims: Victims, mut events: Events, view: &View) -> Result<(), Stopped> {
    victims.look(view);
    while victims.len() > 0 {
        match events.recv().await.ok_or(Stopped)? {
            Heard::Event(Event { kind, .. }) => victims.hear(&kind),
            Heard::Missed(_) => victims.look(view),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nodewright::node::Stage;

    use super::*;

    #[test]
    fn a_slot_is_healed_by_another_ready_attempt_or_by_being_wanted_no_more() {
        let node = |name: &str| name.parse::<LogicalNodeId>().unwrap();
        let reached = |name, attempt, ready| EventKind::StageReached {
            node: node(name),
            attempt: NodeAttemptId::new(attempt),
            stage: Stage::Joined,
            ready,
        };
        let mut victims = Victims(
            [
                (node("w-0"), NodeAttemptId::new(4)),
                (node("w-1"), NodeAttemptId::new(5)),
            ]
            .into(),
        );
        victims.hear(&reached("w-0", 4, true));
        victims.hear(&reached("w-0", 9, false));
        victims.hear(&reached("w-2", 9, true));
        assert_eq!(victims.len(), 2);
        victims.hear(&reached("w-0", 9, true));
        assert_eq!(victims.len(), 1);
        victims.hear(&EventKind::Reaped {
            node: node("w-1"),
            attempt: NodeAttemptId::new(5),
        });
        assert_eq!(victims.len(), 0);
    }
}
