//! The whole actor stack, played.
//!
//! A trace is played against a running [`Cluster`] under a parent of its own: under tokio's paused clock where
//! the provider needs nothing but being polled, in real time where it is real. Provider calls wait at a gate, so
//! that the trace chooses which goes on; parts of us die by being killed. What an executor reports cannot be
//! told twice or mislaid from outside, so these inputs mean nothing here, nor do those that say when a pass is
//! run.

mod parent;
mod tempo;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use nodewright::{Clock, Cluster, Config, Events, Heard, Shutdown};
use nodewright_core::desired::Desired;
use nodewright_core::effect::{CommandKind, EffectBackend};
use nodewright_core::facts::AgentId;
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::inventory::Findings;
use nodewright_core::observation::Observation;
use nodewright_core::plan::reconcile;
use nodewright_core::shape::{ClusterShape, Generation, NodeGroupSpec, ShapeLimits};
use nodewright_core::state::ClusterState;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use self::parent::{Family, Parent};
use self::tempo::{ClockTime, Tempo};
use crate::faulty::{Control, Faulty};
use crate::level::{End, Level};
use crate::oracle::{Broken, check_state, g25_what_it_depends_on_is_available};
use crate::shapes::{self, PROVIDERS, shape};
use crate::sim::SimConfig;
use crate::subject::{Living, Pump, Subject};
use crate::trace::{Input, Listing, Memory, Part, Trace};

macro_rules! demand {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(Broken(format!($($what)*)));
        }
    };
}

/// The level of the actors over a subject.
#[derive(Debug)]
pub struct Stack<S>(PhantomData<S>);

impl<S: Subject> Level for Stack<S> {
    fn play(trace: &Trace) -> Result<End, Broken> {
        let mut run = Run::<S>::begin(trace);
        let played = run.happen(&trace.inputs).and_then(|()| run.settle());
        let log = run.log();
        played
            .map(|mut end| {
                if matches!(run.subjects[0].pump(), Pump::Inline) {
                    end.exact = log.join("\n");
                }
                end
            })
            .map_err(|Broken(what)| {
                let last = &log[log.len().saturating_sub(crate::regress::noted())..];
                Broken(format!("{what}\n{}\nin\n{trace}", last.join("\n")))
            })
    }
}

/// How often in the fair tail somebody looks for slots that are halted, and releases them.
const ROUNDS: u32 = 60;

/// A cluster that is played with.
struct Run<S: Subject> {
    runtime: Arc<Runtime>,
    tempo: Tempo,
    config: SimConfig,
    clock: Clock,
    subjects: Vec<S>,
    controls: Vec<Control>,
    shape: ClusterShape,
    parent: Parent,
    cluster: Cluster,
    family: Family,
    published: watch::Receiver<Arc<ClusterState>>,
    events: Events,
    log: Vec<String>,
    resources: BTreeMap<(usize, AttemptIdentity), String>,
    made: usize,
}

impl<S: Subject> fmt::Debug for Run<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl<S: Subject> Run<S> {
    fn begin(trace: &Trace) -> Self {
        let subjects: Vec<S> = PROVIDERS.iter().map(|_| S::new()).collect();
        let (runtime, tempo) = match subjects[0].pump() {
            Pump::Inline => (tempo::paused(), Tempo::VIRTUAL),
            Pump::Tokio(runtime) => (runtime, Tempo::REAL),
        };
        let mut config = SimConfig::from(&trace.setup);
        tempo.suit(&mut config);
        let shape = shape(1, shapes::groups(&trace.setup.groups));
        let entered = runtime.enter();
        let clock = Clock::anchored(tempo::start());
        let control = |_: &&str| {
            let control = Control::new(config.stated, Arc::new(ClockTime(clock)));
            control.set_gated(true);
            control
        };
        let controls: Vec<Control> = PROVIDERS.iter().map(control).collect();
        drop(entered);
        let parent = runtime.block_on(Parent::spawn());
        let offer = offer(&config, &shape, &subjects, &controls, clock, config.fresh);
        let events = offer.subscribe();
        let (cluster, family) = runtime.block_on(start(offer, &parent));
        let mut run = Self {
            published: cluster.published(),
            runtime,
            tempo,
            config,
            clock,
            subjects,
            controls,
            shape,
            parent,
            cluster,
            family,
            events,
            log: Vec::new(),
            resources: BTreeMap::new(),
            made: 0,
        };
        run.watch_calls();
        run
    }

