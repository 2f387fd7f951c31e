//! What a cluster is explored with: its shapes, its policy, and how much may go wrong.

use std::time::Duration;

use nodewright_core::driver::ProviderSetup;
use nodewright_core::effect::{Capabilities, CommandKind};
use nodewright_core::id::{LogicalNodeId, ProviderKind};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, NodeGroupSpec};

use super::calm::Most;

/// What may go wrong or be asked for; of each only so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the methods of `Budget`, which say it")]
pub enum Kind {
    Calls,
    Throttles,
    Fatals,
    Streams,
    Reports,
    Losses,
    Moves,
    Strays,
    Executors,
    Processes,
    Journals,
    Looks,
    Shapes,
    Hands,
    Sweeps,
}

const KINDS: usize = Kind::Sweeps as usize + 1;

/// How much may still go wrong, or be asked for from outside: so much of each kind, and so much in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    total: u8,
    of: [u8; KINDS],
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub const fn $name(mut self, most: u8) -> Self {
            self.of[Kind::$kind as usize] = most;
            self
        }
    )*};
}

impl Budget {
    /// At most so much in all, of kinds that are still to be named.
    pub const fn of(total: u8) -> Self {
        Self {
            total,
            of: [0; KINDS],
        }
    }

    kinds! {
        /// Calls that fail, hang, answer late, or have an effect that nobody hears of; look-ups that lag.
        calls = Calls;
        /// "Slow down".
        throttles = Throttles;
        /// Failures that no repetition helps.
        fatals = Fatals;
        /// Sessions that end, break or fall silent.
        streams = Streams;
        /// Results and stream reports that are lost or late.
        reports = Reports;
        /// Machines that die or vanish, and losses that are told of machines that live.
        losses = Losses;
        /// Machines that are reached another way than before.
        moves = Moves;
        /// Creates that come through when their provider said they could no longer, or twice.
        strays = Strays;
        /// Executors that die.
        executors = Executors;
        /// Processes that die.
        processes = Processes;
        /// States that are written down, for a later process to go on with.
        journals = Journals;
        /// Looks that fail, are answered with what was, with nothing, or without what is not visible yet.
        looks = Looks;
        /// Shapes that are asked for.
        shapes = Shapes;
        /// Retries, replacements, handoffs and joins by hand.
        hands = Hands;
        /// Questions for the inventory that are asked at any moment. They are nothing that goes wrong, and count
        /// for themselves only.
        sweeps = Sweeps;
    }

    /// Whether one more of this kind may happen.
    pub(super) const fn allows(&self, kind: Kind) -> bool {
        self.of[kind as usize] > 0
    }

    /// Takes one of this kind. Budgets of which nothing is left are all the same.
    pub(super) fn spend(&mut self, kind: Kind) {
        self.of[kind as usize] -= 1;
        let sweeps = self.of[Kind::Sweeps as usize];
        if !matches!(kind, Kind::Sweeps) {
            self.total -= 1;
        }
        if self.total == 0 {
            self.of = [0; KINDS];
            self.of[Kind::Sweeps as usize] = sweeps;
        }
    }

    /// Whether nothing more goes wrong.
    pub(super) fn is_spent(&self) -> bool {
        self.of == [0; KINDS]
    }
}

/// A cluster that is explored.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Its name, for people.
    pub name: &'static str,
    /// The shapes that it may be asked to have; it begins with the first. They differ in any way.
    pub shapes: Vec<Vec<NodeGroupSpec>>,
    /// How much may go wrong.
    pub budget: Budget,
    /// The driver's policy. Without jitter, and in whole seconds.
    pub policy: Policy,
    /// The provider's visibility, in whole seconds.
    pub visibility: Duration,
    /// The provider's pace.
    pub pace: PaceConfig,
    /// Whether a call ends when it is told to.
    pub abortable: bool,
    /// Whether the endpoint comes with the lease; else it is looked up.
    pub endpoint_at_once: bool,
    /// Whether sessions report more than the join and their end.
    pub stages: bool,
    /// Whether folding and passing are steps of their own, so that one pass may see several reports.
    pub passes_apart: bool,
    /// Whether the provider is swept. It has no watch then: of a machine that is gone nobody tells.
    pub sweeps: bool,
    /// Whether the cluster is at rest when it begins; else it is not there.
    pub settled: bool,
    /// Whether what may happen is tried from the last to the first. What is visited is the same.
    pub backwards: bool,
}

