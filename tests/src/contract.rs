//! What a backend promises, asked of it call by call.
//!
//! This is the direct half of the kit: it shows which promise of [`EffectBackend`] is broken, where a trace only
//! shows what came of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{
    BootstrapSpec, Call, Cancel, Capabilities, Destroyed, EffectBackend, EffectError, FailureKind,
    InventoryEntry, LossSink, ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, NodeAttemptId, OperationId};
use nodewright_core::template::LogicalNodeSpec;

use crate::oracle::Broken;
use crate::shapes::{RUN, template};
use crate::subject::{Living, Pump, Subject};

macro_rules! demand {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(Broken(format!($($what)*)));
        }
    };
}

/// A promise, and the question that shows whether it is kept.
type Clause<S> = (&'static str, fn(&Bench<S>) -> Result<(), Broken>);

/// Asks a provider for every promise of [`EffectBackend`], each of a provider that holds nothing.
///
/// # Errors
///
/// All promises that it breaks, by name.
pub fn check_contract<S: Subject>() -> Result<(), Vec<Broken>> {
    let clauses: [Clause<S>; 15] = [
        ("capabilities are plain data", capabilities_are_plain_data),
        ("a create stamps what it makes", a_create_stamps_what_it_makes),
        ("a create adopts", a_create_adopts),
        ("each attempt has its own", each_attempt_has_its_own),
        ("each run has its own", each_run_has_its_own),
        ("a look-up never creates", a_look_up_never_creates),
        ("what was made is found", what_was_made_is_found),
        (
            "a list shows the run and no other",
            a_list_shows_the_run_and_no_other,
        ),
        ("a list is complete", a_list_is_complete),
        ("a death is told and listed", a_death_is_told_and_listed),
        ("a destroy takes that lease only", a_destroy_takes_that_lease_only),
        ("already gone is success", already_gone_is_success),
        ("sessions are adopted and end", sessions_are_adopted_and_end),
        ("an abandoned create is found", an_abandoned_create_is_found),
        ("another process finds it all", another_process_finds_it_all),
    ];
    let mut broken = Vec::new();
    for (name, clause) in clauses {
        let bench = Bench::<S>::new();
        if let Err(Broken(what)) = clause(&bench) {
            broken.push(Broken(format!("{name}: {what}")));
        }
        bench.clear();
    }
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}

/// A run whose machines are not ours.
const ANOTHER_RUN: &str = "another-run";

/// A provider, and a hand that asks it.
struct Bench<S: Subject> {
    subject: S,
    backend: Arc<S::Backend>,
    pump: Pump,
    capabilities: Capabilities,
}

impl<S: Subject> Bench<S> {
    fn new() -> Self {
        let subject = S::new();
        let backend = subject.open();
        Self {
            capabilities: backend.capabilities(),
            pump: subject.pump(),
            backend,
            subject,
        }
    }

    /// Gives back whatever is left.
    fn clear(&self) {
        for run in [RUN, ANOTHER_RUN] {
            for entry in self.list(run).unwrap_or_default() {
                let call = call_of(entry.identity, 999);
                let _ = self.run(self.backend.cancel_bootstrap(&call));
                let _ = self.run(self.backend.destroy_lease(&call, &entry.lease));
            }
        }
    }

    fn run<T>(&self, call: impl Future<Output = Result<T, EffectError>> + Send) -> Result<T, EffectError> {
        let hangs = || Err(EffectError::ambiguous("the call never ended"));
        self.pump.finish(call).unwrap_or_else(hangs)
    }

    fn create(&self, attempt: u64) -> Result<CreatedLease, Broken> {
        self.create_from(attempt, "image")
    }

    fn create_from(&self, attempt: u64, image: &str) -> Result<CreatedLease, Broken> {
        let created = self.run(self.backend.create_lease(&call(attempt, 1), &spec(image)));
        created.map_err(|error| {
            let living = self.living_of(attempt);
            let honest = error.kind == FailureKind::Ambiguous || living.is_empty();
            let but = if honest { "" } else { ", and it made something" };
            Broken(format!("a create failed: {error}{but}"))
        })
    }

    fn find(&self, attempt: u64) -> Result<Option<CreatedLease>, Broken> {
        let found = self.run(self.backend.find_lease(&call(attempt, 2)));
        found.map_err(|error| Broken(format!("a look-up failed: {error}")))
    }

    fn destroy(&self, attempt: u64, lease: &LeaseFacts) -> Result<(), Broken> {
        // A provider may work on it for a while; each time it is asked is a time to look.
        for sequence in 3..1000 {
            match self.run(self.backend.destroy_lease(&call(attempt, sequence), lease)) {
                Ok(Destroyed::Gone) => return Ok(()),
                Ok(Destroyed::Going) => self.wait(Duration::from_millis(10)),
                Err(error) => return Err(Broken(format!("a destroy failed: {error}"))),
            }
        }
        Err(Broken("a destroy is going and never done".to_owned()))
    }

    fn list(&self, run: &str) -> Result<Vec<InventoryEntry>, Broken> {
        let run = run.parse().expect("a name");
        let listed = self.run(self.backend.list_leases(&run));
        let listed = listed.map_err(|error| Broken(format!("a list failed: {error}")))?;
        Ok(listed.entries)
    }

    /// Waits until what was made is visible.
    fn until_visible(&self) {
        self.wait(self.capabilities.visibility);
    }

    fn wait(&self, time: Duration) {
        if let Pump::Tokio(runtime) = &self.pump {
            runtime.block_on(async { tokio::time::sleep(time).await });
        }
    }

    /// Polls what goes on without end for a while, or until this is so.
    fn go_on(&self, future: &mut BoxFuture<'static, ()>, until: impl Fn() -> bool) {
        match &self.pump {
            Pump::Inline => drop(future.now_or_never()),
            Pump::Tokio(runtime) => runtime.block_on(async {
                for _ in 0..200 {
                    let tick = tokio::time::sleep(Duration::from_millis(5));
                    drop(futures_util::future::select(&mut *future, Box::pin(tick)).await);
                    if until() {
                        return;
                    }
                }
            }),
        }
    }

    fn living_of(&self, attempt: u64) -> Vec<Living> {
        let identity = call(attempt, 1).identity;
        let living = self.subject.living().into_iter();
        living.filter(|one| one.identity == identity).collect()
    }

    fn start(&self, attempt: u64, sequence: u32, created: &CreatedLease) -> Result<Session, Broken> {
        let call = call(attempt, sequence);
        let endpoint = match &created.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => self.endpoint(attempt, &created.lease)?,
        };
        let spec = BootstrapSpec {
            lease: created.lease.clone().into(),
            endpoint,
            template: template("alpha", "image"),
        };
        let sink = ObservationSink::new(|_| {});
        let started = self.run(self.backend.start_bootstrap(&call, &spec, sink));
        started.map_err(|error| Broken(format!("a start failed: {error}")))
    }

    fn endpoint(&self, attempt: u64, lease: &LeaseFacts) -> Result<Endpoint, Broken> {
        for sequence in 10..1000 {
            let answer = self.run(self.backend.lookup_endpoint(&call(attempt, sequence), lease));
            match answer {
                Ok(Some(endpoint)) => return Ok(endpoint),
                Ok(None) => self.wait(Duration::from_millis(10)),
                Err(error) => return Err(Broken(format!("an endpoint's look-up failed: {error}"))),
            }
        }
        Err(Broken("an endpoint never comes".to_owned()))
    }
}

