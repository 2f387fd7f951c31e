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
      echo >"jobs/$name/taken" && /bin/sh -c "$1" nodewright-job "$name" &
    fi ;;
  end) wait "$name" ;;
  esac
done
"#;

/// The runner of one job. Leaves `pid` (the numbers and start times of the job's main process and of the
/// runner) and `status`, each one write of one line: a file without a line end is not there yet.
const RUNNER: &str = r#"
set -f
job=jobs/$1
/bin/sh "$job/command" </dev/null >>"$job/stdout" 2>>"$job/stderr" 3>&- &
main=$!
started() {
  read -r stat <"/proc/$1/stat"
  set -- ${stat##*) }
  ticks=${20}
}
started "$main"
pids="$main $ticks"
started "$$"
echo "$pids $$ $ticks" >"$job/pid"
wait "$main"
echo "$?" >"$job/status"
echo "end $$" >&3
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
