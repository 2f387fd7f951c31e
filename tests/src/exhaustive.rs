//! An exhaustive check: every state that a small cluster can get into, and every way on from there.
//!
//! What is explored is the real [`ClusterDriver`](nodewright_core::driver::ClusterDriver) and the real
//! [`Ledger`](nodewright_core::ledger::Ledger) over a provider that is only what matters of one: who has which
//! machine, which sessions live, what is still to come. [stateright] visits the states.
//!
//! # What may happen
//!
//! A state is followed in every order by what happens by itself (an answer, a report, a join, a pass, an effect
//! that was under way, the next moment) and by what the [`Budget`] of its [`Setup`] still allows:
//!
//! - a call fails definitely, fatally or with a throttle; its answer is lost, be it that it had its effect, has
//!   it later within the provider's visibility, or never; it hangs, with or without effect, until its deadline
//!   and its grace, and may be answered late; where calls cannot be ended it goes on after that;
//! - a look-up does not see yet what is there; a destroy is still under way;
//! - a session closes, breaks or falls silent, before the join or after; its reports come in any order, also
//!   before the answer to its start; reports and results are lost or late;
//! - a machine dies or vanishes; its loss is told at once, late, or although it lives; where the provider is swept
//!   nobody tells of it, nor of one that dies and is listed no more, that moves, or that turns up when its attempt
//!   is over or has one already;
//! - the provider is asked for its inventory at any moment; what it lists it sees at once or saw a while ago, and its
//!   answer is true, empty, without what is not visible yet, or fails; between question and answer all else happens;
//! - the executor dies, and the process, with all that was under way; the next one knows nothing, or has the
//!   state, or one that was written down before; looks fail, or are answered with what was;
//! - another shape is asked for: a count, a template, a group that leaves; somebody asks to retry or replace,
//!   takes a node over, or sees the join.
//!
//! Of each no more than the budget says, and no more of all together. Attempts need no bound of their own: every
//! one but the first takes something that went wrong or was asked for.
//!
//! # What is checked
//!
//! After every step the functions in `guarantees`, each of which names the guarantee that it holds: G3 to G15,
//! G17, G20, G21, G24 to G30, G32 and G33, of the state alone or of the step. Some compare with the truth that only
//! the provider knows: nothing lives, or can still come, of which the state does not know.
//!
//! A sweep's answer is held to what was known when it was asked for, which the question keeps, and to rows of
//! answers that the check keeps beside the driver's (`guarantees::answered`): who is lost was missed by two answered
//! questions far enough apart, or for the whole hold where much was missing, with none between that listed it;
//! who became an orphan was shown by two; nothing that is newer than the question changes, and nothing else does.
//! What turns up against its provider's word is left out of G10 and G14, which nobody can keep then; that it is
//! found and ended is demanded all the same, once the cluster is at rest.
//!
//! And from *every* state that was visited, what follows once nothing goes wrong any more: all of it, in every
//! order, to all its ends (`calm`). No way goes round in circles, each ends in a state as G22 and G23 say, and no
//! slot does more on it than `Setup::most`, which is what bounds G22. This is remembered by state, and so it
//! costs little more than the states that it leads through; states of which the budget is spent are visited only
//! so.
//!
//! # When two states are one
//!
//! States are merged when their prints agree (`print`): 64 bits of a hash, which for ten million states agree by
//! chance once in some hundred thousand searches. It is sound, for the print has all on which anything depends:
//!
//! - *Moments are distances from now.* Core only compares moments and adds to them, and its jitter, which depends
//!   on no moment, is off. Time goes on from one stored moment to the next, so there are few distances. A moment
//!   before which nothing is done is left out once it has passed, as is the moment of a last command once the net
//!   has; nothing else about the past is.
//! - *Questions come at any moment*, within the budget; and once nothing else is left to happen, an interval later,
//!   until a true answer would show nothing new. Whatever the interval of sweeps and the backoff of failed ones say,
//!   these are moments among those; so neither is part of the print. Where nobody sweeps no sweep is due.
//! - *A row of answers that is long enough* is as long as any longer one.
//! - *Left out is what decides nothing*: texts for people, the moments of facts, the number of the pass (what
//!   counts is whether a lease changed after the question that is under way), and the generation (what counts is
//!   whether it was evaluated). `ManagedNode`, `Retry`, `Orphan` and `ClusterState` are taken apart field by
//!   field: one that is added does not compile before somebody thought of it.
//! - *The driver's indexes* are derived from its state. That they are is G29, which is checked on every step,
//!   those that lead to a known state included. So is the ledger from what is at work, pending, lost, and from the
//!   latest operation of each attempt.
//! - Attempts and sequences are numbers as they are. States that differ in nothing else are told apart; that
//!   costs time and hides nothing. No symmetry is used, and no order is left out.
//!
//! Of two states that are one only the first is followed. Were they not one, what is visited would depend on
//! which comes first; that it does not is tested.
//!
//! What is left out on purpose: all that takes no time happens before time goes on. What takes longer is a call
//! that hangs, a session that falls silent, or a report that is late, and takes of the budget. What an executor
//! says of an operation whose deadline has passed is not lost, for nobody says it again; that a machine vanished
//! is told in the end where no sweep finds out.
//!
//! # What was visited
//!
//! By `cargo test -p nodewright-conformance --test exhaustive -- --nocapture`, which is what CI runs; the clusters
//! are in `tests/exhaustive.rs`. The column *at most* is what goes wrong or is asked for, of each kind and in all.
//!
//! | cluster | at most | states | attempts |
//! |---|---|---|---|
//! | three attempts: one slot | 3; calls, sessions, losses, shapes 2 each, fatal, throttle, by hand, process 1 each | 1,148,000 | 3 |
//! | anything twice: one slot | 2 of anything | 88,500 | 2 |
//! | passes apart: the same, folding and passing apart | 2 of anything | 218,000 | 2 |
//! | blocking calls: the same, calls cannot be ended, endpoints are looked up | 2 of anything | 137,000 | 2 |
//! | chatty sessions: the same, passes apart and more reports | 2; sessions, reports 2 each, calls, losses 1 each | 60,900 | 2 |
//! | a lagging state: one slot | 3; processes 2, a journal, calls, losses, shapes, by hand, looks 1 each | 1,461,000 | 3 |
//! | two slots | 1 of anything | 150,000 | 2 |
//! | one place: the same, one call at a time | 1 of anything | 40,600 | 3 |
//! | two groups, one on top of the other | 2; shapes 2, calls, fatal, sessions, losses, process 1 each | 633,000 | 5 |
//! | swept: one slot | 2; calls, losses, moves, strays, looks, shapes, process 1 each; 2 questions | 208,000 | 3 |
//! | swept at rest: one slot that was ready | 3; losses, looks 2 each, moves, strays, shapes 1 each; 2 questions | 291,000 | 4 |
//! | close questions: calls cannot be ended, endpoints are looked up | 2; calls, losses, moves, strays, looks 1 each; 2 questions | 102,000 | 3 |
//! | an outage: two slots that were ready | 3; looks 2, losses 1; 3 questions | 13,500 | 4 |
//!
//! Together 4.5 million distinct states, in some four minutes of one core, of which the sweeps take a good half
//! minute. `NODEWRIGHT_STATES=more` allows one thing more in most clusters: with three of anything one slot has 3.7 million states, with two of anything two groups have
//! 1.6 million.

