//! Where a machine lies on disk, and the record there that says whose it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, TemplateDigest};
use serde::{Deserialize, Serialize};

use super::handle::ProcessKey;

/// The directories of a backend.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// One directory per machine, named after the token of its identity.
    pub(super) machines: Arc<Path>,
    /// Machines that are being prepared: nothing runs there yet.
    prepared: PathBuf,
    /// Machines of which only files are left.
    trash: PathBuf,
}

impl Places {
    /// Makes the directories, and clears away what an earlier process did not get to remove.
    pub(super) fn open(state_dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let root = state_dir.canonicalize()?;
        let places = Self {
            machines: root.join("machines").into(),
            prepared: root.join("prepared"),
            trash: root.join("trash"),
        };
        for directory in [&*places.machines, &places.prepared, &places.trash] {
            fs::create_dir_all(directory)?;
        }
        for left in fs::read_dir(&places.trash)?.flatten() {
            // Another process of ours may be at it, too.
            let _ = fs::remove_dir_all(left.path());
        }
        Ok(places)
    }

    /// The place of this identity's machine.
    pub(super) fn of(&self, identity: &AttemptIdentity) -> Place {
        let token = identity.token();
        Place {
            directory: self.machines.join(&token),
            prepared: self.prepared.join(token),
        }
    }

    /// All machines of which something is on disk, with their records. One whose record cannot be read is
    /// left out: its record is written before anything is started there, and removed after all has ended.
    pub(super) fn records(&self) -> io::Result<Vec<(Place, Record)>> {
        let mut records = Vec::new();
        for found in fs::read_dir(&self.machines)? {
            let directory = found?.path();
            let Some(record) = Record::read(&directory)? else {
                continue;
            };
            records.push((self.of(&record.identity), record));
        }
        Ok(records)
    }

    /// Takes a machine's files out of sight in one step, so that none is ever seen half-removed, and then
    /// removes them, under a name that nobody else uses.
    pub(super) async fn remove(&self, place: &Place, name: &str) -> io::Result<()> {
        let trash = self.trash.join(name);
        match fs::rename(&place.directory, &trash) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        tokio::task::spawn_blocking(move || match fs::remove_dir_all(trash) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// The place of one machine.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Its working directory.
    pub(super) directory: PathBuf,
    /// Where that is prepared.
    pub(super) prepared: PathBuf,
}

impl Place {
    /// The FIFO from which the holder takes the names of jobs.
    pub(super) fn fifo(&self) -> PathBuf {
        self.directory.join("fifo")
    }

    /// What the holder itself has to say: nothing, unless its shell fails.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("holder.log")
    }

    /// Removes what an earlier create prepared and did not bring into sight.
    pub(super) fn remove_prepared(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.prepared) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: self.directory.to_string_lossy().into(),
            port: None,
        }
    }
}

/// Whose a machine is, and which process holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) identity: AttemptIdentity,
    pub(super) lease: LeaseId,
    pub(super) template: TemplateDigest,
    /// The boot of the kernel that this was written under: process numbers mean nothing under another.
    pub(super) boot: String,
    /// None until it has been spawned and written down.
    pub(super) holder: Option<ProcessKey>,
}

impl Record {
    const FILE: &str = "identity.json";

    /// Reads the record of a machine; none where there is none that can be read.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        match fs::read(directory.join(Self::FILE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes it as a whole: a reader sees the old one or the new one.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("identity.json.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, directory.join(Self::FILE))
    }

    /// The holder, where it was written down under this boot of the kernel.
    pub(super) fn holder_under(&self, boot: &str) -> Option<ProcessKey> {
        self.holder.filter(|_| self.boot == boot)
    }

    pub(super) fn facts(&self) -> LeaseFacts {
        LeaseFacts {
            template: Some(self.template),
            ..LeaseFacts::new(self.lease.clone())
        }
    }

    pub(super) fn created(&self, place: &Place) -> CreatedLease {
        CreatedLease {
            lease: self.facts(),
            endpoint: Some(place.endpoint()),
        }
    }
}

/// The name of this boot of the kernel.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}
