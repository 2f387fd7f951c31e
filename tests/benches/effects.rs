//! What a whole effect costs through the actors, beside a bare ractor chain of the same message pattern.
//!
//! The chain: one actor sends batches of effects to another, which makes a task of each; a task pushes its
//! result to a shared list, whose first entry wakes the first actor, which takes them all and refills the
//! window. The actors of a cluster do the same, and beside it record, fold, plan, publish and keep the books.
//! Both answer at once, on one thread, in the same run; what is compared is the CPU time of the process.
//! `cargo bench --package nodewright-conformance --bench effects`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use nodewright::bootstrap::{Session, StreamEvent, StreamObservation};
use nodewright::effect::{
    BootstrapSpec, Call, CallEnd, Capabilities, Command, Destroyed, EffectBackend, EffectError, EffectResult,
    Inventory, ObservationSink, Outcome, PlannedEffect, StreamReport,
};
use nodewright::facts::{AgentId, CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright::id::{BootstrapSessionId, RunId};
use nodewright::pace::PaceConfig;
use nodewright::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright::template::{BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
use nodewright::{Cluster, Config, Shutdown};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rustix::time::{ClockId, clock_gettime};

/// How many effects are under way at once, in both.
const WINDOW: u32 = 64;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--test");
    let (nodes, rounds) = if quick { (100, 1) } else { (20_000, 7) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let effects = u64::from(nodes) * 3;
        let chain = cpu(|| runtime.block_on(bare_chain(effects))).as_nanos() as f64 / effects as f64;
        let actors = cpu(|| runtime.block_on(cluster(nodes))).as_nanos() as f64 / effects as f64;
        if round > 0 {
            report(&format!(
                "bare chain {chain:7.0} ns, actors {actors:7.0} ns, ratio {:.2}",
                actors / chain
            ));
            ratios.push(actors / chain);
        }
    }
    ratios.sort_by(f64::total_cmp);
    report(&format!(
        "median ratio of CPU per effect: {:.2}",
        ratios[ratios.len() / 2]
    ));
}

#[expect(clippy::print_stdout, reason = "the figures are what a bench is for")]
fn report(line: &str) {
    println!("{line}");
}

/// The CPU time that the process spends in it.
fn cpu(work: impl FnOnce()) -> Duration {
    let spent = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = spent();
    work();
    spent() - before
}

/// Converges and drains a cluster: three effects per node, create, start and destroy.
async fn cluster(nodes: u32) {
    let run_id: RunId = "run".parse().unwrap();
    let group = NodeGroupSpec {
        run_id: run_id.clone(),
        group_id: "w".parse().unwrap(),
        count: nodes,
        depends_on: Default::default(),
        template: template(),
    };
    let shape = ClusterShape {
        run_id,
        generation: Generation(1),
        groups: vec![group],
    };
    let pace = PaceConfig {
        max_in_flight: WINDOW.try_into().unwrap(),
        rate: None,
    };
    let config = Config::new(shape).provider_at("cloud".parse().unwrap(), Instant, pace);
    let cluster = Cluster::spawn(config).await.unwrap();
    cluster.converged(Generation(1)).await.unwrap();
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

fn template() -> Template {
    Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "cloud".parse().unwrap(),
        shape: NodeShape::new("image"),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    })
}

/// A provider that answers at once, and whose agents join at once.
struct Instant;

fn lease(call: &Call) -> LeaseFacts {
    LeaseFacts::new(LeaseId::new(call.identity.attempt.to_string()))
}

impl EffectBackend for Instant {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            visibility: Duration::ZERO,
            inventory: false,
            watch: false,
            abortable: true,
        }
    }

    async fn create_lease(&self, call: &Call, _spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let endpoint = Some(Endpoint {
            host: "127.0.0.1".into(),
            port: None,
        });
        Ok(CreatedLease {
            lease: lease(call),
            endpoint,
        })
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        Ok(Some(CreatedLease {
            lease: lease(call),
            endpoint: None,
        }))
    }

    async fn lookup_endpoint(&self, _: &Call, _: &LeaseFacts) -> Result<Option<Endpoint>, EffectError> {
        Ok(None)
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        _spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let session = BootstrapSessionId(call.operation);
        let events = [StreamEvent::Joined(AgentId::new("agent")), StreamEvent::Closed];
        for (sequence, event) in (1..).zip(events) {
            sink.report(StreamReport {
                node: call.identity.node.clone(),
                attempt: call.identity.attempt,
                observation: StreamObservation {
                    session,
                    sequence,
                    event,
                },
            });
        }
        Ok(Session {
            id: session,
            run: Box::pin(std::future::ready(())),
        })
    }

    async fn observe_convergence(&self, _: &Call, _: BootstrapSessionId) -> Result<(), EffectError> {
        Ok(())
    }

    async fn cancel_bootstrap(&self, _: &Call) -> Result<(), EffectError> {
        Ok(())
    }

    async fn destroy_lease(&self, _: &Call, _: &LeaseFacts) -> Result<Destroyed, EffectError> {
        Ok(Destroyed::Gone)
    }

    async fn list_leases(&self, _: &RunId) -> Result<Inventory, EffectError> {
        Ok(Inventory::default())
    }
}