    /// G8 and G25: whatever a backend sees is pending in the state that was published last, and in its turn. A
    /// state is published with every pass, and a call begins after it.
    fn watch_calls(&mut self) {
        for control in &self.controls {
            let published = self.cluster.published();
            let desired = self.desired();
            control.check_calls(move |call, kind| {
                let state = published.borrow();
                let node = state.nodes.get(&call.identity.node);
                let pending = node.and_then(|node| node.pending.as_ref());
                let orphans = state.orphans.values();
                let orphans = orphans.filter_map(|orphan| orphan.pending.as_ref());
                let mut all = pending.into_iter().chain(orphans);
                demand!(
                    all.any(|pending| pending.id == call.operation),
                    "G8: the backend sees {} before it was recorded",
                    call.operation
                );
                match kind {
                    CommandKind::CreateLease => {
                        g25_what_it_depends_on_is_available(&state, &desired, &call.identity.node)
                    }
                    _ => Ok(()),
                }
            });
        }
    }

    fn desired(&self) -> Desired {
        let providers = PROVIDERS.iter().map(|kind| kind.parse().expect("a name"));
        let desired = Desired::new(self.shape.clone(), &ShapeLimits::default(), &providers.collect());
        desired.expect("planned shapes are valid")
    }

    fn happen(&mut self, inputs: &[Input]) -> Result<(), Broken> {
        self.pass_time(1)?;
        for input in inputs {
            self.hear();
            self.log.push(format!("{input:?}"));
            self.take(input)?;
            self.pass_time(1)?;
            self.check()?;
        }
        Ok(())
    }

    /// Lets so many milliseconds pass, and everything happen that can.
    fn pass_time(&mut self, milliseconds: u32) -> Result<(), Broken> {
        let time = self.tempo.pass(milliseconds);
        self.runtime.block_on(async { tokio::time::sleep(time).await });
        Ok(())
    }

    fn take(&mut self, input: &Input) -> Result<(), Broken> {
        match input {
            Input::Wait => self.pass_time(2_000)?,
            Input::Advance(milliseconds) => self.pass_time(*milliseconds)?,
            Input::Reshape(groups) => self.reshape(shapes::groups(groups)),
            Input::Resize { group, count } => {
                let mut groups = self.shape.groups.clone();
                let name = shapes::group_name(*group);
                if let Some(group) = groups.iter_mut().find(|group| group.group_id.as_str() == name) {
                    group.count = u32::from(*count);
                    self.reshape(groups);
                }
            }
            Input::Work(number) => {
                let _entered = self.runtime.enter();
                let at = usize::from(*number) % self.controls.len();
                let (first, second) = (&self.controls[at], &self.controls[1 - at]);
                if !first.release(*number / 2) {
                    second.release(*number / 2);
                }
            }
            Input::WorkAll(number) => {
                let _entered = self.runtime.enter();
                for control in &self.controls {
                    while control.release(*number) {}
                }
            }
            Input::Script(reply) => self.controls.iter().for_each(|control| control.script(*reply)),
            Input::List(listing) => self.script_listing(*listing),
            Input::Crash(part) => self.crash(*part),
            Input::Restart(memory) => self.restart(*memory)?,
            // What is said twice or lost inside of us, and when passes are run, is not the trace's to say here.
            Input::Repeat(_) | Input::Mislay(_) | Input::Gather(_) | Input::Trigger => {}
            Input::Join(number)
            | Input::Impersonate(number)
            | Input::HandOff(number)
            | Input::Lose(number)
            | Input::Kill(number)
            | Input::Vanish(number)
            | Input::Retry(number)
            | Input::Replace(number)
            | Input::Forge(number) => {
                if let Some((node, attempt)) = self.pick(*number) {
                    self.befall(input, &node, attempt);
                }
            }
        }
        Ok(())
    }

    fn reshape(&mut self, groups: Vec<NodeGroupSpec>) {
        self.shape.generation = Generation(self.shape.generation.0 + 1);
        self.shape.groups = groups;
        // Whatever was sent before has begun: what begins now is of the new shape.
        self.watch_calls();
        let updated = self.runtime.block_on(self.cluster.update(self.shape.clone()));
        updated.expect("planned shapes are valid");
    }

