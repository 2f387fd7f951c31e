//! Traces that are made up: what may happen, and how often.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};

use super::{Failing, GroupPlan, Input, Listing, Memory, Part, Reply, Setup, Trace};

/// What may happen in the traces of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Whether calls, looks and parts of us fail, and machines die.
    pub faults: bool,
    /// Whether people and the application interfere.
    pub meddling: bool,
    /// Whether the process is restarted.
    pub restarts: bool,
    /// The most nodes that a group has.
    pub crowd: u8,
}

impl Theme {
    /// Shapes change, and nothing goes wrong.
    pub const CALM: Self = Self {
        faults: false,
        meddling: false,
        restarts: false,
        crowd: 4,
    };

    /// Everything at once.
    pub const ROUGH: Self = Self {
        faults: true,
        meddling: true,
        restarts: true,
        crowd: 4,
    };
}

/// Traces of a theme, of so many inputs.
pub fn traces(theme: Theme, inputs: usize) -> impl Strategy<Value = Trace> {
    let input = input(theme);
    (setup(theme), vec(input, inputs)).prop_map(|(setup, inputs)| Trace { setup, inputs })
}

fn setup(theme: Theme) -> impl Strategy<Value = Setup> {
    let places = prop_oneof![Just(64_u8), Just(1), Just(2), Just(3)];
    let visibility = prop_oneof![Just(0_u8), Just(3), Just(10)];
    let limit = prop_oneof![4 => Just(0_u8), 1 => Just(3)];
    let mostly = || prop_oneof![3 => Just(true), 1 => Just(false)];
    (
        groups(theme),
        any::<bool>(),
        visibility,
        any::<bool>(),
        mostly(),
        places,
        prop_oneof![4 => Just(false), 1 => Just(true)],
        limit,
    )
        .prop_map(
            |(groups, fresh, visibility, lags, abortable, places, rated, attempt_limit)| Setup {
                groups,
                fresh,
                visibility,
                lags,
                abortable,
                places,
                rated,
                attempt_limit,
            },
        )
}

/// Up to three groups.
fn groups(theme: Theme) -> impl Strategy<Value = Vec<GroupPlan>> {
    let after = prop_oneof![2 => Just(0_u8), 3 => 0..4_u8];
    let plan = (0..theme.crowd, 0..2_u8, 0..2_u8, after, 0..10_u8);
    vec(plan, 3).prop_map(|plans| {
        let plans = (0..).zip(plans).filter(|(_, (.., wanted))| *wanted < 7);
        plans
            .map(|(group, (count, image, provider, after, _))| GroupPlan {
                group,
                count,
                image,
                provider,
                after,
            })
            .collect()
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        6 => Just(Reply::Before(Failing::Definite)),
        2 => prop_oneof![Just(0_u8), Just(3), Just(30)].prop_map(|after| Reply::Before(Failing::Throttled(after))),
        1 => Just(Reply::Before(Failing::Fatal)),
        4 => Just(Reply::Before(Failing::Ambiguous)),
        5 => Just(Reply::Lost),
        5 => (0..=4_u8).prop_map(Reply::Later),
        2 => (1..40_u8).prop_map(Reply::Late),
        3 => Just(Reply::Slow),
        3 => Just(Reply::Hang),
        1 => Just(Reply::PanicBefore),
        1 => Just(Reply::PanicAfter),
        3 => Just(Reply::NotYet),
    ]
}

fn input(theme: Theme) -> BoxedStrategy<Input> {
    const MANY: RangeInclusive<u16> = 0..=u16::MAX;
    let calm = prop_oneof![
        60 => MANY.prop_map(Input::Work),
        4 => MANY.prop_map(Input::WorkAll),
        12 => Just(Input::Wait),
        5 => (1..20_000_u32).prop_map(Input::Advance),
        2 => (0..3_u8, 0..=theme.crowd).prop_map(|(group, count)| Input::Resize { group, count }),
        1 => groups(theme).prop_map(Input::Reshape),
        4 => (1..4_u8).prop_map(Input::Gather),
        1 => Just(Input::Trigger),
    ]
    .boxed();
    let mut all = vec![(89, calm)];
    if theme.faults {
        let part = prop_oneof![
            3 => (0..2_u8).prop_map(Part::Executor),
            2 => Just(Part::Streams),
            1 => Just(Part::Timer),
        ];
        let listing = prop_oneof![
            2 => Just(Listing::Fails),
            1 => Just(Listing::Empty),
            1 => Just(Listing::Truncated),
        ];
        let faults = prop_oneof![
            13 => reply().prop_map(Input::Script),
            2 => listing.prop_map(Input::List),
            4 => MANY.prop_map(Input::Repeat),
            1 => MANY.prop_map(Input::Mislay),
            2 => MANY.prop_map(Input::Kill),
            2 => MANY.prop_map(Input::Vanish),
            2 => part.prop_map(Input::Crash),
        ];
        all.push((26, faults.boxed()));
    }
    if theme.meddling {
        let meddling = prop_oneof![
            4 => MANY.prop_map(Input::Join),
            1 => MANY.prop_map(Input::Impersonate),
            2 => MANY.prop_map(Input::HandOff),
            1 => MANY.prop_map(Input::Lose),
            2 => MANY.prop_map(Input::Retry),
            2 => MANY.prop_map(Input::Replace),
            1 => MANY.prop_map(Input::Forge),
        ];
        all.push((13, meddling.boxed()));
    }
    if theme.restarts {
        let restart = prop_oneof![Just(Memory::None), Just(Memory::State)];
        all.push((1, restart.prop_map(Input::Restart).boxed()));
    }
    proptest::strategy::Union::new_weighted(all).boxed()
}
