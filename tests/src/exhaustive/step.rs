//! How a step changes what there is.

use std::sync::Arc;

use nodewright_core::bootstrap::StreamEvent;
use nodewright_core::driver::ClusterDriver;
use nodewright_core::effect::{CallEnd, EffectError, EffectResult, FailureKind, Inventory, Outcome};
use nodewright_core::id::{NodeAttemptId, OperationId};
use nodewright_core::ledger::{Completion, Expiry, Ledger};
use nodewright_core::observation::Observation;

use super::action::{Action, Answer, Fate, Successor, Tag};
use super::cloud::{Cloud, Late, Machine, agent, broke};
use super::print;
use super::setup::{Kind, Setup};
use super::world::{Done, News, Rows, Running, Violation, World, hold};

type Stepped = Result<(), Violation>;

impl World {
    /// The state after a step, with what it broke; the step has to be possible.
    pub(super) fn step(&self, setup: &Setup, action: &Action) -> Self {
        let mut next = self.clone();
        next.done = Done::default();
        if let Some(kind) = action.kind() {
            next.budget.spend(kind);
        }
        let stepped = next.act(setup, action).and_then(|()| {
            if !setup.passes_apart && !next.passed {
                next.drive(setup)?;
            }
            next.check(setup, self)
        });
        next.violation = stepped.err();
        next.print = print::of(&next, setup);
        next
    }

    fn act(&mut self, setup: &Setup, action: &Action) -> Stepped {
        match action {
            Action::Pass => return self.drive(setup),
            Action::Advance => return self.advance(setup),
            Action::Deliver(tag) => return self.deliver(tag),
            Action::Succeed(operation) => return self.succeed(setup, *operation),
            Action::Fail(operation, answer) => return self.fail(setup, *operation, *answer),
            Action::Hang(operation, fate) => {
                let call = self.call(*operation).expect("it is at work");
                self.calls[call].fate = Some(*fate);
                if *fate == Fate::Applied {
                    self.perform(setup, call);
                }
            }
            Action::NotYet(operation) => {
                let call = self.call(*operation).expect("it is at work");
                let outcome = self.cloud.not_yet(&self.calls[call].effect, self.now);
                return self.finish(setup, *operation, outcome);
            }
            Action::End(operation) => return self.finish(setup, *operation, None),
            Action::Land(attempt) => self.cloud.land(*attempt),
            Action::Join(id) => {
                let session = self.cloud.sessions.iter().find(|session| session.id == *id);
                let joined = StreamEvent::Joined(agent(&session.expect("it lives").node));
                let report = self.cloud.report(*id, joined);
                self.news.extend(report.map(News::from));
            }
            Action::Close(id) => {
                let report = self.cloud.report(*id, StreamEvent::Closed);
                self.news.extend(report.map(News::from));
            }
            Action::Break(id) => {
                let report = self.cloud.report(*id, broke());
                self.news.extend(report.map(News::from));
            }
            Action::Silence(id) => {
                let mut sessions = self.cloud.sessions.iter_mut();
                if let Some(session) = sessions.find(|session| session.id == *id) {
                    session.silent = true;
                }
            }
            Action::Lose(tag) => {
                let news = self.take_news(tag);
                if let Observation::Finished {
                    operation,
                    outcome,
                    end,
                } = news.observation
                {
                    self.lost.push(EffectResult {
                        node: news.node,
                        operation,
                        outcome,
                        end,
                    });
                }
            }
            Action::Delay(tag) => {
                let mut news = self.take_news(tag);
                news.late = true;
                self.news.push(news);
            }
            Action::Die(attempt) => self.die(setup, *attempt, false),
            Action::Vanish(attempt) => self.die(setup, *attempt, true),
            Action::DropOut(attempt) => {
                let machine = self.machine_mut(*attempt);
                (machine.alive, machine.listed) = (false, false);
                let report = self.cloud.end_session(*attempt, broke());
                self.news.extend(report.map(News::from));
            }
            Action::Move(attempt) => {
                let machine = self.machine_mut(*attempt);
                machine.endpoint.host = format!("{}-", machine.endpoint.host).into();
            }
            Action::Stray(node, attempt) => {
                let template = setup.shapes[0][0].template.digest();
                self.cloud.stray(node, *attempt, template, self.now);
            }
            Action::Tell(attempt) => {
                let untold = self.untold.iter().find(|(_, of)| of == attempt).cloned();
                let (node, attempt) = untold.expect("it was not told");
                self.untold.remove(&(node.clone(), attempt));
                self.news.push(News::new(&node, attempt, lost()));
            }
            Action::FalseAlarm(attempt) => {
                let machine = self.cloud.machine(*attempt).expect("it lives");
                self.news.push(News::new(&machine.node, *attempt, lost()));
            }
            Action::KillExecutor(fate) => self.kill_executor(setup, *fate),
            Action::OpenExecutor => return self.open_executor(setup),
            Action::Journal => self.journal = Some(Arc::new(self.driver.state().clone())),
            Action::Restart(successor, fate) => return self.restart(setup, *successor, *fate),
            Action::Ask => self.ask(),
            Action::Sweep => {
                self.now = self.after(setup.policy.sweep_interval);
                self.ask();
            }
            Action::AnswerLook => {
                let looking = self.looking.as_ref().expect("a look is under way");
                let list = || self.cloud.list(&self.driver.state().run_id);
                let inventory = looking.held.clone().unwrap_or_else(list);
                return self.answer_look(setup, Ok(inventory));
            }
            Action::EmptyLook => return self.answer_look(setup, Ok(Inventory::default())),
            Action::LagLook => {
                let inventory = self.cloud.list_lagging(&self.driver.state().run_id, self.now);
                return self.answer_look(setup, Ok(inventory));
            }
            Action::FailLook => return self.answer_look(setup, Err(EffectError::ambiguous("no answer"))),
            Action::HoldLook => {
                let list = self.cloud.list(&self.driver.state().run_id);
                if let Some(looking) = &mut self.looking {
                    looking.held = Some(list);
                }
            }
            Action::Shape(place) => return self.reshape(setup, *place),
            Action::Retry(node) => {
                self.driver.retry(node);
                self.done.retried = Some(node.clone());
                self.passed = false;
            }
            Action::Replace(node) => {
                self.driver.replace(node);
                self.done.replaced = Some(node.clone());
                self.passed = false;
            }
            Action::HandOff(node) => return self.by_hand(node, Observation::HandedOff),
            Action::SeeJoin(node) => return self.by_hand(node, Observation::Joined(agent(node))),
        }
        Ok(())
    }

