//! The process that holds a machine: a shell that takes the names of jobs from a FIFO and runs them.
//!
//! Everything of the machine runs in the holder's session, which is not ours: it outlives us, and no key
//! pressed at our terminal reaches it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::process::Stdio;

use process_wrap::std::{CommandWrap, ProcessSession};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::place::Place;
use super::stamp::Stamp;

/// The holder. Its input is the FIFO, held open for reading and writing, so that it never ends. It takes
///
/// - `run NAME`: runs this job in the background, unless it was taken before: a name may be sent twice;
/// - `end PID`: the runner of a job is about to end and is waited for, so that no zombie stays.
///
/// Descriptors that whoever started us had open are closed: a machine must not hold somebody's pipe open.
const HOLDER: &str = r#"
exec 3<&0 </dev/null 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
set -f
while read -r word name <&3; do
  case $word in
  run)
    if [ -e "jobs/$name/command" ] && ! [ -e "jobs/$name/taken" ]; then
      if echo >"jobs/$name/taken"; then
        /bin/sh -c "$1" nodewright-job "$name" &
      fi
    fi ;;
  end) wait "$name" ;;
  esac
done
"#;

/// The runner of one job: waits for its main process and leaves `status`. Like all such files it is one write
/// of one line: without the line end it is not there yet.
const RUNNER: &str = r#"
set -f
job=jobs/$1
read -r stat <"/proc/$$/stat"
set -- ${stat##*) }
/bin/sh "$job/command" "$job" "$$" "${20}" </dev/null >>"$job/stdout" 2>>"$job/stderr" 3>&- &
wait "$!"
echo "$?" >"$job/status"
echo "end $$" >&3
"#;

/// How a job's main process begins: it writes down itself and its runner, with their start times, before it
/// becomes what it is to be. Nobody else can: once it has ended, a shell may have taken its remains away.
pub(super) const MAIN: &str = r#"
set -f
job=$1 runner="$2 $3"
read -r stat <"/proc/$$/stat"
set -- ${stat##*) }
echo "$$ ${20} $runner" >"$job/pid"
"#;

/// Makes the FIFO of a machine.
pub(super) fn make_fifo(place: &Place) -> io::Result<()> {
    mknodat(CWD, place.fifo(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    Ok(())
}

/// Spawns the holder; its number. It has the FIFO open from its first moment: there is nothing to wait for.
pub(super) fn spawn(place: &Place, env: &BTreeMap<String, String>, stamp: &Stamp) -> io::Result<u32> {
    let fifo = File::options().read(true).write(true).open(place.fifo())?;
    let log = OpenOptions::new().create(true).append(true).open(place.log())?;
    let mut command = CommandWrap::with_new("/bin/sh", |command| {
        command
            .args(["-c", HOLDER, "nodewright-machine", RUNNER])
            .current_dir(&place.directory)
            .envs(env)
            .envs(stamp.variables())
            .stdin(Stdio::from(fifo))
            .stdout(Stdio::null())
            .stderr(Stdio::from(log));
    });
    command.wrap(ProcessSession);
    let child = command.spawn()?;
    // Dropping the child neither ends it nor waits for it: its end is seen by pidfd, and reaped there.
    Ok(child.id())
}
