//! What may happen in a state: all that happens by itself, in any order, and what the budget allows beside it.

use jiff::Timestamp;
use nodewright_core::effect::CommandKind;
use nodewright_core::id::{LogicalNodeId, NodeAttemptId};
use nodewright_core::node::{ManagedNode, Stage};

use super::action::{Action, Answer, Fate, Successor, Tag};
use super::cloud::Machine;
use super::setup::{Kind, Setup};
use super::world::{Running, World};

/// The fates of calls whose executor or process dies.
const FATES: [Fate; 3] = [Fate::Without, Fate::Applied, Fate::Later];

impl World {
    /// What happens by itself; none of it takes anything of the budget. Time passes only once all that takes
    /// no time has happened.
    pub(super) fn by_itself(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let mut prompt = !self.passed;
        if !self.passed {
            actions.push(Action::Pass);
        }
        for (place, news) in self.news.iter().enumerate() {
            let tag = news.tag();
            // An executor tells the end of a call after its outcome, never before.
            let first = match tag {
                Tag::Ended(operation) => self.pending(operation).is_none(),
                _ => true,
            };
            if !first {
                continue;
            }
            prompt |= !news.late;
            if self.news[..place].iter().all(|other| other.tag() != tag) {
                actions.push(Action::Deliver(tag));
            }
        }
        if self.executor_up {
            for call in &self.calls {
                let operation = call.effect.operation;
                match call.fate {
                    None => prompt = true,
                    Some(Fate::Later) if call.abandoned => {}
                    Some(Fate::Later) => continue,
                    Some(_) => {}
                }
                if call.fate != Some(Fate::Later) {
                    actions.push(Action::Succeed(operation));
                }
                if call.abandoned {
                    actions.push(Action::End(operation));
                }
            }
        } else {
            prompt = true;
            actions.push(Action::OpenExecutor);
        }
        actions.extend(self.cloud.late.iter().map(|late| Action::Land(late.attempt)));
        for session in self.cloud.sessions.iter().filter(|session| !session.joined) {
            prompt |= !session.silent;
            actions.push(Action::Join(session.id));
        }
        actions.extend(self.untold.iter().map(|(_, attempt)| Action::Tell(*attempt)));
        if let Some(looking) = &self.looking {
            prompt |= looking.held.is_none();
            actions.push(Action::AnswerLook);
        }
        if !prompt && self.next_moment().is_some() {
            actions.push(Action::Advance);
        } else if !prompt && setup.sweeps && self.is_worth_a_sweep() {
            actions.push(Action::Sweep);
        }
    }

    /// Whether nothing happens any more but what may as well never happen: a late report, a silent session.
    pub(super) fn is_at_rest(&self, actions: &[Action]) -> bool {
        actions.iter().all(|action| match action {
            Action::Deliver(tag) => self.news.iter().all(|news| news.tag() != *tag || news.late),
            Action::Join(id) => self
                .cloud
                .sessions
                .iter()
                .any(|session| session.id == *id && session.silent),
            _ => false,
        })
    }

    /// What the budget allows.
    pub(super) fn allowed(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let allows = |kind| self.budget.allows(kind);
        if self.executor_up {
            for call in self.calls.iter().filter(|call| call.fate.is_none()) {
                self.failures(call, actions);
            }
        }
        for session in &self.cloud.sessions {
            if allows(Kind::Streams) {
                actions.extend([Action::Close(session.id), Action::Break(session.id)]);
                if !session.joined && !session.silent {
                    actions.push(Action::Silence(session.id));
                }
            }
        }
        if allows(Kind::Reports) {
            for (place, news) in self.news.iter().enumerate() {
                let tag = news.tag();
                let first = self.news[..place].iter().all(|other| other.tag() != tag);
                if first && !news.late && self.may_be_lost(&tag) {
                    actions.extend([Action::Lose(tag.clone()), Action::Delay(tag)]);
                }
            }
        }
        if allows(Kind::Losses) {
            for machine in self.cloud.machines.iter().filter(|machine| machine.alive) {
                let attempt = machine.attempt;
                actions.extend([Action::Die(attempt), Action::Vanish(attempt)]);
                if setup.sweeps {
                    actions.push(Action::DropOut(attempt));
                } else if self.is_current(&machine.node, attempt) {
                    actions.push(Action::FalseAlarm(attempt));
                }
            }
        }
        if allows(Kind::Executors) && self.executor_up {
            actions.extend(self.fates().map(Action::KillExecutor));
        }
        if allows(Kind::Processes) {
            for successor in [Successor::Anew, Successor::Restored, Successor::Lagging] {
                if successor != Successor::Lagging || self.journal.is_some() {
                    actions.extend(self.fates().map(|fate| Action::Restart(successor, fate)));
                }
            }
        }
        if allows(Kind::Journals) && allows(Kind::Processes) {
            actions.push(Action::Journal);
        }
        if let Some(looking) = self.looking.as_ref().filter(|_| allows(Kind::Looks)) {
            actions.push(Action::FailLook);
            if looking.held.is_none() {
                actions.push(Action::HoldLook);
                if setup.sweeps && self.driver.state().looks_done() {
                    self.half_truths(actions);
                }
            }
        }
        if allows(Kind::Moves) {
            let alive = self.cloud.machines.iter().filter(|machine| machine.alive);
            actions.extend(alive.map(|machine| Action::Move(machine.attempt)));
        }
        if allows(Kind::Strays) {
            let attempts = self.made.iter();
            actions.extend(attempts.map(|(attempt, node)| Action::Stray(node.clone(), *attempt)));
        }
        if allows(Kind::Sweeps) && self.looking.is_none() && self.driver.state().looks_done() {
            actions.push(Action::Ask);
        }
        if allows(Kind::Shapes) {
            let others = (0..setup.shapes.len()).filter(|place| *place != self.shape);
            actions.extend(others.map(Action::Shape));
        }
        if allows(Kind::Hands) {
            for (id, node) in self.driver.state().nodes.iter() {
                by_hand(id, node, self.now, actions);
            }
        }
    }