    fn machine_mut(&mut self, attempt: NodeAttemptId) -> &mut Machine {
        let mut machines = self.cloud.machines.iter_mut();
        let machine = machines.find(|machine| machine.attempt == attempt && machine.alive);
        machine.expect("it lives")
    }

    /// Asks for the inventory, whatever the interval says.
    fn ask(&mut self) {
        self.driver.sweep(self.now);
        self.take_question();
    }

    fn answer_look(&mut self, setup: &Setup, answer: Result<Inventory, EffectError>) -> Stepped {
        let looking = self.looking.take().expect("a look is under way");
        let before = self.driver.state().clone();
        let sweep = before.looks_done();
        let (provider, asked) = (&looking.look.provider, looking.look.asked);
        let (asked_at, now) = (looking.asked_at, self.now);
        let _ = self
            .driver
            .inventory(provider, asked, asked_at, answer.clone(), now);
        self.done.looked = answer.is_ok();
        self.passed = false;
        if sweep {
            return self.check_answer(setup, &looking, &answer, &before);
        }
        Ok(())
    }

    fn advance(&mut self, setup: &Setup) -> Stepped {
        self.now = self.next_moment().expect("there is a moment to wait for");
        let now = self.now;
        self.cloud.land_due(now);
        let mut due = Vec::new();
        self.driver.due_operations(now, &mut due);
        for due in due {
            let deadline = self.pending(due.operation).map(|pending| pending.deadline);
            hold!(
                "G24",
                deadline.is_some_and(|deadline| deadline <= now),
                "{} was due at {now}, and its deadline is {deadline:?}",
                due.operation
            );
            match self.ledger.expire(&due.node, due.operation, now) {
                Expiry::Settled(result) => self.news.push(result.into()),
                Expiry::Ending => {}
                Expiry::Cancel => {
                    let end_by = self.after(setup.policy.abort_grace);
                    let Some(call) = self.call(due.operation) else {
                        let what = format!("the ledger holds {} as running, and it is not", due.operation);
                        return Err(Violation { rule: "G24", what });
                    };
                    self.calls[call].cancelled = true;
                    self.calls[call].end_by = Some(end_by);
                }
            }
        }
        let overdue = |call: &Running| call.end_by.is_some_and(|at| at <= now);
        while let Some(call) = self.calls.iter().position(overdue) {
            let operation = self.calls[call].effect.operation;
            if setup.abortable {
                self.finish(setup, operation, None)?;
                continue;
            }
            self.calls[call].end_by = None;
            self.calls[call].abandoned = true;
            let result = self.ledger.abandoned(operation);
            self.news.extend(result.map(News::from));
        }
        self.passed = false;
        Ok(())
    }