mod action;
mod calm;
mod cloud;
mod guarantees;
mod possible;
mod print;
mod setup;
mod step;
mod world;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use stateright::{Checker, HasDiscoveries, Model, Property};

pub use self::action::{Action, Answer, Fate, Successor, Tag};
pub use self::calm::Most;
use self::calm::{Astray, Calm};
pub use self::setup::{Budget, Kind, Setup};
pub use self::world::{Violation, World};

/// What a search saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visited {
    /// Distinct states.
    pub states: usize,
    /// Distinct states after which nothing goes wrong any more; they are among the states.
    pub calm: usize,
    /// Steps that were taken and checked, but for those after which nothing goes wrong any more.
    pub steps: usize,
    /// The longest way.
    pub depth: usize,
    /// The most that one slot did after the last thing that went wrong.
    pub most: Most,
    /// The most attempts that were begun in all.
    pub attempts: u64,
}

impl fmt::Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            calm,
            steps,
            depth,
            most,
            attempts,
        } = self;
        write!(
            f,
            "{states} states, {calm} of them calm, {steps} steps, at most {depth} deep, {attempts} attempts; after the \
             last fault at most {} more and {} actions",
            most.attempts, most.actions
        )
    }
}

#[derive(Debug)]
struct Search {
    setup: Setup,
    calm: Calm,
    /// Visited states of which the budget is spent: what follows them is followed as calm.
    spent: AtomicUsize,
    attempts: AtomicUsize,
    most_attempts: AtomicU8,
    most_actions: AtomicU8,
}

