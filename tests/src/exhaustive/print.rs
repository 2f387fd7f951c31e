//! What makes two states one: their print. See the [module](super) for why no two that differ are merged.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::inventory::Sweep;
use nodewright_core::node::{ManagedNode, PassId, Retry};
use nodewright_core::orphan::Orphan;
use nodewright_core::state::{ClusterState, ProviderState};

use super::setup::Setup;
use super::world::{Looking, Rows, World};

/// A hasher to which moments are distances from now.
///
/// A moment hashes its seconds as an `i64`, and nothing else that is hashed here is one.
struct FromNow {
    inner: DefaultHasher,
    now: i64,
}

impl Hasher for FromNow {
    fn finish(&self) -> u64 {
        self.inner.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.inner.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.inner.write_u8(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.inner.write_u32(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.inner.write_u64(number);
    }

    fn write_i64(&mut self, seconds: i64) {
        self.inner.write_i64(seconds - self.now);
    }
}

/// Hashes what a state looks like from now; all of it but the budget.
pub(super) fn of(world: &World, setup: &Setup) -> u64 {
    let fresh = || FromNow {
        inner: DefaultHasher::new(),
        now: world.now.as_second(),
    };
    let mut hasher = fresh();
    let print = &mut Print {
        hasher: &mut hasher,
        setup,
        now: world.now,
        looking: world.looking.as_ref(),
    };
    let World {
        now: _,
        driver,
        shape,
        ledger,
        executor_up,
        submitted,
        calls,
        cloud,
        news,
        lost,
        untold,
        looking,
        rows,
        made,
        journal,
        passed,
        budget: _,
        allocated,
        last_sent,
        done: _,
        violation: _,
        print: _,
    } = world;
    print.state(driver.state());
    print.rows(rows);
    let hasher = &mut hasher;
    let caught_up = driver.state().observed_generation == driver.desired().generation();
    (shape, caught_up, executor_up, passed, allocated, untold, made).hash(hasher);
    if let Some(attempts) = driver.state().next_attempt_id {
        for attempt in 1..attempts.number() {
            ledger
                .latest(nodewright_core::id::NodeAttemptId::new(attempt))
                .hash(hasher);
        }
    }
    for machine in &cloud.machines {
        (&machine.node, machine.attempt, &machine.lease, machine.alive).hash(hasher);
        (machine.listed, &machine.endpoint).hash(hasher);
        Some(machine.seen_by).filter(|at| *at > world.now).hash(hasher);
    }
    (&cloud.sessions, &cloud.late, &cloud.made, &cloud.strays).hash(hasher);
    // What lies beside one another lies there in no order.
    let one = |item: &dyn Fn(&mut FromNow)| {
        let mut hasher = fresh();
        item(&mut hasher);
        hasher.finish()
    };
    let mut sum = [0_u64; 4];
    let mut add = |place: usize, print: u64| sum[place] = sum[place].wrapping_add(print);
    for call in calls {
        add(0, one(&|hasher| call.hash(hasher)));
    }
    for news in news {
        add(1, one(&|hasher| news.hash(hasher)));
    }
    for result in lost {
        add(2, one(&|hasher| result.hash(hasher)));
    }
    for effect in submitted {
        add(3, one(&|hasher| effect.hash(hasher)));
    }
    sum.hash(hasher);
    if let Some(Looking {
        look: _,
        asked_at,
        held,
        leases,
        lived,
        ended,
    }) = looking
    {
        (asked_at, held, leases, lived, ended).hash(hasher);
    }
    if let Some(journal) = journal {
        // A process that takes it back looks at nothing that is under way now.
        let print = &mut Print {
            hasher,
            setup,
            now: world.now,
            looking: None,
        };
        print.state(journal);
    }
    for (attempt, (kind, at)) in last_sent {
        if ahead(*at, setup.net(*kind), world.now) {
            (attempt, kind, at).hash(hasher);
        }
    }
    hasher.finish()
}

/// Whether a moment with so much added lies ahead.
fn ahead(at: Timestamp, delay: Duration, now: Timestamp) -> bool {
    at.checked_add(delay).is_ok_and(|at| at > now)
}

struct Print<'a> {
    hasher: &'a mut FromNow,
    setup: &'a Setup,
    now: Timestamp,
    looking: Option<&'a Looking>,
}

impl Print<'_> {
    fn state(&mut self, state: &ClusterState) {
        // Spelled out, so that a field that is added is thought of.
        let ClusterState {
            run_id: _,
            observed_generation: _,
            next_attempt_id,
            pass,
            nodes,
            providers,
            depends_on,
            departed,
            orphans,
        } = state;
        (next_attempt_id, depends_on, departed).hash(self.hasher);
        for provider in providers.values() {
            self.provider(provider);
        }
        for (id, node) in nodes.iter() {
            id.hash(self.hasher);
            self.node(node, *pass);
        }
        for (key, orphan) in orphans {
            key.hash(self.hasher);
            self.orphan(orphan);
        }
    }