    pub(super) fn take_news(&mut self, tag: &Tag) -> News {
        let named = |late: bool| move |news: &News| news.tag() == *tag && news.late == late;
        let mut places = [false, true]
            .into_iter()
            .filter_map(|late| self.news.iter().position(named(late)));
        let place = places.next().expect("there is such news");
        self.news.remove(place)
    }

    fn deliver(&mut self, tag: &Tag) -> Stepped {
        let news = self.take_news(tag);
        let _ = self
            .driver
            .fold(&news.node, news.attempt, &news.observation, self.now);
        self.passed = false;
        let told = self.check_told_twice(&news);
        self.done.told = Some(news);
        told
    }

    fn by_hand(&mut self, node: &nodewright_core::id::LogicalNodeId, observation: Observation) -> Stepped {
        let attempt = self.driver.state().nodes.get(node).expect("it is filled").attempt;
        let _ = self.driver.fold(node, attempt, &observation, self.now);
        self.passed = false;
        self.done.told = Some(News::new(node, attempt, observation));
        Ok(())
    }

    /// Lets a call have its effect; its answer is kept.
    fn perform(&mut self, setup: &Setup, call: usize) {
        let call = &mut self.calls[call];
        let mut reports = Vec::new();
        let outcome = self.cloud.perform(&call.effect, setup, self.now, &mut reports);
        call.answer = Some(outcome);
        self.news.extend(reports.into_iter().map(News::from));
    }

    fn succeed(&mut self, setup: &Setup, operation: OperationId) -> Stepped {
        let call = self.call(operation).expect("it is at work");
        if self.calls[call].answer.is_none() {
            self.perform(setup, call);
        }
        let outcome = self.calls[call].answer.clone();
        self.finish(setup, operation, outcome)
    }

    fn fail(&mut self, setup: &Setup, operation: OperationId, answer: Answer) -> Stepped {
        let error = match answer {
            Answer::Definite => EffectError::definite("it said no"),
            Answer::Throttled => EffectError::throttled("slow down", Some(std::time::Duration::from_secs(3))),
            Answer::Fatal => EffectError::fatal("never"),
            Answer::Ambiguous(fate) => {
                let call = self.call(operation).expect("it is at work");
                match fate {
                    Fate::Without => {}
                    Fate::Applied => self.perform(setup, call),
                    Fate::Later => self.calls[call].fate = Some(fate),
                }
                EffectError::ambiguous("the wire was cut")
            }
        };
        self.finish(setup, operation, Some(Outcome::Failed(error)))
    }

