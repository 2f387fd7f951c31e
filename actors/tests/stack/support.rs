//! A provider whose next answers can be scripted, a parent that hears what supervisors hear, and shapes.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nodewright::bootstrap::Session;
use nodewright::effect::{
    BootstrapSpec, Call, Capabilities, CommandKind, Destroyed, EffectBackend, EffectError, Inventory,
    LossSink, ObservationSink,
};
use nodewright::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright::id::{BootstrapSessionId, LogicalNodeId, RunId};
use nodewright::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright::template::{BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
use nodewright::{Cluster, Config};
use nodewright_backends::MemoryBackend;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What goes wrong with one call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It answers this, and nothing happened.
    Before(EffectError),
    /// It takes effect, and answers this.
    After(EffectError),
    /// It panics before anything happened.
    PanicBefore,
    /// It takes effect, and panics.
    PanicAfter,
    /// It never answers.
    Hang,
    /// It never answers, and takes this long to let go of its thread when it is dropped.
    Lingering(Duration),
    /// It answers after this long, whatever it is told.
    Slow(Duration),
}

/// What all calls meet for a while, or those of a kind.
#[derive(Debug, Clone)]
struct Weather {
    kind: Option<CommandKind>,
    until: Option<Instant>,
    fault: Fault,
}

/// A call that was made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) kind: CommandKind,
    pub(crate) at: Instant,
    /// How many calls were at work just then, with this one.
    pub(crate) at_work: usize,
    /// How many calls had been answered well before it.
    pub(crate) answered: usize,
    name: String,
}

/// A provider in memory whose calls go wrong as scripted: each fault meets the next call of its kind.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub(crate) memory: MemoryBackend,
    script: Arc<Mutex<VecDeque<(CommandKind, Fault)>>>,
    weather: Arc<Mutex<Vec<Weather>>>,
    latency: Duration,
    endpoints: bool,
    calls: watch::Sender<Vec<Made>>,
    answered: Arc<AtomicUsize>,
    abortable: bool,
    watched: bool,
    /// How many looks there were.
    pub(crate) looks: Arc<AtomicUsize>,
    /// How many of the next looks panic before they even make a future.
    pub(crate) broken_looks: Arc<AtomicUsize>,
    /// How many of the next looks take half a minute.
    pub(crate) slow_looks: Arc<AtomicUsize>,
    /// How many of the next looks are answered with nothing.
    pub(crate) empty_looks: Arc<AtomicUsize>,
    /// How many of the next watches panic.
    pub(crate) broken_watches: Arc<AtomicUsize>,
    /// The watches that are at work.
    pub(crate) watches: Count,
    /// The calls that are at work.
    pub(crate) at_work: Count,
    /// Those of them that linger.
    pub(crate) lingering: Count,
    _token: Arc<()>,
}

/// How many of something are at work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn enter(&self) -> Entered {
        self.0.fetch_add(1, Ordering::SeqCst);
        Entered(self.clone())
    }
}

/// One that is at work until it is dropped.
#[derive(Debug)]
struct Entered(Count);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a provider's client may do when it is told to go: block its thread, and be at work all the while.
struct Lingering(
    Duration,
    #[expect(dead_code, reason = "held until the lingering is over")] Entered,
);

impl Drop for Lingering {
    fn drop(&mut self) {
        // The thread's other tasks go on elsewhere, so that whatever wrongly does not wait for this shows.
        tokio::task::block_in_place(|| std::thread::sleep(self.0));
    }
}