/// Passes that many effects through two bare actors and a task each.
async fn bare_chain(effects: u64) {
    let (done, finished) = tokio::sync::oneshot::channel();
    let (executor, executing) = Actor::spawn(None, BareExecutor, ()).await.unwrap();
    let bare = Bare {
        executor,
        left: effects,
        in_flight: 0,
        results: Arc::default(),
        done: Some(done),
    };
    let (supervisor, supervising) = Actor::spawn(None, BareSupervisor, bare).await.unwrap();
    supervisor.cast(BareMessage::Wake).unwrap();
    finished.await.unwrap();
    supervisor.stop(None);
    supervising.await.unwrap();
    executing.await.unwrap();
}

enum BareMessage {
    Wake,
}


type Results = Arc<Mutex<Vec<EffectResult>>>;

struct Bare {
    executor: ActorRef<BareBatch>,
    left: u64,
    in_flight: u64,
    results: Results,
    done: Option<tokio::sync::oneshot::Sender<()>>,
}

struct BareSupervisor;

#[ractor::actor(message = BareMessage, state = Bare, arguments = Bare)]
impl BareSupervisor {
    async fn pre_start(
        &self,
        _myself: ActorRef<BareMessage>,
        bare: Bare,
    ) -> Result<Bare, ActorProcessingErr> {
        Ok(bare)
    }

    #[ractor::message(BareMessage::Wake)]
    fn wake(&self, myself: ActorRef<BareMessage>, bare: &mut Bare) {
        let results = std::mem::take(&mut *bare.results.lock().unwrap());
        bare.in_flight -= results.len() as u64;
        if bare.left == 0 && bare.in_flight == 0 {
            bare.executor.stop(None);
            if let Some(done) = bare.done.take() {
                let _ = done.send(());
            }
            return;
        }
        let free = (u64::from(WINDOW) - bare.in_flight).min(bare.left);
        bare.left -= free;
        bare.in_flight += free;
        let node: nodewright::id::LogicalNodeId = "w-1".parse().unwrap();
        let effects = (0..free).map(|_| PlannedEffect {
            node: node.clone(),
            provider: "cloud".parse().unwrap(),
            operation: "1.1".parse().unwrap(),
            command: Command::FindLease,
        });
        let batch = BareBatch {
            effects: effects.collect(),
            results: bare.results.clone(),
            supervisor: myself,
        };
        bare.executor.cast(batch).unwrap();
    }
}

struct BareBatch {
    effects: Vec<PlannedEffect>,
    results: Results,
    supervisor: ActorRef<BareMessage>,
}


struct BareExecutor;

#[ractor::actor(message = BareBatch, state = tokio::task::JoinSet<()>)]
impl BareExecutor {
    async fn pre_start(
        &self,
        _myself: ActorRef<BareBatch>,
        _arguments: (),
    ) -> Result<tokio::task::JoinSet<()>, ActorProcessingErr> {
        Ok(tokio::task::JoinSet::new())
    }

    async fn handle(
        &self,
        _myself: ActorRef<BareBatch>,
        batch: BareBatch,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> Result<(), ActorProcessingErr> {
        while tasks.try_join_next().is_some() {}
        for effect in batch.effects {
            let (results, supervisor) = (batch.results.clone(), batch.supervisor.clone());
            tasks.spawn(async move {
                let result = EffectResult {
                    node: effect.node,
                    operation: effect.operation,
                    outcome: Outcome::LeaseFound(None),
                    end: CallEnd::Unknown,
                };
                let mut results = results.lock().unwrap();
                results.push(result);
                if results.len() == 1 {
                    let _ = supervisor.cast(BareMessage::Wake);
                }
            });
        }
        Ok(())
    }
}
