use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use nodewright_core::bootstrap::StreamEvent;
use nodewright_core::effect::{Cancel, StreamReport};
use nodewright_core::facts::{AgentId, BootstrapStage};
use nodewright_core::id::{NodeAttemptId, OperationId};
use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

use super::*;

mod plugin;

fn call(attempt: u64, sequence: u32) -> Call {
    let attempt = NodeAttemptId::new(attempt);
    Call {
        identity: AttemptIdentity {
            run: "r".parse().unwrap(),
            node: "w-0".parse().unwrap(),
            attempt,
        },
        operation: OperationId { attempt, sequence },
        cancel: Cancel::new(),
    }
}

fn spec() -> LogicalNodeSpec {
    LogicalNodeSpec {
        id: "w-0".parse().unwrap(),
        template: Template::new(NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: "memory".parse().unwrap(),
            shape: NodeShape::new("debian"),
            boot: BootSpec::new("agent"),
            join: SwarmJoinSpec::default(),
        }),
    }
}

/// What a future answers at once: this provider never makes anybody wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn create(backend: &impl EffectBackend, attempt: u64) -> CreatedLease {
    now(backend.create_lease(&call(attempt, 1), &spec())).unwrap()
}

type Seen = Arc<Mutex<Vec<StreamEvent>>>;

fn start(backend: &impl EffectBackend, created: &CreatedLease, sequence: u32) -> (Session, Seen) {
    let seen = Seen::default();
    let events = seen.clone();
    let sink = ObservationSink::new(move |report: StreamReport| {
        events.lock().unwrap().push(report.observation.event);
    });
    let spec = BootstrapSpec {
        lease: Arc::new(created.lease.clone()),
        endpoint: created.endpoint.clone().unwrap(),
        template: spec().template,
    };
    let session = now(backend.start_bootstrap(&call(1, sequence), &spec, sink)).unwrap();
    (session, seen)
}

fn last(seen: &Seen) -> StreamEvent {
    seen.lock().unwrap().last().unwrap().clone()
}

#[test]
fn a_second_create_of_an_attempt_adopts_its_machine() {
    let backend = MemoryBackend::new();
    let created = create(&backend, 1);
    assert_eq!(created.lease.template, Some(spec().template.digest()));
    assert_eq!(create(&backend.clone(), 1), created);
    assert_eq!(backend.created(&call(1, 1).identity), 1);
    assert_eq!(
        now(backend.find_lease(&call(1, 2))).unwrap(),
        Some(created.clone())
    );
    assert_eq!(now(backend.find_lease(&call(2, 1))).unwrap(), None);
    assert_ne!(create(&backend, 2).lease.id, created.lease.id);
}

#[test]
fn destroying_takes_exactly_that_lease_and_is_content_when_it_is_gone() {
    let backend = MemoryBackend::new();
    let (first, second) = (create(&backend, 1), create(&backend, 2));
    let destroy = |attempt, lease| now(backend.destroy_lease(&call(attempt, 5), lease)).unwrap();
    assert_eq!(destroy(1, &second.lease), Destroyed::Gone);
    assert_eq!(backend.live().len(), 2, "it is not the lease of that attempt");
    for _ in 0..2 {
        assert_eq!(destroy(1, &first.lease), Destroyed::Gone);
        assert_eq!(backend.live(), [(call(2, 1).identity, second.lease.id.clone())]);
        assert_eq!(backend.destroyed(&call(1, 1).identity), 1);
    }
}

#[test]
fn a_list_shows_the_machines_of_its_run_and_whether_they_live() {
    let backend = MemoryBackend::new();
    let created = create(&backend, 1);
    create(&backend, 2);
    let identity = call(2, 1).identity;
    assert!(backend.kill(&identity) && !backend.kill(&identity));
    let alive = |run: &str| -> Vec<bool> {
        let inventory = now(backend.list_leases(&run.parse().unwrap())).unwrap();
        inventory.entries.iter().map(|entry| entry.alive).collect()
    };
    assert_eq!(alive("r"), [true, false]);
    assert!(alive("other").is_empty());
    assert!(backend.vanish(&identity) && !backend.vanish(&identity));
    let inventory = now(backend.list_leases(&"r".parse().unwrap())).unwrap();
    assert_eq!(inventory.entries.len(), 1);
    assert_eq!(inventory.entries[0].lease, created.lease);
}