/// Takes one of what is left.
fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        .is_ok()
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = (CommandKind, Fault)>) -> Self {
        Self {
            memory: MemoryBackend::new(),
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            weather: Arc::default(),
            latency: Duration::ZERO,
            endpoints: true,
            calls: watch::Sender::default(),
            answered: Arc::default(),
            abortable: true,
            watched: true,
            looks: Arc::default(),
            broken_looks: Arc::default(),
            slow_looks: Arc::default(),
            empty_looks: Arc::default(),
            broken_watches: Arc::default(),
            watches: Count::default(),
            at_work: Count::default(),
            lingering: Count::default(),
            _token: Arc::default(),
        }
    }

    pub(crate) fn over(memory: MemoryBackend) -> Self {
        Self {
            memory,
            ..Self::new([])
        }
    }

    pub(crate) fn unabortable(self) -> Self {
        Self {
            abortable: false,
            ..self
        }
    }

    /// The same where nobody is told of a machine that dies.
    pub(crate) fn unwatched(self) -> Self {
        Self {
            watched: false,
            ..self
        }
    }

    /// The same where every call takes this long to be answered.
    pub(crate) fn latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// The same where no machine is ever said to be reached anywhere.
    pub(crate) fn without_endpoints(self) -> Self {
        Self {
            endpoints: false,
            ..self
        }
    }

    /// Every call of this kind meets this from now on, or up to a moment; without a kind, every call does.
    pub(crate) fn befall(&self, kind: Option<CommandKind>, until: Option<Instant>, fault: Fault) {
        self.weather.lock().unwrap().push(Weather { kind, until, fault });
    }

    /// What a call of this kind meets now.
    fn fault(&self, kind: CommandKind) -> Option<Fault> {
        let scripted = {
            let mut script = self.script.lock().unwrap();
            let next = script.iter().position(|(scripted, _)| *scripted == kind);
            next.and_then(|next| script.remove(next)).map(|(_, fault)| fault)
        };
        let meets = |weather: &&Weather| {
            weather.kind.is_none_or(|befallen| befallen == kind)
                && weather.until.is_none_or(|until| Instant::now() < until)
        };
        scripted.or_else(|| {
            let weather = self.weather.lock().unwrap();
            weather.iter().find(meets).map(|weather| weather.fault.clone())
        })
    }

    /// Has it hold a token, which tells whether it still lives.
    pub(crate) fn holding(self, token: Arc<()>) -> Self {
        Self {
            _token: token,
            ..self
        }
    }

    /// All calls so far, with the operation that made each.
    pub(crate) fn calls(&self) -> Vec<(CommandKind, String)> {
        let calls = self.calls.borrow();
        calls.iter().map(|made| (made.kind, made.name.clone())).collect()
    }

    /// All calls so far, with when and beside what each was made.
    pub(crate) fn made(&self) -> Vec<Made> {
        self.calls.borrow().clone()
    }

    /// Resolves once there were that many calls of a kind.
    pub(crate) async fn until_called(&self, kind: CommandKind, times: usize) {
        let mut calls = self.calls.subscribe();
        let count = |calls: &Vec<Made>| calls.iter().filter(|made| made.kind == kind).count();
        calls
            .wait_for(|calls| count(calls) >= times)
            .await
            .expect("the backend holds the sender");
    }

    pub(crate) fn count(&self, kind: CommandKind) -> usize {
        let calls = self.calls.borrow();
        calls.iter().filter(|made| made.kind == kind).count()
    }

    async fn play<T>(
        &self,
        call: &Call,
        kind: CommandKind,
        answer: impl Future<Output = Result<T, EffectError>> + Send,
    ) -> Result<T, EffectError> {
        let _at_work = self.at_work.enter();
        let made = Made {
            kind,
            at: Instant::now(),
            at_work: self.at_work.now(),
            answered: self.answered.load(Ordering::SeqCst),
            name: format!("{} {}", call.identity.node, call.operation),
        };
        self.calls.send_modify(|calls| calls.push(made));
        let fault = self.fault(kind);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let answer = async {
            let answer = answer.await;
            self.answered
                .fetch_add(usize::from(answer.is_ok()), Ordering::SeqCst);
            answer
        };
        match fault {
            None => answer.await,
            Some(Fault::Before(error)) => Err(error),
            Some(Fault::After(error)) => answer.await.and(Err(error)),
            Some(Fault::PanicBefore) => panic!("as scripted"),
            Some(Fault::PanicAfter) => {
                let _ = answer.await;
                panic!("as scripted")
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Lingering(linger)) => {
                let _lingering = Lingering(linger, self.lingering.enter());
                std::future::pending().await
            }
            Some(Fault::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                answer.await
            }
        }
    }
}