fn call(attempt: u64, sequence: u32) -> Call {
    let identity = AttemptIdentity {
        run: RUN.parse().expect("a name"),
        node: "w-0".parse().expect("a node id"),
        attempt: NodeAttemptId::new(attempt),
    };
    call_of(identity, sequence)
}

fn call_of(identity: AttemptIdentity, sequence: u32) -> Call {
    Call {
        operation: OperationId {
            attempt: identity.attempt,
            sequence,
        },
        identity,
        cancel: Cancel::new(),
    }
}

fn spec(image: &str) -> LogicalNodeSpec {
    LogicalNodeSpec {
        id: "w-0".parse().expect("a node id"),
        template: template("alpha", image),
    }
}

fn capabilities_are_plain_data<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    bench.create(1)?;
    let now = bench.backend.capabilities();
    demand!(
        now == bench.capabilities && bench.subject.open().capabilities() == now,
        "they were {:?} and are {now:?}",
        bench.capabilities
    );
    let run = RUN.parse().expect("a name");
    let listed = bench.run(bench.backend.list_leases(&run));
    demand!(
        !now.inventory || listed.is_ok(),
        "an inventory is stated, and a list says {listed:?}"
    );
    Ok(())
}

fn a_create_stamps_what_it_makes<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    let digest = Some(template("alpha", "image").digest());
    demand!(
        created.lease.template == digest,
        "the lease carries {:?}, and its template is {digest:?}",
        created.lease.template
    );
    bench.until_visible();
    let found = bench.find(1)?.and_then(|found| found.lease.template);
    demand!(found == digest, "a look-up says {found:?}, not {digest:?}");
    Ok(())
}