    /// What may be answered of what is there.
    fn half_truths(&self, actions: &mut Vec<Action>) {
        let mut listed = self.cloud.listed();
        if listed.clone().next().is_some() {
            actions.push(Action::EmptyLook);
        }
        if listed.any(|machine| machine.seen_by > self.now) {
            actions.push(Action::LagLook);
        }
    }

    /// Whether somebody may learn something by asking, nothing else being left to wait for.
    fn is_worth_a_sweep(&self) -> bool {
        self.looking.is_none() && self.calls.is_empty() && !self.is_known()
    }

    /// Whether a true answer would show nothing new.
    fn is_known(&self) -> bool {
        let state = self.driver.state();
        let provider = &state.providers[&Setup::provider()];
        let suspects = provider.sweep.as_ref().map_or(0, |sweep| sweep.suspects.len());
        let mut held = 0;
        for (_, node) in state.nodes.iter() {
            let Some(lease) = &node.lease else { continue };
            held += 1;
            let is_so = |machine: &Machine| {
                let there = machine.lease.id == lease.id && machine.alive && machine.listed;
                let known = node.endpoint.as_ref();
                there && known.is_none_or(|known| *known == machine.endpoint)
            };
            if node.missing_since.is_some() || !self.cloud.machines.iter().any(is_so) {
                return false;
            }
        }
        let known = held + state.orphans.len();
        suspects == 0 && provider.mass_loss_since.is_none() && known == self.cloud.listed().count()
    }

    /// Whether the state knows this attempt as the slot's. Of one that it does not know nobody speaks.
    pub(super) fn is_current(&self, node: &LogicalNodeId, attempt: NodeAttemptId) -> bool {
        let node = self.driver.state().nodes.get(node);
        node.is_some_and(|node| node.attempt == attempt)
    }

    /// Whether a report may be lost. What an executor says of an operation whose deadline has passed is its
    /// last word, and reaches the driver: as its executor dies, the next one says it again.
    fn may_be_lost(&self, tag: &Tag) -> bool {
        match tag {
            Tag::Result(operation) => self.pending(*operation).is_none_or(|pending| !pending.expiring),
            Tag::Report(..) => true,
            _ => false,
        }
    }

    fn failures(&self, call: &Running, actions: &mut Vec<Action>) {
        let operation = call.effect.operation;
        let kind = call.effect.command.kind();
        let allows = |kind| self.budget.allows(kind);
        if allows(Kind::Throttles) {
            actions.push(Action::Fail(operation, Answer::Throttled));
        }
        if allows(Kind::Fatals) {
            actions.push(Action::Fail(operation, Answer::Fatal));
        }
        if !allows(Kind::Calls) {
            return;
        }
        actions.push(Action::Fail(operation, Answer::Definite));
        actions.push(Action::Hang(operation, Fate::Without));
        if self.cloud.not_yet(&call.effect, self.now).is_some() {
            actions.push(Action::NotYet(operation));
        }
        if !kind.is_look_up() {
            actions.push(Action::Fail(operation, Answer::Ambiguous(Fate::Applied)));
            actions.push(Action::Hang(operation, Fate::Applied));
        }
        // Of anything else a failure that is ambiguous and was without effect is folded as a definite one.
        if matches!(kind, CommandKind::CreateLease | CommandKind::StartBootstrap) {
            actions.push(Action::Fail(operation, Answer::Ambiguous(Fate::Without)));
        }
        if kind == CommandKind::CreateLease {
            actions.push(Action::Fail(operation, Answer::Ambiguous(Fate::Later)));
            actions.push(Action::Hang(operation, Fate::Later));
        }
    }

    /// The fates that make a difference for what is at work.
    fn fates(&self) -> impl Iterator<Item = Fate> + '_ {
        let open = |call: &&Running| call.answer.is_none() && call.fate != Some(Fate::Later);
        let any = self.calls.iter().any(|call| open(&call));
        let creates = self.calls.iter().filter(open);
        let create = creates
            .map(|call| call.effect.command.kind())
            .any(|kind| kind == CommandKind::CreateLease);
        FATES.into_iter().filter(move |fate| match fate {
            Fate::Without => true,
            Fate::Applied => any,
            Fate::Later => create,
        })
    }
}

fn by_hand(id: LogicalNodeId, node: &ManagedNode, now: Timestamp, actions: &mut Vec<Action>) {
    let lively = node.is_active() && !matches!(node.stage, Stage::Failed | Stage::Destroyed);
    let retry = &node.retry;
    let waits = [retry.next_effect_at, retry.restart_at];
    let waits = waits.into_iter().flatten().any(|at| at > now);
    if retry.halted.is_some() || waits || retry.failed_attempts > 0 || !retry.failures.is_empty() {
        actions.push(Action::Retry(id.clone()));
    }
    if lively && !retry.replace {
        actions.push(Action::Replace(id.clone()));
    }
    if lively && !node.ready && node.join.is_some() {
        actions.push(Action::HandOff(id.clone()));
    }
    if node.lease.is_some() && node.join.is_none() {
        actions.push(Action::SeeJoin(id));
    }
}
