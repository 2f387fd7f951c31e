use std::collections::BTreeMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::bootstrap::{
    ExitStatus, JobCommand, Line, Session, StreamEvent, Transport, TransportError, TransportEvent,
};
use crate::effect::{
    BootstrapSpec, Cancel, CommandKind, EffectBackend, NodeLoss, ObservationSink, Outcome, perform,
};
use crate::effect::{Command, StreamReport};
use crate::facts::{Endpoint, LeaseId};
use crate::id::{AttemptIdentity, BootstrapSessionId};
use crate::sample;

/// A provider that does as it is told, and writes down what it was asked.
#[derive(Default)]
struct Fake {
    machines: Mutex<Vec<InventoryEntry>>,
    asked: Mutex<Vec<&'static str>>,
    /// What it answers instead, by question.
    fails: BTreeMap<&'static str, EffectError>,
    /// Raised by whoever gives up while the provider looks.
    gives_up: Option<Cancel>,
}

impl Fake {
    fn with(machines: impl IntoIterator<Item = InventoryEntry>) -> Self {
        Self {
            machines: Mutex::new(machines.into_iter().collect()),
            ..Self::default()
        }
    }

    fn failing(question: &'static str, error: EffectError) -> Self {
        Self {
            fails: [(question, error)].into(),
            ..Self::default()
        }
    }

    fn ask(&self, question: &'static str) -> Result<(), EffectError> {
        self.asked.lock().unwrap().push(question);
        self.fails
            .get(question)
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// What it was asked since this was asked last.
    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl ProvisionPlugin for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            visibility: Duration::from_secs(7),
            inventory: true,
            watch: false,
            abortable: true,
        }
    }

    async fn make(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        self.ask("make")?;
        let mut machine = machine(&call.identity, "made");
        machine.lease.template = Some(spec.template.digest());
        let (lease, endpoint) = (machine.lease.clone(), machine.endpoint.clone());
        self.machines.lock().unwrap().push(machine);
        Ok(CreatedLease { lease, endpoint })
    }

    async fn find(&self, call: &Call) -> Result<Option<InventoryEntry>, EffectError> {
        if let Some(cancel) = &self.gives_up {
            cancel.cancel();
        }
        self.ask("find")?;
        // It knows names, and not attempts: its names are cut.
        let machines = self.machines.lock().unwrap();
        let found = machines
            .iter()
            .find(|machine| machine.identity.node == call.identity.node);
        Ok(found.cloned())
    }

    async fn list(&self, _: &RunId) -> Result<Inventory, EffectError> {
        self.ask("list")?;
        let entries = self.machines.lock().unwrap().clone();
        Ok(Inventory { entries })
    }

    async fn destroy(&self, _: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        self.ask("destroy")?;
        self.machines
            .lock()
            .unwrap()
            .retain(|machine| machine.lease.id != lease.id);
        Ok(Destroyed::Gone)
    }
}

/// A way that is never open.
struct Silent;

impl Transport for Silent {
    async fn open(&mut self, _: Duration) -> Result<(), TransportError> {
        pending().await
    }

    async fn run(&mut self, _: &JobCommand, _: Duration) -> Result<(ExitStatus, Vec<Line>), TransportError> {
        pending().await
    }

    async fn start(&mut self, _: &JobCommand, _: Duration) -> Result<(), TransportError> {
        pending().await
    }

    async fn next(&mut self) -> Result<TransportEvent, TransportError> {
        pending().await
    }

    async fn close(&mut self, _: Duration) {}
}

fn lifted(plugin: Fake) -> PluginBackend<Fake, impl Transports> {
    PluginBackend::new(plugin, |_: &AttemptIdentity, _: &BootstrapSpec| Silent)
}

fn identity(run: &str, node: &str, attempt: u64) -> AttemptIdentity {
    AttemptIdentity {
        run: run.parse().unwrap(),
        node: node.parse().unwrap(),
        attempt: crate::id::NodeAttemptId::new(attempt),
    }
}

/// The attempt that all calls act for.
fn own() -> AttemptIdentity {
    identity("r", "w-0", 7)
}

fn call() -> Call {
    Call {
        identity: own(),
        operation: sample::operation(3),
        cancel: Cancel::new(),
    }
}

fn spec() -> LogicalNodeSpec {
    LogicalNodeSpec {
        id: "w-0".parse().unwrap(),
        template: sample::template("new"),
    }
}

