//! Machines on a disk that is much smaller than what their agents write. The disk is a file system of its own
//! in memory, which only root may mount; without root the test shows as ignored, and says so.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use nodewright_backends::process::{ProcessBackend, ProcessConfig};
use nodewright_core::bootstrap::{ExitStatus, JobCommand, START_JOB, Transport as _, TransportEvent};
use nodewright_core::effect::{Call, Cancel, Destroyed, EffectBackend as _};
use nodewright_core::template::{
    BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template,
};

const DISK: &str = "256m";
const FLOOD: &str = "1073741824";
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = rustix::process::geteuid().is_root();
    let demanded = std::env::var_os("NODEWRIGHT_REQUIRE_ALL").is_some();
    let trial = match (root, demanded) {
        (true, _) => Trial::test(NAME, || flood().map_err(|error| Failed::from(error.to_string()))),
        (false, true) => Trial::test(NAME, || Err(Failed::from(NEEDS))),
        (false, false) => Trial::test(NAME, || Ok(()))
            .with_kind(NEEDS)
            .with_ignored_flag(true),
    };
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

const NAME: &str = "an_agent_that_writes_more_than_the_disk_holds_never_fills_it";
const NEEDS: &str = "needs root to mount a disk: sudo -E cargo test -p nodewright-backends --test small_disk";

/// A mounted disk; it is unmounted in the end, also after a failure.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path) -> Result<Self, Box<dyn Error>> {
        let size = format!("size={DISK}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(at)
            .status()?;
        if mounted.success() {
            Ok(Self(at))
        } else {
            Err("the disk could not be mounted".into())
        }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn flood() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let disk = Disk::mount(place.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let status = runtime.block_on(write_and_follow(disk.0))?;
    // head(1) fails where a write does, and a full disk refuses writes.
    if status == ExitStatus::Code(0) {
        Ok(())
    } else {
        Err(format!("the agent ended with {status}").into())
    }
}

async fn write_and_follow(disk: &Path) -> Result<ExitStatus, Box<dyn Error>> {
    let backend = ProcessBackend::open(ProcessConfig::new(disk))?;
    let template = Template::new(NodeTemplate {
        role: "worker".parse()?,
        provider: "process".parse()?,
        shape: NodeShape::new("local"),
        boot: BootSpec::new("true"),
        join: SwarmJoinSpec::default(),
    });
    let spec = LogicalNodeSpec {
        id: "w-0".parse()?,
        template,
    };
    let identity = nodewright_core::id::AttemptIdentity {
        run: "flood".parse()?,
        node: spec.id.clone(),
        attempt: nodewright_core::id::NodeAttemptId::FIRST,
    };
    let call = Call {
        identity: identity.clone(),
        operation: "1.1".parse()?,
        cancel: Cancel::new(),
    };
    let created = backend.create_lease(&call, &spec).await?;
    let mut transport = backend.transport(&identity);
    transport.open(LIMIT).await?;
    let job = JobCommand {
        name: START_JOB.to_owned(),
        line: format!("yes 'one line of many' | head -c {FLOOD}"),
        env: Default::default(),
        extra_stdout: Vec::new(),
        extra_stderr: Vec::new(),
    };
    transport.start(&job, LIMIT).await?;
    let ended = loop {
        if let TransportEvent::Exited(status) = transport.next().await? {
            break status;
        }
    };
    transport.close(LIMIT).await;
    let destroyed = backend.destroy_lease(&call, &created.lease).await?;
    if destroyed != Destroyed::Gone {
        return Err("the machine is not gone".into());
    }
    Ok(ended)
}