impl Model for Search {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.violation.is_some() {
            return;
        }
        if world.budget.is_spent() {
            self.spent.fetch_add(1, Ordering::Relaxed);
            return;
        }
        world.by_itself(&self.setup, actions);
        world.allowed(&self.setup, actions);
        if self.setup.backwards {
            actions.reverse();
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(world.step(&self.setup, &action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safety", |_, world: &World| world.violation.is_none()),
            Property::always("calm", |search: &Self, world: &World| {
                world.violation.is_some() || search.comes_to_rest(world)
            }),
        ]
    }
}

impl Search {
    fn comes_to_rest(&self, world: &World) -> bool {
        let Ok(tail) = self.calm.follow(&self.setup, world) else {
            return false;
        };
        let attempts = world
            .driver
            .state()
            .next_attempt_id
            .map_or(0, |next| next.number() as usize - 1);
        self.attempts.fetch_max(attempts, Ordering::Relaxed);
        for most in tail {
            self.most_attempts.fetch_max(most.attempts, Ordering::Relaxed);
            self.most_actions.fetch_max(most.actions, Ordering::Relaxed);
        }
        true
    }
}

/// Visits every state that a cluster can get into.
///
/// # Errors
///
/// The shortest trace that was found to something that may not be, for people.
pub fn explore(setup: Setup) -> Result<Visited, String> {
    assert!(
        setup.slots().len() <= calm::SLOTS,
        "slots are counted in an array"
    );
    let search = Search {
        setup,
        calm: Calm::default(),
        spent: AtomicUsize::new(0),
        attempts: AtomicUsize::new(0),
        most_attempts: AtomicU8::new(0),
        most_actions: AtomicU8::new(0),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = search
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    let search = checker.model();
    let found = checker.discoveries().into_values().next();
    if let Some(path) = found {
        return Err(search.explain(path.into_actions()));
    }
    let spent = search.spent.load(Ordering::Relaxed);
    Ok(Visited {
        states: checker.unique_state_count() - spent + search.calm.len(),
        calm: search.calm.len(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        most: Most {
            attempts: search.most_attempts.load(Ordering::Relaxed),
            actions: search.most_actions.load(Ordering::Relaxed),
        },
        attempts: search.attempts.load(Ordering::Relaxed) as u64,
    })
}

impl Search {
    /// Tells a trace to something that may not be, shortened as far as it goes.
    fn explain(&self, mut way: Vec<Action>) -> String {
        let Some((end, found)) = self.replay(&way) else {
            return format!("a trace cannot be told again: {way:?}");
        };
        way.truncate(end);
        way.extend(found.way);
        let rule = found.violation.rule;
        let breaks = |way: &[Action]| match self.replay(way) {
            Some((end, found)) if found.violation.rule == rule => {
                Some(way[..end].iter().cloned().chain(found.way).collect::<Vec<_>>())
            }
            _ => None,
        };
        // Without any one, any two that stand beside one another, and so on.
        let mut length = 1;
        while length <= 3 {
            let shorter = (0..=way.len().saturating_sub(length)).find_map(|at| {
                let mut shorter = way.clone();
                shorter.drain(at..(at + length).min(way.len()));
                breaks(&shorter).filter(|found| found.len() < way.len())
            });
            match shorter {
                Some(shorter) => (way, length) = (shorter, 1),
                None => length += 1,
            }
        }
        let told_again = self.replay(&way).map(|(_, found)| found.violation);
        self.tell(&way, &told_again.unwrap_or(found.violation))
    }

    /// Takes these steps as far as they are possible and hold; says where it ended, and what was broken.
    fn replay(&self, way: &[Action]) -> Option<(usize, Astray)> {
        let mut world = World::new(&self.setup);
        for (place, action) in way.iter().enumerate() {
            if let Some(violation) = world.violation.clone() {
                return Some((
                    place,
                    Astray {
                        way: Vec::new(),
                        violation,
                    },
                ));
            }
            let mut possible = Vec::new();
            world.by_itself(&self.setup, &mut possible);
            world.allowed(&self.setup, &mut possible);
            if possible.contains(action) {
                world = world.step(&self.setup, action);
            }
        }
        if let Some(violation) = world.violation.clone() {
            return Some((
                way.len(),
                Astray {
                    way: Vec::new(),
                    violation,
                },
            ));
        }
        let astray = self.calm.follow(&self.setup, &world).err();
        astray.map(|astray| (way.len(), astray))
    }

    fn tell(&self, way: &[Action], violation: &Violation) -> String {
        let mut world = World::new(&self.setup);
        let mut text = format!("{}:\n", self.setup.name);
        let begun = world.now;
        for action in way {
            let mut possible = Vec::new();
            world.by_itself(&self.setup, &mut possible);
            world.allowed(&self.setup, &mut possible);
            if !possible.contains(action) {
                continue;
            }
            world = world.step(&self.setup, action);
            let _ = writeln!(
                text,
                "{:>4} s  {action}",
                world.now.duration_since(begun).as_secs()
            );
            for event in &world.done.events {
                let _ = writeln!(text, "          | {}", event.kind);
            }
        }
        let _ = writeln!(text, "broken: {violation}");
        text
    }
}