    /// A first look believes what it sees, so that nothing but a failure is fair while one is due.
    fn script_listing(&self, listing: Listing) {
        let looked = self.published.borrow().looks_done();
        let listing = if looked { listing } else { Listing::Fails };
        for control in &self.controls {
            control.script_listing(listing);
        }
    }

    fn pick(&self, number: u16) -> Option<(LogicalNodeId, NodeAttemptId)> {
        let state = self.published.borrow();
        let place = usize::from(number) % state.nodes.len().max(1);
        let (id, node) = state.nodes.iter().nth(place)?;
        Some((id, node.attempt))
    }

    fn befall(&mut self, input: &Input, node: &LogicalNodeId, attempt: NodeAttemptId) {
        let joined = |agent: &str| Observation::Joined(AgentId::new(agent));
        let (attempt, observation) = match input {
            Input::Join(_) => (attempt, joined(&node.to_string())),
            Input::Impersonate(_) => (attempt, joined("stranger")),
            Input::HandOff(_) => (attempt, Observation::HandedOff),
            Input::Lose(_) => {
                let reason = "somebody said so".into();
                (attempt, Observation::NodeLost { reason })
            }
            Input::Kill(_) => {
                let identity = AttemptIdentity {
                    run: self.shape.run_id.clone(),
                    node: node.clone(),
                    attempt,
                };
                for subject in &self.subjects {
                    subject.kill(&identity);
                }
                return;
            }
            Input::Vanish(_) => {
                let identity = AttemptIdentity {
                    run: self.shape.run_id.clone(),
                    node: node.clone(),
                    attempt,
                };
                for (place, subject) in self.subjects.iter().enumerate() {
                    if subject.vanish(&identity) {
                        self.resources.remove(&(place, identity.clone()));
                    }
                }
                return;
            }
            Input::Retry(_) => {
                let _ = self.runtime.block_on(self.cluster.retry(node));
                return;
            }
            Input::Replace(_) => {
                let _ = self.runtime.block_on(self.cluster.replace(node));
                return;
            }
            _ => (NodeAttemptId::new(attempt.number() + 1_000_000), joined("nobody")),
        };
        let _entered = self.runtime.enter();
        let _ = self.cluster.observe(node.clone(), attempt, observation);
    }

    /// A part of us is killed; another takes its place.
    fn crash(&mut self, part: Part) {
        let Self {
            family,
            runtime,
            parent,
            ..
        } = self;
        runtime.block_on(family.crash(parent, part));
    }

    /// The supervisor ends, and another takes over.
    fn restart(&mut self, memory: Memory) -> Result<(), Broken> {
        self.hear();
        let state = match memory {
            Memory::State => {
                let state = self.runtime.block_on(self.cluster.shutdown(Shutdown::Detach));
                Some(state.map_err(|error| Broken(format!("G31: a detach says {error}")))?)
            }
            Memory::None => {
                self.runtime.block_on(self.family.kill(&self.parent));
                None
            }
        };
        self.log.push("another takes over".to_owned());
        for control in &self.controls {
            control.forget_listings();
            // Until the next cluster has begun nobody can say what it recorded.
            control.check_calls(|_, _| Ok(()));
        }
        let (subjects, controls) = (&self.subjects, &self.controls);
        let mut offer = offer(&self.config, &self.shape, subjects, controls, self.clock, false);
        if let Some(state) = state {
            offer = offer.resume(state);
        } else {
            // Of what is gone it can know nothing.
            let living = self.living();
            self.resources
                .retain(|(place, identity), _| living[*place].iter().any(|one| one.identity == *identity));
        }
        self.events = offer.subscribe();
        (self.cluster, self.family) = self.runtime.block_on(start(offer, &self.parent));
        self.published = self.cluster.published();
        self.watch_calls();
        Ok(())
    }

    /// Takes what was published into the log.
    fn hear(&mut self) {
        let _entered = self.runtime.enter();
        while let Some(Some(heard)) = futures_util::FutureExt::now_or_never(self.events.recv()) {
            self.log.push(match heard {
                Heard::Event(event) => format!("{} {}", event.at, event.kind),
                Heard::Missed(count) => format!("{count} events were missed"),
            });
        }
    }

