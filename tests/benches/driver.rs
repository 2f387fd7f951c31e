//! What one event costs the driver: its fold and the pass that it causes, at several sizes of cluster.
//!
//! Every figure is per event. Slots are visited in a scattered order, so that a large cluster pays for its
//! cache misses. `cargo bench --package nodewright-conformance --bench driver`

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use divan::Bencher;
use jiff::Timestamp;
use nodewright_core::bootstrap::{StreamEvent, StreamObservation};
use nodewright_core::driver::{ClusterDriver, EffectSink, ProviderSetup, Refused};
use nodewright_core::effect::{
    CallEnd, Capabilities, Command, CommandKind, Destroyed, Inventory, InventoryEntry, Outcome, PlannedEffect,
};
use nodewright_core::facts::{AgentId, CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::graph::Graph;
use nodewright_core::id::{
    AttemptIdentity, BootstrapSessionId, GroupId, LogicalNodeId, NodeAttemptId, ProviderKind, RunId,
};
use nodewright_core::node::ManagedNode;
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

fn main() {
    divan::main();
}

/// How the nodes of a cluster are divided into groups.
#[derive(Clone, Copy)]
struct Layout {
    groups: u32,
    each: u32,
    /// Whether each group depends on the one before it.
    chained: bool,
}

/// All nodes in one group.
const fn one_group(each: u32) -> Layout {
    Layout {
        groups: 1,
        each,
        chained: false,
    }
}

const CHAIN: Layout = Layout {
    groups: 1_000,
    each: 100,
    chained: true,
};

const APART: Layout = Layout {
    chained: false,
    ..CHAIN
};

const SIZES: [Layout; 4] = [one_group(10_000), one_group(100_000), APART, CHAIN];

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { groups: 1, each, .. } => write!(f, "{each}"),
            Self {
                groups,
                each,
                chained,
            } => {
                let ties = if *chained { "chained" } else { "apart" };
                write!(f, "{groups}x{each} {ties}")
            }
        }
    }
}

impl Layout {
    fn nodes(self) -> u32 {
        self.groups * self.each
    }

    fn name(group: u32) -> GroupId {
        format!("g{group:05}").parse().unwrap()
    }

    fn shape(self, generation: u64) -> ClusterShape {
        let template = Template::new(NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: "cloud".parse().unwrap(),
            shape: NodeShape::new("image"),
            boot: BootSpec::new("agent"),
            join: SwarmJoinSpec::default(),
        });
        let run_id: RunId = "run".parse().unwrap();
        let group = |group: u32| NodeGroupSpec {
            run_id: run_id.clone(),
            group_id: Self::name(group),
            count: self.each,
            depends_on: (self.chained && group > 0)
                .then(|| Self::name(group - 1))
                .into_iter()
                .collect(),
            template: template.clone(),
        };
        let groups = (0..self.groups).map(group).collect();
        ClusterShape {
            run_id: run_id.clone(),
            generation: Generation(generation),
            groups,
        }
    }
}

/// Adds this many nodes to the last group.
fn with_more(mut shape: ClusterShape, nodes: u64) -> ClusterShape {
    shape.groups.last_mut().unwrap().count += nodes as u32;
    shape
}

/// A world in which every call succeeds at once, and sessions stay as far as `joins` lets them come.
struct World {
    driver: ClusterDriver,
    now: Timestamp,
    effects: Effects,
    joins: bool,
    nodes: Vec<LogicalNodeId>,
    next: usize,
}

#[derive(Default)]
struct Effects(Vec<PlannedEffect>);

impl EffectSink for Effects {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        self.0.extend(effects);
        Vec::new()
    }

    fn retire(&mut self, _attempt: NodeAttemptId) {}
}

impl World {
    /// A world as the layout wants it, and generation 2 of its shape accepted.
    fn converged(layout: Layout, joins: bool) -> Self {
        // Where nobody joins a dependent would never start, so the ties come once all is started.
        let start = Layout {
            chained: layout.chained && joins,
            ..layout
        };
        let mut world = Self::started(start, joins);
        let accepted = world.driver.update_desired(layout.shape(2), world.now);
        accepted.unwrap();
        world.settle();
        world
    }

