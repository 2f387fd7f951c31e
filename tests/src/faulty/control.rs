//! What the calls of a provider go by, and what was seen of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, select};
use jiff::Timestamp;
use nodewright_core::effect::{Call, Cancel, CommandKind};
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, OperationId};

use crate::oracle::Broken;
use crate::trace::{Listing, Reply};

/// The time that a provider lives in.
pub trait Time: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Resolves at that moment.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;

    /// Runs this at that moment; or hands it back, where whoever lets time pass has to run it.
    fn run_at(&self, at: Timestamp, work: BoxFuture<'static, ()>) -> Option<BoxFuture<'static, ()>> {
        let _ = at;
        Some(work)
    }
}

/// What a provider states about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stated {
    /// Its visibility.
    pub visibility: Duration,
    /// Whether look-ups and lists make use of it.
    pub lags: bool,
    /// Whether its calls end when they are told to.
    pub abortable: bool,
}

/// A create that comes through after its caller gave up.
struct Late {
    at: Timestamp,
    work: BoxFuture<'static, ()>,
}

#[derive(Default)]
struct Books {
    replies: VecDeque<Reply>,
    listings: VecDeque<Listing>,
    listed: Option<Listing>,
    cursed: BTreeMap<LogicalNodeId, Reply>,
    late: Vec<Late>,
    at_work: BTreeMap<NodeAttemptId, OperationId>,
    /// Whether calls wait until they are let through.
    gated: bool,
    gates: BTreeMap<OperationId, Cancel>,
    /// The operations of this process that were called for.
    seen: BTreeSet<OperationId>,
    /// Calls that wait in here, and not for the provider.
    held: BTreeSet<OperationId>,
    /// When the last create of each ended; none while one is at work.
    created: BTreeMap<AttemptIdentity, Option<Timestamp>>,
    calls: Vec<String>,
    broken: Vec<String>,
    healed: Cancel,
}

type CheckCall = Box<dyn Fn(&Call, CommandKind) -> Result<(), Broken> + Send + Sync>;

/// Scripts the calls of one provider, and keeps what was seen of them. A clone shares it.
#[derive(Clone)]
pub struct Control {
    stated: Stated,
    time: Arc<dyn Time>,
    books: Arc<Mutex<Books>>,
    check: Arc<Mutex<Option<CheckCall>>>,
}

impl Control {
    /// The control of a provider that states this, whose calls all go as they should.
    pub fn new(stated: Stated, time: Arc<dyn Time>) -> Self {
        Self {
            stated,
            time,
            books: Arc::default(),
            check: Arc::default(),
        }
    }

    /// What the provider states.
    pub const fn stated(&self) -> Stated {
        self.stated
    }

    /// Scripts the next call that begins and has no script yet.
    pub fn script(&self, reply: Reply) {
        self.books().replies.push_back(reply);
    }

    /// Has every call for a slot go like this from now on.
    pub fn curse(&self, node: LogicalNodeId, reply: Reply) {
        self.books().cursed.insert(node, reply);
    }

    /// Scripts the next inventory that has no script yet.
    pub fn script_listing(&self, listing: Listing) {
        self.books().listings.push_back(listing);
    }

    /// Tears up the scripts of inventories.
    pub fn forget_listings(&self) {
        self.books().listings.clear();
    }

    /// Another process takes over: names of operations that were called for may be used again.
    pub(super) fn forget_operations(&self) {
        self.books().seen.clear();
    }

