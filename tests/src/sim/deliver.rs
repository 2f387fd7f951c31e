//! Deferred work: calls, sessions, results, reports, looks. Each function does one piece of it.

use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use nodewright_core::driver::DueOperation;
use nodewright_core::effect::{CommandKind, EffectBackend, EffectError, Outcome};
use nodewright_core::ledger::{Completion, Expiry};
use nodewright_core::observation::{Folded, Observation};

use super::{Broken, LateEffect, News, Sim};
use crate::call::{Fault, Live, Running};

impl<B: EffectBackend> Sim<B> {
    /// Does one piece of deferred work and drives; `false` if there is none that can be done now.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn work(&mut self) -> Result<bool, Broken> {
        self.take_reports();
        let counts = self.pieces();
        let total: usize = counts.iter().sum();
        if total == 0 {
            return Ok(false);
        }
        // A piece may be unable to go on, so all are tried, from a chosen one on.
        let from = self.chooser.below(total);
        for piece in (from..total).chain(0..from) {
            if self.piece(piece, counts)? {
                self.take_reports();
                self.drive()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does one chosen piece of deferred work, if it can go on, without driving.
    pub(crate) fn any_piece(&mut self) -> Result<(), Broken> {
        self.take_reports();
        let counts = self.pieces();
        let total: usize = counts.iter().sum();
        if total > 0 {
            let piece = self.chooser.below(total);
            self.piece(piece, counts)?;
        }
        Ok(())
    }

    /// How many pieces of work there are: calls, news, sessions, looks.
    fn pieces(&self) -> [usize; 4] {
        [
            self.running.len(),
            self.news.len(),
            self.sessions.len(),
            self.looks.len(),
        ]
    }

    fn piece(&mut self, mut piece: usize, counts: [usize; 4]) -> Result<bool, Broken> {
        for (kind, count) in counts.into_iter().enumerate() {
            if piece < count {
                return match kind {
                    0 => Ok(self.step_call(piece)),
                    1 => self.deliver(piece).map(|()| true),
                    2 => Ok(self.poll_session(piece)),
                    _ => Ok(self.answer_look(piece)),
                };
            }
            piece -= count;
        }
        Ok(false)
    }

    /// Gets on with a call; `false` if it waits.
    fn step_call(&mut self, place: usize) -> bool {
        let call = &mut self.running[place];
        let told_to_end = call.end_by.is_some();
        match &call.fault {
            Fault::Hang if told_to_end && (call.abandoned || self.config.abortable) => {
                self.finish_call(place, None);
                return true;
            }
            // Without faults nothing hangs for ever.
            Fault::Hang => return false,
            Fault::Before(error) => {
                let outcome = Outcome::Failed(error.clone());
                self.finish_call(place, Some(outcome));
                return true;
            }
            Fault::Later if call.effect.command.kind() == CommandKind::CreateLease => {
                let outcome = Outcome::Failed(EffectError::ambiguous("the answer was lost"));
                self.finish_call(place, Some(outcome));
                return true;
            }
            Fault::None | Fault::After | Fault::Later | Fault::Slow => {}
        }
        if call.answered.is_none() {
            let Some((outcome, session)) = (&mut call.work).now_or_never() else {
                return false;
            };
            let lost = matches!(call.fault, Fault::After | Fault::Later);
            let identity = call.call.identity.clone();
            call.answered = Some(if lost {
                Outcome::Failed(EffectError::ambiguous("the answer was lost"))
            } else {
                outcome
            });
            if let Some(session) = session {
                let run = session.run;
                self.sessions.push(Live { identity, run });
            }
            if self.running[place].fault == Fault::Slow {
                return true;
            }
        }
        let call = &mut self.running[place];
        if call.fault == Fault::Slow && !told_to_end {
            return false;
        }
        let outcome = call.answered.take();
        self.finish_call(place, outcome);
        true
    }

    fn finish_call(&mut self, place: usize, outcome: Option<Outcome>) {
        let call = self.running.remove(place);
        let operation = call.effect.operation;
        let now = self.now;
        self.note(|| format!("call {call:?} ends: {outcome:?}"));
        let ledger = self
            .ledgers
            .get_mut(&call.effect.provider)
            .expect("one per provider");
        let completion = match outcome {
            Some(outcome) => ledger.complete(operation, outcome, now),
            None => ledger.ended(operation, now),
        };
        match completion {
            Completion::Report(result) => self.news.push(result.into()),
            Completion::EndedLate { node, operation, at } => self.news.push(News {
                node,
                attempt: operation.attempt,
                observation: Observation::CallEnded { operation, at },
            }),
            Completion::Stale => {}
        }
        if call.fault == Fault::Later {
            let visibility = self.config.visibility;
            self.come_later(call, visibility);
        }
    }

    /// Lets a create come through although its caller is gone; of any other call nothing comes.
    pub(super) fn come_later(&mut self, call: Running, visibility: Duration) {
        if call.effect.command.kind() == CommandKind::CreateLease && call.answered.is_none() {
            let share = self.chooser.below(5) as u32;
            let at = self
                .now
                .checked_add(visibility * share / 4)
                .expect("traces are short");
            let work = call.work;
            if at <= self.now {
                let _ = work.now_or_never();
                return;
            }
            self.late.push(LateEffect { at, work });
        }
    }

    /// An operation's deadline has come.
    pub(super) fn expire(&mut self, due: &DueOperation) {
        let now = self.now;
        self.note(|| format!("{} is due", due.operation));
        let ledger = self.ledgers.get_mut(&due.provider).expect("one per provider");
        match ledger.expire(&due.node, due.operation, now) {
            Expiry::Settled(result) => self.news.push(result.into()),
            Expiry::Ending => {}
            Expiry::Cancel => {
                let grace = self.config.policy.abort_grace;
                let call = self
                    .running
                    .iter_mut()
                    .find(|call| call.effect.operation == due.operation);
                let call = call.expect("what a ledger holds as running is in the list");
                call.call.cancel.cancel();
                call.end_by = Some(now.checked_add(grace).expect("traces are short"));
            }
        }
    }

    /// Ends the tasks whose grace is over; of what cannot be ended the outcome is reported without its end.
    pub(super) fn end_overdue(&mut self) {
        let now = self.now;
        let overdue = |call: &Running| !call.abandoned && call.end_by.is_some_and(|at| at <= now);
        while let Some(place) = self.running.iter().position(overdue) {
            if self.config.abortable {
                self.finish_call(place, None);
                continue;
            }
            let call = &mut self.running[place];
            call.abandoned = true;
            let ledger = self
                .ledgers
                .get_mut(&call.effect.provider)
                .expect("one per provider");
            let result = ledger.abandoned(call.effect.operation);
            self.news.extend(result.map(News::from));
        }
    }

    /// Tells the driver one thing.
    fn deliver(&mut self, place: usize) -> Result<(), Broken> {
        // An executor tells the end of a call after its outcome, never before.
        let place = match self.news[place].observation {
            Observation::CallEnded { operation, .. } => {
                let outcome = |news: &News| matches!(news.observation, Observation::Finished { operation: of, .. } if of == operation);
                self.news.iter().position(outcome).unwrap_or(place)
            }
            _ => place,
        };
        let news = self.news.remove(place);
        let lost = matches!(news.observation, Observation::Stream(_));
        if lost && self.chooser.happens(self.config.faults.lost_reports) {
            self.note(|| format!("lost: {}", news.observation));
            return Ok(());
        }
        let _ = self.observe(&news.node, news.attempt, news.observation.clone());
        if self.delivered.len() == 16 {
            self.delivered.remove(0);
        }
        self.delivered.push(news);
        Ok(())
    }

    /// Tells the driver again what it was told before: nothing may change (G6).
    pub(crate) fn deliver_again(&mut self) -> Result<(), Broken> {
        if self.delivered.is_empty() {
            return Ok(());
        }
        let place = self.chooser.below(self.delivered.len());
        let news = self.delivered[place].clone();
        // That a machine is lost may be said twice; of everything else the first time counts.
        if !matches!(
            news.observation,
            Observation::Finished { .. } | Observation::Stream(_)
        ) {
            return Ok(());
        }
        let before = self.driver.state().clone();
        let stale = self.driver.summary().stale;
        let folded = self.observe(&news.node, news.attempt, news.observation.clone());
        let unchanged = folded == Folded::Stale
            && *self.driver.state() == before
            && self.driver.summary().stale == stale + 1;
        // A lease that a destroyed attempt is told of is looked after again: it may be another one.
        if unchanged || folded == Folded::Orphaned {
            return Ok(());
        }
        Err(Broken(format!(
            "G6: {} for {} a second time was {folded:?}",
            news.observation, news.node
        )))
    }

    /// Runs a session as far as it gets.
    fn poll_session(&mut self, place: usize) -> bool {
        let before = self.reported.lock().expect("nobody panics under it").len();
        let live = &mut self.sessions[place];
        let over = (&mut live.run).now_or_never().is_some();
        if over {
            let live = self.sessions.remove(place);
            self.note(|| format!("session of {} is over", live.identity));
        }
        over || self.reported.lock().expect("nobody panics under it").len() > before
    }

    fn take_reports(&mut self) {
        let reports = std::mem::take(&mut *self.reported.lock().expect("nobody panics under it"));
        self.news.extend(reports.into_iter().map(|report| News {
            node: report.node,
            attempt: report.attempt,
            observation: Observation::Stream(report.observation),
        }));
    }

    /// Answers a first look.
    fn answer_look(&mut self, place: usize) -> bool {
        let (look, asked_at) = self.looks.remove(place);
        let backend = &self.providers[&look.provider].backend;
        let answer = if self.chooser.happens(self.config.faults.looks) {
            Err(EffectError::ambiguous("no answer"))
        } else {
            backend
                .list_leases(&self.shape.run_id)
                .now_or_never()
                .unwrap_or_else(|| Err(EffectError::ambiguous("it waits")))
        };
        let findings = self
            .driver
            .inventory(&look.provider, look.asked, asked_at, answer.clone(), self.now);
        self.note(|| format!("look at {} answered: {findings:?} {answer:?}", look.provider));
        true
    }

    /// Lets the machine of this attempt die; the loss is told later.
    pub(crate) fn kill(&mut self, identity: &nodewright_core::id::AttemptIdentity, told: bool) {
        let providers = self.providers.values().cloned().collect::<Vec<_>>();
        for provider in providers {
            if (provider.kill)(&provider.backend, identity) && told {
                self.news.push(News {
                    node: identity.node.clone(),
                    attempt: identity.attempt,
                    observation: Observation::NodeLost {
                        reason: "its machine died".into(),
                    },
                });
            }
        }
    }

    /// The moment until which this trace has lasted, as a number of seconds, for people.
    pub fn seconds(&self) -> i64 {
        let start = Timestamp::from_second(1_900_000_000).expect("it is a moment");
        self.now.duration_since(start).as_secs()
    }
}