    fn started(layout: Layout, joins: bool) -> Self {
        let (shape, count) = (layout.shape(1), layout.nodes());
        let capabilities = Capabilities {
            visibility: Duration::ZERO,
            inventory: true,
            watch: false,
            abortable: true,
        };
        let pace = PaceConfig {
            max_in_flight: count.try_into().unwrap(),
            rate: None,
        };
        let setup = ProviderSetup {
            capabilities,
            pace,
            fresh: true,
        };
        let providers = BTreeMap::from([("cloud".parse().unwrap(), setup)]);
        let driver = ClusterDriver::new(shape, Policy::default(), providers).unwrap();
        let nodes = (0..count).map(|node| LogicalNodeId {
            group: Layout::name(node / layout.each),
            index: node % layout.each,
        });
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut world = Self {
            driver,
            now,
            effects: Effects::default(),
            joins,
            nodes: nodes.collect(),
            next: 0,
        };
        world.settle();
        world
    }

    /// One event: its fold and the pass that it causes.
    fn event(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId, observation: &Observation) -> Folded {
        let folded = self.driver.fold(node, attempt, observation, self.now);
        let report = self.driver.drive(self.now, &mut self.effects);
        let _ = black_box(report);
        folded
    }

    /// Answers everything that was asked until nothing more is; says how many events that took.
    fn settle(&mut self) -> u64 {
        let mut events = 0;
        let _ = self.driver.drive(self.now, &mut self.effects);
        while let Some(effect) = self.effects.0.pop() {
            events += self.answer(&effect);
        }
        events
    }

    /// Answers one effect, and lets the node join whose session that starts.
    fn answer(&mut self, effect: &PlannedEffect) -> u64 {
        let mut events = 0;
        let (node, operation) = (&effect.node, effect.operation);
        let session = BootstrapSessionId(operation);
        let outcome = match &effect.command {
            Command::CreateLease(spec) => {
                let mut lease = LeaseFacts::new(LeaseId::new(operation.to_string()));
                lease.template = Some(spec.template.digest());
                let endpoint = Some(Endpoint {
                    host: "10.0.0.1".into(),
                    port: Some(22),
                });
                Outcome::LeaseCreated(CreatedLease { lease, endpoint })
            }
            Command::StartBootstrap(_) => Outcome::BootstrapStarted(session),
            Command::ObserveConvergence(_) => Outcome::ConvergenceAccepted,
            Command::DestroyLease(_) => Outcome::LeaseDestroyed(Destroyed::Gone),
            Command::CancelBootstrap => Outcome::BootstrapCancelled,
            Command::FindLease | Command::LookupEndpoint(_) => unreachable!("creates are answered whole"),
        };
        let starts = matches!(outcome, Outcome::BootstrapStarted(_));
        let observation = Observation::Finished {
            operation,
            outcome,
            end: CallEnd::At(self.now),
        };
        let _ = self.event(node, operation.attempt, &observation);
        events += 1;
        if starts && self.joins {
            let event = StreamEvent::Joined(AgentId::new("agent"));
            let joined = Observation::Stream(StreamObservation {
                session,
                sequence: 1,
                event,
            });
            let _ = self.event(node, operation.attempt, &joined);
            events += 1;
        }
        events
    }

    /// The next slot in a scattered order.
    fn slot(&mut self) -> LogicalNodeId {
        self.next = (self.next + 7_919) % self.nodes.len();
        self.nodes[self.next].clone()
    }

    /// Loses a node and answers everything until it is replaced; says how many events that took.
    fn replace(&mut self, node: &LogicalNodeId) -> u64 {
        let lost = Observation::NodeLost {
            reason: "gone".into(),
        };
        assert_eq!(self.event(node, self.attempt(node), &lost), Folded::Applied);
        let mut events = 1 + self.settle();
        self.now += Duration::from_secs(2);
        events += self.settle();
        events
    }