    /// From now on has every call checked as it begins: that it was recorded before (G8), and whatever else
    /// can be said of it then.
    pub fn check_calls(
        &self,
        check: impl Fn(&Call, CommandKind) -> Result<(), Broken> + Send + Sync + 'static,
    ) {
        *self.check.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(check));
    }

    /// Says whether calls that begin from now on wait until they are [let through](Self::release).
    pub fn set_gated(&self, gated: bool) {
        self.books().gated = gated;
    }

    /// Lets one of the calls through that wait, the one of this number; false if none waits.
    pub fn release(&self, number: u16) -> bool {
        let mut books = self.books();
        let place = usize::from(number) % books.gates.len().max(1);
        let Some(operation) = books.gates.keys().nth(place).copied() else {
            return false;
        };
        if let Some(gate) = books.gates.remove(&operation) {
            gate.cancel();
        }
        true
    }

    /// Waits at the gate, if there is one: before the call for one half of them, before its answer for the
    /// other.
    pub(super) async fn pass_gate(&self, call: &Call, before: bool) {
        let operation = call.operation;
        let first = (operation.attempt.number() + u64::from(operation.sequence)).is_multiple_of(2);
        let gate = {
            let mut books = self.books();
            if !books.gated || first != before {
                return;
            }
            books.gates.entry(operation).or_default().clone()
        };
        self.hold(call, gate.cancelled()).await;
        self.books().gates.remove(&operation);
    }

    /// Nothing goes wrong any more: scripts are torn up, and what hangs is let go.
    pub fn heal(&self) {
        let mut books = self.books();
        books.replies.clear();
        books.listings.clear();
        books.cursed.clear();
        std::mem::take(&mut books.healed).cancel();
    }

    /// Whether a call waits for time to pass or for its caller to give up, and for nothing else.
    pub fn holds(&self, operation: OperationId) -> bool {
        self.books().held.contains(&operation)
    }

    /// Every call so far, in the order in which they began.
    pub fn calls(&self) -> Vec<String> {
        self.books().calls.clone()
    }

    /// How many calls have begun so far.
    pub fn call_count(&self) -> usize {
        self.books().calls.len()
    }

    /// What was seen of the callers that must not be, since this was asked last.
    pub fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.books().broken)
    }

    /// The next moment at which a late create comes through.
    pub fn next_late(&self) -> Option<Timestamp> {
        self.books().late.iter().map(|late| late.at).min()
    }

    /// Takes the late creates whose moment has come, to be run by the caller.
    pub fn take_late(&self) -> Vec<BoxFuture<'static, ()>> {
        let now = self.time.now();
        let mut books = self.books();
        let due = books.late.extract_if(.., |late| late.at <= now);
        due.map(|late| late.work).collect()
    }

    /// Has a create come through after so many quarters of the visibility.
    pub(super) fn come_later(&self, quarters: u8, work: BoxFuture<'static, ()>) {
        let wait = self.stated.visibility * u32::from(quarters.min(4)) / 4;
        let at = self.time.now().checked_add(wait).expect("traces are short");
        if let Some(work) = self.time.run_at(at, work) {
            self.books().late.push(Late { at, work });
        }
    }

    /// A call begins; it has ended once what is handed back is dropped.
    pub(super) fn enter(&self, call: &Call, kind: CommandKind) -> (Reply, Entered) {
        let check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = check.as_ref().map_or(Ok(()), |check| check(call, kind));
        drop(check);
        let operation = call.operation;
        let mut books = self.books();
        if let Err(Broken(what)) = checked {
            books.broken.push(what);
        }
        if let Some(other) = books.at_work.insert(operation.attempt, operation) {
            books.broken.push(format!(
                "G9: {operation} began while the call of {other} was at work"
            ));
        }
        if !books.seen.insert(operation) {
            books
                .broken
                .push(format!("G9: the backend was called twice for {operation}"));
        }
        books
            .calls
            .push(format!("{} {operation} {kind}", call.identity.node));
        let created = (kind == CommandKind::CreateLease).then(|| call.identity.clone());
        if let Some(identity) = &created {
            books.created.insert(identity.clone(), None);
        }
        let reply = match books.cursed.get(&call.identity.node) {
            Some(cursed) => *cursed,
            None => books.replies.pop_front().unwrap_or(Reply::Honest),
        };
        let entered = Entered {
            control: self.clone(),
            operation,
            created,
        };
        (reply, entered)
    }

    /// Holds a call back until something happens, or nothing goes wrong any more.
    pub(super) async fn hold(&self, call: &Call, until: impl Future<Output = ()> + Send) {
        let healed = {
            let mut books = self.books();
            books.held.insert(call.operation);
            books.healed.clone()
        };
        select(Box::pin(until), Box::pin(healed.cancelled())).await;
        self.books().held.remove(&call.operation);
    }

    pub(super) fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let at = self.time.now().checked_add(time).expect("traces are short");
        self.time.sleep_until(at)
    }

    pub(super) fn next_listing(&self) -> Listing {
        let mut books = self.books();
        let listing = books.listings.pop_front().unwrap_or(Listing::Full);
        books.listed = Some(listing);
        listing
    }

    /// How the last inventory was answered.
    pub fn last_listing(&self) -> Option<Listing> {
        self.books().listed
    }

    /// Whether look-ups and lists show what this attempt made. Which share of the visibility that takes
    /// follows from the attempt's number.
    pub(super) fn shows(&self, identity: &AttemptIdentity) -> bool {
        let Stated { lags, visibility, .. } = self.stated;
        if !lags {
            return true;
        }
        match self.books().created.get(identity) {
            None => true,
            Some(None) => false,
            Some(Some(ended)) => {
                let share = identity.attempt.number() % 4 + 1;
                let after = visibility * u32::try_from(share).expect("at most four") / 4;
                ended
                    .checked_add(after)
                    .is_ok_and(|visible| visible <= self.time.now())
            }
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A call that panics does so outside of the lock.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let books = self.books();
        f.debug_struct("Control")
            .field("stated", &self.stated)
            .field("replies", &books.replies)
            .field("listings", &books.listings)
            .field("at_work", &books.at_work)
            .finish_non_exhaustive()
    }
}

/// A call that is at work, until this is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    control: Control,
    operation: OperationId,
    created: Option<AttemptIdentity>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let now = self.control.time.now();
        let mut books = self.control.books();
        books.held.remove(&self.operation);
        books.gates.remove(&self.operation);
        let attempt = self.operation.attempt;
        if books.at_work.get(&attempt) == Some(&self.operation) {
            books.at_work.remove(&attempt);
        }
        if let Some(identity) = self.created.take() {
            books.created.insert(identity, Some(now));
        }
    }
}
