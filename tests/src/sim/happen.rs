//! Inputs, one after the other.

use nodewright_core::facts::AgentId;
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::observation::Observation;

use super::{News, Sim, SimConfig};
use crate::oracle::{Broken, check_restored};
use crate::shapes::{self, PROVIDERS, shape};
use crate::subject::Subject;
use crate::trace::{Input, Listing, Memory, Part, Trace};
use crate::wrong::Slip;

impl<S: Subject> Sim<S> {
    /// Plays a trace to its end, and the fair tail after it.
    ///
    /// # Errors
    ///
    /// What did not hold, with the trace as code and with the last things that happened before.
    pub fn play(trace: &Trace) -> Result<Self, Broken> {
        Self::play_wrongly(trace, None)
    }

    /// The same, with executors that do this wrong.
    ///
    /// # Errors
    ///
    /// What did not hold, as it should be for every slip.
    pub fn play_wrongly(trace: &Trace, slip: Option<Slip>) -> Result<Self, Broken> {
        match Self::try_play(trace, slip, false) {
            Ok(sim) => Ok(sim),
            // The same trace goes the same way, so notes need only be kept once something broke.
            Err((_, Broken(what))) => {
                let notes = match Self::try_play(trace, slip, true) {
                    Err((notes, _)) => notes,
                    Ok(_) => vec!["the second time it held".to_owned()],
                };
                let last = &notes[notes.len().saturating_sub(crate::regress::noted())..];
                Err(Broken(format!("{what}\n{}\nin\n{trace}", last.join("\n"))))
            }
        }
    }

    fn try_play(trace: &Trace, slip: Option<Slip>, notes: bool) -> Result<Self, (Vec<String>, Broken)> {
        let mut sim = Self::begin_trace(trace, notes);
        sim.config.slip = slip;
        let played = sim.happen(&trace.inputs).and_then(|()| sim.settle(shapes::TAIL));
        match played {
            Ok(()) => Ok(sim),
            Err(broken) => Err((sim.notes, broken)),
        }
    }

    /// A run at its beginning.
    pub fn begin_trace(trace: &Trace, notes: bool) -> Self {
        let config = SimConfig {
            notes,
            ..SimConfig::from(&trace.setup)
        };
        let shape = shape(1, shapes::groups(&trace.setup.groups));
        Self::new(config, PROVIDERS, shape).expect("planned shapes are valid")
    }