    /// What the provider lists of it.
    fn listed(&self) -> Vec<InventoryEntry> {
        let state = self.driver.state();
        let machine = |(id, node): (LogicalNodeId, &ManagedNode)| InventoryEntry {
            identity: AttemptIdentity {
                run: state.run_id.clone(),
                node: id,
                attempt: node.attempt,
            },
            lease: LeaseFacts::clone(node.lease.as_ref().expect("every slot is leased")),
            endpoint: node.endpoint.clone(),
            alive: true,
        };
        state.nodes.iter().map(machine).collect()
    }

    fn attempt(&self, node: &LogicalNodeId) -> NodeAttemptId {
        self.driver
            .state()
            .nodes
            .get(node)
            .expect("every slot is filled")
            .attempt
    }
}

/// The node at the bottom of it all is replaced: every gate above shuts, and opens again.
#[divan::bench(args = [CHAIN, APART], sample_size = 10)]
fn a_whole_replacement_of_the_node_below_all_others(bencher: Bencher<'_, '_>, layout: Layout) {
    let mut world = World::converged(layout, true);
    let node = world.nodes[0].clone();
    bencher.bench_local(|| world.replace(&node));
}

/// The last event before a group is available: a gate opens, and one slot stands at it, beside all the others
/// of its group.
#[divan::bench(args = [1_000, 100_000], sample_size = 1)]
fn a_gate_opens_for_one_slot_of_a_group_of(bencher: Bencher<'_, '_>, each: u32) {
    let layout = Layout {
        groups: 2,
        each,
        chained: true,
    };
    let world = RefCell::new(World::converged(layout, true));
    let mut revision = 2;
    let next = || {
        let world = &mut *world.borrow_mut();
        let _ = world.settle();
        let node = world.nodes[0].clone();
        let lost = Observation::NodeLost {
            reason: "gone".into(),
        };
        assert_eq!(world.event(&node, world.attempt(&node), &lost), Folded::Applied);
        let _ = world.settle();
        revision += 1;
        let shape = with_more(layout.shape(revision), revision);
        world.driver.update_desired(shape, world.now).unwrap();
        world.now += Duration::from_secs(2);
        let _ = world.driver.drive(world.now, &mut world.effects);
        loop {
            let effect = world.effects.0.pop().unwrap();
            if effect.command.kind() == CommandKind::ObserveConvergence {
                return effect;
            }
            let _ = world.answer(&effect);
        }
    };
    bencher.with_inputs(next).bench_local_values(|last| {
        let world = &mut *world.borrow_mut();
        let _ = world.answer(&last);
        assert_eq!(
            world.effects.0.last().map(|effect| effect.command.kind()),
            Some(CommandKind::CreateLease)
        );
    });
}

/// The stable order of ten thousand names, each of which depends on the one before.
#[divan::bench(args = [10_000], sample_size = 1)]
fn the_order_of_a_chain(bencher: Bencher<'_, '_>, groups: u32) {
    let layout = Layout {
        groups,
        each: 1,
        chained: true,
    };
    let shape = layout.shape(1);
    bencher.bench_local(|| {
        let groups = shape.groups.iter();
        Graph::new(groups.map(|group| {
            let below = group.depends_on.iter().map(GroupId::as_str);
            (group.group_id.as_str(), below)
        }))
    });
}

/// A line of output of a session that has not joined: facts, and a moment that is pushed back.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn fold_and_pass_of_a_stream_report(bencher: Bencher<'_, '_>, layout: Layout) {
    let world = RefCell::new(World::converged(layout, false));
    let mut sequence = 10;
    let report = || {
        let mut world = world.borrow_mut();
        let node = world.slot();
        let attempt = world.attempt(&node);
        let session = world
            .driver
            .state()
            .nodes
            .get(&node)
            .and_then(|node| node.active_bootstrap)
            .unwrap();
        sequence += 1;
        world.now += Duration::from_nanos(100);
        let event = StreamEvent::Lines {
            stdout: sequence,
            stderr: 0,
        };
        (
            node,
            attempt,
            Observation::Stream(StreamObservation {
                session,
                sequence,
                event,
            }),
        )
    };
    bencher
        .with_inputs(report)
        .bench_local_values(|(node, attempt, observation)| {
            let _ = world.borrow_mut().event(&node, attempt, &observation);
        });
}