    /// A call ends: it is answered, or its task is gone. What it reports is held to G24.
    fn finish(&mut self, setup: &Setup, operation: OperationId, outcome: Option<Outcome>) -> Stepped {
        let place = self.call(operation).expect("it is at work");
        let call = self.calls.remove(place);
        if call.fate == Some(Fate::Later) {
            self.come_later(setup, &call);
        }
        let answered = outcome.clone();
        let completion = match outcome {
            Some(outcome) => self.ledger.complete(operation, outcome, self.now),
            None => self.ledger.ended(operation, self.now),
        };
        match completion {
            Completion::Report(result) => {
                let ambiguous =
                    matches!(&result.outcome, Outcome::Failed(error) if error.kind == FailureKind::Ambiguous);
                let as_told = match &answered {
                    Some(answered) if !call.cancelled => *answered == result.outcome,
                    _ => ambiguous,
                };
                hold!(
                    "G24",
                    as_told,
                    "{operation} was answered {answered:?}, told to end: {}, and reported as {:?}",
                    call.cancelled,
                    result.outcome
                );
                hold!(
                    "G24",
                    result.end == CallEnd::At(self.now),
                    "{operation} ended now, and {:?} was reported",
                    result.end
                );
                self.news.push(result.into());
            }
            Completion::EndedLate { node, operation, at } => {
                hold!("G24", call.abandoned, "{operation} was not reported before");
                let ended = Observation::CallEnded { operation, at };
                self.news.push(News::new(&node, operation.attempt, ended));
            }
            Completion::Stale => {
                let what = format!("the ledger does not know {operation}, which was at work");
                return Err(Violation { rule: "G9", what });
            }
        }
        Ok(())
    }

    fn come_later(&mut self, setup: &Setup, call: &Running) {
        let nodewright_core::effect::Command::CreateLease(spec) = &call.effect.command else {
            return;
        };
        self.cloud.late.push(Late {
            node: call.effect.node.clone(),
            attempt: call.effect.operation.attempt,
            template: spec.template.digest(),
            by: self.after(setup.visibility),
        });
    }

    fn die(&mut self, setup: &Setup, attempt: NodeAttemptId, vanishes: bool) {
        let of = |machine: &Machine| machine.attempt == attempt && machine.alive;
        let place = self.cloud.machines.iter().position(of).expect("it lives");
        let node = self.cloud.machines[place].node.clone();
        if vanishes {
            self.cloud.machines.remove(place);
            if !setup.sweeps && self.is_current(&node, attempt) {
                self.untold.insert((node, attempt));
            }
        } else {
            self.cloud.machines[place].alive = false;
            if !setup.sweeps {
                self.news.push(News::new(&node, attempt, lost()));
            }
        }
        let report = self.cloud.end_session(attempt, broke());
        self.news.extend(report.map(News::from));
    }

    /// What calls that nobody waits for any more come to.
    fn leave_calls(&mut self, setup: &Setup, fate: Fate) {
        for call in 0..self.calls.len() {
            if self.calls[call].answer.is_some() || self.calls[call].fate == Some(Fate::Later) {
                continue;
            }
            if fate == Fate::Applied {
                self.perform(setup, call);
            }
            self.calls[call].fate = Some(fate);
        }
    }

    fn kill_executor(&mut self, setup: &Setup, fate: Fate) {
        self.leave_calls(setup, fate);
        self.executor_up = false;
    }

    fn open_executor(&mut self, setup: &Setup) -> Stepped {
        self.executor_up = true;
        self.submitted.clear();
        let pending = self.driver.pending_at(&Setup::provider());
        let restart = self
            .ledger
            .executor_restarted(pending.iter().map(|(_, operation)| *operation));
        for operation in restart.end {
            let Some(call) = self.call(operation) else {
                let what = format!("{operation} is to be ended, and is not at work");
                return Err(Violation { rule: "G31", what });
            };
            if setup.abortable {
                self.finish(setup, operation, None)?;
            } else if self.calls[call].end_by.is_none() {
                self.calls[call].cancelled = true;
                self.calls[call].end_by = Some(self.after(setup.policy.abort_grace));
            }
        }
        self.news.extend(restart.report.into_iter().map(News::from));
        for operation in restart.refused {
            let (node, _) = pending
                .iter()
                .find(|(_, of)| *of == operation)
                .expect("it is pending");
            let reason = "the executor is restarting".into();
            let refused = Observation::Refused { operation, reason };
            self.news.push(News::new(node, operation.attempt, refused));
        }
        Ok(())
    }

