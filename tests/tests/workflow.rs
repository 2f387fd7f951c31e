//! Workflows on a real runtime: natural code, real threads, and the passing of time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nodewright::Clock;
use nodewright::effect::Cancel;
use nodewright::timing::Timing;
use nodewright::workflow::{Backoff, Done, Report, TaskContext, TaskError, Verdict, Workflow};
use tokio::sync::{Mutex, mpsc};

/// A small directory service, as a client that holds a lock across its calls would see it.
#[derive(Debug, Default)]
struct Directory {
    entries: Mutex<BTreeMap<String, u32>>,
    refusals: AtomicUsize,
}

impl Directory {
    async fn answer(&self) -> Result<(), std::io::Error> {
        tokio::task::yield_now().await;
        let left = self.refusals.load(Ordering::SeqCst);
        if left == 0 {
            return Ok(());
        }
        self.refusals.store(left - 1, Ordering::SeqCst);
        Err(std::io::Error::other("connection refused"))
    }
}

/// A plain async function is a task. It keeps a guard, borrowed text and a list over its awaits.
async fn ensure(context: TaskContext<Directory>) -> Result<Done, TaskError> {
    let directory = context.shared();
    let name = context.name();
    let mut entries = directory.entries.lock().await;
    let before: Vec<String> = entries.keys().cloned().collect();
    directory
        .answer()
        .await
        .map_err(|error| TaskError::retryable(format!("creating {name}")).caused_by(error))?;
    if before.iter().any(|entry| entry == name) {
        return Ok(Done::Unchanged);
    }
    entries.insert(name.to_owned(), 1);
    Ok(Done::Changed)
}

async fn provision(refusals: usize) -> (Report, Vec<String>) {
    let mut tasks = Workflow::builder(Directory {
        refusals: AtomicUsize::new(refusals),
        ..Directory::default()
    });
    let owner = String::from("staff");
    let (told, mut hears) = mpsc::unbounded_channel();
    tasks.task("admins", ensure);
    tasks.task(&owner, ensure).undo(|context| async move {
        let removed = context.shared().entries.lock().await.remove(context.name());
        Ok(if removed.is_some() {
            Done::Changed
        } else {
            Done::Unchanged
        })
    });
    tasks
        .task("notice", move |context| {
            // A closure may hold what it likes and hand out clones.
            let (told, owner) = (told.clone(), owner.clone());
            async move {
                let entries = context.shared().entries.lock().await;
                let text = format!("{owner} has {}", entries[&owner]);
                tokio::time::sleep(Duration::from_millis(1)).await;
                told.send(text)
                    .map_err(|gone| TaskError::fatal("nobody listens").caused_by(gone))?;
                Ok(Done::Changed)
            }
        })
        .after(["admins", "staff"]);
    let mut workflow = tasks.build().unwrap().unlimited();
    let backoff = Backoff {
        initial_delay: Duration::from_millis(1),
        ..Backoff::default()
    };
    let report = workflow
        .run_until_done(&Clock::system(), &Cancel::new(), &backoff)
        .await;
    drop(workflow);
    let mut heard = Vec::new();
    while let Some(text) = hears.recv().await {
        heard.push(text);
    }
    (report, heard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn natural_code_runs_on_many_threads_and_keeps_state_over_its_awaits() {
    let runs: Vec<_> = (0..8).map(|refusals| tokio::spawn(provision(refusals))).collect();
    for run in runs {
        let (report, heard) = run.await.unwrap();
        assert_eq!(report.verdict(), Verdict::Done, "{report}");
        assert_eq!(heard, ["staff has 1"]);
    }
}

/// Tasks of 10 ms in ten layers of a hundred, each after five of the layer below.
fn layers() -> Workflow<Together> {
    let mut tasks = Workflow::builder(Together::default());
    for layer in 0..10 {
        for place in 0..100 {
            let below = (0..5).map(|step| format!("{}-{:02}", layer - 1, (place * 7 + step) % 100));
            tasks
                .task(format!("{layer}-{place:02}"), |context| async move {
                    let together = context.shared();
                    let now = together.now.fetch_add(1, Ordering::SeqCst) + 1;
                    together.most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    together.now.fetch_sub(1, Ordering::SeqCst);
                    Ok(Done::Unchanged)
                })
                .after(below.take(if layer == 0 { 0 } else { 5 }));
        }
    }
    tasks.build().unwrap()
}

/// How many tasks are at work, and how many were at most.
#[derive(Debug, Default)]
struct Together {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_thousand_tasks_take_as_long_as_their_longest_chain() {
    let clock = Clock::system();
    let began = clock.now();
    let mut workflow = layers().unlimited();
    let report = workflow.run(&clock, &Cancel::new()).await;
    assert_eq!(report.verdict(), Verdict::Done);
    // Paused time moves in whole milliseconds: ten sleeps in a row take exactly this long, too.
    assert_eq!(clock.since(began), chain_of_ten(&clock).await);
    assert_eq!(workflow.shared().most.load(Ordering::SeqCst), 100);
}

async fn chain_of_ten(clock: &Clock) -> Duration {
    let began = clock.now();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    clock.since(began)
}

#[tokio::test(start_paused = true)]
async fn with_a_limit_never_more_run_at_once_and_the_limit_is_used() {
    for limit in [1, 7, 32] {
        let mut workflow = layers().max_parallel(limit);
        let report = workflow.run(&Clock::system(), &Cancel::new()).await;
        assert_eq!(report.verdict(), Verdict::Done);
        assert_eq!(workflow.shared().most.load(Ordering::SeqCst), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_under_paused_time_calls_and_tells_in_the_same_order_every_time() {
    let mut first = None;
    for _ in 0..3 {
        let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = log.clone();
        let mut workflow = layers()
            .max_parallel(13)
            .on_change(move |change, _| told.lock().unwrap().push(format!("{change:?}")));
        let _ = workflow.run(&Clock::system(), &Cancel::new()).await;
        drop(workflow);
        let log = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(log.len(), 2002);
        assert!(*first.get_or_insert_with(|| log.clone()) == log);
    }
}

#[test]
fn a_hundred_thousand_tasks_with_five_edges_each_are_ordered_and_run_in_that_order() {
    const COUNT: usize = 100_000;
    let mut tasks = Workflow::builder(std::sync::Mutex::new(Vec::with_capacity(COUNT)));
    // The name of the task at a place; 7919 has no factor in common with the count.
    let name = |place: usize| format!("{:06}", place * 7919 % COUNT);
    let after = |place: usize| (1..=5).filter_map(move |step| place.checked_sub(step * step * step));
    for place in (0..COUNT).rev() {
        tasks
            .task(name(place), move |context| async move {
                context.shared().lock().unwrap().push(place);
                Ok(Done::Unchanged)
            })
            .after(after(place).map(name));
    }
    let mut workflow = tasks.build().unwrap();
    let (clock, cancel) = (Clock::system(), Cancel::new());
    let run = workflow.run(&clock, &cancel);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(run).verdict(), Verdict::Done);
    let called = std::mem::take(&mut *workflow.shared().lock().unwrap());
    assert!(workflow.order().eq(called.iter().map(|&place| name(place))));
    let mut rank = vec![usize::MAX; COUNT];
    for (at, &place) in called.iter().enumerate() {
        rank[place] = at;
    }
    for place in 0..COUNT {
        assert!(after(place).all(|other| rank[other] < rank[place]), "{place}");
    }
}
