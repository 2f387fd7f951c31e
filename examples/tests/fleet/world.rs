//! A folder with a shape file, the fleets that are started on it, and what the operating system says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nodewright::effect::{Call, Cancel, EffectBackend as _};
use nodewright::id::{AttemptIdentity, OperationId, RunId};
use nodewright_backends::process::{ProcessBackend, ProcessConfig, Survivor, census};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything here may take; a test that waits for this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The run that every shape file here is named after.
const RUN: &str = "demo";

/// A folder of its own. Whatever still runs there is ended when it is dropped, also after a failure.
pub(crate) struct World {
    directory: tempfile::TempDir,
}

impl World {
    /// A folder with this shape.
    pub(crate) fn new(shape: impl AsRef<[u8]>) -> Self {
        let world = Self::without_shape();
        world.save(shape);
        world
    }

    pub(crate) fn without_shape() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn shape(&self) -> PathBuf {
        self.path().join(format!("{RUN}.toml"))
    }

    /// Where the run's state lies by default.
    pub(crate) fn state(&self) -> PathBuf {
        self.path().join(".nodewright").join(RUN)
    }

    /// Saves the shape as editors do.
    pub(crate) fn save(&self, shape: impl AsRef<[u8]>) {
        let new = self.path().join("new");
        fs::write(&new, shape).unwrap();
        fs::rename(new, self.shape()).unwrap();
    }

    /// Starts a fleet on the shape, told in JSON.
    pub(crate) fn fleet<'b>(&self, options: impl IntoIterator<Item = &'b str>) -> Running {
        Running::start([self.shape().as_os_str(), OsStr::new("--json")], options)
    }

    /// The processes of the run, as the operating system knows them.
    pub(crate) fn survivors(&self) -> Vec<Survivor> {
        census(&self.state(), &run()).unwrap()
    }

    /// The processes of a slot's machine.
    pub(crate) fn processes(&self, node: &str) -> Vec<u32> {
        let of_node = |one: &Survivor| one.identity.node.to_string() == node;
        let found = self.survivors().into_iter().filter(of_node);
        found.map(|survivor| survivor.pid).collect()
    }

    /// Waits until nothing of a slot's machine runs.
    pub(crate) fn until_gone(&self, node: &str) {
        let begun = monotonic();
        while !self.processes(node).is_empty() {
            assert!(begun.elapsed() < LIMIT, "{node} does not go");
            thread::yield_now();
        }
    }

    /// The directories of the run's machines.
    pub(crate) fn machines(&self) -> BTreeSet<PathBuf> {
        let found = fs::read_dir(self.state().join("machines"));
        // Before the first fleet there is none.
        found
            .into_iter()
            .flatten()
            .flatten()
            .map(|one| one.path())
            .collect()
    }

    /// What is written down of the run's machines, by their directories.
    fn records(&self) -> impl Iterator<Item = (PathBuf, Value)> {
        let machines = self.machines().into_iter();
        let records = machines.filter_map(|directory| Some((directory.clone(), record(&directory)?)));
        records.filter(|(_, record)| record["identity"]["run"] == RUN)
    }

    /// The directory of a slot's machine.
    pub(crate) fn machine(&self, node: &str) -> PathBuf {
        let of_node = |(_, record): &(PathBuf, Value)| record["identity"]["node"] == node;
        self.records().find(of_node).unwrap().0
    }

    /// Which process holds the machine of each slot, by number and start time, as it is written down.
    pub(crate) fn holders(&self) -> BTreeMap<String, (u64, u64)> {
        let mut holders = BTreeMap::new();
        for (_, record) in self.records() {
            let number = |name| record["holder"][name].as_u64().unwrap();
            let node = record["identity"]["node"].as_str().unwrap().to_owned();
            let twice = holders.insert(node.clone(), (number("pid"), number("start")));
            assert_eq!(twice, None, "two machines of {node}");
        }
        holders
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.state().exists() {
            end_all(&self.state(), &run());
        }
    }
}

/// What is written down of a machine; none where nothing is.
pub(crate) fn record(directory: &Path) -> Option<Value> {
    let record = fs::read(directory.join("identity.json")).ok()?;
    serde_json::from_slice(&record).ok()
}

/// The first operation for this identity.
pub(crate) fn call(identity: AttemptIdentity) -> Call {
    Call {
        operation: OperationId {
            attempt: identity.attempt,
            sequence: 1,
        },
        identity,
        cancel: Cancel::new(),
    }
}

/// Says what was measured, or how to have the same again.
#[expect(
    clippy::print_stderr,
    reason = "for people; shown where a test fails or is asked to"
)]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// A moment from which to measure.
#[expect(
    clippy::disallowed_methods,
    reason = "a test that waits for ever says nothing"
)]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// Ends all machines of a run in this state directory.
pub(crate) fn end_all(state: &Path, run: &RunId) {
    let mut config = ProcessConfig::new(state);
    config.term_grace = Duration::ZERO;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = ProcessBackend::open(config).unwrap();
        for entry in backend.list_leases(run).await.unwrap().entries {
            let _ = backend.destroy_lease(&call(entry.identity), &entry.lease).await;
        }
    });
}

