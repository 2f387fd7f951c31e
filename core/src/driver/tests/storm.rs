//! A storm: everything that may come comes, in an order that a seed decides. What must hold in every reachable
//! state is checked after every step.

use super::*;

/// Xorshift, so that a seed says everything.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Storm {
    rig: Rig,
    dice: Dice,
    flying: Vec<PlannedEffect>,
    starts: Vec<PlannedEffect>,
    report: u64,
    /// Between other commands only backoff keeps one command apart, which a retry by hand clears.
    last_sent: BTreeMap<(NodeAttemptId, CommandKind), Timestamp>,
    /// The net knows the last command of an attempt.
    last: BTreeMap<NodeAttemptId, (CommandKind, Timestamp)>,
    last_sequence: BTreeMap<NodeAttemptId, u32>,
    seen: BTreeMap<NodeAttemptId, LogicalNodeId>,
    generation: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        Self {
            rig: Rig::with(&[("w", 3, "plain")], 2, policy()),
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            flying: Vec::new(),
            starts: Vec::new(),
            report: 0,
            last_sent: BTreeMap::new(),
            last: BTreeMap::new(),
            last_sequence: BTreeMap::new(),
            seen: BTreeMap::new(),
            generation: 1,
        }
    }

    fn drive(&mut self) {
        let refuses = self.rig.tape.refuses;
        for effect in self.rig.drive() {
            self.check_sent(&effect, refuses);
            if refuses {
                continue;
            }
            if effect.command.kind() == StartBootstrap {
                self.starts.push(effect.clone());
            }
            self.flying.push(effect);
        }
        for (slot, node) in self.rig.driver.state().nodes.iter() {
            let owner = self.seen.entry(node.attempt).or_insert_with(|| slot.clone());
            assert_eq!(*owner, slot, "G4: an attempt fills two slots");
            check_node(node);
        }
        self.check_tallies();
    }

    fn check_sent(&mut self, effect: &PlannedEffect, refused: bool) {
        let (attempt, kind) = (effect.operation.attempt, effect.command.kind());
        let node = self.rig.node(&effect.node.to_string());
        let pending = node.pending.as_ref().map(|pending| (pending.id, pending.kind));
        assert_eq!(pending, (!refused).then_some((effect.operation, kind)), "G8");
        let now = self.rig.now;
        let apart = |last: Timestamp| now.as_second() - last.as_second();
        if let Some((last_kind, last)) = self.last.insert(attempt, (kind, now))
            && last_kind == kind
        {
            let net = if kind.is_look_up() { 2 } else { 1 };
            assert!(apart(last) >= net, "G30: {kind} again");
        }
        if let Some(last) = self.last_sent.insert((attempt, kind), now) {
            assert!(apart(last) >= 1, "G30: {kind} again after another command");
        }
        let last = self
            .last_sequence
            .insert(attempt, effect.operation.sequence)
            .unwrap_or(0);
        assert!(effect.operation.sequence > last, "G5: sequences rise");
    }

    /// What is counted as things change equals what counting finds.
    fn check_tallies(&self) {
        let driver = &self.rig.driver;
        let nodes: Vec<&ManagedNode> = driver.state().nodes.iter().map(|(_, node)| node).collect();
        let count = |holds: fn(&ManagedNode) -> bool| nodes.iter().filter(|node| holds(node)).count() as u64;
        let summary = driver.summary();
        assert_eq!(summary.ready, count(|node| node.ready));
        assert_eq!(summary.pending, count(|node| node.pending.is_some()));
        assert_eq!(summary.halted, count(|node| node.retry.halted.is_some()));
        assert_eq!(summary.waiting, count(|node| node.retry.waiting_since.is_some()));
        let held: u32 = driver.index.lanes.values().flat_map(|lane| lane.holding).sum();
        let holding = count(|node| node.pending.is_some() || node.unended.is_some());
        assert_eq!(u64::from(held), holding);
        assert!(held <= 2, "the provider's places are kept");
        let bound = 2 * nodes.len() + 64 + 8;
        assert!(
            driver.index.wakes.len() <= bound && driver.index.operations.len() <= bound,
            "G30"
        );
    }

    fn step(&mut self) {
        match self.dice.roll(10) {
            0..5 if !self.flying.is_empty() => {
                let place = self.dice.roll(self.flying.len() as u64) as usize;
                let effect = self.flying.swap_remove(place);
                self.answer(&effect);
                if self.dice.roll(8) == 0 {
                    // Twice.
                    let _ = self.rig.answer(&effect, success(&effect));
                }
            }
            5 | 6 if !self.starts.is_empty() => {
                let place = self.dice.roll(self.starts.len() as u64) as usize;
                let start = self.starts[place].clone();
                self.report(&start);
            }
            7 => {
                let node = format!("w-{}", self.dice.roll(4));
                match self.dice.roll(6) {
                    0 => {
                        let _ = self.rig.driver.replace(&id(&node));
                    }
                    1 => {
                        let _ = self.rig.driver.retry(&id(&node));
                        self.last_sent.clear();
                    }
                    2 if self.rig.driver.state().nodes.get(&id(&node)).is_some() => {
                        let _ = self.rig.lose(&node);
                    }
                    3 => {
                        self.generation += 1;
                        let count = self.dice.roll(5) as u32;
                        let image = if self.dice.roll(3) == 0 { "other" } else { "plain" };
                        self.rig.update(self.generation, &[("w", count, image)]);
                    }
                    4 => self.rig.tape.refuses ^= true,
                    _ => self.rig.driver.trigger(),
                }
            }
            _ => {
                let wait = [0, 1, 2, 5, 60, 400][self.dice.roll(6) as usize];
                self.rig.pass_time(wait);
                let mut due = Vec::new();
                self.rig.driver.due_operations(self.rig.now, &mut due);
                for due in due {
                    if let Some(place) = self.flying.iter().position(|one| one.operation == due.operation) {
                        let effect = self.flying.swap_remove(place);
                        self.rig.fail(&effect, EffectError::ambiguous("timeout"));
                    }
                }
            }
        }
    }

    fn answer(&mut self, effect: &PlannedEffect) {
        let outcome = match self.dice.roll(8) {
            kind @ 0..4 => Outcome::Failed(crate::sample::errors()[kind as usize].clone()),
            4 if effect.command.kind() == FindLease => Outcome::LeaseFound(None),
            4 if effect.command.kind() == LookupEndpoint => Outcome::EndpointFound(None),
            4 if effect.command.kind() == DestroyLease => Outcome::LeaseDestroyed(Destroyed::Going),
            _ => success(effect),
        };
        let unknown = matches!(outcome, Outcome::Failed(_)) && self.dice.roll(4) == 0;
        let observation = Observation::Finished {
            operation: effect.operation,
            outcome,
            end: if unknown {
                CallEnd::Unknown
            } else {
                CallEnd::At(self.rig.now)
            },
        };
        let attempt = effect.operation.attempt;
        let _ = self
            .rig
            .driver
            .fold(&effect.node, attempt, &observation, self.rig.now);
        if unknown {
            let ended = Observation::CallEnded {
                operation: effect.operation,
                at: self.rig.now,
            };
            self.drive();
            let _ = self.rig.driver.fold(&effect.node, attempt, &ended, self.rig.now);
        }
    }

    fn report(&mut self, start: &PlannedEffect) {
        self.report += 1;
        let event = match self.dice.roll(8) {
            0 => StreamEvent::Closed,
            1 => StreamEvent::Cancelled,
            2 => StreamEvent::Failed {
                stage: crate::facts::BootstrapStage::StreamFailed,
                reason: "cut".into(),
            },
            3..6 => StreamEvent::Joined(AgentId::new("agent")),
            _ => StreamEvent::Lines {
                stdout: self.report,
                stderr: 0,
            },
        };
        let observation = Observation::Stream(StreamObservation {
            session: BootstrapSessionId(start.operation),
            sequence: self.report - self.dice.roll(3).min(self.report),
            event,
        });
        let attempt = start.operation.attempt;
        let before = self.rig.driver.state().clone();
        let folded = self
            .rig
            .driver
            .fold(&start.node, attempt, &observation, self.rig.now);
        if folded == Folded::Stale {
            assert_eq!(self.rig.driver.state(), &before, "G6");
        }
    }
}

