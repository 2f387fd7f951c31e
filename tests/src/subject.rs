//! A provider under test, and what the kit has to know of it beside its answers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, future};
use jiff::Timestamp;
use nodewright_core::effect::EffectBackend;
use nodewright_core::id::AttemptIdentity;

use crate::faulty::Time;

/// A provider under test.
///
/// The kit opens it once for every process that it plays, and counts what really lives there, which it does
/// not take from the backend's answers.
pub trait Subject: Sized + 'static {
    /// Its backend.
    type Backend: EffectBackend;

    /// A provider that holds nothing.
    fn new() -> Self;

    /// A way in, as a process gets one that has just begun: it remembers nothing of an earlier process.
    fn open(&self) -> Arc<Self::Backend>;

    /// What really lives there, dead resources that have to be given back included.
    fn living(&self) -> Vec<Living>;

    /// The machine of an attempt dies; it stays to be given back. False where there is none that lives.
    fn kill(&self, identity: &AttemptIdentity) -> bool;

    /// The machine of an attempt is deleted by hand, and nobody is told. False where there is none.
    fn vanish(&self, identity: &AttemptIdentity) -> bool;

    /// How the backend's futures are run.
    fn pump(&self) -> Pump {
        Pump::Inline
    }
}

/// A resource that lives at a provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Living {
    /// Whose it is.
    pub identity: AttemptIdentity,
    /// What tells it from every other one, at any time.
    pub name: String,
}

/// How futures of a backend are run.
#[derive(Debug, Clone)]
pub enum Pump {
    /// They need nothing but being polled.
    Inline,
    /// They need a runtime, and real time.
    Tokio(Arc<tokio::runtime::Runtime>),
}

/// How long something real may take. Whoever takes longer hangs.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// How often what needs nothing but being polled is polled. Whoever is still not done hangs.
const POLLS: usize = 16;

impl Pump {
    /// Runs a future to its end, or until it waits for what only the trace can bring.
    pub(crate) fn poll<T>(&self, future: &mut BoxFuture<'static, T>, waits: impl Fn() -> bool) -> Option<T> {
        match self {
            Self::Inline => future.now_or_never(),
            Self::Tokio(runtime) => runtime.block_on(async {
                let deadline = tokio::time::Instant::now() + PATIENCE;
                loop {
                    let tick = tokio::time::sleep(std::time::Duration::from_millis(2));
                    match future::select(&mut *future, Box::pin(tick)).await {
                        future::Either::Left((answer, _)) => return Some(answer),
                        future::Either::Right(_) if waits() => return None,
                        future::Either::Right(_) => {
                            assert!(tokio::time::Instant::now() < deadline, "a call hangs by itself");
                        }
                    }
                }
            }),
        }
    }

    /// Runs a future to its end, whatever that takes; none if it does not end by itself.
    pub(crate) fn finish<T>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        match self {
            Self::Inline => {
                let mut future = std::pin::pin!(future);
                (0..POLLS).find_map(|_| future.as_mut().now_or_never())
            }
            Self::Tokio(runtime) => {
                runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.ok() })
            }
        }
    }
}

/// A task that ends with whoever has this.
#[derive(Debug)]
pub(crate) struct Aborts<T>(tokio::task::JoinHandle<T>);

impl<T> Aborts<T> {
    pub(crate) const fn new(task: tokio::task::JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> Drop for Aborts<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Aborts<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.0.poll_unpin(cx)
    }
}

/// Time that passes only when it is told to.
#[derive(Debug)]
pub(crate) struct VirtualTime(Mutex<Timestamp>);

impl VirtualTime {
    pub(crate) fn from(start: Timestamp) -> Arc<Self> {
        Arc::new(Self(Mutex::new(start)))
    }

    pub(crate) fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn get(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of a simulation, for a provider.
pub(crate) struct SharedTime(pub(crate) Arc<VirtualTime>);

impl Time for SharedTime {
    fn now(&self) -> Timestamp {
        self.0.get()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let time = self.0.clone();
        // Nobody is woken: whoever lets time pass polls again.
        future::poll_fn(move |_| {
            if time.get() >= at {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .boxed()
    }
}

impl fmt::Display for Living {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.identity)
    }
}
