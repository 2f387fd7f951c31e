//! What must hold of a drive: before it, of what it did, and after it.

use jiff::Timestamp;
use nodewright_core::driver::ClusterDriver;
use nodewright_core::effect::{Command, PlannedEffect};
use nodewright_core::id::LogicalNodeId;
use nodewright_core::node::{Intent, ManagedNode, Stage};
use nodewright_core::plan::reconcile;
use nodewright_core::state::ClusterState;
use nodewright_core::template::Template;

use super::order::g25_order;
use super::shown::g16_as_many_failures_as_are_allowed_halt;
use super::{Broken, check_state, demand};
use crate::sim::Sim;
use crate::subject::Subject;

/// G29, before a pass: what it would do is what the full pass plans. It speaks of a node that cannot go on
/// when that begins, and the full pass always.
pub(crate) fn check_preview(driver: &ClusterDriver, now: Timestamp) -> Result<(), Broken> {
    let mut full = reconcile(driver.state(), driver.desired(), driver.policy(), now);
    let mut preview = driver.preview(now);
    let faults = std::mem::take(&mut full.faults);
    let known = std::mem::take(&mut preview.faults)
        .iter()
        .all(|fault| faults.contains(fault));
    demand!(
        known && preview == full,
        "G29: incremental {preview:#?}\nfull {full:#?}"
    );
    Ok(())
}

/// G29 and G3, after a drive: nothing is left to do now, and the next moment lies ahead.
pub(crate) fn check_rest(driver: &ClusterDriver, now: Timestamp) -> Result<(), Broken> {
    let full = reconcile(driver.state(), driver.desired(), driver.policy(), now);
    demand!(
        full.actions.is_empty(),
        "G29: left to do after a drive: {:#?}",
        full.actions
    );
    let requeue_at = driver.requeue_at();
    demand!(
        requeue_at == full.requeue_at,
        "G29: requeue {requeue_at:?}, in full {:?}",
        full.requeue_at
    );
    demand!(
        requeue_at.is_none_or(|at| at > now),
        "G3: requeue at {requeue_at:?}, and it is {now}"
    );
    Ok(())
}

/// How many passes a drive needs at most: what a slot can do without the world is begin to be deleted, be
/// marked, be replaced and send something, and after a refusal it waits.
const PASSES: u32 = 12;

impl<S: Subject> Sim<S> {
    /// After a drive from this state, which sent this.
    pub(crate) fn check_drive(
        &mut self,
        before: &ClusterState,
        stale: u64,
        passes: u32,
        accepted: &[PlannedEffect],
    ) -> Result<(), Broken> {
        let state = self.driver.state();
        demand!(
            self.driver.summary().stale == stale,
            "G8: a refused submission was not recorded as pending"
        );
        demand!(
            passes <= PASSES && (passes > 0 || accepted.is_empty()),
            "G19: one drive took {passes} passes, and sent {}",
            accepted.len()
        );
        g20_the_observed_generation_never_goes_back(before, &self.driver)?;
        for effect in accepted {
            g8_what_is_sent_is_pending(state, effect)?;
            g14_cleanup_keeps_its_order(state, effect, self.driver.policy().cancel_attempts)?;
        }
        g25_order(before, state, self.driver.desired(), accepted)?;
        for (id, old) in before.nodes.iter() {
            let new = state.nodes.get(&id);
            g15_no_attempt_goes_with_an_unsettled_create(&id, old, new)?;
            g14_no_attempt_goes_with_its_lease(&id, old, new)?;
            if let Some(new) = new.filter(|new| new.attempt == old.attempt) {
                g12_deleting_is_for_ever(&id, old, new)?;
                g21_nothing_goes_without_a_reason(&id, old, new, &self.driver)?;
                g16_as_many_failures_as_are_allowed_halt(old, new, &self.config.policy, false)?;
            }
            g17_a_replacement_inherits_the_count(&id, old, new)?;
            g16_what_is_halted_is_not_tried_again(&id, old, new)?;
        }
        for (id, node) in state.nodes.iter() {
            g26_nothing_is_overdue(&id, node, self.now)?;
            g24_nothing_is_pending_beyond_its_deadline(&id, node, self.now)?;
            g16_another_spec_lifts_a_halt(&id, node, &self.driver)?;
        }
        self.history.attempts_begun(before, state);
        self.history.sends(accepted);
        self.history
            .g30_no_command_is_repeated_too_soon(accepted, &self.config.policy, self.now)?;
        check_rest(&self.driver, self.now)?;
        self.check()
    }

