//! G25 in random runs: whatever happens to a shape with dependencies, nothing starts too early and nothing is
//! asked to go too early, and in the end all is as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::decide::DeleteReason;
use nodewright_core::effect::{CommandKind, EffectError, PlannedEffect};
use nodewright_core::event::EventKind;
use nodewright_core::id::{GroupId, LogicalNodeId};
use nodewright_core::observation::Observation;
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::{ClusterShape, NodeGroupSpec};
use proptest::prelude::*;

/// The groups, in an order that is neither that of the names nor against it: each depends only on earlier ones.
const GROUPS: [&str; 5] = ["c", "e", "a", "d", "b"];

/// What a shape wants of each group: a count, none for no group; and per pair whether the later depends on
/// the earlier.
#[derive(Debug, Clone)]
struct Wish {
    counts: [Option<u32>; 5],
    edges: u16,
    images: u8,
}

impl Wish {
    fn groups(&self) -> Vec<NodeGroupSpec> {
        let mut groups = Vec::new();
        let mut pair = 0;
        for (place, count) in self.counts.iter().enumerate() {
            let mut depends_on = BTreeSet::new();
            for (below, count) in GROUPS.iter().zip(&self.counts).take(place) {
                if self.edges >> pair & 1 == 1 && count.is_some() {
                    depends_on.insert(below.parse().unwrap());
                }
                pair += 1;
            }
            if let Some(count) = count {
                let image = if self.images >> place & 1 == 1 {
                    "one"
                } else {
                    "two"
                };
                let spec = group(GROUPS[place], *count, template("alpha", image));
                groups.push(NodeGroupSpec { depends_on, ..spec });
            }
        }
        groups
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Of what was sent and not answered this one is: with success, or by a kind of failure.
    Answer(usize, u8),
    Lose(usize),
    Replace(usize),
    Retry(usize),
    Reshape(Wish),
    /// The same groups, fewer or more nodes.
    Recount([Option<u32>; 5]),
    Drain,
    Wait(u64),
    /// The process ends, and another takes over.
    Restore,
    /// A pass. Without one, several things have happened before the next.
    Drive,
}

fn count() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![1 => Just(None), 4 => (0_u32..3).prop_map(Some)]
}