fn run() -> RunId {
    RUN.parse().unwrap()
}

/// A fleet that runs. Killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    stderr: Option<JoinHandle<String>>,
    /// All lines that were read.
    pub(crate) heard: Vec<Value>,
}

/// How a fleet ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// All lines of its standard output, in order.
    pub(crate) heard: Vec<Value>,
    pub(crate) stderr: String,
}

impl Running {
    /// Starts a fleet. Its output is read all the time: none waits for a reader.
    pub(crate) fn start<'a, 'b>(
        first: impl IntoIterator<Item = &'a OsStr>,
        options: impl IntoIterator<Item = &'b str>,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
        command.args(first).args(options);
        Self::spawn(command)
    }

    /// Starts a fleet as this says.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self {
            child,
            stdin,
            lines,
            stderr: Some(stderr),
            heard: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Reads on until a line that is as wanted.
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = monotonic();
        loop {
            // Other lines may come for ever.
            let left = LIMIT.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("no {what} ({error}) after {}", tail(&self.heard)),
            }
        }
    }

    /// A line that is as wanted, among those that were read or that follow: of two things that are told by different
    /// ways either may come first.
    pub(crate) fn ever(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let told = self.heard.iter().find(|line| wanted(line)).cloned();
        told.unwrap_or_else(|| self.until(what, wanted))
    }

    /// Reads on until this event.
    pub(crate) fn until_event(&mut self, event: &str) -> Value {
        self.until(event, |line| line["event"] == event)
    }

    /// Reads on until this generation is reached.
    pub(crate) fn until_converged(&mut self, generation: u64) {
        self.until("convergence", |line| {
            line["event"] == "converged" && line["generation"] == generation
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It was not waited for yet, so the number is its own.
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Reads on to the end.
    pub(crate) fn end(mut self) -> Ended {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("no end after {}", tail(&self.heard)),
            }
        }
        let status: ExitStatus = self.child.wait().unwrap();
        Ended {
            code: status.code(),
            heard: std::mem::take(&mut self.heard),
            stderr: self.stderr.take().unwrap().join().unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already is the ordinary case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// What stands in the last line.
    pub(crate) fn summary(&self) -> &Value {
        let last = self.heard.last().unwrap_or(&Value::Null);
        assert!(
            last["summary"].is_object(),
            "{}\n{}",
            tail(&self.heard),
            self.stderr
        );
        &last["summary"]
    }

    /// All went as asked, and nothing is left.
    pub(crate) fn assert_clean(&self) {
        let summary = self.summary();
        assert_eq!(
            summary["converged"],
            true,
            "{}\n{}",
            tail(&self.heard),
            self.stderr
        );
        assert_eq!(summary["left"], 0, "{summary}");
        assert_eq!(summary["missed"], Value::Null, "{summary}");
        assert_eq!(self.code, Some(0), "{summary}\n{}", self.stderr);
    }

    /// It was refused, and nothing was started.
    pub(crate) fn assert_refused(&self) {
        assert_eq!(self.code, Some(2), "{}\n{}", tail(&self.heard), self.stderr);
        let summary = self.summary();
        assert_eq!((&summary["created"], &summary["left"]), (&0.into(), &0.into()));
        assert!(
            self.refused()
                .iter()
                .all(|mistake| mistake["message"].is_string())
        );
    }

    /// The mistakes that were told.
    pub(crate) fn refused(&self) -> &[Value] {
        let refused = self.heard.iter().find_map(|line| line["refused"].as_array());
        refused.expect("a refusal").as_slice()
    }

    /// How many events there are of this name.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.heard.iter().filter(|line| line["event"] == event).count()
    }
}

/// Kills the process that holds a machine, as an accident would.
pub(crate) fn kill_holder((number, _): (u64, u64)) {
    kill(u32::try_from(number).unwrap());
}

/// Kills a process, unless it has ended by now.
pub(crate) fn kill(number: u32) {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    let killed = kill_process(pid.unwrap(), Signal::KILL);
    assert!(matches!(killed, Ok(()) | Err(Errno::SRCH)), "{killed:?}");
}

/// The last lines, for a person to read.
fn tail(lines: &[Value]) -> String {
    let lines = lines[lines.len().saturating_sub(30)..].iter();
    lines.map(|line| format!("\n{line}")).collect()
}

/// Asserts of the events that no slot got a machine before its last one was gone.
pub(crate) fn assert_never_two_machines_of_a_slot(heard: &[Value]) {
    let mut holding: BTreeMap<&str, &str> = BTreeMap::new();
    for line in heard {
        let (Some(node), Some(attempt)) = (line["node"].as_str(), line["attempt"].as_str()) else {
            continue;
        };
        match (line["event"].as_str(), line["stage"].as_str()) {
            (Some("machine-found"), _)
            | (Some("stage-reached"), Some("lease-created" | "endpoint-known" | "bootstrap-running")) => {
                let held = holding.insert(node, attempt);
                assert!(
                    held.is_none_or(|held| held == attempt),
                    "{node}: {held:?} and {attempt}"
                );
            }
            (Some("stage-reached"), Some("destroyed")) => {
                holding.remove(node);
            }
            _ => {}
        }
    }
}