/// A whole replacement: loss, destroy, restart, create, start, join, handoff. `items` are its events.
#[divan::bench(args = SIZES, sample_size = 100)]
fn fold_and_pass_of_all_events_of_a_replacement(bencher: Bencher<'_, '_>, layout: Layout) {
    let mut world = World::converged(layout, true);
    let mut replace = || {
        let node = world.slot();
        world.replace(&node)
    };
    let events = replace();
    bencher
        .counter(divan::counter::ItemsCount::new(events))
        .bench_local(replace);
}

/// A shape that wants one node more, up to the dispatch of its `CreateLease`.
#[divan::bench(args = SIZES, sample_size = 10)]
fn one_node_more(bencher: Bencher<'_, '_>, layout: Layout) {
    let world = RefCell::new(World::converged(layout, true));
    let mut revision = 2;
    let next = || {
        let _ = world.borrow_mut().settle();
        revision += 1;
        with_more(layout.shape(revision), revision)
    };
    bencher.with_inputs(next).bench_local_values(|shape| {
        let world = &mut *world.borrow_mut();
        let accepted = world.driver.update_desired(shape, world.now);
        let _ = black_box((accepted, world.driver.drive(world.now, &mut world.effects)));
        assert_eq!(
            world.effects.0.last().map(|effect| effect.command.kind()),
            Some(CommandKind::CreateLease)
        );
    });
}

/// What is asked after every event: when to look again, and whether all is well.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn requeue_converged_summary_and_an_idle_pass(bencher: Bencher<'_, '_>, layout: Layout) {
    let mut world = World::converged(layout, true);
    bencher.bench_local(|| {
        let report = world.driver.drive(world.now, &mut world.effects);
        let _ = black_box((
            world.driver.requeue_at(),
            world.driver.is_converged(),
            world.driver.summary(),
        ));
        report
    });
}

/// The answer to a sweep that shows what is known, judged, up to the end of the pass that follows. Per machine.
#[divan::bench(args = [one_group(10_000), one_group(100_000)], sample_size = 1)]
fn judging_a_sweep(bencher: Bencher<'_, '_>, layout: Layout) {
    let world = RefCell::new(World::converged(layout, true));
    let entries = world.borrow().listed();
    let provider: ProviderKind = "cloud".parse().unwrap();
    let asked = || {
        let world = &mut *world.borrow_mut();
        let _ = world.driver.due_looks(world.now);
        let _ = world.driver.sweep(world.now);
        let look = world.driver.due_looks(world.now).remove(0);
        world.now += Duration::from_secs(1);
        (
            look.asked,
            Inventory {
                entries: entries.clone(),
            },
        )
    };
    bencher
        .counter(divan::counter::ItemsCount::new(layout.nodes()))
        .with_inputs(asked)
        .bench_local_values(|(asked, answer)| {
            let world = &mut *world.borrow_mut();
            let now = world.now;
            let findings = world.driver.inventory(&provider, asked, now, Ok(answer), now);
            assert!(findings.is_as_known() && findings.listed == entries.len());
            world.driver.drive(now, &mut world.effects)
        });
}

/// A slot's name, looked up: what every fold pays at the edge, for comparison.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn look_up_of_a_name(bencher: Bencher<'_, '_>, layout: Layout) {
    let world = RefCell::new(World::converged(layout, true));
    bencher
        .with_inputs(|| world.borrow_mut().slot())
        .bench_local_values(|node| {
            black_box(world.borrow().driver.state().nodes.get(&node));
        });
}