/// What must hold of a node in every state, said once more and in other words than the driver's own check.
fn check_node(node: &ManagedNode) {
    let deleting = node.intent == Intent::Deleting;
    assert!(!(deleting && node.ready), "G12");
    if node.ready {
        assert!(matches!(node.stage, Stage::HandedOff | Stage::Dormant), "G13");
        assert!(
            node.lease.is_some() && node.endpoint.is_some() && node.join.is_some(),
            "G13"
        );
        assert_eq!(node.retry.failed_attempts, 0, "G17: ready resets");
    }
    if node.stage == Stage::Destroyed {
        assert!(
            node.lease.is_none() && node.active_bootstrap.is_none() && node.pending.is_none(),
            "G11"
        );
        assert!(node.retry.create.is_none(), "G15");
    }
    if let Some(pending) = &node.pending {
        assert_eq!(pending.id.attempt, node.attempt, "G5");
        assert!(node.unended.is_none(), "G9");
    }
}

#[test]
fn in_every_storm_the_invariants_hold_and_afterwards_the_cluster_converges() {
    for seed in 1..=60 {
        let mut storm = Storm::new(seed);
        for _ in 0..400 {
            storm.step();
            storm.drive();
        }
        // The storm is over: everything is answered in time, and nobody asks for anything more.
        storm.rig.tape.refuses = false;
        let slots: Vec<LogicalNodeId> = storm
            .rig
            .driver
            .state()
            .nodes
            .iter()
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            let _ = storm.rig.driver.retry(&slot);
            storm.last_sent.clear();
        }
        for round in 0.. {
            assert!(
                round < 200,
                "seed {seed} does not come to rest: {:#?}",
                storm.rig.driver.summary()
            );
            for effect in std::mem::take(&mut storm.flying) {
                let outcome = match effect.command.kind() {
                    FindLease => Outcome::LeaseFound(None),
                    _ => success(&effect),
                };
                if storm.rig.answer(&effect, outcome) == Folded::Applied
                    && effect.command.kind() == StartBootstrap
                {
                    let join = Observation::Joined(AgentId::new("agent"));
                    let attempt = effect.operation.attempt;
                    let _ = storm.rig.driver.fold(&effect.node, attempt, &join, storm.rig.now);
                }
            }
            storm.drive();
            if storm.flying.is_empty() {
                match storm.rig.driver.requeue_at() {
                    Some(at) => storm.rig.now = at,
                    None => break,
                }
                storm.drive();
            }
        }
        assert!(storm.rig.driver.is_converged(), "seed {seed}");
    }
}
