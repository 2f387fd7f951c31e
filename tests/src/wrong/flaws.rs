//! The flaws, each of which breaks a promise of [`EffectBackend`](nodewright_core::effect::EffectBackend).

mod ending;
mod looking;
mod making;

use super::Flaw;

pub use self::ending::{
    CancelsNothing, DestroysAnything, DestroysTheFirst, GoingIsGone, GoneIsAnError, HangsForEver, SaysGone,
    StartsAnother,
};
pub use self::looking::{
    FindsByMaking, ForgetsOnRestart, HidesTheDead, ListsHalf, ListsNothing, ListsStrangers,
    NeverTellsOfDeaths, RaisesTheDead, SeesLate,
};
pub use self::making::{
    AdoptsAnotherAttempts, AdoptsAnotherRuns, ChangesWhatItStates, NeverAdopts, SaysDefinite, StampsAnything,
    StampsNothing, WorksOn,
};

/// No flaw at all.
#[derive(Debug)]
pub struct NoFlaw;

impl Flaw for NoFlaw {}
