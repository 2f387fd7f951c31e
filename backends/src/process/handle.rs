//! A hold on one process that a recycled number can never turn into a hold on another.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::stat::ProcessStat;

/// One process in the life of this kernel: its number, and when it was started, in ticks since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct ProcessKey {
    pub(super) pid: u32,
    pub(super) start: u64,
}

impl ProcessKey {
    /// What runs under this number now; none where nothing does, or only a zombie.
    pub(super) fn of(pid: u32) -> io::Result<Option<Self>> {
        let stat = ProcessStat::read(pid)?.filter(|stat| !stat.is_zombie());
        Ok(stat.map(|stat| Self {
            pid,
            start: stat.start,
        }))
    }

    /// Whether it runs and was not stopped by a signal.
    pub(super) fn is_running(self) -> io::Result<bool> {
        let stat = ProcessStat::read(self.pid)?;
        Ok(stat.is_some_and(|stat| stat.start == self.start && !stat.is_zombie() && !stat.is_stopped()))
    }
}

/// A process that was found alive, held by a pidfd.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) key: ProcessKey,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Takes hold of a process; none where it is gone, a zombie, or its number belongs to another one now.
    ///
    /// The number is turned into a pidfd first and compared afterwards: a process that was started when the
    /// key says cannot have got the number after that.
    pub(super) fn open(key: ProcessKey) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(key.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // Not there, or the number of a thread.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if ProcessKey::of(key.pid)? != Some(key) {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "its successor is unsafe for foreign descriptor types; this one owns its own"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Some(Self { key, fd }))
    }

    /// Resolves once it has ended, at once if it has. Cancel safe, and any number may wait.
    pub(super) async fn ended(&self) {
        while !self.has_ended() {
            match self.fd.readable().await {
                Ok(mut ready) if !self.has_ended() => ready.clear_ready(),
                Ok(_) => {}
                // The runtime is going away, and whoever waits with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Whether it has ended; a zombie has.
    pub(super) fn has_ended(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Signals it; one that has ended needs no signal.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.fd.get_ref(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes its remains off the process table, where it is a child of ours that has ended.
    pub(super) fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // Not our child is the ordinary case after a restart.
        let _ = waitid(WaitId::PidFd(self.fd.get_ref().as_fd()), options);
    }
}

/// Kills a child that was spawned just now, and waits until its remains are gone.
pub(super) fn kill_child(pid: u32) -> io::Result<()> {
    let gone = |error: rustix::io::Errno| {
        if error == rustix::io::Errno::SRCH {
            Ok(())
        } else {
            Err(error.into())
        }
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("no process number"))?;
    // It was not waited for, so the number is still its own.
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(error) => return gone(error),
    };
    pidfd_send_signal(&fd, Signal::KILL).or_else(gone)?;
    match waitid(WaitId::PidFd(fd.as_fd()), WaitIdOptions::EXITED) {
        Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