    /// What must hold after every step.
    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        let state = self.driver.state();
        check_state(state)?;
        self.history.g4_no_attempt_is_used_again(state)?;
        self.check_numbers()?;
        self.check_providers()
    }
}

fn g20_the_observed_generation_never_goes_back(
    before: &ClusterState,
    driver: &ClusterDriver,
) -> Result<(), Broken> {
    let (old, new) = (before.observed_generation, driver.state().observed_generation);
    demand!(
        old <= new && new == driver.desired().generation(),
        "G20: generation {new} was observed after {old}, and {} is wanted",
        driver.desired().generation()
    );
    Ok(())
}

fn g8_what_is_sent_is_pending(state: &ClusterState, effect: &PlannedEffect) -> Result<(), Broken> {
    let node = state
        .nodes
        .get(&effect.node)
        .and_then(|node| node.pending.as_ref());
    let orphans = state
        .orphans
        .values()
        .filter_map(|orphan| orphan.pending.as_ref());
    let mut pending = node.into_iter().chain(orphans);
    demand!(
        pending.any(|pending| pending.id == effect.operation),
        "G8: {} is not recorded",
        effect.operation
    );
    Ok(())
}

/// Find, cancel, destroy: nothing is destroyed while a create is unsettled, or a session could be cancelled.
fn g14_cleanup_keeps_its_order(
    state: &ClusterState,
    effect: &PlannedEffect,
    cancel_attempts: u32,
) -> Result<(), Broken> {
    let node = state.nodes.get(&effect.node);
    let Some(node) = node.filter(|node| {
        node.pending
            .as_ref()
            .is_some_and(|one| one.id == effect.operation)
    }) else {
        return Ok(());
    };
    let operation = effect.operation;
    match &effect.command {
        Command::DestroyLease(_) => {
            demand!(!node.is_active(), "G14: {operation} destroys what is active");
            demand!(
                node.retry.create.is_none(),
                "G15: {operation} destroys what has an unsettled create"
            );
            let session = node.active_bootstrap.is_some() || node.retry.start.is_some();
            demand!(
                !session || node.retry.failed_cancels >= cancel_attempts,
                "G14: {operation} destroys what has a session that was not cancelled"
            );
        }
        Command::CancelBootstrap => {
            demand!(
                !node.is_active() && node.retry.create.is_none(),
                "G14: {operation} cancels too early"
            );
        }
        Command::CreateLease(spec) => {
            demand!(
                node.is_active() && node.lease.is_none() && node.retry.create.is_none(),
                "G10: {operation} creates where something is held or unsettled"
            );
            demand!(
                node.is_made_from(&spec.template),
                "G13: {operation} creates from another spec than its node's"
            );
            let other = state.orphans.keys();
            let mut other = other.filter(|key| key.node == effect.node && key.attempt != operation.attempt);
            demand!(
                other.next().is_none(),
                "G10: {operation} creates beside an orphan of its slot"
            );
            demand!(
                state.looks_done(),
                "G32: {operation} creates before every first look is done"
            );
        }
        _ => {}
    }
    Ok(())
}

/// Whether an attempt is over: gone, replaced or destroyed.
fn is_over(old: &ManagedNode, new: Option<&ManagedNode>) -> bool {
    new.is_none_or(|new| new.attempt != old.attempt || new.stage == Stage::Destroyed)
}

fn g15_no_attempt_goes_with_an_unsettled_create(
    id: &LogicalNodeId,
    old: &ManagedNode,
    new: Option<&ManagedNode>,
) -> Result<(), Broken> {
    demand!(
        old.retry.create.is_none() || !is_over(old, new),
        "G15: attempt {} of {id} is over, and its create was never settled",
        old.attempt
    );
    Ok(())
}

fn g14_no_attempt_goes_with_its_lease(
    id: &LogicalNodeId,
    old: &ManagedNode,
    new: Option<&ManagedNode>,
) -> Result<(), Broken> {
    let holds = old.lease.is_some() || old.pending.is_some() || old.unended.is_some();
    demand!(
        !holds || !is_over(old, new),
        "G14: attempt {} of {id} is over, and held {:?}",
        old.attempt,
        old.lease
    );
    Ok(())
}

