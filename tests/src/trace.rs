//! Traces: what happens to a run, as data.
//!
//! A trace says what is wanted in the beginning and what happens then, one input after the other. It knows
//! nothing of a driver, an executor or a provider: every level of the kit plays the same traces. Where an input
//! speaks of one of several things that there may be (a piece of deferred work, a node) it carries a number,
//! and means the thing with that number modulo how many there are; where there is none it means nothing. So
//! any list of inputs is a trace, and a shorter list is a simpler one.

mod generate;
mod print;

use serde::{Deserialize, Serialize};

pub use self::generate::{Theme, traces};

/// A run, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// What the run is made from.
    pub setup: Setup,
    /// What happens, in order.
    pub inputs: Vec<Input>,
}

/// What a run is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// What is wanted in the beginning.
    pub groups: Vec<GroupPlan>,
    /// Whether the run is declared fresh, so that no first look is taken.
    pub fresh: bool,
    /// The visibility that every provider states, in seconds.
    pub visibility: u8,
    /// Whether look-ups and lists make use of it: whether they miss what was made a moment ago.
    pub lags: bool,
    /// Whether calls end when they are told to.
    pub abortable: bool,
    /// How many calls may be at work at a provider; none is counted as one.
    pub places: u8,
    /// Whether a provider's calls are limited to two a second.
    pub rated: bool,
    /// After how many failed attempts in a row a slot is halted; zero is never.
    pub attempt_limit: u8,
}

/// A group of nodes that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Which of the groups `a`, `b`, `c`, ….
    pub group: u8,
    /// How many nodes.
    pub count: u8,
    /// Which of the images they are made from.
    pub image: u8,
    /// Which of the two providers has them.
    pub provider: u8,
    /// Which groups it depends on, a bit each: the first is for `a`. Only groups that are planned with it and come
    /// before it by name are meant, so that every plan is a shape.
    pub after: u8,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Time passes, up to the next moment at which something happens by itself.
    Wait,
    /// Time passes, by so many milliseconds.
    Advance(u32),
    /// Other groups are wanted.
    Reshape(Vec<GroupPlan>),
    /// Another number of nodes of a group is wanted.
    Resize {
        /// Which of the groups.
        group: u8,
        /// How many.
        count: u8,
    },
    /// One piece of deferred work is done: a submission begins, a call gets on, a session runs, a result, a
    /// report or an inventory arrives.
    Work(u16),
    /// All deferred work that can be done at this moment is done, in an order that follows from the number.
    WorkAll(u16),
    /// The next provider call that begins goes like this.
    Script(Reply),
    /// The next inventory that is asked for is answered like this.
    List(Listing),
    /// Something that was told is told again.
    Repeat(u16),
    /// A stream report that is under way is lost.
    Mislay(u16),
    /// The agent of a node says that it joined.
    Join(u16),
    /// Another agent says that it is this node's.
    Impersonate(u16),
    /// The application takes a node over.
    HandOff(u16),
    /// Somebody says that a node is lost.
    Lose(u16),
    /// The machine of a node dies, and its loss is told later.
    Kill(u16),
    /// The machine of a node is deleted by hand, and nobody is told.
    Vanish(u16),
    /// Somebody asks for a retry of a slot.
    Retry(u16),
    /// Somebody asks for a replacement of a node.
    Replace(u16),
    /// Something is observed of an attempt that never was, and of one before a slot's own.
    Forge(u16),
    /// A part of us dies and is restarted.
    Crash(Part),
    /// The process ends, and another takes over.
    Restart(Memory),
    /// The next so many inputs are taken before there is another pass.
    Gather(u8),
    /// A full pass is asked for.
    Trigger,
}

/// How a provider call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// As it should.
    Honest,
    /// Nothing happens, and this is the answer.
    Before(Failing),
    /// It takes effect, and the answer is lost: ambiguous.
    Lost,
    /// The answer is ambiguous, and a create takes effect only later: so many quarters of the visibility.
    Later(u8),
    /// It takes effect at once and is answered so many seconds later.
    Late(u8),
    /// It takes effect, and is answered only when nobody waits any more.
    Slow,
    /// It has no effect and is never answered.
    Hang,
    /// The backend panics before anything happened.
    PanicBefore,
    /// It takes effect, and the backend panics.
    PanicAfter,
    /// The provider needs more time: no endpoint yet, not gone yet. Any other call goes as it should.
    NotYet,
}

/// What a failed call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failing {
    /// Nothing happened.
    Definite,
    /// Something may have happened.
    Ambiguous,
    /// Slow down; a retry after so many seconds is asked for, zero is none.
    Throttled(u8),
    /// Nothing happened, and nothing helps.
    Fatal,
}

/// How an inventory is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Listing {
    /// With all that there is, as far as it is visible.
    Full,
    /// Not at all.
    Fails,
    /// With nothing, as by an interface in an outage.
    Empty,
    /// With the first half of what there is.
    Truncated,
}

/// A part of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Part {
    /// An executor: which of the providers'.
    Executor(u8),
    /// What runs the sessions.
    Streams,
    /// What keeps the deadlines.
    Timer,
}

/// What a process knows that takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Memory {
    /// Nothing: it has to look.
    None,
    /// The state as it was in the end.
    State,
}

#[cfg(test)]
mod tests;