impl EffectBackend for Scripted {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            abortable: self.abortable,
            watch: self.watched,
            ..self.memory.capabilities()
        }
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let made = self.memory.create_lease(call, spec);
        let made = self.play(call, CommandKind::CreateLease, made).await?;
        let endpoint = made.endpoint.filter(|_| self.endpoints);
        Ok(CreatedLease { endpoint, ..made })
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        self.play(call, CommandKind::FindLease, self.memory.find_lease(call))
            .await
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        let found = self.memory.lookup_endpoint(call, lease);
        let found = self.play(call, CommandKind::LookupEndpoint, found).await?;
        Ok(found.filter(|_| self.endpoints))
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        self.play(
            call,
            CommandKind::StartBootstrap,
            self.memory.start_bootstrap(call, spec, sink),
        )
        .await
    }

    async fn observe_convergence(&self, call: &Call, session: BootstrapSessionId) -> Result<(), EffectError> {
        let answer = self.memory.observe_convergence(call, session);
        self.play(call, CommandKind::ObserveConvergence, answer).await
    }

    async fn cancel_bootstrap(&self, call: &Call) -> Result<(), EffectError> {
        self.play(
            call,
            CommandKind::CancelBootstrap,
            self.memory.cancel_bootstrap(call),
        )
        .await
    }

    async fn destroy_lease(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        self.play(
            call,
            CommandKind::DestroyLease,
            self.memory.destroy_lease(call, lease),
        )
        .await
    }

    fn list_leases(&self, run: &RunId) -> impl Future<Output = Result<Inventory, EffectError>> + Send {
        self.looks.fetch_add(1, Ordering::SeqCst);
        assert!(!take_one(&self.broken_looks), "as scripted");
        let (slow, empty) = (take_one(&self.slow_looks), take_one(&self.empty_looks));
        let listed = self.memory.list_leases(run);
        async move {
            if slow {
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            if empty {
                return Ok(Inventory { entries: Vec::new() });
            }
            listed.await
        }
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        assert!(!take_one(&self.broken_watches), "as scripted");
        let _at_work = self.watches.enter();
        self.memory.watch(run, sink).await;
    }
}

/// A shape of one group `w`.
pub(crate) fn shape(generation: u64, count: u32) -> ClusterShape {
    shape_of(generation, count, "image")
}

/// A shape of one group `w` that is made from this image.
pub(crate) fn shape_of(generation: u64, count: u32, image: &str) -> ClusterShape {
    let template = Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "memory".parse().unwrap(),
        shape: NodeShape::new(image),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    });
    let run_id: RunId = "run".parse().unwrap();
    ClusterShape {
        run_id: run_id.clone(),
        generation: Generation(generation),
        groups: vec![NodeGroupSpec {
            run_id,
            group_id: "w".parse().unwrap(),
            count,
            depends_on: Default::default(),
            template,
        }],
    }
}

pub(crate) fn config(count: u32, backend: impl EffectBackend) -> Config {
    Config::new(shape(1, count)).provider("memory".parse().unwrap(), backend)
}

pub(crate) fn node(text: &str) -> LogicalNodeId {
    text.parse().unwrap()
}

/// Waits for convergence; an hour of paused time that passes without it is a failure.
pub(crate) async fn converge(cluster: &Cluster, generation: u64) {
    let converged = cluster.converged(Generation(generation));
    tokio::time::timeout(Duration::from_secs(3600), converged)
        .await
        .expect("it converges")
        .unwrap();
}

/// A supervisor of the application's, which passes on what it hears.
pub(crate) struct Parent;

pub(crate) struct Heard(pub(crate) mpsc::UnboundedReceiver<String>);

impl Parent {
    pub(crate) async fn spawn() -> (ActorCell, Heard) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (parent, _) = Actor::spawn(None, Self, sender).await.unwrap();
        (parent.get_cell(), Heard(receiver))
    }
}

#[ractor::actor(message = (), state = mpsc::UnboundedSender<String>, arguments = mpsc::UnboundedSender<String>)]
impl Parent {
    async fn pre_start(
        &self,
        _myself: ActorRef<()>,
        sender: mpsc::UnboundedSender<String>,
    ) -> Result<mpsc::UnboundedSender<String>, ActorProcessingErr> {
        Ok(sender)
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        event: SupervisionEvent,
        sender: &mut mpsc::UnboundedSender<String>,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(_, _, reason) => {
                let _ = sender.send(format!("terminated: {}", reason.unwrap_or_default()));
            }
            SupervisionEvent::ActorFailed(_, error) => {
                let _ = sender.send(format!("failed: {error}"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The children of a cluster's supervisor, in the order in which they were spawned: timer, streams, executor.
pub(crate) fn children(parent: &ActorCell) -> Vec<ActorCell> {
    let mut children = parent.get_children()[0].get_children();
    children.sort_by_key(ActorCell::get_id);
    children
}
