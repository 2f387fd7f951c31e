//! Where the executors of a simulation do what they must not, if they are asked to.

use std::collections::BTreeMap;
use std::time::Duration;

use nodewright_core::effect::{
    CallEnd, Command, Destroyed, EffectError, EffectResult, FailureKind, Inventory, Outcome, PlannedEffect,
};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::{BootstrapSessionId, OperationId, ProviderKind};

use super::{News, Running, Sim};
use crate::subject::Subject;
use crate::wrong::Slip;

/// What a wrong executor keeps to itself.
#[derive(Debug, Default)]
pub(crate) struct Slipped {
    withheld: Option<EffectResult>,
    lists: BTreeMap<ProviderKind, Inventory>,
}

/// How much too early an end is told.
const BACKDATED: Duration = Duration::from_secs(600);

/// An answer to an inventory.
type Listed = Result<Inventory, EffectError>;

impl<S: Subject> Sim<S> {
    pub(super) fn slips(&self, slip: Slip) -> bool {
        self.config.slip == Some(slip)
    }

    /// An executor reports a result: of this call, if it is of one that has ended just now.
    pub(super) fn tell(&mut self, mut result: EffectResult, call: Option<&Running>) {
        if let Some(slip) = self.config.slip {
            let Some(told) = self.slip_up(slip, result, call) else {
                return;
            };
            result = told;
        }
        self.news.push(result.into());
    }

    fn slip_up(
        &mut self,
        slip: Slip,
        mut result: EffectResult,
        call: Option<&Running>,
    ) -> Option<EffectResult> {
        match slip {
            Slip::TellsOfAnother => result.operation.sequence += 1,
            Slip::SwapsOutcomes => return self.swap(result),
            Slip::KeepsResults if is_kept(result.operation) => return None,
            Slip::SaysExpiredIsDefinite if call.is_some_and(|call| call.end_by.is_some()) => {
                result.outcome = definite();
            }
            Slip::BackdatesEnds => {
                if let CallEnd::At(at) = result.end {
                    result.end = CallEnd::At(at.checked_sub(BACKDATED).expect("traces are short"));
                }
            }
            _ => {}
        }
        Some(result)
    }

    /// A call has answered: what the ledger is told instead.
    pub(super) fn slip_at_answer(&self, effect: &PlannedEffect, outcome: Outcome) -> Outcome {
        let lost = matches!(&outcome, Outcome::Failed(error) if error.kind == FailureKind::Ambiguous);
        match self.config.slip {
            Some(Slip::SaysLostIsDefinite) if lost => definite(),
            Some(Slip::SaysLostIsDone) if lost => success(&effect.command, effect.operation),
            _ => outcome,
        }
    }

    /// Holds a created lease back until there is another, and gives each to the other.
    fn swap(&mut self, mut result: EffectResult) -> Option<EffectResult> {
        if !matches!(result.outcome, Outcome::LeaseCreated(_)) {
            return Some(result);
        }
        let Some(mut other) = self.slipped.withheld.take() else {
            self.slipped.withheld = Some(result);
            return None;
        };
        std::mem::swap(&mut other.outcome, &mut result.outcome);
        self.news.push(other.into());
        Some(result)
    }

    /// A call was told to end: what must not be told of it yet.
    pub(super) fn slip_at_expiry(&mut self, kind: &ProviderKind, operation: OperationId) {
        let ends = self.slips(Slip::EndsOnPaper) || self.slips(Slip::RunsInParallel);
        if !ends && !self.slips(Slip::TellsBoth) {
            return;
        }
        // One that has not reached the backend yet would be seen to come too late, and not to be beside another.
        let mut calls = self.running.iter();
        let begun = calls.any(|call| call.effect.operation == operation && call.begun);
        if self.slips(Slip::RunsInParallel) && !begun {
            return;
        }
        let provider = self.providers.get_mut(kind).expect("it is registered");
        if let Some(mut result) = provider.ledger.abandoned(operation) {
            if ends {
                result.end = CallEnd::At(self.now);
            }
            self.news.push(result.into());
        }
    }

    /// The calls of a process that ends, as far as they go on.
    pub(super) fn calls_that_live_on(&mut self) -> Vec<Running> {
        self.slipped = Slipped::default();
        if self.slips(Slip::LivesOn) {
            std::mem::take(&mut self.running)
        } else {
            Vec::new()
        }
    }

    /// What a provider answered to an inventory, as it is told.
    pub(super) fn slip_at_list(&mut self, kind: &ProviderKind, listed: Listed) -> Listed {
        match self.config.slip {
            Some(Slip::ShowsOldLists) => {
                let old = self.slipped.lists.insert(kind.clone(), listed.clone()?);
                Ok(old.unwrap_or_default())
            }
            Some(Slip::ShowsEmptyLists) => Ok(listed.unwrap_or_default()),
            _ => listed,
        }
    }
}

/// Whether what came of this operation is never told.
const fn is_kept(operation: OperationId) -> bool {
    (operation.attempt.number() + operation.sequence as u64).is_multiple_of(5)
}

/// What a call without effect would have answered.
fn definite() -> Outcome {
    Outcome::Failed(EffectError::definite("nothing happened"))
}

/// What a call that went well would have answered.
fn success(command: &Command, operation: OperationId) -> Outcome {
    match command {
        Command::CreateLease(spec) => {
            let mut lease = LeaseFacts::new(LeaseId::new(format!("made-up-{operation}")));
            lease.template = Some(spec.template.digest());
            Outcome::LeaseCreated(CreatedLease {
                lease,
                endpoint: None,
            })
        }
        Command::FindLease => Outcome::LeaseFound(None),
        Command::LookupEndpoint(_) => Outcome::EndpointFound(None),
        Command::StartBootstrap(_) => Outcome::BootstrapStarted(BootstrapSessionId(operation)),
        Command::ObserveConvergence(_) => Outcome::ConvergenceAccepted,
        Command::CancelBootstrap => Outcome::BootstrapCancelled,
        Command::DestroyLease(_) => Outcome::LeaseDestroyed(Destroyed::Gone),
    }
}

impl News {
    /// What a call answered that was given up before.
    pub(super) fn late(call: &Running, outcome: Outcome, at: jiff::Timestamp) -> Self {
        Self::from(EffectResult {
            node: call.effect.node.clone(),
            operation: call.effect.operation,
            outcome,
            end: CallEnd::At(at),
        })
    }
}