fn a_create_adopts<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let first = bench.create(1)?;
    let again = bench.create(1)?;
    demand!(
        again.lease.id == first.lease.id,
        "it answered {} and then {} for one attempt",
        first.lease.id,
        again.lease.id
    );
    let living = bench.living_of(1);
    demand!(living.len() == 1, "one attempt has {living:?}");
    // What is adopted is told as what it is, so that a wrong one can be seen.
    let other = bench.create_from(1, "another")?;
    demand!(
        other.lease.template == first.lease.template,
        "what was made from {:?} was adopted as {:?}",
        first.lease.template,
        other.lease.template
    );
    Ok(())
}

fn each_attempt_has_its_own<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let (one, two) = (bench.create(1)?, bench.create(2)?);
    demand!(
        one.lease.id != two.lease.id,
        "attempts 1 and 2 were both given {}",
        one.lease.id
    );
    demand!(
        bench.living_of(1).len() == 1 && bench.living_of(2).len() == 1,
        "of two creates there live {:?}",
        bench.subject.living()
    );
    Ok(())
}

/// Runs share a provider, and their slots and attempts have the same names.
fn each_run_has_its_own<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let ours = bench.create(1)?;
    let mut theirs = call(1, 1);
    theirs.identity.run = ANOTHER_RUN.parse().expect("a name");
    let found = bench.run(bench.backend.find_lease(&theirs));
    demand!(
        found.as_ref().is_ok_and(Option::is_none),
        "another run that made nothing finds {found:?}"
    );
    let made = bench.run(bench.backend.create_lease(&theirs, &spec("image")));
    let made = made.map_err(|error| Broken(format!("a create of another run failed: {error}")))?;
    demand!(
        made.lease.id != ours.lease.id,
        "two runs were both given {}",
        ours.lease.id
    );
    bench.destroy(1, &ours.lease)?;
    bench.until_visible();
    let kept = bench.run(bench.backend.find_lease(&theirs));
    let kept = kept.map_err(|error| Broken(format!("a look-up of another run failed: {error}")))?;
    demand!(
        kept.is_some_and(|kept| kept.lease.id == made.lease.id),
        "our destroy took another run's {}",
        made.lease.id
    );
    Ok(())
}

fn a_look_up_never_creates<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let found = bench.find(1)?;
    demand!(found.is_none(), "it found {found:?} where nothing was made");
    let living = bench.subject.living();
    demand!(living.is_empty(), "it made {living:?}");
    Ok(())
}

fn what_was_made_is_found<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    bench.until_visible();
    let found = bench.find(1)?.map(|found| found.lease.id);
    demand!(
        found == Some(created.lease.id.clone()),
        "{} was made and {found:?} is found after {:?}",
        created.lease.id,
        bench.capabilities.visibility
    );
    let other = bench.find(2)?;
    demand!(other.is_none(), "another attempt was given {other:?}");
    Ok(())
}

fn a_list_shows_the_run_and_no_other<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    if !bench.capabilities.inventory {
        return Ok(());
    }
    let created = bench.create(1)?;
    bench.until_visible();
    let listed = bench.list(RUN)?;
    let shown = |entry: &InventoryEntry| {
        entry.identity == call(1, 1).identity && entry.lease.id == created.lease.id && entry.alive
    };
    demand!(
        listed.len() == 1 && listed.iter().all(shown),
        "{} was made and {listed:?} is listed",
        created.lease.id
    );
    let other = bench.list(ANOTHER_RUN)?;
    demand!(other.is_empty(), "another run is shown {other:?}");
    Ok(())
}

fn a_list_is_complete<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    if !bench.capabilities.inventory {
        return Ok(());
    }
    let mut made = BTreeSet::new();
    for attempt in 1..=3 {
        made.insert(bench.create(attempt)?.lease.id);
    }
    bench.until_visible();
    let listed = bench.list(RUN)?.into_iter();
    let listed: BTreeSet<LeaseId> = listed.map(|entry| entry.lease.id).collect();
    demand!(listed == made, "{made:?} were made, and {listed:?} are listed");
    Ok(())
}

/// A machine that died has to be given back, so that it is listed still, as what it is.
fn a_death_is_told_and_listed<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    bench.until_visible();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = LossSink::new({
        let told = told.clone();
        move |loss| told.lock().expect("nobody panics under it").push(loss)
    });
    let (backend, run) = (bench.backend.clone(), RUN.parse().expect("a name"));
    let mut watch = async move { backend.watch(&run, sink).await }.boxed();
    bench.go_on(&mut watch, || false);
    let identity = call(1, 1).identity;
    demand!(
        told.lock().expect("nobody panics under it").is_empty(),
        "a death was told, and nobody died"
    );
    if !bench.subject.kill(&identity) {
        return Ok(());
    }
    let heard = || !told.lock().expect("nobody panics under it").is_empty();
    bench.go_on(&mut watch, heard);
    let told = told.lock().expect("nobody panics under it").clone();
    let right = told
        .iter()
        .all(|loss| loss.node == identity.node && loss.attempt == identity.attempt);
    demand!(right, "{identity} died, and {told:?} was told");
    demand!(
        !bench.capabilities.watch || told.len() == 1,
        "a watch is stated, and of a death it told {told:?}"
    );
    if bench.capabilities.inventory {
        let listed = bench.list(RUN)?;
        demand!(
            listed.len() == 1 && listed.iter().all(|entry| !entry.alive),
            "{} is dead, and {listed:?} is listed",
            created.lease.id
        );
    }
    bench.destroy(1, &created.lease)?;
    let left = bench.living_of(1);
    demand!(left.is_empty(), "{left:?} is dead and cannot be given back");
    Ok(())
}

