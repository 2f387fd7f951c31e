//! What may be wrong with an executor.

/// Something that the executors of a simulation do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    /// For one submission the backend is called twice.
    CallsTwice,
    /// What came of an operation is told of the one that comes after it.
    TellsOfAnother,
    /// What came of two operations of a kind is exchanged.
    SwapsOutcomes,
    /// Of some operations it is never told what came of them.
    KeepsResults,
    /// Of a call that could not be ended it is never told that it has ended.
    KeepsEnds,
    /// A call is told to have ended at its deadline, and is still at work.
    EndsOnPaper,
    /// The same, and the next call of the attempt begins beside it, whatever the ledger says.
    RunsInParallel,
    /// That a call passed its deadline is told as "nothing happened".
    SaysExpiredIsDefinite,
    /// Whatever is ambiguous is told as "nothing happened".
    SaysLostIsDefinite,
    /// Whatever is ambiguous is told as success.
    SaysLostIsDone,
    /// What a call answered after its deadline is told, too.
    TellsBoth,
    /// Each submission finds a new ledger.
    ForgetsItsLedger,
    /// A crash loses the ledger, and the calls go on.
    ForgetsItsLedgerInACrash,
    /// The calls of a process go on when it has ended.
    LivesOn,
    /// Calls are told to have ended long before they did.
    BackdatesEnds,
    /// An inventory is answered with the one before.
    ShowsOldLists,
    /// An inventory that fails is answered as an empty one.
    ShowsEmptyLists,
    /// A session that was started is not run.
    RunsNoSessions,
}