fn wish() -> impl Strategy<Value = Wish> {
    (
        [count(), count(), count(), count(), count()],
        any::<u16>(),
        any::<u8>(),
    )
        .prop_map(|(counts, edges, images)| Wish {
            counts,
            edges,
            images: images | images << 3,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let counts = [count(), count(), count(), count(), count()];
    prop_oneof![
        40 => (any::<usize>(), any::<u8>()).prop_map(|(which, how)| Step::Answer(which, how)),
        30 => Just(Step::Drive),
        3 => any::<usize>().prop_map(Step::Lose),
        1 => any::<usize>().prop_map(Step::Replace),
        1 => any::<usize>().prop_map(Step::Retry),
        2 => wish().prop_map(Step::Reshape),
        4 => counts.prop_map(Step::Recount),
        1 => Just(Step::Drain),
        8 => (1_u64..30).prop_map(Step::Wait),
        1 => Just(Step::Restore),
    ]
}

type Reach = BTreeMap<GroupId, BTreeSet<GroupId>>;

/// What each group of a shape depends on, directly or not.
fn reach(shape: &ClusterShape) -> Reach {
    let mut reach: Reach = shape
        .groups
        .iter()
        .map(|group| (group.group_id.clone(), group.depends_on.clone()))
        .collect();
    for _ in 0..GROUPS.len() {
        let direct = reach.clone();
        for below in reach.values_mut() {
            let further: Vec<GroupId> = below.iter().flat_map(|name| direct[name].clone()).collect();
            below.extend(further);
        }
    }
    reach
}

/// A driver, what it sent, and what an onlooker knows of it.
struct Run {
    hand: ByHand,
    wish: Wish,
    open: Vec<PlannedEffect>,
    /// What groups depended on when they left the shape.
    left: Reach,
}

impl Run {
    fn new(wish: Wish) -> Self {
        let shape = shape(1, wish.groups());
        Self {
            hand: ByHand::fresh(shape, policy(), PaceConfig::default()),
            wish,
            open: Vec::new(),
            left: Reach::new(),
        }
    }

    fn slots(&self) -> Vec<LogicalNodeId> {
        self.hand.driver.state().nodes.iter().map(|(id, _)| id).collect()
    }

    fn do_it(&mut self, step: Step) {
        match step {
            Step::Answer(which, how) if !self.open.is_empty() => {
                let effect = self.open.swap_remove(which % self.open.len());
                let _ = match how {
                    0..20 => self.hand.fail(&effect, EffectError::definite("no")),
                    20..30 => self.hand.fail(&effect, EffectError::ambiguous("who knows")),
                    30..34 => self.hand.fail(&effect, EffectError::fatal("never")),
                    _ => self.hand.succeed(&effect),
                };
            }
            Step::Lose(which) => self.of_slots(which, |run, node| {
                let attempt = run.hand.driver.state().nodes.get(node).unwrap().attempt;
                let reason = "gone".into();
                let _ = run.hand.observe(node, attempt, &Observation::NodeLost { reason });
            }),
            Step::Replace(which) => self.of_slots(which, |run, node| {
                run.hand.driver.replace(node);
            }),
            Step::Retry(which) => self.of_slots(which, |run, node| {
                run.hand.driver.retry(node);
            }),
            Step::Reshape(wish) => {
                self.wish = wish;
                self.update();
            }
            Step::Recount(counts) => {
                for (count, new) in self.wish.counts.iter_mut().zip(counts) {
                    if count.is_some() {
                        *count = new.or(*count);
                    }
                }
                self.update();
            }
            Step::Drain => {
                self.wish.counts = [None; 5];
                self.update();
            }
            Step::Wait(seconds) => {
                self.hand.now += Duration::from_secs(seconds);
            }
            Step::Restore => {
                let json = serde_json::to_string(self.hand.driver.state()).unwrap();
                let state = serde_json::from_str(&json).unwrap();
                let shape = self.hand.driver.desired().shape().clone();
                let setup = ByHand::setup(PaceConfig::default(), true);
                self.hand = ByHand::restored(state, shape, policy(), [("alpha", setup)], self.hand.now);
                self.open.clear();
            }
            Step::Drive => self.drive(),
            Step::Answer(..) => {}
        }
    }

    fn of_slots(&mut self, which: usize, act: impl FnOnce(&mut Self, &LogicalNodeId)) {
        let slots = self.slots();
        if !slots.is_empty() {
            act(self, &slots[which % slots.len()]);
        }
    }

    fn update(&mut self) {
        let before = self.hand.driver.desired().shape().clone();
        let next = shape(before.generation.0 + 1, self.wish.groups());
        let filled: BTreeSet<GroupId> = self.slots().into_iter().map(|slot| slot.group).collect();
        let named: BTreeSet<&GroupId> = next.groups.iter().map(|group| &group.group_id).collect();
        for (name, below) in reach(&before) {
            if !named.contains(&name) && filled.contains(&name) {
                self.left.insert(name, below);
            }
        }
        self.left.retain(|name, _| !named.contains(name));
        self.hand.driver.update_desired(next, self.hand.now).unwrap();
    }

    /// Drives, and holds everything that it did to what an onlooker knew before.
    fn drive(&mut self) {
        let (state, desired) = (self.hand.driver.state(), self.hand.driver.desired());
        let below = reach(desired.shape());
        // Nothing becomes available in a drive: only what is folded makes it so.
        let lacking = desired.expand().filter(|spec| {
            let node = state.nodes.get(&spec.id);
            let available = node.is_some_and(|node| {
                node.ready && node.is_active() && !node.retry.replace && node.is_made_from(&spec.template)
            });
            !available
        });
        let lacking: BTreeSet<GroupId> = lacking.map(|spec| spec.id.group).collect();
        let undesired = state
            .nodes
            .iter()
            .filter(|(id, _)| desired.template_of(id).is_none());
        let mut going: BTreeSet<LogicalNodeId> = undesired.map(|(id, _)| id).collect();
        let holding = state.nodes.iter().filter(|(_, node)| !node.holds_nothing());
        let holding: BTreeSet<LogicalNodeId> = holding.map(|(id, _)| id).collect();

        let sent = self.hand.drive();
        for effect in sent
            .iter()
            .filter(|effect| effect.command.kind() == CommandKind::CreateLease)
        {
            let too_early = below[&effect.node.group].intersection(&lacking).next();
            assert_eq!(too_early, None, "G25: {} starts before it", effect.node);
        }
        for event in &self.hand.report.events {
            match &event.kind {
                EventKind::Reaped { node, .. } => {
                    going.remove(node);
                }
                EventKind::DeleteBegan {
                    node,
                    reason: DeleteReason::Undesired,
                    ..
                } if holding.contains(node) => {
                    let above = |of: &&LogicalNodeId| {
                        let below = below.get(&of.group).or_else(|| self.left.get(&of.group));
                        below.is_some_and(|below| below.contains(&node.group))
                    };
                    assert_eq!(going.iter().find(above), None, "G25: {node} goes before it");
                }
                _ => {}
            }
        }
        self.open.extend(sent);
        let filled: BTreeSet<GroupId> = self.slots().into_iter().map(|slot| slot.group).collect();
        self.left.retain(|name, _| filled.contains(name));
    }

    /// Lets everything succeed from now on, and what is halted be tried again.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            self.drive();
            if self.hand.driver.is_converged() {
                assert!(self.hand.driver.state().departed.is_empty());
                return;
            }
            if self.open.is_empty() {
                for node in self.slots() {
                    let state = self.hand.driver.state();
                    if state
                        .nodes
                        .get(&node)
                        .is_some_and(|node| node.retry.halted.is_some())
                    {
                        self.hand.driver.retry(&node);
                    }
                }
                self.hand.now = self.hand.driver.requeue_at().unwrap_or(self.hand.now);
            }
            for effect in std::mem::take(&mut self.open) {
                let _ = self.hand.succeed(&effect);
            }
        }
        let whys: Vec<_> = self.slots();
        let whys = whys
            .iter()
            .map(|node| self.hand.driver.node_status(node, self.hand.now));
        panic!("it does not come to rest: {:#?}", whys.collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn whatever_happens_groups_start_from_below_and_go_from_above_and_all_comes_to_rest(
        wish in wish(),
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut run = Run::new(wish);
        run.drive();
        for step in steps {
            run.do_it(step);
        }
        run.settle();
    }
}
