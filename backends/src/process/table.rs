//! The process table, as far as it concerns the machines of one state directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::handle::ProcessKey;
use super::stamp::Stamp;
use super::stat::{ProcessStat, is_gone};

/// A process that is no zombie.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: ProcessKey,
    session: u32,
    pub(super) stopped: bool,
    pub(super) stamp: Option<Stamp>,
}

/// All processes at one moment, or rather: each at a moment of its own in a short while.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u32, Entry>,
    by_machine: BTreeMap<PathBuf, Vec<u32>>,
    by_session: BTreeMap<u32, Vec<u32>>,
}

impl Table {
    /// Reads the table, with the stamps of machines below this directory.
    ///
    /// Blocks for some microseconds per process. What other users run shows without its environment, and
    /// this process itself is left out.
    pub(super) fn read(machines: &Path) -> io::Result<Self> {
        let mut table = Self::default();
        for found in std::fs::read_dir("/proc")? {
            let name = found?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            if let Some(entry) = Entry::read(pid, machines)? {
                table.add(entry);
            }
        }
        Ok(table)
    }

    fn add(&mut self, entry: Entry) {
        let pid = entry.key.pid;
        if let Some(stamp) = &entry.stamp {
            self.by_machine
                .entry(stamp.machine.clone())
                .or_default()
                .push(pid);
        }
        self.by_session.entry(entry.session).or_default().push(pid);
        self.entries.insert(pid, entry);
    }

    /// What runs of a machine: all that carries its stamp, all in the sessions that such a process leads,
    /// and all in its holder's session.
    ///
    /// The number of a dead holder may be another session's by now. Its session counts only while the
    /// holder lives or a process in it carries the stamp.
    pub(super) fn members(&self, machine: &Path, holder: Option<ProcessKey>) -> Vec<&Entry> {
        let stamped = self.by_machine.get(machine).map_or(&[][..], Vec::as_slice);
        let mut pids: BTreeSet<u32> = stamped.iter().copied().collect();
        let holder_session = holder.filter(|holder| {
            self.find(*holder).is_some() || stamped.iter().any(|pid| self.entries[pid].session == holder.pid)
        });
        let led = stamped
            .iter()
            .copied()
            .filter(|pid| self.entries[pid].session == *pid);
        for session in led.chain(holder_session.map(|holder| holder.pid)) {
            pids.extend(self.by_session.get(&session).into_iter().flatten());
        }
        pids.iter().map(|pid| &self.entries[pid]).collect()
    }

    /// The entry of exactly this process.
    pub(super) fn find(&self, key: ProcessKey) -> Option<&Entry> {
        self.entries.get(&key.pid).filter(|entry| entry.key == key)
    }

    /// The machines that have stamped processes, with a stamp of each lease.
    pub(super) fn machines(&self) -> impl Iterator<Item = &Stamp> {
        self.by_machine
            .values()
            .filter_map(|pids| self.entries[pids.first()?].stamp.as_ref())
    }
}

impl Entry {
    fn read(pid: u32, machines: &Path) -> io::Result<Option<Self>> {
        let Some(stat) = ProcessStat::read(pid)?.filter(|stat| !stat.is_zombie()) else {
            return Ok(None);
        };
        let environ = if stat.is_kernel_thread() {
            Vec::new()
        } else {
            environ(pid)?
        };
        Ok(Some(Self {
            key: ProcessKey {
                pid,
                start: stat.start,
            },
            session: stat.session,
            stopped: stat.is_stopped(),
            stamp: Stamp::read(&environ, machines),
        }))
    }
}

/// The environment of a process; empty where we may not see it.
fn environ(pid: u32) -> io::Result<Vec<u8>> {
    // For a moment in the middle of an exec it reads as empty.
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environ) if environ.is_empty() => std::thread::yield_now(),
            Ok(environ) => return Ok(environ),
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Vec::new())
}

/// Reads the table for many at once: who asks while a reading goes on shares the next one with all others
/// who do. So two hundred machines that go at the same time cost a few readings, not hundreds.
#[derive(Debug)]
pub(super) struct Scans {
    machines: Arc<Path>,
    asked: AtomicU64,
    latest: Mutex<Reading>,
}

#[derive(Debug, Default)]
struct Reading {
    /// It began after this many had asked.
    answers: u64,
    table: Arc<Table>,
}

impl Scans {
    pub(super) fn new(machines: Arc<Path>) -> Self {
        Self {
            machines,
            asked: AtomicU64::new(0),
            latest: Mutex::default(),
        }
    }

    /// A table of which every entry was read after this call. Cancel safe.
    pub(super) async fn fresh(&self) -> io::Result<Arc<Table>> {
        let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut latest = self.latest.lock().await;
        if latest.answers < question {
            let answers = self.asked.load(Ordering::SeqCst);
            let machines = self.machines.clone();
            let table = tokio::task::spawn_blocking(move || Table::read(&machines))
                .await
                .map_err(io::Error::other)??;
            *latest = Reading {
                answers,
                table: Arc::new(table),
            };
        }
        Ok(latest.table.clone())
    }
}

#[cfg(test)]
mod tests {
    use nodewright_core::facts::LeaseId;
    use nodewright_core::id::{AttemptIdentity, NodeAttemptId, TemplateDigest};

    use super::*;

    fn entry(pid: u32, session: u32, machine: Option<&str>) -> Entry {
        Entry {
            key: ProcessKey { pid, start: 5 },
            session,
            stopped: false,
            stamp: machine.map(|machine| Stamp {
                identity: AttemptIdentity {
                    run: "r".parse().unwrap(),
                    node: "w-1".parse().unwrap(),
                    attempt: NodeAttemptId::new(1),
                },
                machine: machine.into(),
                lease: LeaseId::new("l"),
                template: TemplateDigest::of(b""),
            }),
        }
    }

    fn members(entries: impl IntoIterator<Item = Entry>, holder: Option<ProcessKey>) -> Vec<u32> {
        let mut table = Table::default();
        for entry in entries {
            table.add(entry);
        }
        let members = table.members(Path::new("/m"), holder);
        members.iter().map(|entry| entry.key.pid).collect()
    }

    #[test]
    fn a_machine_is_its_stamped_processes_and_the_sessions_that_are_provably_its_own() {
        let holder = ProcessKey { pid: 10, start: 5 };
        let entries = [
            entry(10, 10, Some("/m")),
            entry(11, 10, None),
            entry(20, 20, Some("/m")),
            entry(21, 20, None),
            entry(30, 3, Some("/m")),
            entry(31, 3, None),
            entry(40, 10, Some("/other")),
        ];
        assert_eq!(members(entries, Some(holder)), [10, 11, 20, 21, 30, 40]);
    }

    #[test]
    fn a_session_that_took_a_dead_holders_number_is_not_touched() {
        let holder = ProcessKey { pid: 10, start: 4 };
        assert_eq!(
            members([entry(10, 10, None), entry(11, 10, None)], Some(holder)),
            [0; 0]
        );
        let orphans = [entry(11, 10, Some("/m")), entry(12, 10, None)];
        assert_eq!(members(orphans, Some(holder)), [11, 12]);
    }

    #[tokio::test]
    async fn who_asks_during_a_reading_shares_the_next() {
        let scans = Scans::new(Path::new("/nowhere").into());
        let tables = futures_util::future::join_all((0..50).map(|_| scans.fresh())).await;
        let mut tables: Vec<_> = tables
            .iter()
            .map(|table| Arc::as_ptr(table.as_ref().unwrap()))
            .collect();
        tables.dedup();
        assert!(tables.len() <= 2, "{} readings", tables.len());
    }
}
