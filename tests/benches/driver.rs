//! What one event costs the driver: its fold and the pass that it causes, at several sizes of cluster.
//!
//! Every figure is per event. Slots are visited in a scattered order, so that a large cluster pays for its
//! cache misses. `cargo bench --package nodewright-conformance --bench driver`

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use divan::Bencher;
use jiff::Timestamp;
use nodewright_core::bootstrap::{StreamEvent, StreamObservation};
use nodewright_core::driver::{ClusterDriver, EffectSink, ProviderSetup, Refused};
use nodewright_core::effect::{
    CallEnd, Capabilities, Command, CommandKind, Destroyed, Outcome, PlannedEffect,
};
use nodewright_core::facts::{AgentId, CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{BootstrapSessionId, LogicalNodeId, NodeAttemptId};
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

fn main() {
    divan::main();
}

const SIZES: [u32; 2] = [10_000, 100_000];

fn shape(generation: u64, count: u32) -> ClusterShape {
    let template = Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "cloud".parse().unwrap(),
        shape: NodeShape::new("image"),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    });
    let run_id: nodewright_core::id::RunId = "run".parse().unwrap();
    let group = NodeGroupSpec {
        run_id: run_id.clone(),
        group_id: "w".parse().unwrap(),
        count,
        depends_on: Default::default(),
        template,
    };
    ClusterShape {
        run_id,
        generation: Generation(generation),
        groups: vec![group],
    }
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
    fn converged(count: u32, joins: bool) -> Self {
        let shape = shape(1, count);
        let capabilities = Capabilities {
            visibility: Duration::ZERO,
            inventory: false,
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
        let nodes = (0..count).map(|index| LogicalNodeId {
            group: "w".parse().unwrap(),
            index,
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
        }
        events
    }

    /// The next slot in a scattered order.
    fn slot(&mut self) -> LogicalNodeId {
        self.next = (self.next + 7_919) % self.nodes.len();
        self.nodes[self.next].clone()
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

/// A line of output of a session that has not joined: facts, and a moment that is pushed back.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn fold_and_pass_of_a_stream_report(bencher: Bencher<'_, '_>, count: u32) {
    let world = RefCell::new(World::converged(count, false));
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
fn fold_and_pass_of_all_events_of_a_replacement(bencher: Bencher<'_, '_>, count: u32) {
    let mut world = World::converged(count, true);
    let mut replace = || {
        let node = world.slot();
        let attempt = world.attempt(&node);
        let lost = Observation::NodeLost {
            reason: "gone".into(),
        };
        assert_eq!(world.event(&node, attempt, &lost), Folded::Applied);
        let mut events = 1 + world.settle();
        world.now += Duration::from_secs(2);
        events += world.settle();
        events
    };
    let events = replace();
    bencher
        .counter(divan::counter::ItemsCount::new(events))
        .bench_local(replace);
}

/// A shape that wants one node more, up to the dispatch of its `CreateLease`.
#[divan::bench(args = SIZES, sample_size = 10)]
fn one_node_more(bencher: Bencher<'_, '_>, count: u32) {
    let world = RefCell::new(World::converged(count, true));
    let mut revision = 1;
    let next = || {
        let _ = world.borrow_mut().settle();
        revision += 1;
        shape(revision, count + revision as u32)
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
fn requeue_converged_summary_and_an_idle_pass(bencher: Bencher<'_, '_>, count: u32) {
    let mut world = World::converged(count, true);
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

/// A slot's name, looked up: what every fold pays at the edge, for comparison.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn look_up_of_a_name(bencher: Bencher<'_, '_>, count: u32) {
    let world = RefCell::new(World::converged(count, true));
    bencher
        .with_inputs(|| world.borrow_mut().slot())
        .bench_local_values(|node| {
            black_box(world.borrow().driver.state().nodes.get(&node));
        });
}
