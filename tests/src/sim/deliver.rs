//! Deferred work: submissions, calls, sessions, results, reports, looks. Each function does one piece of it.

use futures_util::FutureExt;
use nodewright_core::bootstrap::{StreamEvent, StreamObservation};
use nodewright_core::driver::DueOperation;
use nodewright_core::effect::{EffectBackend, EffectError, Outcome};
use nodewright_core::facts::BootstrapStage;
use nodewright_core::id::{AttemptIdentity, ProviderKind};
use nodewright_core::inventory::FirstLook;
use nodewright_core::ledger::{Completion, Expiry};
use nodewright_core::observation::{Folded, Observation};

use super::{Live, News, Running, Sim};
use crate::Chooser;
use crate::oracle::{Answered, Broken};
use crate::subject::{Aborts, Pump, Subject};
use crate::wrong::Slip;

/// How many things that were told are kept to be told again.
const REMEMBERED: usize = 16;

/// A piece of deferred work, by its place among its like.
#[derive(Debug, Clone)]
enum Piece {
    Begin(ProviderKind),
    Call(usize),
    News(usize),
    Session(usize),
    Look(usize),
}

impl<S: Subject> Sim<S> {
    /// Does one piece of deferred work that can be done now, and drives; `false` if there is none. The pieces
    /// are tried from a chosen one on.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn work(&mut self, chooser: &mut Chooser) -> Result<bool, Broken> {
        self.take_reports();
        let pieces = self.pieces();
        if pieces.is_empty() {
            return Ok(false);
        }
        let from = chooser.below(pieces.len());
        for piece in pieces[from..].iter().chain(&pieces[..from]) {
            if self.piece(piece.clone())? {
                self.take_reports();
                self.drive()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does the piece of deferred work of this number, if it can be done now, without driving.
    pub(super) fn work_one(&mut self, number: u16) -> Result<(), Broken> {
        self.take_reports();
        let mut pieces = self.pieces();
        if !pieces.is_empty() {
            let piece = pieces.swap_remove(usize::from(number) % pieces.len());
            self.piece(piece)?;
            self.take_reports();
        }
        Ok(())
    }

    fn pieces(&self) -> Vec<Piece> {
        let submitted = self.providers.iter();
        let submitted = submitted.filter(|(_, provider)| !provider.submitted.is_empty());
        let begins = submitted.map(|(kind, _)| Piece::Begin(kind.clone()));
        begins
            .chain((0..self.running.len()).map(Piece::Call))
            .chain((0..self.news.len()).map(Piece::News))
            .chain((0..self.sessions.len()).map(Piece::Session))
            .chain((0..self.looks.len()).map(Piece::Look))
            .collect()
    }

    fn piece(&mut self, piece: Piece) -> Result<bool, Broken> {
        match piece {
            Piece::Begin(kind) => self.begin(&kind).map(|()| true),
            Piece::Call(place) => self.step_call(place),
            Piece::News(place) => self.deliver(place).map(|()| true),
            Piece::Session(place) => Ok(self.poll_session(place)),
            Piece::Look(place) => self.answer_look(place).map(|()| true),
        }
    }

    /// Gets on with a call; `false` if it waits.
    fn step_call(&mut self, place: usize) -> Result<bool, Broken> {
        let call = &mut self.running[place];
        let operation = call.effect.operation;
        if !std::mem::replace(&mut call.begun, true) {
            self.history.begins(self.driver.state(), &call.effect)?;
        }
        let control = self.providers[&call.effect.provider].backend.control();
        let waits = || control.holds(operation);
        self.stirred = true;
        let Some((outcome, session)) = self.pump.poll(&mut call.work, waits) else {
            return Ok(false);
        };
        let identity = call.call.identity.clone();
        let runs = |session: &nodewright_core::bootstrap::Session| session.id.0 == operation;
        if let Some(session) = session.filter(runs).filter(|_| !self.slips(Slip::RunsNoSessions)) {
            self.run_session(identity, session);
        }
        self.finish_call(place, Some(outcome));
        self.late_creates();
        Ok(true)
    }

    /// Has a session run: where time is real by itself, else when the trace says so.
    fn run_session(&mut self, identity: AttemptIdentity, session: nodewright_core::bootstrap::Session) {
        let run = match &self.pump {
            Pump::Inline => session.run,
            Pump::Tokio(runtime) => {
                let task = Aborts::new(runtime.spawn(session.run));
                async move { drop(task.await) }.boxed()
            }
        };
        self.sessions.push(Live {
            identity,
            session: session.id,
            run,
        });
    }

    fn finish_call(&mut self, place: usize, outcome: Option<Outcome>) {
        let mut call = self.running.remove(place);
        let operation = call.effect.operation;
        self.stirred = true;
        // Whatever a call still does when it is dropped belongs to it: only then has it ended.
        drop(std::mem::replace(&mut call.work, std::future::pending().boxed()));
        let now = self.now;
        let outcome = outcome.map(|outcome| self.slip_at_answer(&call.effect, outcome));
        self.note(|| format!("call {operation} ends: {outcome:?}"));
        let provider = self.providers.get_mut(&call.effect.provider);
        let ledger = &mut provider.expect("it is registered").ledger;
        let completion = match outcome.clone() {
            Some(outcome) => ledger.complete(operation, outcome, now),
            None => ledger.ended(operation, now),
        };
        match completion {
            Completion::Report(result) => self.tell(result, Some(&call)),
            Completion::EndedLate { .. } if self.slips(Slip::KeepsEnds) => {}
            Completion::EndedLate { node, operation, at } => {
                if self.slips(Slip::TellsBoth) {
                    self.news
                        .extend(outcome.map(|outcome| News::late(&call, outcome, at)));
                }
                self.news.push(News {
                    node,
                    attempt: operation.attempt,
                    observation: Observation::CallEnded { operation, at },
                });
            }
            Completion::Stale => {}
        }
    }

    /// An operation's deadline has come.
    pub(super) fn expire(&mut self, due: &DueOperation) -> Result<(), Broken> {
        let now = self.now;
        self.note(|| format!("{} is due", due.operation));
        self.history.expires(self.driver.state(), due, now)?;
        // What an executor is told it hears in order: the submission before the expiry.
        let waiting = |sim: &Self| {
            let submitted = &sim.providers[&due.provider].submitted;
            submitted.iter().any(|effect| effect.operation == due.operation)
        };
        while waiting(self) {
            self.begin(&due.provider)?;
        }
        let provider = self.providers.get_mut(&due.provider).expect("it is registered");
        match provider.ledger.expire(&due.node, due.operation, now) {
            Expiry::Settled(result) => self.tell(result, None),
            Expiry::Ending => {}
            Expiry::Cancel => {
                let end_by = now.checked_add(self.config.policy.abort_grace);
                let mut calls = self.running.iter_mut();
                let call = calls.find(|call| call.effect.operation == due.operation);
                let call = call.expect("what a ledger holds as running is in the list");
                call.call.cancel.cancel();
                call.end_by = end_by.ok();
                self.slip_at_expiry(&due.provider, due.operation);
            }
        }
        Ok(())
    }

    /// Ends the tasks whose grace is over; of what cannot be ended the outcome is reported without its end.
    pub(super) fn end_overdue(&mut self) {
        let now = self.now;
        let overdue = |call: &Running| !call.abandoned && call.end_by.is_some_and(|at| at <= now);
        while let Some(place) = self.running.iter().position(overdue) {
            let call = &mut self.running[place];
            let provider = self.providers.get_mut(&call.effect.provider);
            let provider = provider.expect("it is registered");
            if provider.backend.capabilities().abortable {
                self.finish_call(place, None);
                continue;
            }
            call.abandoned = true;
            let result = provider.ledger.abandoned(call.effect.operation);
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
        let _ = self.observe(&news.node, news.attempt, &news.observation)?;
        if self.delivered.len() == REMEMBERED {
            self.delivered.pop_front();
        }
        self.delivered.push_back(news);
        Ok(())
    }

    /// Loses one of the stream reports that are under way.
    pub(super) fn mislay(&mut self, number: u16) {
        self.take_reports();
        let streams = (0..self.news.len())
            .filter(|place| matches!(self.news[*place].observation, Observation::Stream(_)));
        let streams: Vec<usize> = streams.collect();
        if !streams.is_empty() {
            let news = self.news.remove(streams[usize::from(number) % streams.len()]);
            self.note(|| format!("lost: {}", news.observation));
        }
    }

    /// Tells the driver again what it was told before: nothing may change (G6).
    pub(super) fn deliver_again(&mut self, number: u16) -> Result<(), Broken> {
        if self.delivered.is_empty() {
            return Ok(());
        }
        let news = self.delivered[usize::from(number) % self.delivered.len()].clone();
        // That a machine is lost may be said twice; of everything else the first time counts.
        let once = matches!(
            news.observation,
            Observation::Finished { .. } | Observation::Stream(_)
        );
        if !once {
            return Ok(());
        }
        let before = self.driver.state().clone();
        let folded = self.observe(&news.node, news.attempt, &news.observation)?;
        // A lease that a destroyed attempt is told of is looked after again: it may be another one.
        if folded == Folded::Orphaned || (folded == Folded::Stale && *self.driver.state() == before) {
            return Ok(());
        }
        Err(Broken(format!(
            "G6: {} for {} a second time was {folded:?}",
            news.observation, news.node
        )))
    }

    /// Runs a session as far as it gets.
    fn poll_session(&mut self, place: usize) -> bool {
        let before = self.reports();
        let live = &mut self.sessions[place];
        let over = match &self.pump {
            Pump::Inline => (&mut live.run).now_or_never().is_some(),
            Pump::Tokio(runtime) => runtime.block_on(async {
                let moment = std::time::Duration::from_millis(5);
                tokio::time::timeout(moment, &mut live.run).await.is_ok()
            }),
        };
        if over {
            let live = self.sessions.remove(place);
            self.note(|| format!("session of {} is over", live.identity));
        }
        over || self.reports() > before
    }

    /// What runs the sessions dies: each is seen to fail.
    pub(super) fn crash_streams(&mut self) {
        self.take_reports();
        for live in std::mem::take(&mut self.sessions) {
            let reason = "its task ended without a word".into();
            let event = StreamEvent::Failed {
                stage: BootstrapStage::StreamFailed,
                reason,
            };
            self.news.push(News {
                node: live.identity.node,
                attempt: live.identity.attempt,
                observation: Observation::Stream(StreamObservation {
                    session: live.session,
                    sequence: u64::MAX,
                    event,
                }),
            });
        }
    }

    fn reports(&self) -> usize {
        let reported = self.reported.lock().expect("nobody panics under it");
        reported.streams.len() + reported.losses.len()
    }

    pub(super) fn take_reports(&mut self) {
        let reported = std::mem::take(&mut *self.reported.lock().expect("nobody panics under it"));
        let streams = reported.streams.into_iter().map(|report| News {
            node: report.node,
            attempt: report.attempt,
            observation: Observation::Stream(report.observation),
        });
        self.news.extend(streams);
        let losses = reported.losses.into_iter().map(|loss| News {
            node: loss.node,
            attempt: loss.attempt,
            observation: Observation::NodeLost { reason: loss.reason },
        });
        self.news.extend(losses);
    }

    /// Answers a look.
    fn answer_look(&mut self, place: usize) -> Result<(), Broken> {
        let (look, asked_at) = self.looks.remove(place);
        let backend = self.providers[&look.provider].backend.clone();
        let run = self.shape.run_id.clone();
        let answer = self.pump.finish(async move { backend.list_leases(&run).await });
        let answer = answer.unwrap_or_else(|| Err(EffectError::ambiguous("it waits")));
        let answer = self.slip_at_list(&look.provider, answer);
        let before = self.driver.state().clone();
        let findings = self
            .driver
            .inventory(&look.provider, look.asked, asked_at, answer.clone(), self.now);
        self.note(|| format!("look at {} answered: {findings:?} {answer:?}", look.provider));
        if before.providers[&look.provider].first_look != FirstLook::Done {
            return Ok(());
        }
        if answer.is_ok() && findings.is_as_known() {
            self.unswept.remove(&look.provider);
        } else {
            self.unswept.insert(look.provider.clone());
        }
        self.check_sweep(&Answered {
            look: &look,
            asked_at,
            answer: &answer,
            before: &before,
        })
    }
}
