//! A command that runs in a machine, as it lies in the machine's directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nodewright_core::bootstrap::{ExitStatus, JobCommand, LineSource, TransportError};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::handle::{Process, ProcessKey};
use super::holder::MAIN;
use super::place::Place;
use super::stamp::Stamp;

/// A job's directory.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) directory: PathBuf,
    name: String,
}

/// The processes of a job that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobKeys {
    pub(super) main: ProcessKey,
    runner: ProcessKey,
}

/// Further files that a job wants followed, kept for whoever adopts it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Extras {
    stdout: Vec<String>,
    stderr: Vec<String>,
}

impl Job {
    /// The job of this name, there or not.
    ///
    /// # Errors
    ///
    /// A name that is no plain file name: letters, digits, `-`, `_` and `.`, not first.
    pub(super) fn of(place: &Place, name: &str) -> Result<Self, TransportError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.starts_with('.') || name.len() > 200 || !name.bytes().all(plain) {
            return Err(TransportError::new(format!(
                "job name {name:?} is no plain file name"
            )));
        }
        Ok(Self {
            directory: place.directory.join("jobs").join(name),
            name: name.to_owned(),
        })
    }

    pub(super) fn exists(&self) -> bool {
        self.directory.is_dir()
    }

    /// Writes the job down, whole or not at all. Nothing runs before it is [submitted](Self::submit).
    pub(super) fn prepare(&self, command: &JobCommand) -> Result<(), TransportError> {
        let script = script(command)?;
        let new = self.directory.with_file_name(format!(".{}.new", self.name));
        let extras = Extras {
            stdout: command.extra_stdout.clone(),
            stderr: command.extra_stderr.clone(),
        };
        let write = || -> io::Result<()> {
            remove(&new)?;
            fs::create_dir_all(&new)?;
            fs::write(new.join("command"), &script)?;
            fs::write(new.join("extras"), serde_json::to_vec(&extras)?)?;
            File::create(new.join("stdout"))?;
            File::create(new.join("stderr"))?;
            fs::rename(&new, &self.directory)
        };
        write().map_err(|error| self.failed("writing it down", &error))
    }

    /// Removes what an earlier run of the job left.
    pub(super) fn remove(&self) -> Result<(), TransportError> {
        remove(&self.directory).map_err(|error| self.failed("removing its last run", &error))
    }

    /// Has the holder run it. To submit it again is harmless: it is run once.
    pub(super) fn submit(&self, place: &Place) -> Result<(), TransportError> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(place.fifo())
            // Shorter than a page, so that it is one write that mixes with no other.
            .and_then(|mut fifo| fifo.write_all(format!("run {}\n", self.name).as_bytes()))
            .map_err(|error| self.failed("submitting it", &error))
    }

    /// Its processes, once it has begun.
    pub(super) fn keys(&self) -> io::Result<Option<JobKeys>> {
        let Some(line) = self.line("pid")? else {
            return Ok(None);
        };
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        let &[main, main_start, runner, runner_start] = numbers.as_slice() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{line:?} in a pid file"),
            ));
        };
        let key = |pid: u64, start| ProcessKey {
            pid: u32::try_from(pid).unwrap_or(u32::MAX),
            start,
        };
        Ok(Some(JobKeys {
            main: key(main, main_start),
            runner: key(runner, runner_start),
        }))
    }

    /// How it ended, as its runner wrote it down.
    pub(super) fn status(&self) -> io::Result<Option<ExitStatus>> {
        // 128 and a signal's number, the shell's way to say that a signal ended it.
        const SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;
        let status = self.line("status")?.and_then(|line| line.parse().ok());
        Ok(status.map(|status| {
            if SIGNALS.contains(&status) {
                ExitStatus::Unknown
            } else {
                ExitStatus::Code(status)
            }
        }))
    }

    /// The one line of a file; none until it is there as a whole.
    fn line(&self, file: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.directory.join(file)) {
            Ok(text) => Ok(text.strip_suffix('\n').map(str::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its own output files.
    pub(super) fn outputs(&self) -> [(LineSource, PathBuf); 2] {
        [
            (LineSource::Stdout, self.directory.join("stdout")),
            (LineSource::Stderr, self.directory.join("stderr")),
        ]
    }

    /// The further files to follow; relative ones lie in the machine's directory.
    pub(super) fn extras(&self, machine: &Path) -> Vec<(LineSource, PathBuf)> {
        let extras: Extras = fs::read(self.directory.join("extras"))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let of = |source, paths: Vec<String>| {
            let paths = paths.into_iter();
            paths.map(move |path| (source, machine.join(path)))
        };
        of(LineSource::Stdout, extras.stdout)
            .chain(of(LineSource::Stderr, extras.stderr))
            .collect()
    }

    /// Waits for its end, and says how it ended. Cancel safe.
    pub(super) async fn ended(&self, keys: JobKeys) -> io::Result<ExitStatus> {
        // The runner ends right after it has written the status down, or was ended before it could.
        for key in [keys.main, keys.runner] {
            if let Some(process) = Process::open(key)? {
                process.ended().await;
            }
        }
        Ok(self.status()?.unwrap_or(ExitStatus::Unknown))
    }

    pub(super) fn failed(&self, what: &str, error: &io::Error) -> TransportError {
        TransportError::new(format!("job {:?}: {what}: {error}", self.name))
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The shell script that becomes the job's main process.
///
/// The identity is not the job's to set: variables of its names are left out.
fn script(command: &JobCommand) -> Result<String, TransportError> {
    let mut script = MAIN.to_owned();
    for (name, value) in &command.env {
        if Stamp::VARIABLES.contains(&name.as_str()) {
            continue;
        }
        let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
        let first = name.bytes().next();
        if !first.is_some_and(|byte| letter(&byte))
            || !name.bytes().all(|byte| letter(&byte) || byte.is_ascii_digit())
        {
            return Err(TransportError::new(format!(
                "variable {name:?} is no name that a shell can carry"
            )));
        }
        script.push_str(&format!("export {name}={}\n", quoted(value)?));
    }
    script.push_str(&format!("exec /bin/sh -c {}\n", quoted(&command.line)?));
    Ok(script)
}

/// One word of a shell, whatever is in it.
fn quoted(text: &str) -> Result<String, TransportError> {
    if text.contains('\0') {
        return Err(TransportError::new(format!(
            "{text:?} has a NUL, which no process can be given"
        )));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}
