//! The executors of a simulated process: ledgers decide, calls sit in a list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use nodewright_core::driver::{EffectSink, Refused};
use nodewright_core::effect::{
    Call, Cancel, EffectBackend, ObservationSink, PlannedEffect, StreamReport, perform,
};
use nodewright_core::id::{AttemptIdentity, NodeAttemptId, ProviderKind, RunId};
use nodewright_core::ledger::{Ledger, Verdict};

use super::{Broken, Provider, SimConfig};
use crate::Chooser;
use crate::call::Running;

/// Takes a drive's effects. What a ledger would not take, the driver must not have sent.
pub(super) struct Executor<'a, B> {
    pub(super) config: &'a SimConfig,
    pub(super) chooser: &'a mut Chooser,
    pub(super) providers: &'a BTreeMap<ProviderKind, Provider<B>>,
    pub(super) ledgers: &'a mut BTreeMap<ProviderKind, Ledger>,
    pub(super) running: &'a mut Vec<Running>,
    pub(super) reported: &'a Arc<Mutex<Vec<StreamReport>>>,
    pub(super) calls: &'a mut Vec<String>,
    pub(super) run: &'a RunId,
    pub(super) accepted: Vec<PlannedEffect>,
    pub(super) broken: Option<Broken>,
}

impl<B: EffectBackend> EffectSink for Executor<'_, B> {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        effects.iter().filter_map(|effect| self.take(effect)).collect()
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        for ledger in self.ledgers.values_mut() {
            ledger.retire(attempt);
        }
    }
}

impl<B: EffectBackend> Executor<'_, B> {
    fn take(&mut self, effect: &PlannedEffect) -> Option<Refused> {
        let operation = effect.operation;
        if self.chooser.happens(self.config.faults.refused) {
            let reason = "the executor is restarting".into();
            return Some(Refused {
                node: effect.node.clone(),
                operation,
                reason,
            });
        }
        let busy = self
            .running
            .iter()
            .any(|call| call.effect.operation.attempt == operation.attempt);
        if busy {
            self.break_with(format!(
                "G9: {operation} was sent while a call of its attempt is at work"
            ));
        }
        let verdict = self
            .ledgers
            .get_mut(&effect.provider)
            .map(|ledger| ledger.submit(effect));
        if verdict != Some(Verdict::Run) {
            self.break_with(format!("the ledger would not take {effect:?}: {verdict:?}"));
            return None;
        }
        let call = Call {
            identity: AttemptIdentity {
                run: self.run.clone(),
                node: effect.node.clone(),
                attempt: operation.attempt,
            },
            operation,
            cancel: Cancel::new(),
        };
        let reported = self.reported.clone();
        let sink = ObservationSink::new(move |report| {
            reported.lock().expect("nobody panics under it").push(report);
        });
        let backend = self.providers[&effect.provider].backend.clone();
        self.calls
            .push(format!("{} {operation} {}", effect.node, effect.command.kind()));
        self.running.push(Running {
            fault: self.config.faults.choose(self.chooser),
            work: {
                let (call, command) = (call.clone(), effect.command.clone());
                Box::pin(async move { perform(&*backend, &call, &command, || sink).await })
            },
            call,
            effect: effect.clone(),
            answered: None,
            end_by: None,
            abandoned: false,
        });
        self.accepted.push(effect.clone());
        None
    }

    fn break_with(&mut self, what: String) {
        self.broken.get_or_insert(Broken(what));
    }
}