    fn provider(&mut self, provider: &ProviderState) {
        let ProviderState {
            pace,
            first_look,
            sweep,
            mass_loss_since,
        } = provider;
        (pace, first_look).hash(self.hasher);
        self.row(mass_loss_since.as_ref());
        let Some(sweep) = sweep else { return };
        // When the next question is asked nobody here decides by the interval, or by failures before.
        let Sweep {
            next_at: _,
            asking,
            wanted,
            answered: _,
            failures: _,
            last_error: _,
            suspects,
        } = sweep;
        (asking.is_some(), wanted).hash(self.hasher);
        for (key, since) in suspects {
            key.hash(self.hasher);
            self.row(Some(since));
        }
    }

    fn rows(&mut self, rows: &Rows) {
        let Rows { missed, shown } = rows;
        for row in [missed, shown] {
            row.len().hash(self.hasher);
            for (lease, since) in row {
                lease.hash(self.hasher);
                self.row(Some(since));
            }
        }
    }

    /// When a row of answers began. One that is as long as a row may have to be is long enough, by the question
    /// that is under way as well as by any later one.
    fn row(&mut self, since: Option<&Timestamp>) {
        let asked_at = self.looking.map_or(self.now, |looking| looking.asked_at);
        let policy = &self.setup.policy;
        let most = if policy.max_lost_least as usize <= self.setup.slots().len() {
            self.setup.apart().max(policy.mass_loss_hold)
        } else {
            self.setup.apart()
        };
        let short = since.map(|since| Some(*since).filter(|since| ahead(*since, most, asked_at)));
        short.hash(self.hasher);
    }

    /// A moment before which nothing is done; one that has passed is none.
    fn not_before(&mut self, at: Option<Timestamp>) {
        at.filter(|at| *at > self.now).hash(self.hasher);
    }

    fn node(&mut self, node: &ManagedNode, pass: PassId) {
        let ManagedNode {
            attempt,
            provider: _,
            spec,
            intent,
            stage,
            ready,
            lease,
            endpoint,
            bootstrap,
            join,
            failure,
            destroyed_at: _,
            active_bootstrap,
            ended_bootstrap,
            pending,
            unended,
            lease_changed,
            missing_since,
            next_sequence,
            retry,
        } = node;
        (attempt, spec, intent, stage, ready, lease, endpoint).hash(self.hasher);
        let joined = join.as_ref().map(|join| &join.agent);
        (bootstrap, joined, failure.is_some()).hash(self.hasher);
        (active_bootstrap, ended_bootstrap, pending, unended).hash(self.hasher);
        next_sequence.hash(self.hasher);
        self.row(missing_since.as_ref());
        // A pass is only ever compared with the one of a question.
        let asked = self.looking.map(|looking| looking.look.asked);
        (*lease_changed > pass, asked.map(|asked| *lease_changed > asked)).hash(self.hasher);
        self.retry(retry);
    }

    fn retry(&mut self, retry: &Retry) {
        let Retry {
            failures,
            failed_attempts,
            failed_cancels,
            next_effect_at,
            restart_at,
            ready_by,
            stall_at,
            join_by,
            create,
            start,
            last_command,
            waiting_since,
            halted,
            replace,
            last_error: _,
        } = retry;
        (failures, failed_attempts, failed_cancels, replace).hash(self.hasher);
        self.not_before(*next_effect_at);
        self.not_before(*restart_at);
        (ready_by, stall_at, join_by, create, waiting_since).hash(self.hasher);
        // Of a start only its name is ever looked at, and whether it is known to have ended.
        let start = start.as_ref().map(|call| (call.operation, call.ended.is_some()));
        let halted = halted.as_ref().map(|halt| halt.spec);
        (start, halted).hash(self.hasher);
        last_command
            .filter(|(kind, at)| ahead(*at, self.setup.net(*kind), self.now))
            .hash(self.hasher);
    }

    fn orphan(&mut self, orphan: &Orphan) {
        let Orphan {
            lease,
            first_seen: _,
            last_seen: _,
            surplus,
            next_sequence,
            pending,
            unended,
            failures,
            next_effect_at,
            last_dispatch,
            waiting_since,
            last_error: _,
        } = orphan;
        (lease, surplus, next_sequence).hash(self.hasher);
        (pending, unended, failures, last_dispatch, waiting_since).hash(self.hasher);
        self.not_before(*next_effect_at);
    }
}