    fn log(&mut self) -> Vec<String> {
        self.hear();
        self.log.clone()
    }

    fn living(&self) -> Vec<Vec<Living>> {
        self.subjects.iter().map(Subject::living).collect()
    }

    /// What must hold after every step: of the state, of the callers, of what lives, and of the pass.
    fn check(&mut self) -> Result<(), Broken> {
        let state = self.published.borrow().clone();
        check_state(&state)?;
        for control in &self.controls {
            if let Some(broken) = control.take_broken().pop() {
                return Err(Broken(broken));
            }
        }
        self.g10_a_slot_has_one_resource()?;
        self.g29_nothing_is_left_to_do(&state)
    }

    fn g10_a_slot_has_one_resource(&mut self) -> Result<(), Broken> {
        let mut holders = BTreeMap::new();
        for (place, living) in self.living().into_iter().enumerate() {
            for Living { identity, name } in living {
                let other = holders.insert(identity.node.clone(), identity.clone());
                demand!(other.is_none(), "G10: {identity} lives beside {other:?}");
                let known = self
                    .resources
                    .entry((place, identity.clone()))
                    .or_insert_with(|| {
                        self.made += 1;
                        name.clone()
                    });
                demand!(*known == name, "G10: {identity} had {known} and has {name}");
            }
        }
        Ok(())
    }

    /// G29: once everything has been done that can be, the full pass has nothing to do. Where time is real
    /// nobody can say when that is.
    fn g29_nothing_is_left_to_do(&self, state: &ClusterState) -> Result<(), Broken> {
        if self.tempo.is_real() {
            return Ok(());
        }
        let desired = self.desired();
        let _entered = self.runtime.enter();
        // Timers fire with the next millisecond: what became due in the last one may still be ahead.
        let now = self.clock.now() - tempo::TICK;
        let full = reconcile(state, &desired, &self.config.policy, now);
        demand!(
            full.actions.is_empty(),
            "G29: the actors are at rest, and {:#?} is left to do",
            full.actions
        );
        Ok(())
    }

    /// The fair tail: faults stop, everything converges, nothing is left over, and then nothing happens. In the
    /// end everything is drained.
    fn settle(&mut self) -> Result<End, Broken> {
        {
            let _entered = self.runtime.enter();
            for control in &self.controls {
                control.set_gated(false);
                control.heal();
            }
        }
        self.log.push("nothing goes wrong any more".to_owned());
        self.rest()?;
        let mut end = self.end();
        // That a machine has died may be told late where time is real: what follows is no unrest.
        for calm in 0.. {
            let before: Vec<usize> = self.controls.iter().map(Control::call_count).collect();
            self.pass_time(self.tempo.quiet())?;
            let after: Vec<usize> = self.controls.iter().map(Control::call_count).collect();
            if before == after {
                break;
            }
            demand!(
                self.tempo.is_real() && calm < 3,
                "G3: {before:?} calls were made, and after a quiet time {after:?}"
            );
            self.rest()?;
            end = self.end();
        }
        self.g23_what_lives_is_what_is_known()?;
        let drained = self.runtime.block_on(async {
            tokio::time::timeout(self.tempo.tail(), self.cluster.shutdown(Shutdown::Drain)).await
        });
        demand!(matches!(drained, Ok(Ok(_))), "G23: a drain ended in {drained:?}");
        let left: Vec<Living> = self.living().into_iter().flatten().collect();
        demand!(left.is_empty(), "G23: after the drain there live {left:?}");
        Ok(end)
    }

    /// Waits until everything is as it is wanted, and a sweep finds nothing that was not known: what was killed or
    /// deleted unseen, and what nobody owns, is found by sweeps.
    fn rest(&mut self) -> Result<(), Broken> {
        for _ in 0..ROUNDS {
            self.converge()?;
            let answers = self.runtime.block_on(self.cluster.sweep());
            let answers = answers.map_err(|error| Broken(format!("G28: a sweep says {error}")))?;
            let as_known = |answer: &Result<Findings, _>| answer.as_ref().is_ok_and(Findings::is_as_known);
            if answers.len() == PROVIDERS.len() && answers.values().all(as_known) {
                return Ok(());
            }
            let apart = self.config.stated.visibility;
            let apart = apart.max(self.config.policy.sweep_interval / 2) + tempo::TICK;
            self.runtime.block_on(async { tokio::time::sleep(apart).await });
        }
        let summary = self.runtime.block_on(self.cluster.status());
        Err(Broken(format!(
            "G28: sweeps go on finding something: {summary:?}"
        )))
    }

