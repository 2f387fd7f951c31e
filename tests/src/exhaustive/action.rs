//! What may happen next. Names things by their ids, so that a trace can be shortened and still means the same.

use std::fmt;

use nodewright_core::id::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId};

/// One step of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The driver runs its passes.
    Pass,
    /// Time goes on to the next moment at which something happens by itself.
    Advance,
    /// The driver is told this.
    Deliver(Tag),
    /// A call has its effect, and is answered.
    Succeed(OperationId),
    /// A call is answered with a failure.
    Fail(OperationId, Answer),
    /// A call is not answered now.
    Hang(OperationId, Fate),
    /// A look-up does not see yet what is there; a destroy is still under way.
    NotYet(OperationId),
    /// A call that could not be ended ends.
    End(OperationId),
    /// A create comes through although its caller is gone.
    Land(NodeAttemptId),
    /// A session sees its agent join.
    Join(BootstrapSessionId),
    /// A session ends in order.
    Close(BootstrapSessionId),
    /// A session breaks.
    Break(BootstrapSessionId),
    /// A session takes longer than anybody waits.
    Silence(BootstrapSessionId),
    /// What was reported is lost.
    Lose(Tag),
    /// What was reported arrives only later, or never.
    Delay(Tag),
    /// A machine dies, and its watch tells.
    Die(NodeAttemptId),
    /// A machine is gone, and only later somebody tells.
    Vanish(NodeAttemptId),
    /// A machine dies, and is listed no more.
    DropOut(NodeAttemptId),
    /// A machine is reached another way from now on.
    Move(NodeAttemptId),
    /// A create of this attempt comes through that nobody waits for any more, or a second time.
    Stray(LogicalNodeId, NodeAttemptId),
    /// Somebody tells of a machine that vanished.
    Tell(NodeAttemptId),
    /// Somebody tells that a machine is lost that lives.
    FalseAlarm(NodeAttemptId),
    /// The executor dies; its calls that are at work end like this.
    KillExecutor(Fate),
    /// The next executor takes over.
    OpenExecutor,
    /// The state is written down.
    Journal,
    /// The process dies, and its calls that are at work end like this; another one takes over.
    Restart(Successor, Fate),
    /// The provider is asked for its inventory.
    Ask,
    /// Nothing happens for as long as it takes until the provider is asked for its inventory.
    Sweep,
    /// A look is answered.
    AnswerLook,
    /// A look is answered with nothing.
    EmptyLook,
    /// A look is answered, and does not show yet what is not visible yet.
    LagLook,
    /// A look fails.
    FailLook,
    /// A look has seen what there is now; its answer comes later.
    HoldLook,
    /// The shape with this number is asked for.
    Shape(usize),
    /// Somebody asks to try a slot again.
    Retry(LogicalNodeId),
    /// Somebody asks to replace a slot's node.
    Replace(LogicalNodeId),
    /// The application takes a node over.
    HandOff(LogicalNodeId),
    /// The application sees an agent join.
    SeeJoin(LogicalNodeId),
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing happened.
    Definite,
    /// Nothing happened: slow down.
    Throttled,
    /// Nothing happened, and nothing helps.
    Fatal,
    /// Something may have happened; this did.
    Ambiguous(Fate),
}

/// What becomes of a call's effect while nobody hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It has none; while the call is still at work, none so far.
    Without,
    /// It has it now.
    Applied,
    /// It has it once the call is gone, within the provider's visibility.
    Later,
}

/// Who goes on after a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Successor {
    /// One that knows nothing.
    Anew,
    /// One that has the last state.
    Restored,
    /// One that has the state that was written down.
    Lagging,
}

/// Names what the driver is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The result of an operation.
    Result(OperationId),
    /// An operation that the executor would not take.
    Refused(OperationId),
    /// The end of a call whose outcome is known.
    Ended(OperationId),
    /// A report of a session, by its number.
    Report(BootstrapSessionId, u64),
    /// The loss of an attempt's machine.
    Lost(NodeAttemptId),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Advance => f.write_str("time passes"),
            Self::Deliver(tag) => write!(f, "told: {tag}"),
            Self::Succeed(operation) => write!(f, "{operation} succeeds"),
            Self::Fail(operation, answer) => write!(f, "{operation} fails: {answer:?}"),
            Self::Hang(operation, fate) => write!(f, "{operation} hangs: {fate:?}"),
            Self::NotYet(operation) => write!(f, "{operation} says: not yet"),
            Self::End(operation) => write!(f, "the call {operation} ends"),
            Self::Land(attempt) => write!(f, "the late create of attempt {attempt} comes through"),
            Self::Join(session) => write!(f, "session {session} sees the join"),
            Self::Close(session) => write!(f, "session {session} closes"),
            Self::Break(session) => write!(f, "session {session} breaks"),
            Self::Silence(session) => write!(f, "session {session} falls silent"),
            Self::Lose(tag) => write!(f, "lost: {tag}"),
            Self::Delay(tag) => write!(f, "late: {tag}"),
            Self::Die(attempt) => write!(f, "the machine of attempt {attempt} dies"),
            Self::Vanish(attempt) => write!(f, "the machine of attempt {attempt} vanishes"),
            Self::DropOut(attempt) => {
                write!(f, "the machine of attempt {attempt} dies, and is listed no more")
            }
            Self::Move(attempt) => write!(f, "the machine of attempt {attempt} moves"),
            Self::Stray(node, attempt) => {
                write!(f, "a stray machine of attempt {attempt} of {node} turns up")
            }
            Self::Tell(attempt) => write!(f, "somebody tells that attempt {attempt} is lost"),
            Self::FalseAlarm(attempt) => write!(f, "somebody tells wrongly that attempt {attempt} is lost"),
            Self::KillExecutor(fate) => write!(f, "the executor dies, its calls: {fate:?}"),
            Self::OpenExecutor => f.write_str("the next executor takes over"),
            Self::Journal => f.write_str("the state is written down"),
            Self::Restart(successor, fate) => {
                write!(
                    f,
                    "the process dies, its calls: {fate:?}; the next: {successor:?}"
                )
            }
            Self::Ask => f.write_str("the provider is asked for its inventory"),
            Self::Sweep => f.write_str("an interval passes, and the provider is asked for its inventory"),
            Self::AnswerLook => f.write_str("the look is answered"),
            Self::EmptyLook => f.write_str("the look is answered: nothing is there"),
            Self::LagLook => f.write_str("the look is answered, without what is not visible yet"),
            Self::FailLook => f.write_str("the look fails"),
            Self::HoldLook => f.write_str("the look has seen, and is not answered"),
            Self::Shape(place) => write!(f, "shape {place} is asked for"),
            Self::Retry(node) => write!(f, "retry {node}"),
            Self::Replace(node) => write!(f, "replace {node}"),
            Self::HandOff(node) => write!(f, "the application takes {node} over"),
            Self::SeeJoin(node) => write!(f, "the application sees {node} join"),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(operation) => write!(f, "result of {operation}"),
            Self::Refused(operation) => write!(f, "refusal of {operation}"),
            Self::Ended(operation) => write!(f, "end of the call {operation}"),
            Self::Report(session, sequence) => write!(f, "report {sequence} of session {session}"),
            Self::Lost(attempt) => write!(f, "loss of attempt {attempt}"),
        }
    }
}