    /// Has all of this happen.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn happen(&mut self, inputs: &[Input]) -> Result<(), Broken> {
        self.drive()?;
        for input in inputs {
            self.note(|| format!("{input:?}"));
            self.take(input)?;
            match (input, self.gathering) {
                (Input::Gather(_), _) => {}
                (_, 0) => self.drive()?,
                (_, _) => self.gathering -= 1,
            }
        }
        self.gathering = 0;
        Ok(())
    }

    fn take(&mut self, input: &Input) -> Result<(), Broken> {
        match input {
            Input::Wait => {
                if let Some(next) = self.next_moment() {
                    self.advance_to(next)?;
                }
            }
            Input::Advance(milliseconds) => {
                self.advance(std::time::Duration::from_millis((*milliseconds).into()))?;
            }
            Input::Reshape(groups) => self.reshape(shapes::groups(groups)),
            Input::Resize { group, count } => {
                let mut groups = self.groups().to_vec();
                let name = shapes::group_name(*group);
                if let Some(group) = groups.iter_mut().find(|group| group.group_id.as_str() == name) {
                    group.count = u32::from(*count);
                    self.reshape(groups);
                }
            }
            Input::Work(number) => self.work_one(*number)?,
            Input::WorkAll(number) => self.quiesce(&mut crate::Chooser::new((*number).into()))?,
            Input::Script(reply) => {
                // Whichever provider is asked first; the other's script is the same.
                for provider in self.providers.values() {
                    provider.backend.control().script(*reply);
                }
            }
            Input::List(listing) => self.script_listing(*listing),
            Input::Repeat(number) => self.deliver_again(*number)?,
            Input::Mislay(number) => self.mislay(*number),
            Input::Crash(Part::Executor(number)) => {
                let kind = self.kind(*number);
                self.crash_executor(&kind);
            }
            Input::Crash(Part::Streams) => self.crash_streams(),
            // Deadlines live in the driver; who reminds of them is no part of this level.
            Input::Crash(Part::Timer) => {}
            Input::Restart(memory) => {
                let before = self.driver.state().clone();
                let restarted = match memory {
                    Memory::None => self.restart_anew(),
                    Memory::State => self.restart_restored(),
                };
                restarted.map_err(|error| Broken(error.to_string()))?;
                if *memory == Memory::State {
                    check_restored(&before, self.driver.state())?;
                }
            }
            Input::Gather(inputs) => self.gathering = *inputs,
            Input::Trigger => self.driver.trigger(),
            Input::Join(number)
            | Input::Impersonate(number)
            | Input::HandOff(number)
            | Input::Lose(number)
            | Input::Kill(number)
            | Input::Vanish(number)
            | Input::Retry(number)
            | Input::Replace(number)
            | Input::Forge(number) => {
                if let Some((node, attempt)) = self.pick(*number) {
                    self.befall(input, &node, attempt)?;
                }
            }
        }
        Ok(())
    }

    fn reshape(&mut self, groups: Vec<nodewright_core::shape::NodeGroupSpec>) {
        self.update(groups).expect("planned shapes are valid");
    }

    /// A first look believes what it sees, so that nothing but a failure is fair while one is due.
    fn script_listing(&self, listing: Listing) {
        let listing = if self.driver.state().looks_done() {
            listing
        } else {
            Listing::Fails
        };
        for provider in self.providers.values() {
            provider.backend.control().script_listing(listing);
        }
    }

    fn kind(&self, number: u8) -> ProviderKind {
        let place = usize::from(number) % self.providers.len();
        let kind = self.providers.keys().nth(place);
        kind.expect("there is a provider").clone()
    }

    /// One of the slots that hold a node.
    fn pick(&self, number: u16) -> Option<(LogicalNodeId, NodeAttemptId)> {
        let nodes = &self.driver.state().nodes;
        let place = usize::from(number) % nodes.len().max(1);
        let (id, node) = nodes.iter().nth(place)?;
        Some((id, node.attempt))
    }

    /// Something befalls a slot that holds a node.
    fn befall(&mut self, input: &Input, node: &LogicalNodeId, attempt: NodeAttemptId) -> Result<(), Broken> {
        let joined = |agent: &str| Observation::Joined(AgentId::new(agent));
        let observed = match input {
            Input::Join(_) => joined(&node.to_string()),
            Input::Impersonate(_) => joined("stranger"),
            Input::HandOff(_) => Observation::HandedOff,
            Input::Lose(_) => Observation::NodeLost {
                reason: "somebody said so".into(),
            },
            Input::Kill(_) => {
                self.kill(node, attempt);
                return Ok(());
            }
            Input::Vanish(_) => {
                self.vanish(node, attempt);
                return Ok(());
            }
            Input::Retry(_) => {
                self.driver.retry(node);
                return Ok(());
            }
            Input::Replace(_) => {
                self.driver.replace(node);
                return Ok(());
            }
            _ => {
                let never = attempt.number() + 1_000_000;
                let earlier = attempt.number() - 1;
                for other in [never, earlier].into_iter().filter(|number| *number > 0) {
                    let other = NodeAttemptId::new(other);
                    let _ = self.observe(node, other, &joined("nobody"))?;
                    let reason = "a rumour".into();
                    let _ = self.observe(node, other, &Observation::NodeLost { reason })?;
                }
                return Ok(());
            }
        };
        let _ = self.observe(node, attempt, &observed)?;
        Ok(())
    }

    /// The machine of an attempt is deleted by hand, and nobody is told.
    fn vanish(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        let identity = AttemptIdentity {
            run: self.shape.run_id.clone(),
            node: node.clone(),
            attempt,
        };
        self.stirred = true;
        for (kind, provider) in &self.providers {
            if provider.subject.vanish(&identity) {
                // Its attempt may make another one: that it once had this one is nobody's fault.
                self.history.vanished(kind, &identity);
            }
        }
    }

    /// The machine of an attempt dies, and its loss is told later.
    fn kill(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        let identity = AttemptIdentity {
            run: self.shape.run_id.clone(),
            node: node.clone(),
            attempt,
        };
        self.stirred = true;
        let killed = self.providers.values();
        let killed = killed.filter(|provider| provider.subject.kill(&identity)).count();
        for _ in 0..killed {
            self.news.push(News {
                node: node.clone(),
                attempt,
                observation: Observation::NodeLost {
                    reason: "its machine died".into(),
                },
            });
        }
    }
}