#[test]
fn a_session_joins_under_the_name_of_its_node_and_waits_until_it_may_end() {
    let backend = MemoryBackend::new();
    let created = create(&backend, 1);
    let (mut session, seen) = start(&backend, &created, 2);
    assert!(poll(session.run.as_mut()).is_pending());
    assert_eq!(
        *seen.lock().unwrap(),
        [
            StreamEvent::Stage(BootstrapStage::Connecting),
            StreamEvent::Stage(BootstrapStage::Connected),
            StreamEvent::Stage(BootstrapStage::AgentStarting),
            StreamEvent::Stage(BootstrapStage::WaitingForJoin),
            StreamEvent::Joined(AgentId::new("w-0")),
            StreamEvent::Lines { stdout: 1, stderr: 0 },
        ]
    );
    assert_eq!(start(&backend, &created, 3).0.id, session.id, "it is adopted");
    now(backend.observe_convergence(&call(1, 4), session.id)).unwrap();
    assert!(poll(session.run.as_mut()).is_ready());
    assert_eq!(last(&seen), StreamEvent::Converged);
    now(backend.observe_convergence(&call(1, 5), session.id)).unwrap();
    now(backend.cancel_bootstrap(&call(1, 6))).unwrap();
}

#[test]
fn an_agent_that_never_joins_runs_until_it_is_cancelled() {
    let backend = MemoryBackend::new().joins(JoinMode::Never);
    let (mut session, seen) = start(&backend, &create(&backend, 1), 2);
    assert!(poll(session.run.as_mut()).is_pending());
    assert_eq!(last(&seen), StreamEvent::Stage(BootstrapStage::WaitingForJoin));
    let call = call(1, 3);
    let mut cancel = pin!(backend.cancel_bootstrap(&call));
    assert!(poll(cancel.as_mut()).is_pending());
    assert!(poll(session.run.as_mut()).is_ready());
    assert!(poll(cancel).is_ready());
    assert_eq!(last(&seen), StreamEvent::Cancelled);
}

#[test]
fn a_session_breaks_when_its_machine_goes() {
    type End = fn(&MemoryBackend, &CreatedLease);
    let ends: [End; 3] = [
        |backend, _| assert!(backend.kill(&call(1, 1).identity)),
        |backend, _| assert!(backend.vanish(&call(1, 1).identity)),
        |backend, created| {
            let destroyed = now(backend.destroy_lease(&call(1, 9), &created.lease));
            assert_eq!(destroyed, Ok(Destroyed::Gone));
        },
    ];
    for end in ends {
        let backend = MemoryBackend::new();
        let created = create(&backend, 1);
        let (mut session, seen) = start(&backend, &created, 2);
        assert!(poll(session.run.as_mut()).is_pending());
        end(&backend, &created);
        assert!(poll(session.run.as_mut()).is_ready());
        let StreamEvent::Failed { stage, .. } = last(&seen) else {
            panic!("{seen:?}")
        };
        assert_eq!(stage, BootstrapStage::StreamFailed);
    }
}

#[test]
fn what_needs_a_machine_fails_definitely_without_one() {
    let backend = MemoryBackend::new();
    let lease = LeaseFacts::new(LeaseId::new("m-9"));
    let error = now(backend.lookup_endpoint(&call(1, 1), &lease)).unwrap_err();
    assert_eq!(
        error,
        EffectError::definite("w-0 attempt 1 of run r has no machine m-9")
    );
}

#[test]
fn a_watch_tells_of_the_deaths_in_its_run_until_it_is_dropped() {
    let backend = MemoryBackend::new();
    for attempt in 1..=3 {
        create(&backend, attempt);
    }
    let lost = Arc::new(Mutex::new(Vec::new()));
    let sink = |prefix: &'static str| {
        let lost = lost.clone();
        LossSink::new(move |loss| lost.lock().unwrap().push(format!("{prefix}{}", loss.attempt)))
    };
    let (run, other) = ("r".parse().unwrap(), "other".parse().unwrap());
    let mut elsewhere = pin!(backend.watch(&other, sink("other ")));
    assert!(poll(elsewhere.as_mut()).is_pending());
    {
        let mut watch = pin!(backend.watch(&run, sink("")));
        assert!(poll(watch.as_mut()).is_pending());
        assert!(backend.kill(&call(1, 1).identity));
        assert!(backend.vanish(&call(2, 1).identity));
    }
    assert!(backend.kill(&call(3, 1).identity));
    assert_eq!(*lost.lock().unwrap(), ["1"]);
}