fn machine(identity: &AttemptIdentity, name: &str) -> InventoryEntry {
    InventoryEntry {
        identity: identity.clone(),
        lease: sample::lease(name),
        endpoint: Some(sample::endpoint(name)),
        alive: true,
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing here waits")
}

fn create(backend: &impl EffectBackend) -> Result<CreatedLease, EffectError> {
    now(backend.create_lease(&call(), &spec()))
}

#[test]
fn a_create_looks_before_it_makes_and_is_made_once() {
    let backend = lifted(Fake::default());
    let made = create(&backend).unwrap();
    assert_eq!(made.lease.template, Some(spec().template.digest()));
    assert_eq!(
        made.endpoint,
        Some(sample::endpoint("made")),
        "it comes with the lease"
    );
    assert_eq!(backend.plugin().asked(), ["find", "make"]);
    assert_eq!(create(&backend), Ok(made.clone()));
    assert_eq!(backend.plugin().asked(), ["find"]);
    // Another process over the same provider.
    let machines = backend.plugin().machines.lock().unwrap().clone();
    let backend = lifted(Fake::with(machines));
    assert_eq!(create(&backend), Ok(made.clone()));
    assert_eq!(now(backend.find_lease(&call())), Ok(Some(made)));
    assert_eq!(backend.plugin().asked(), ["find", "find"]);
}

#[test]
fn what_is_found_of_another_template_or_dead_is_handed_on_as_such() {
    let mut found = machine(&own(), "old");
    found.lease.template = Some(sample::template("old").digest());
    found.alive = false;
    let backend = lifted(Fake::with([found.clone()]));
    let adopted = create(&backend).unwrap();
    assert_eq!(
        (&adopted.lease, &adopted.endpoint),
        (&found.lease, &found.endpoint)
    );
    assert_eq!(now(backend.find_lease(&call())), Ok(Some(adopted)));
    assert_eq!(backend.plugin().asked(), ["find", "find"]);
}

#[test]
fn a_machine_of_another_attempt_is_neither_adopted_nor_taken_for_absence() {
    for other in [identity("r", "w-0", 6), identity("elsewhere", "w-0", 7)] {
        let backend = lifted(Fake::with([machine(&other, "m")]));
        let expected = EffectError::definite(format!(
            "w-0 attempt 7 of run r was looked for, and m found that is of {other}"
        ));
        assert_eq!(create(&backend), Err(expected.clone()));
        assert_eq!(now(backend.find_lease(&call())), Err(expected.clone()));
        let lookup = now(backend.lookup_endpoint(&call(), &sample::lease("m")));
        assert_eq!(lookup, Err(expected));
        assert_eq!(backend.plugin().asked(), ["find"; 3]);
    }
}

#[test]
fn nothing_is_made_for_a_caller_that_gave_up_during_the_look() {
    let call = call();
    let backend = lifted(Fake {
        gives_up: Some(call.cancel.clone()),
        ..Fake::default()
    });
    let error = now(backend.create_lease(&call, &spec())).unwrap_err();
    assert_eq!(error, EffectError::definite("cancelled before anything was made"));
    assert_eq!(backend.plugin().asked(), ["find"]);
    // What is there already is answered all the same.
    backend
        .plugin()
        .machines
        .lock()
        .unwrap()
        .push(machine(&own(), "m"));
    assert!(now(backend.create_lease(&call, &spec())).is_ok());
}

#[test]
fn whatever_a_plugin_says_of_a_failure_comes_through_unchanged() {
    let lease = Arc::new(sample::lease("m"));
    for error in sample::errors() {
        for (question, command) in [
            ("find", Command::CreateLease(spec())),
            ("make", Command::CreateLease(spec())),
            ("find", Command::FindLease),
            ("find", Command::LookupEndpoint(lease.clone())),
            ("destroy", Command::DestroyLease(lease.clone())),
        ] {
            let backend = lifted(Fake::failing(question, error.clone()));
            let (outcome, _) = now(perform(&backend, &call(), &command, || unreachable!()));
            assert_eq!(outcome, Outcome::Failed(error.clone()), "{}", command.kind());
            let asked = backend.plugin().asked();
            assert_eq!(asked.last(), Some(&question), "{asked:?}");
            let looks = usize::from(command.kind() == CommandKind::CreateLease && question == "make");
            assert_eq!(
                asked.len(),
                1 + looks,
                "nothing is asked twice, or after a failure"
            );
        }
        let backend = lifted(Fake::failing("list", error.clone()));
        assert_eq!(now(backend.list_leases(&own().run)), Err(error));
    }
}

#[test]
fn an_endpoint_that_is_assigned_later_is_found_with_its_lease() {
    let mut booting = machine(&own(), "m");
    booting.endpoint = None;
    let backend = lifted(Fake::with([booting]));
    let lookup = |name: &str| now(backend.lookup_endpoint(&call(), &sample::lease(name)));
    assert_eq!(create(&backend).unwrap().endpoint, None);
    assert_eq!(lookup("m"), Ok(None));
    let endpoint: Endpoint = sample::endpoint("10.0.0.1");
    backend.plugin().machines.lock().unwrap()[0].endpoint = Some(endpoint.clone());
    assert_eq!(lookup("m"), Ok(Some(endpoint)));
    // Not that of another lease.
    let absent = EffectError::definite("w-0 attempt 7 of run r has no machine n");
    assert_eq!(lookup("n"), Err(absent.clone()));
    backend.plugin().machines.lock().unwrap().clear();
    assert_eq!(lookup("n"), Err(absent));
}

#[test]
fn destroying_names_exactly_that_lease_and_one_that_is_gone_is_a_success() {
    let backend = lifted(Fake::with([machine(&own(), "m"), machine(&own(), "surplus")]));
    for _ in 0..2 {
        let destroyed = now(backend.destroy_lease(&call(), &sample::lease("m")));
        assert_eq!(destroyed, Ok(Destroyed::Gone));
        let left = backend.plugin().machines.lock().unwrap().clone();
        assert_eq!(left, [machine(&own(), "surplus")]);
    }
    assert_eq!(
        backend.plugin().asked(),
        ["destroy"; 2],
        "nothing is looked for first"
    );
}

#[test]
fn a_list_passes_through_what_is_of_the_run_and_the_capabilities_are_the_plugins() {
    let mut dead = machine(&identity("r", "w-1", 8), "dead");
    dead.alive = false;
    let ours = [machine(&own(), "m"), dead.clone(), machine(&own(), "surplus")];
    let foreign = machine(&identity("r2", "w-0", 7), "foreign");
    let backend = lifted(Fake::with(ours.iter().cloned().chain([foreign.clone()])));
    let list = |run: &str| now(backend.list_leases(&run.parse().unwrap())).unwrap().entries;
    assert_eq!(list("r"), ours);
    assert_eq!(list("r2"), [foreign]);
    assert_eq!(list("r3"), []);
    assert_eq!(backend.capabilities(), Fake::default().capabilities());
}

type Seen = Arc<Mutex<Vec<StreamEvent>>>;

fn start(backend: &impl EffectBackend, sequence: u32) -> (Session, Seen) {
    let seen = Seen::default();
    let events = seen.clone();
    let sink = ObservationSink::new(move |report: StreamReport| {
        events.lock().unwrap().push(report.observation.event);
    });
    let call = Call {
        operation: sample::operation(sequence),
        ..call()
    };
    let spec = BootstrapSpec {
        lease: Arc::new(LeaseFacts::new(LeaseId::new("m"))),
        endpoint: sample::endpoint("m"),
        template: spec().template,
    };
    (now(backend.start_bootstrap(&call, &spec, sink)).unwrap(), seen)
}

fn is_over(run: &mut (impl Future + Unpin)) -> bool {
    Pin::new(run)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn a_second_start_adopts_the_session_and_a_cancel_ends_it() {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let backend = PluginBackend::new(
        Fake::default(),
        move |of: &AttemptIdentity, spec: &BootstrapSpec| {
            assert_eq!((of, &spec.endpoint), (&own(), &sample::endpoint("m")));
            count.fetch_add(1, Ordering::SeqCst);
            Silent
        },
    );
    let (mut session, seen) = start(&backend, 3);
    assert!(!is_over(&mut session.run));
    let (mut second, _) = start(&backend, 4);
    assert_eq!((session.id, second.id), (sample::session(3), sample::session(3)));
    assert!(
        is_over(&mut second.run),
        "the first runs on, there is nothing to run twice"
    );
    assert_eq!(reached.load(Ordering::SeqCst), 1, "one session, one way");

    let call = call();
    let mut cancel = Box::pin(backend.cancel_bootstrap(&call));
    assert!(!is_over(&mut cancel), "it waits for the end of the session");
    assert!(is_over(&mut session.run) && is_over(&mut cancel));
    assert_eq!(seen.lock().unwrap().last(), Some(&StreamEvent::Cancelled));
    assert!(backend.sessions().is_empty());
    assert_eq!(now(backend.cancel_bootstrap(&call)), Ok(()), "it is over already");
    let unknown: BootstrapSessionId = sample::session(9);
    assert_eq!(now(backend.observe_convergence(&call, unknown)), Ok(()));
    assert_eq!(
        backend.plugin().asked(),
        [""; 0],
        "sessions are no business of the plugin"
    );
}

#[test]
fn a_plugin_without_a_watch_never_reports() {
    let sink = LossSink::new(|loss: NodeLoss| panic!("{loss:?}"));
    let backend = lifted(Fake::default());
    assert!(!is_over(&mut Box::pin(backend.watch(&own().run, sink))));
}