    fn restart(&mut self, setup: &Setup, successor: Successor, fate: Fate) -> Stepped {
        self.leave_calls(setup, fate);
        for call in std::mem::take(&mut self.calls) {
            if call.fate == Some(Fate::Later) {
                self.come_later(setup, &call);
            }
        }
        let shape = self.driver.desired().shape().clone();
        let (policy, providers) = (setup.policy.clone(), setup.providers(false));
        let state = match (successor, &self.journal) {
            (Successor::Anew, _) => None,
            (Successor::Lagging, Some(journal)) => Some((**journal).clone()),
            _ => Some(self.driver.state().clone()),
        };
        let driver = match state {
            None => ClusterDriver::new(shape, policy, providers),
            Some(state) => ClusterDriver::restore(state, shape, policy, providers, self.now),
        };
        self.driver = driver.map_err(|error| Violation {
            rule: "G32",
            what: format!("the next process would not begin: {error}"),
        })?;
        // What only the process held is gone; sessions of it report nowhere.
        self.cloud = Cloud {
            sessions: Vec::new(),
            ..std::mem::take(&mut self.cloud)
        };
        self.ledger = Ledger::new();
        self.executor_up = true;
        self.submitted.clear();
        self.news.clear();
        self.lost.clear();
        self.looking = None;
        self.rows = Rows::default();
        self.last_sent.clear();
        let next = self.driver.state().next_attempt_id.expect("attempts are few");
        self.allocated = NodeAttemptId::new(next.number() - 1);
        self.done.restarted = true;
        // The next process watches from its beginning.
        self.untold.clear();
        for (id, node) in self.driver.state().nodes.iter() {
            let lease = node.lease.as_ref().map(|lease| &lease.id);
            let mut machines = self.cloud.machines.iter().filter(|machine| machine.alive);
            if !setup.sweeps && lease.is_some_and(|lease| machines.all(|machine| machine.lease.id != *lease))
            {
                self.untold.insert((id, node.attempt));
            }
        }
        self.passed = false;
        Ok(())
    }

    /// Asks for another shape, and offers it wrongly before and after (G20).
    fn reshape(&mut self, setup: &Setup, place: usize) -> Stepped {
        let generation = self.driver.desired().generation().0;
        let silent = setup.shape(place, generation);
        let wrong = [setup.shape(place, generation - 1), silent];
        let before = self.driver.state().clone();
        for shape in wrong {
            let refused = self.driver.update_desired(shape, self.now).is_err();
            hold!(
                "G20",
                refused && *self.driver.state() == before,
                "a shape of an accepted or older generation was taken, or changed the state"
            );
        }
        let shape = setup.shape(place, generation + 1);
        let accepted = self.driver.update_desired(shape, self.now);
        hold!(
            "G20",
            accepted.is_ok(),
            "the latest shape was refused: {accepted:?}"
        );
        self.shape = place;
        self.passed = false;
        Ok(())
    }
}

impl Action {
    /// What of the budget it takes; nothing if it happens by itself.
    pub(super) const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Fail(_, Answer::Throttled) => Some(Kind::Throttles),
            Self::Fail(_, Answer::Fatal) => Some(Kind::Fatals),
            Self::Fail(..) | Self::Hang(..) | Self::NotYet(_) => Some(Kind::Calls),
            Self::Close(_) | Self::Break(_) | Self::Silence(_) => Some(Kind::Streams),
            Self::Lose(_) | Self::Delay(_) => Some(Kind::Reports),
            Self::Die(_) | Self::Vanish(_) | Self::DropOut(_) | Self::FalseAlarm(_) => Some(Kind::Losses),
            Self::Move(_) => Some(Kind::Moves),
            Self::Stray(..) => Some(Kind::Strays),
            Self::Ask => Some(Kind::Sweeps),
            Self::KillExecutor(_) => Some(Kind::Executors),
            Self::Restart(..) => Some(Kind::Processes),
            Self::Journal => Some(Kind::Journals),
            Self::FailLook | Self::HoldLook | Self::EmptyLook | Self::LagLook => Some(Kind::Looks),
            Self::Shape(_) => Some(Kind::Shapes),
            Self::Retry(_) | Self::Replace(_) | Self::HandOff(_) | Self::SeeJoin(_) => Some(Kind::Hands),
            Self::Pass
            | Self::Advance
            | Self::Deliver(_)
            | Self::Succeed(_)
            | Self::End(_)
            | Self::Land(_)
            | Self::Join(_)
            | Self::Tell(_)
            | Self::OpenExecutor
            | Self::Sweep
            | Self::AnswerLook => None,
        }
    }
}

fn lost() -> Observation {
    Observation::NodeLost {
        reason: "its machine is gone".into(),
    }
}
