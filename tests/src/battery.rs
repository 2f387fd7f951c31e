//! The battery: what every level is put through.
//!
//! Each check is a function of a [`Level`] or of a [`Subject`]; [`conformance!`](crate::conformance) makes a test
//! of each. A check that is added here is a test of every level that there is.

use jiff::Timestamp;
use nodewright_core::id::LogicalNodeId;

use crate::level::Level;
use crate::oracle::Broken;
use crate::regress::{Traces, play_all, seeds, trace};
use crate::shapes::TAIL;
use crate::subject::Subject;
use crate::trace::{Failing, Input, Reply, Theme, Trace};
use crate::{Chooser, Sim, SimConfig, group, shape, template};

/// How much a level is put through. Each number is a least one: `NODEWRIGHT_SEEDS` asks for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The inputs of a trace.
    pub inputs: usize,
    /// Traces in which nothing goes wrong.
    pub calm: u64,
    /// Traces in which everything does.
    pub rough: u64,
    /// Traces that are played twice.
    pub twice: u64,
}

impl Sizes {
    /// For what plays thousands of traces a second.
    pub const THOROUGH: Self = Self {
        inputs: 100,
        calm: 1000,
        rough: 10_000,
        twice: 200,
    };

    /// For what judges a mutant, in seconds.
    pub const FAST: Self = Self {
        inputs: 100,
        calm: 100,
        rough: 600,
        twice: 20,
    };

    /// For what plays hundreds.
    pub const QUICK: Self = Self {
        inputs: 100,
        calm: 200,
        rough: 2000,
        twice: 50,
    };

    /// For what has real processes.
    pub const REAL: Self = Self {
        inputs: 30,
        calm: 8,
        rough: 64,
        twice: 4,
    };

    /// For what has real processes and waits in real time.
    pub const SLOW: Self = Self {
        inputs: 20,
        calm: 4,
        rough: 16,
        twice: 2,
    };
}

/// G3, G22, G23, G29 and all that holds in every state, where nothing goes wrong.
pub fn calm<L: Level>(name: &str, sizes: Sizes) {
    let traces = Traces {
        name: &format!("{name}-calm"),
        theme: Theme::CALM,
        inputs: sizes.inputs,
        least: sizes.calm,
    };
    play_all(traces, L::play);
}

/// The same where everything goes wrong, and parts of us die.
pub fn rough<L: Level>(name: &str, sizes: Sizes) {
    let traces = Traces {
        name: &format!("{name}-rough"),
        theme: Theme::ROUGH,
        inputs: sizes.inputs,
        least: sizes.rough,
    };
    play_all(traces, L::play);
}

/// G1: the same trace gives the same states and the same calls.
///
/// # Panics
///
/// If it does not, with the seed.
pub fn the_same_trace_ends_the_same<L: Level>(sizes: Sizes) {
    for seed in seeds(sizes.twice) {
        let trace = trace(Theme::ROUGH, sizes.inputs, seed);
        let [one, other] = [L::play(&trace), L::play(&trace)].map(|end| match end {
            Ok(end) => end.exact,
            Err(Broken(what)) => what,
        });
        assert_eq!(one, other, "G1: seed {seed}");
    }
}

/// G2, G22: whatever went wrong on the way, the end is the one that the same shapes reach in peace, up to ids,
/// sequences and moments: the same slots, made from the same, each with one resource.
///
/// # Panics
///
/// If it is not, with the seed.
pub fn faults_leave_no_trace_in_the_end<L: Level>(sizes: Sizes) {
    for seed in seeds(sizes.twice) {
        let faulty = trace(Theme::ROUGH, sizes.inputs, seed);
        let peaceful = in_peace(&faulty);
        let (rough, calm) = match (L::play(&faulty), L::play(&peaceful)) {
            (Ok(rough), Ok(calm)) => (rough, calm),
            (Err(Broken(what)), _) | (_, Err(Broken(what))) => panic!("seed {seed}: {what}"),
        };
        assert_eq!(rough.slots, calm.slots, "G2: seed {seed}");
        assert_eq!(rough.living, calm.living, "G23: seed {seed}");
        let one_each = |id: &LogicalNodeId| calm.living.get(id) == Some(&1);
        assert!(
            calm.slots.keys().all(one_each) && calm.slots.len() == calm.living.len(),
            "G10: seed {seed}: {:?}",
            calm.living
        );
        // Whatever was made in peace was wanted at some time: it went because a shape let it go.
        let wanted: usize = wanted_ever(&peaceful);
        assert!(
            calm.gone + calm.living.len() <= wanted,
            "G10: seed {seed}: {} were made where {wanted} were ever wanted",
            calm.gone + calm.living.len()
        );
    }
}

