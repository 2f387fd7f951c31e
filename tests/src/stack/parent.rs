//! The application's supervisor, and what it may do to a cluster's actors.

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::trace::Part;

/// A supervisor that outlives whatever its children do.
#[derive(Debug)]
pub(super) struct Parent(ActorRef<()>);

struct Hears;

#[ractor::actor(message = (), state = (), arguments = ())]
impl Hears {
    async fn pre_start(&self, _myself: ActorRef<()>, _arguments: ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        _event: SupervisionEvent,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

impl Parent {
    pub(super) async fn spawn() -> Self {
        let (parent, _) = Actor::spawn(None, Hears, ()).await.expect("it does nothing");
        Self(parent)
    }

    pub(super) fn cell(&self) -> ActorCell {
        self.0.get_cell()
    }

    pub(super) async fn stop(&self) {
        self.0.stop(None);
        let _ = self.cell().wait(None).await;
    }

    /// The supervisor of the cluster that runs now.
    fn supervisor(&self) -> Option<ActorCell> {
        self.cell().get_children().pop()
    }

    /// Its children, in the order in which they were spawned.
    fn children(&self) -> Vec<ActorCell> {
        let mut children = self
            .supervisor()
            .map(|one| one.get_children())
            .unwrap_or_default();
        children.sort_by_key(ActorCell::get_id);
        children
    }
}

/// The actors of a cluster, by what they are: its timer, then streams and executor of each provider.
#[derive(Debug)]
pub(super) struct Family(Vec<ActorId>);

impl Family {
    /// The family of a cluster that has just begun.
    pub(super) async fn of(parent: &Parent, providers: usize) -> Self {
        let size = 1 + 2 * providers;
        loop {
            let children = parent.children();
            if children.len() == size {
                return Self(children.iter().map(ActorCell::get_id).collect());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Kills a part, and waits until another has taken its place.
    pub(super) async fn crash(&mut self, parent: &Parent, part: Part) {
        let provider = |number: u8| usize::from(number) % (self.0.len() / 2);
        let places: Vec<usize> = match part {
            Part::Timer => vec![0],
            Part::Streams => (1..self.0.len()).step_by(2).collect(),
            Part::Executor(number) => vec![2 + 2 * provider(number)],
        };
        for place in places {
            let children = parent.children();
            let Some(victim) = children.iter().find(|child| child.get_id() == self.0[place]) else {
                continue;
            };
            victim.kill();
            let _ = victim.wait(None).await;
            self.0[place] = loop {
                let fresh = parent.children().into_iter().map(|child| child.get_id());
                if let Some(id) = fresh.into_iter().find(|id| !self.0.contains(id)) {
                    break id;
                }
                tokio::task::yield_now().await;
            };
        }
    }

    /// Kills the supervisor, and waits until nothing of the cluster is left.
    pub(super) async fn kill(&self, parent: &Parent) {
        let family = parent.children();
        if let Some(supervisor) = parent.supervisor() {
            supervisor.kill();
            let _ = supervisor.wait(None).await;
        }
        for child in family {
            let _ = child.wait(None).await;
        }
        while parent.supervisor().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
