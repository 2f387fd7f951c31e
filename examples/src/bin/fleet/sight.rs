//! Looking at all slots: not too often, and only when something may have changed.

use std::collections::BTreeMap;
use std::time::Duration;

use nodewright::Cluster;
use nodewright::decide::WaitReason;
use nodewright::id::GroupId;
use nodewright::status::{Awaited, NodeStatus, Why};
use tokio::time::{Instant, sleep_until};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);

/// As many groups are asked what they wait for; no terminal shows more.
const GROUPS: usize = 64;

/// When to look next. Never, while nothing happens and no time is shown.
#[derive(Debug)]
pub(crate) struct Pulse {
    last: Instant,
    next: Option<Instant>,
}

impl Pulse {
    /// What happens at first is waited for a moment, as if a look had just been taken.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last: now,
            next: None,
        }
    }

    /// Something happened.
    pub(crate) fn stir(&mut self) {
        let soon = self.last + EVERY;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// A look was taken, and shows something else after this time whatever happens.
    pub(crate) fn looked(&mut self, now: Instant, tick: Option<Duration>) {
        self.last = now;
        self.next = tick.map(|tick| now + tick.max(EVERY));
    }

    /// Resolves when it is time to look. Cancel safe.
    pub(crate) async fn due(&self) {
        match self.next {
            Some(next) => sleep_until(next).await,
            None => std::future::pending().await,
        }
    }
}

/// How all slots are, those that wait for groups with the groups' names. All slots of a group that wait for
/// others wait for the same ones: one is asked for all.
pub(crate) async fn look(cluster: &Cluster) -> Vec<NodeStatus> {
    let mut seen = cluster.view().all();
    let mut named: BTreeMap<(GroupId, bool), Vec<Awaited>> = BTreeMap::new();
    for status in &mut seen {
        let Some(to_start) = waits_to_start(&status.why) else {
            continue;
        };
        let key = (status.node.group.clone(), to_start);
        if !named.contains_key(&key) {
            if named.len() == GROUPS {
                continue;
            }
            // A cluster that has stopped waits for nobody.
            let asked = cluster.node(&status.node).await.ok().flatten();
            // By now it may do something else.
            let why = asked
                .map(|asked| asked.why)
                .filter(|why| waits_to_start(why) == Some(to_start));
            let groups = match why {
                Some(Why::WaitingFor { groups, .. }) => groups,
                _ => Vec::new(),
            };
            named.insert(key.clone(), groups);
        }
        if let (Why::WaitingFor { groups, .. }, Some(named)) = (&mut status.why, named.get(&key)) {
            groups.clone_from(named);
        }
    }
    seen
}

/// Whether it waits for groups to be there, or for groups to be gone; `None` if for neither.
const fn waits_to_start(why: &Why) -> Option<bool> {
    match why {
        Why::WaitingFor {
            reason: WaitReason::Dependencies,
            ..
        } => Some(true),
        Why::WaitingFor {
            reason: WaitReason::Dependents,
            ..
        } => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_apart_and_none_is_due_while_nothing_happens_and_nothing_ticks() {
        let now = Instant::now();
        let mut pulse = Pulse::new(now);
        assert_eq!(pulse.next, None);
        pulse.stir();
        assert_eq!(pulse.next, Some(now + EVERY));
        let later = now + EVERY;
        pulse.looked(later, None);
        assert_eq!(pulse.next, None);
        // What ticks waits for its time, and what happens does not wait for it.
        pulse.looked(later, Some(Duration::from_secs(60)));
        pulse.stir();
        assert_eq!(pulse.next, Some(later + EVERY));
        pulse.stir();
        assert_eq!(pulse.next, Some(later + EVERY));
    }
}