    /// Waits until everything is as it is wanted; whatever is halted is released.
    fn converge(&mut self) -> Result<(), Broken> {
        let generation = self.shape.generation;
        for _ in 0..ROUNDS {
            let reached = self.cluster.converged(generation);
            let limit = self.tempo.tail() / ROUNDS;
            let reached = self
                .runtime
                .block_on(async { tokio::time::timeout(limit, reached).await });
            if matches!(reached, Ok(Ok(()))) {
                self.pass_time(1_000)?;
                return self.check();
            }
            self.release_halted();
        }
        let summary = self.runtime.block_on(self.cluster.status());
        Err(Broken(format!("G22: not converged in the end: {summary:?}")))
    }

    fn release_halted(&self) {
        let state = self.published.borrow().clone();
        let halted = state.nodes.iter().filter(|(_, node)| node.retry.halted.is_some());
        for (id, _) in halted {
            let _ = self.runtime.block_on(self.cluster.retry(&id));
        }
    }

    fn g23_what_lives_is_what_is_known(&self) -> Result<(), Broken> {
        let state = self.published.borrow().clone();
        let nodes = state.nodes.iter().filter(|(_, node)| node.lease.is_some());
        let mut held: Vec<NodeAttemptId> = nodes.map(|(_, node)| node.attempt).collect();
        held.extend(state.orphans.keys().map(|key| key.attempt));
        let living = self.living().into_iter().flatten();
        let mut live: Vec<NodeAttemptId> = living.map(|one| one.identity.attempt).collect();
        held.sort_unstable();
        live.sort_unstable();
        demand!(
            held == live,
            "G23: the state holds {held:?}, and there live {live:?}"
        );
        Ok(())
    }

    fn end(&self) -> End {
        let state = self.published.borrow().clone();
        let slots = state.nodes.iter().filter_map(|(id, node)| {
            let template = node.spec.as_ref()?.digest();
            Some((id, (node.provider.clone(), template, node.ready)))
        });
        let slots: BTreeMap<_, _> = slots.collect();
        let mut living = BTreeMap::new();
        for one in self.living().into_iter().flatten() {
            *living.entry(one.identity.node).or_default() += 1;
        }
        let alive: usize = living.values().sum();
        End {
            exact: format!("{slots:?}"),
            slots,
            gone: self.made.saturating_sub(alive),
            living,
        }
    }
}

impl<S: Subject> Drop for Run<S> {
    fn drop(&mut self) {
        self.runtime.block_on(async {
            self.family.kill(&self.parent).await;
            self.parent.stop().await;
        });
    }
}

/// What the next cluster is made of: the same providers, opened anew.
fn offer<S: Subject>(
    config: &SimConfig,
    shape: &ClusterShape,
    subjects: &[S],
    controls: &[Control],
    clock: Clock,
    fresh: bool,
) -> Config {
    let mut offer = Config::new(shape.clone())
        .policy(config.policy.clone())
        .clock(clock)
        .publish_every(std::time::Duration::ZERO);
    for ((kind, subject), control) in PROVIDERS.iter().zip(subjects).zip(controls) {
        let kind: ProviderKind = kind.parse().expect("a name");
        let backend = Faulty::new(subject.open(), control.clone());
        debug_assert!(backend.capabilities().visibility >= config.stated.visibility);
        offer = offer.provider_at(kind, backend, config.pace);
    }
    if fresh { offer.fresh() } else { offer }
}

async fn start(offer: Config, parent: &Parent) -> (Cluster, Family) {
    let cluster = Cluster::spawn_linked(offer, parent.cell()).await;
    let cluster = cluster.expect("planned shapes are valid");
    let family = Family::of(parent, PROVIDERS.len()).await;
    (cluster, family)
}