impl Setup {
    /// One slot, made from template `one`.
    pub fn new(name: &'static str, budget: Budget) -> Self {
        Self {
            name,
            shapes: vec![vec![crate::group("w", 1, crate::template("alpha", "one"))]],
            budget,
            policy: policy(),
            visibility: Duration::from_secs(3),
            pace: PaceConfig::default(),
            abortable: true,
            endpoint_at_once: true,
            stages: false,
            passes_apart: false,
            sweeps: false,
            settled: false,
            backwards: false,
        }
    }

    pub(super) fn provider() -> ProviderKind {
        "alpha".parse().expect("a name")
    }

    pub(super) fn shape(&self, place: usize, generation: u64) -> ClusterShape {
        crate::shape(generation, self.shapes[place].clone())
    }

    pub(super) fn providers(&self, fresh: bool) -> std::collections::BTreeMap<ProviderKind, ProviderSetup> {
        let setup = ProviderSetup {
            capabilities: Capabilities {
                visibility: self.visibility,
                inventory: true,
                watch: !self.sweeps,
                abortable: self.abortable,
            },
            pace: self.pace,
            fresh,
        };
        [(Self::provider(), setup)].into()
    }

    /// The bound of G22: the most that a slot does after the last thing that went wrong or was asked for.
    ///
    /// One more attempt. Fourteen actions where the endpoint comes with the lease. It takes them where a create
    /// was ambiguous, its machine vanished before anybody saw it, and that is told only once there is another:
    /// three look-ups until its absence counts (`visibility / probe_interval`, rounded up, and one at once),
    /// create, start, observe; begin to delete, cancel, destroy, mark; restart, create, start, observe.
    ///
    /// Where the endpoint is looked up a machine that vanished has none, and is asked for it until it is late:
    /// at most once per `probe_interval` of `startup_timeout`, and once more where an executor refused. Here
    /// that is twelve look-ups; fail, begin to delete, destroy, mark; restart, create, look up, start, observe.
    pub(super) const fn most(&self) -> Most {
        Most {
            attempts: 1,
            actions: if self.endpoint_at_once { 14 } else { 21 },
        }
    }

    /// By how much two questions must be apart whose answers count as two.
    pub(super) fn apart(&self) -> Duration {
        self.visibility.max(self.policy.sweep_interval / 2)
    }

    /// How soon an attempt may repeat a command.
    pub(super) const fn net(&self, kind: CommandKind) -> Duration {
        if kind.is_look_up() {
            self.policy.probe_interval
        } else {
            self.policy.initial_delay
        }
    }

    /// Every slot that some shape wants, in order.
    pub(super) fn slots(&self) -> Vec<LogicalNodeId> {
        let groups = self.shapes.iter().flatten();
        let mut slots: Vec<LogicalNodeId> = groups
            .flat_map(|group| {
                (0..group.count).map(|index| LogicalNodeId {
                    group: group.group_id.clone(),
                    index,
                })
            })
            .collect();
        slots.sort();
        slots.dedup();
        slots
    }
}

/// A policy of whole seconds, in which every timeout is met within few steps and no two of them in one.
fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.jitter_per_mille = 0;
    policy.initial_delay = Duration::from_secs(1);
    policy.max_delay = Duration::from_secs(4);
    policy.operation_timeout = Duration::from_secs(10);
    policy.abort_grace = Duration::from_secs(2);
    policy.startup_timeout = Duration::from_secs(21);
    policy.stall_timeout = Duration::from_secs(8);
    policy.join_grace = Duration::from_secs(5);
    policy.max_throttle = Duration::from_secs(6);
    policy.cancel_attempts = 2;
    policy
}