fn a_destroy_takes_that_lease_only<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    let other = LeaseFacts::new(LeaseId::new("another-lease"));
    let _ = bench.run(bench.backend.destroy_lease(&call(1, 2), &other));
    demand!(
        bench.living_of(1).len() == 1,
        "the destroy of another lease took {}",
        created.lease.id
    );
    bench.destroy(1, &created.lease)?;
    let living = bench.living_of(1);
    demand!(living.is_empty(), "after the destroy there live {living:?}");
    Ok(())
}

fn already_gone_is_success<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    bench.destroy(1, &created.lease)?;
    bench.destroy(1, &created.lease)?;
    let cancelled = bench.run(bench.backend.cancel_bootstrap(&call(1, 7)));
    demand!(
        cancelled.is_ok(),
        "a cancel where no session is says {cancelled:?}"
    );
    let session = BootstrapSessionId(call(1, 2).operation);
    let observed = bench.run(bench.backend.observe_convergence(&call(1, 8), session));
    demand!(
        observed.is_ok(),
        "telling a session that is over says {observed:?}"
    );
    Ok(())
}

fn sessions_are_adopted_and_end<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    let first = bench.start(1, 2, &created)?;
    demand!(
        first.id.attempt() == NodeAttemptId::new(1),
        "a session of attempt 1 is named {}",
        first.id
    );
    let again = bench.start(1, 3, &created)?;
    demand!(
        again.id == first.id,
        "a second start made {} beside {}",
        again.id,
        first.id
    );
    // Nobody runs the session, so that nothing but the cancel can end it.
    let cancelled = bench.run(bench.backend.cancel_bootstrap(&call(1, 4)));
    demand!(cancelled.is_ok(), "a cancel says {cancelled:?}");
    let next = bench.start(1, 5, &created)?;
    demand!(
        next.id != first.id,
        "after the cancel {} was adopted again",
        first.id
    );
    drop((first, again, next));
    Ok(())
}

/// A call that is dropped in the middle may have made something, which is found then; or nothing.
fn an_abandoned_create_is_found<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    if !bench.capabilities.abortable {
        return Ok(());
    }
    let (made, wanted) = (call(1, 1), spec("image"));
    let backend = bench.backend.clone();
    let create = async move { backend.create_lease(&made, &wanted).await };
    match &bench.pump {
        Pump::Inline => drop(create.now_or_never()),
        Pump::Tokio(runtime) => runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_micros(300), create).await;
        }),
    }
    bench.until_visible();
    let (found, living) = (bench.find(1)?, bench.living_of(1));
    demand!(
        found.is_some() != living.is_empty(),
        "there lives {living:?}, and {found:?} is found"
    );
    if let Some(found) = found {
        bench.destroy(1, &found.lease)?;
    }
    // Where the visibility is over nothing comes through any more, however often one looks.
    for _ in 0..8 {
        let _ = bench.list(RUN);
    }
    let left = bench.living_of(1);
    demand!(left.is_empty(), "{left:?} is left, or came through later");
    Ok(())
}

fn another_process_finds_it_all<S: Subject>(bench: &Bench<S>) -> Result<(), Broken> {
    let created = bench.create(1)?;
    bench.until_visible();
    let later = Bench::<S> {
        backend: bench.subject.open(),
        subject: S::new(),
        pump: bench.pump.clone(),
        capabilities: bench.capabilities,
    };
    let found = later.find(1)?.map(|found| found.lease.id);
    demand!(
        found == Some(created.lease.id.clone()),
        "{} was made, and a later process finds {found:?}",
        created.lease.id
    );
    let again = later.create(1)?;
    demand!(
        again.lease.id == created.lease.id,
        "a later process made {} beside {}",
        again.lease.id,
        created.lease.id
    );
    let living = bench.living_of(1);
    demand!(living.len() == 1, "one attempt has {living:?}");
    later.destroy(1, &created.lease)?;
    let left = bench.living_of(1);
    demand!(left.is_empty(), "a later process left {left:?}");
    Ok(())
}