fn g12_deleting_is_for_ever(id: &LogicalNodeId, old: &ManagedNode, new: &ManagedNode) -> Result<(), Broken> {
    demand!(
        old.intent == Intent::Active || new.intent == Intent::Deleting,
        "G12: {id} was deleting and is active"
    );
    Ok(())
}

/// Of what is wanted nothing is taken down but what failed, drifted or is to be replaced.
fn g21_nothing_goes_without_a_reason(
    id: &LogicalNodeId,
    old: &ManagedNode,
    new: &ManagedNode,
    driver: &ClusterDriver,
) -> Result<(), Broken> {
    let begins = old.intent == Intent::Active && new.intent == Intent::Deleting;
    let wanted = driver.desired().template_of(id);
    let kept = wanted.is_some_and(|template| new.is_made_from(template));
    demand!(
        !(begins && kept) || new.failure.is_some() || old.retry.replace,
        "G21: {id} is wanted as it is, and is taken down"
    );
    Ok(())
}

fn g17_a_replacement_inherits_the_count(
    id: &LogicalNodeId,
    old: &ManagedNode,
    new: Option<&ManagedNode>,
) -> Result<(), Broken> {
    let Some(new) = new.filter(|new| new.attempt != old.attempt) else {
        return Ok(());
    };
    let count = if old.spec == new.spec {
        old.retry.failed_attempts
    } else {
        0
    };
    demand!(
        new.retry.failed_attempts == count,
        "G17: {id} inherits {} failed attempts, and {count} it were",
        new.retry.failed_attempts
    );
    Ok(())
}

/// A slot that is halted is not filled anew with what it was halted for.
fn g16_what_is_halted_is_not_tried_again(
    id: &LogicalNodeId,
    old: &ManagedNode,
    new: Option<&ManagedNode>,
) -> Result<(), Broken> {
    let made_from = |node: &ManagedNode| node.spec.as_ref().map(|spec| spec.digest());
    let anew = new.filter(|new| new.attempt != old.attempt).map(made_from);
    let halt = old.retry.halted.as_ref().map(|halt| halt.spec);
    demand!(
        halt.is_none() || anew != halt,
        "G16: {id} was halted and is tried again as it was: {:?}",
        old.retry.halted
    );
    Ok(())
}

/// A slot that is halted and empty is filled as soon as something else is wanted there.
fn g16_another_spec_lifts_a_halt(
    id: &LogicalNodeId,
    node: &ManagedNode,
    driver: &ClusterDriver,
) -> Result<(), Broken> {
    let state = driver.state();
    let may = state.looks_done() && state.next_attempt_id.is_some();
    let wanted = driver.desired().template_of(id).map(Template::digest);
    let halt = node.retry.halted.as_ref().map(|halt| halt.spec);
    let empty = node.stage == Stage::Destroyed;
    demand!(
        !(empty && may && wanted.is_some()) || halt.is_none_or(|halt| halt == wanted),
        "G16: {id} is halted for what is not wanted any more: {:?}",
        node.retry.halted
    );
    Ok(())
}

fn g26_nothing_is_overdue(id: &LogicalNodeId, node: &ManagedNode, now: Timestamp) -> Result<(), Broken> {
    let retry = &node.retry;
    let live = node.active_bootstrap.is_some();
    let moments = [
        retry.ready_by.filter(|_| retry.waiting_since.is_none()),
        retry.stall_at.filter(|_| live),
        retry.join_by,
    ];
    let overdue = moments.into_iter().flatten().any(|at| at <= now);
    let lively = node.is_active() && !node.ready && node.stage != Stage::Failed;
    let lively = lively && node.stage != Stage::Destroyed;
    demand!(
        !(lively && overdue),
        "G26: {id} is overdue and goes on: {:?}",
        node.retry
    );
    Ok(())
}

fn g24_nothing_is_pending_beyond_its_deadline(
    id: &LogicalNodeId,
    node: &ManagedNode,
    now: Timestamp,
) -> Result<(), Broken> {
    let late =
        |pending: &nodewright_core::node::PendingOperation| pending.deadline <= now && !pending.expiring;
    demand!(
        !node.pending.as_ref().is_some_and(late),
        "G24: {id} has {:?} pending at {now}, and it was not handed out",
        node.pending
    );
    Ok(())
}
