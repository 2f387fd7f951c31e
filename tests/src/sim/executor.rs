//! The executors of a played process: submissions wait to be begun, ledgers decide, calls sit in a list.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use nodewright_core::driver::{EffectSink, Refused};
use nodewright_core::effect::{Call, Cancel, EffectError, ObservationSink, Outcome, PlannedEffect, perform};
use nodewright_core::id::{AttemptIdentity, NodeAttemptId, ProviderKind};
use nodewright_core::ledger::{Ledger, Verdict};
use nodewright_core::observation::Observation;

use super::{News, Provider, Running, Sim};
use crate::oracle::Broken;
use crate::subject::Subject;
use crate::wrong::Slip;

/// Takes a drive's effects. Whose executor died just now takes none.
pub(super) struct Executor<'a, S: Subject> {
    providers: &'a mut BTreeMap<ProviderKind, Provider<S>>,
    pub(super) accepted: Vec<PlannedEffect>,
}

impl<'a, S: Subject> Executor<'a, S> {
    pub(super) fn new(providers: &'a mut BTreeMap<ProviderKind, Provider<S>>) -> Self {
        let accepted = Vec::new();
        Self { providers, accepted }
    }
}

impl<S: Subject> EffectSink for Executor<'_, S> {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        let mut refused = Vec::new();
        for effect in effects {
            let provider = self
                .providers
                .get_mut(&effect.provider)
                .expect("only registered ones are asked");
            if provider.restarting {
                refused.push(Refused {
                    node: effect.node.clone(),
                    operation: effect.operation,
                    reason: "the executor is restarting".into(),
                });
            } else {
                provider.submitted.push_back(effect.clone());
                self.accepted.push(effect);
            }
        }
        refused
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        for provider in self.providers.values_mut() {
            provider.ledger.retire(attempt);
        }
    }
}

impl<S: Subject> Sim<S> {
    /// Begins the submission that has waited longest at a provider.
    pub(super) fn begin(&mut self, kind: &ProviderKind) -> Result<(), Broken> {
        let (forgets, parallel) = (
            self.slips(Slip::ForgetsItsLedger),
            self.slips(Slip::RunsInParallel),
        );
        let times = if self.slips(Slip::CallsTwice) { 2 } else { 1 };
        let provider = self.providers.get_mut(kind).expect("it is registered");
        let Some(effect) = provider.submitted.pop_front() else {
            return Ok(());
        };
        if forgets {
            provider.ledger = Ledger::new();
        }
        let operation = effect.operation;
        let verdict = provider.ledger.submit(&effect);
        if verdict != Verdict::Run && !parallel {
            return Err(Broken(format!(
                "G9: the ledger would not run {operation}: {verdict:?}"
            )));
        }
        let call = Call {
            identity: AttemptIdentity {
                run: self.shape.run_id.clone(),
                node: effect.node.clone(),
                attempt: operation.attempt,
            },
            operation,
            cancel: Cancel::new(),
        };
        let reported = self.reported.clone();
        let sink = ObservationSink::new(move |report| {
            reported
                .lock()
                .expect("nobody panics under it")
                .streams
                .push(report);
        });
        let backend = provider.backend.clone();
        let (made, command) = (call.clone(), effect.command.clone());
        let work = async move {
            for _ in 1..times {
                drop(perform(&backend, &made, &command, || sink.clone()).await);
            }
            perform(&backend, &made, &command, || sink).await
        };
        let panicked = || Outcome::Failed(EffectError::ambiguous("the backend panicked"));
        let work = AssertUnwindSafe(work).catch_unwind();
        self.running.push(Running {
            work: work
                .map(move |answer| answer.unwrap_or_else(|_| (panicked(), None)))
                .boxed(),
            call,
            effect,
            begun: false,
            end_by: None,
            abandoned: false,
        });
        Ok(())
    }

    /// The executor of a provider dies and is restarted: what had not begun is refused, calls at work are told
    /// to end, and what may have been lost with it is reported again.
    pub(super) fn crash_executor(&mut self, kind: &ProviderKind) {
        let pending = self.driver.pending_at(kind);
        let forgets = self.slips(Slip::ForgetsItsLedgerInACrash);
        let provider = self.providers.get_mut(kind).expect("it is registered");
        if forgets {
            provider.ledger = Ledger::new();
        }
        provider.submitted.clear();
        provider.restarting = true;
        let operations = pending.iter().map(|(_, operation)| *operation);
        let restart = provider.ledger.executor_restarted(operations);
        for result in restart.report {
            self.tell(result, None);
        }
        for (node, operation) in pending {
            if restart.refused.contains(&operation) {
                let reason = "the executor died before it began".into();
                self.news.push(News {
                    node,
                    attempt: operation.attempt,
                    observation: Observation::Refused { operation, reason },
                });
            }
        }
        let end_by = self.now.checked_add(self.config.policy.abort_grace);
        let end_by = end_by.expect("traces are short");
        for call in &mut self.running {
            if restart.end.contains(&call.effect.operation) {
                call.call.cancel.cancel();
                call.end_by.get_or_insert(end_by);
            }
        }
    }
}