/// G18: slow, failing, panicking or hanging work of one node never stops another: whatever befalls every call for
/// one slot, all others are ready within a minute.
///
/// # Panics
///
/// If one is not.
pub fn one_node_never_stops_another<S: Subject>() {
    const MINUTE: i64 = 60;
    for reply in [
        Reply::Before(Failing::Definite),
        Reply::Before(Failing::Ambiguous),
        Reply::Before(Failing::Throttled(0)),
        Reply::Before(Failing::Fatal),
        Reply::Lost,
        Reply::Slow,
        Reply::Hang,
        Reply::PanicBefore,
        Reply::PanicAfter,
        Reply::NotYet,
    ] {
        let shape = shape(1, vec![group("w", 4, template("alpha", "image"))]);
        let mut sim = Sim::<S>::new(SimConfig::default(), ["alpha"], shape).expect("the shape is valid");
        let cursed: LogicalNodeId = "w-1".parse().expect("a node id");
        sim.control("alpha").curse(cursed.clone(), reply);
        let end = Timestamp::from_second(sim.now().as_second() + MINUTE).expect("it is a moment");
        let ran = sim.run_until(end, &mut Chooser::new(0));
        ran.unwrap_or_else(|broken| panic!("{reply:?}: {broken}"));
        for (id, node) in sim.driver().state().nodes.iter() {
            assert!(
                node.ready || id == cursed,
                "G18: while every call for {cursed} is {reply:?}, {id} is {}",
                node.stage
            );
        }
        let settled = sim.settle(TAIL);
        settled.unwrap_or_else(|broken| panic!("{reply:?}: {broken}"));
    }
}

/// G20: what is older, of another run, or changed in silence is refused, and nothing is touched; the latest of
/// several shapes is the one that counts.
///
/// # Panics
///
/// If it is not so.
pub fn the_latest_shape_counts_and_no_other<S: Subject>() {
    let of = |generation, count| shape(generation, vec![group("w", count, template("alpha", "image"))]);
    let mut sim = Sim::<S>::new(SimConfig::default(), ["alpha"], of(5, 2)).expect("the shape is valid");
    let settle = |sim: &mut Sim<S>| sim.settle(TAIL).unwrap_or_else(|broken| panic!("{broken}"));
    settle(&mut sim);
    let before = sim.driver().state().clone();
    let now = sim.now();
    let mut other = of(6, 1);
    other.run_id = "other".parse().expect("a name");
    for (what, refused) in [
        ("older", of(4, 1)),
        ("silent", of(5, 1)),
        ("another run's", other),
    ] {
        let answer = sim.driver_mut().update_desired(refused, now);
        assert!(answer.is_err(), "G20: the {what} shape was {answer:?}");
        assert_eq!(
            *sim.driver().state(),
            before,
            "G20: the {what} shape left a trace"
        );
    }
    for count in [3, 0, 1] {
        sim.update(vec![group("w", count, template("alpha", "image"))])
            .expect("the shape is newer");
    }
    settle(&mut sim);
    assert_eq!(sim.end().living.len(), 1, "G20: the latest shape wants one node");
    assert_eq!(sim.end().gone, 1, "G20: no shape between was built");
}

/// The same shapes in the same order, and nothing that goes wrong.
fn in_peace(trace: &Trace) -> Trace {
    let shapes = |input: &Input| matches!(input, Input::Reshape(_) | Input::Resize { .. });
    let mut setup = trace.setup.clone();
    setup.lags = false;
    // Each shape is reached before the next is asked for.
    let inputs = trace.inputs.iter().filter(|input| shapes(input)).cloned();
    Trace {
        setup,
        inputs: inputs.flat_map(|input| [input, Input::WorkAll(0)]).collect(),
    }
}

/// How many nodes a trace asks for in all its shapes together.
fn wanted_ever(trace: &Trace) -> usize {
    let count = |groups: &[crate::trace::GroupPlan]| -> usize {
        groups.iter().map(|group| usize::from(group.count)).sum()
    };
    let inputs = trace.inputs.iter().map(|input| match input {
        Input::Reshape(groups) => count(groups),
        Input::Resize { count, .. } => usize::from(*count),
        _ => 0,
    });
    count(&trace.setup.groups) + inputs.sum::<usize>()
}
