//! The identity that everything in a machine carries in its environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nodewright_core::facts::LeaseId;
use nodewright_core::id::{AttemptIdentity, TemplateDigest};

const RUN: &str = "NODEWRIGHT_RUN";
const NODE: &str = "NODEWRIGHT_NODE";
const ATTEMPT: &str = "NODEWRIGHT_ATTEMPT";
const MACHINE: &str = "NODEWRIGHT_MACHINE";
const LEASE: &str = "NODEWRIGHT_LEASE";
const TEMPLATE: &str = "NODEWRIGHT_TEMPLATE";

/// Whose a process is. Also names the machine's directory, so that two state directories with runs of the
/// same name never take each other's processes for their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) identity: AttemptIdentity,
    pub(super) machine: PathBuf,
    pub(super) lease: LeaseId,
    pub(super) template: TemplateDigest,
}

impl Stamp {
    /// The variables that nobody else may set.
    pub(super) const VARIABLES: [&str; 6] = [RUN, NODE, ATTEMPT, MACHINE, LEASE, TEMPLATE];

    /// The stamp as an environment.
    pub(super) fn variables(&self) -> [(&'static str, OsString); 6] {
        [
            (RUN, self.identity.run.as_str().into()),
            (NODE, self.identity.node.to_string().into()),
            (ATTEMPT, self.identity.attempt.to_string().into()),
            (MACHINE, self.machine.clone().into()),
            (LEASE, self.lease.as_str().into()),
            (TEMPLATE, self.template.to_string().into()),
        ]
    }

    /// Reads the stamp from the bytes of `/proc/PID/environ`, of machines below this directory only.
    pub(super) fn read(environ: &[u8], machines: &Path) -> Option<Self> {
        let value = |name: &str| {
            environ
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        };
        let machine = Path::new(OsStr::from_bytes(value(MACHINE)?));
        if machine.parent() != Some(machines) {
            return None;
        }
        let text = |name| std::str::from_utf8(value(name)?).ok();
        Some(Self {
            identity: AttemptIdentity {
                run: text(RUN)?.parse().ok()?,
                node: text(NODE)?.parse().ok()?,
                attempt: text(ATTEMPT)?.parse().ok()?,
            },
            machine: OsString::from_vec(machine.as_os_str().as_bytes().to_vec()).into(),
            lease: LeaseId::new(text(LEASE)?),
            template: text(TEMPLATE)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use nodewright_core::id::NodeAttemptId;

    use super::*;

    #[test]
    fn a_stamp_reads_back_below_its_own_directory_and_nowhere_else() {
        let stamp = Stamp {
            identity: AttemptIdentity {
                run: "r".parse().unwrap(),
                node: "w-1".parse().unwrap(),
                attempt: NodeAttemptId::new(7),
            },
            machine: "/a/machines/x".into(),
            lease: LeaseId::new("x.1"),
            template: TemplateDigest::of(b"t"),
        };
        let mut environ = b"PATH=/bin\0XNODEWRIGHT_RUN=no\0".to_vec();
        for (name, value) in stamp.variables() {
            environ.extend_from_slice(name.as_bytes());
            environ.push(b'=');
            environ.extend_from_slice(value.as_bytes());
            environ.push(0);
        }
        assert_eq!(Stamp::read(&environ, Path::new("/a/machines")), Some(stamp));
        assert_eq!(Stamp::read(&environ, Path::new("/b/machines")), None);
        assert_eq!(Stamp::read(&environ, Path::new("/a")), None);
        assert_eq!(Stamp::read(b"PATH=/bin\0", Path::new("/a/machines")), None);
    }
}
