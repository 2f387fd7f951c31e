//! A provider call that is under way, and what goes wrong with it at the seam.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nodewright_core::bootstrap::Session;
use nodewright_core::effect::{Call, EffectError, Outcome, PlannedEffect};
use nodewright_core::id::AttemptIdentity;

use crate::Chooser;

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The backend is never reached; this is the answer.
    Before(EffectError),
    /// The call has its effect, and its answer is lost.
    After,
    /// The answer is lost, and the effect comes later, though within the provider's visibility.
    Later,
    /// The call has its effect, and is answered only when nobody waits any more.
    Slow,
    /// The call has no effect and is never answered.
    Hang,
}

/// How often what goes wrong, each in a thousand calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Failures of which nothing happened.
    pub definite: u32,
    /// "Slow down".
    pub throttled: u32,
    /// Failures that no repetition helps.
    pub fatal: u32,
    /// Answers that are lost, whether the call had its effect, has it later or never.
    pub ambiguous: u32,
    /// Calls that are not answered in time.
    pub slow: u32,
    /// Submissions that an executor would not take.
    pub refused: u32,
    /// Stream reports that are lost.
    pub lost_reports: u32,
    /// Looks that fail.
    pub looks: u32,
}

impl FaultRates {
    /// A good deal of everything.
    pub const ROUGH: Self = Self {
        definite: 60,
        throttled: 40,
        fatal: 10,
        ambiguous: 100,
        slow: 60,
        refused: 30,
        lost_reports: 30,
        looks: 300,
    };

    pub(crate) fn choose(&self, chooser: &mut Chooser) -> Fault {
        let mut at = chooser.below(1000) as u32;
        let mut within = |share: u32| {
            let hit = at < share;
            at = at.wrapping_sub(share);
            hit
        };
        if within(self.definite) {
            return Fault::Before(EffectError::definite("it said no"));
        }
        if within(self.throttled) {
            let retry_after = *chooser.one_of(&[None, Some(3), Some(30)]);
            return Fault::Before(EffectError::throttled(
                "slow down",
                retry_after.map(Duration::from_secs),
            ));
        }
        if within(self.fatal) {
            return Fault::Before(EffectError::fatal("never"));
        }
        if within(self.ambiguous) {
            return chooser
                .one_of(&[
                    Fault::After,
                    Fault::Later,
                    Fault::Before(EffectError::ambiguous("the wire was cut")),
                ])
                .clone();
        }
        if within(self.slow) {
            return chooser.one_of(&[Fault::Slow, Fault::Hang]).clone();
        }
        Fault::None
    }
}

/// A call that is at work.
pub(crate) struct Running {
    pub(crate) effect: PlannedEffect,
    pub(crate) fault: Fault,
    pub(crate) call: Call,
    pub(crate) work: BoxFuture<'static, (Outcome, Option<Session>)>,
    /// What it answered, if that is held back.
    pub(crate) answered: Option<Outcome>,
    /// When its task is ended at the latest, once it was told to end.
    pub(crate) end_by: Option<Timestamp>,
    /// Its outcome was reported without its end.
    pub(crate) abandoned: bool,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {:?}",
            self.effect.operation,
            self.effect.command.kind(),
            self.fault
        )
    }
}

/// A session that the simulation runs.
pub(crate) struct Live {
    pub(crate) identity: AttemptIdentity,
    pub(crate) run: BoxFuture<'static, ()>,
}
