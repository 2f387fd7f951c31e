//! What a person sees who runs the program on a terminal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::endings::{more, wake_ups};
use crate::world::{LIMIT, World};
use crate::{group, workers};

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
/// Ends what goes back to the place where the table began.
const CLEAR: &[u8] = b"\x1b[J";

/// A fleet on a terminal of 24 lines of 80 columns. Killed when it is dropped.
struct OnTerminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Written, and not yet on the screen.
    ahead: Vec<u8>,
    /// All that was written.
    written: Vec<u8>,
}

impl OnTerminal {
    fn start(world: &World, options: &[&str], colour: bool) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let (ws_row, ws_col) = (ROWS, COLUMNS);
        tcsetwinsize(
            &master,
            Winsize {
                ws_row,
                ws_col,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        let line = || ioctl_tiocgptpeer(&master, flags).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
        command
            .arg(world.shape())
            .args(options)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR")
            .env_remove("CLICOLOR_FORCE")
            .stdin(line())
            .stdout(line())
            .stderr(line());
        if !colour {
            command.env("NO_COLOR", "1");
        }
        let child = command.spawn().unwrap();
        // With its ends of the terminal, so that the program's are the last ones.
        drop(command);
        let keys = File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The end of the last one who writes is told as an error.
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                if sender.send(chunk[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let size = |size: u16| NonZeroU16::new(size).unwrap();
        Self {
            child,
            keys,
            output,
            screen: vt100::Parser::new(size(ROWS), size(COLUMNS), 0),
            ahead: Vec::new(),
            written: Vec::new(),
        }
    }

    /// What is shown once more was written: all of a frame, just before something is drawn over it, or as
    /// much as there is. `None` at the end of all.
    fn frame(&mut self) -> Option<String> {
        if self.ahead.is_empty() {
            match self.output.recv_timeout(LIMIT) {
                Ok(chunk) => self.ahead = chunk,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("nothing more after {}", self.text()),
            }
            self.written.extend(&self.ahead);
        }
        let clear = self.ahead.windows(CLEAR.len()).position(|part| part == CLEAR);
        // Up to it the screen holds what was drawn; what follows draws over it.
        let rest = self.ahead.split_off(clear.unwrap_or(self.ahead.len()));
        self.screen.process(&std::mem::take(&mut self.ahead));
        let shown = self.screen.screen().contents();
        if let Some(rest) = rest.strip_prefix(CLEAR) {
            self.screen.process(CLEAR);
            self.ahead = rest.to_vec();
        }
        Some(shown)
    }

    /// Looks on until a frame that is as wanted.
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            match self.frame() {
                Some(frame) if wanted(&frame) => return frame,
                Some(_) => {}
                None => panic!("no {what} in {}", self.text()),
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It was not waited for yet, so the number is its own.
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Looks on to the end; the last frame.
    fn end(&mut self) -> String {
        let mut last = String::new();
        while let Some(frame) = self.frame() {
            last = frame;
        }
        assert!(self.child.wait().unwrap().success(), "{last}");
        last
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Ended already is the ordinary case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bars(frame: &str) -> usize {
    frame
        .lines()
        .filter(|line| line.contains(" ready, generation "))
        .count()
}

#[test]
fn the_table_shows_how_all_become_ready_in_lines_that_fit_and_is_gone_in_the_end() {
    let shape = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes/small.toml");
    let world = World::new(fs::read(shape).unwrap());
    let mut terminal = OnTerminal::start(&world, &["--once"], false);
    let table = "██ 3/3 ready, generation 1\n3 dormant\nworkers  3/3 ready";
    let reached = terminal.until("convergence", |frame| {
        frame.contains("generation 1 is reached") && frame.contains(table)
    });
    assert_eq!(bars(&reached), 1, "{reached}");
    let last = terminal.end();
    assert!(
        last.contains("converged: 3 nodes") && last.contains(" 0 processes left"),
        "{last}"
    );
    assert_eq!(bars(&last), 0, "{last}");
    let text = terminal.text();
    // The last line of all is the summary, which stands alone.
    let (above, _) = text.trim_end().rsplit_once('\n').unwrap();
    for line in above.lines() {
        let width = console::measure_text_width(line);
        assert!(width <= COLUMNS.into(), "{width}: {line}");
    }
    // Not one colour was used: that is what the environment asked for.
    let numbers = |character: char| character.is_ascii_digit() || character == ';';
    let mut codes = text.split("\x1b[").skip(1);
    assert!(
        codes.all(|code| !code.trim_start_matches(numbers).starts_with('m')),
        "{text}"
    );
}

#[test]
fn a_typed_command_is_obeyed_and_leaves_no_second_table() {
    // Slow enough to be seen.
    let slow = group("workers", 3, r#"sleep 1; exec "$FLEET" agent"#);
    let world = World::new(slow);
    let mut terminal = OnTerminal::start(&world, &["--commands"], true);
    terminal.until("convergence", |frame| frame.contains("3/3 ready, generation 1"));
    terminal.keys.write_all(b"replace workers-1\n").unwrap();
    terminal.until("an answer", |frame| {
        frame.contains("workers-1: replace, as asked")
    });
    let going = terminal.until("another attempt", |frame| frame.contains("2/3 ready"));
    assert_eq!(bars(&going), 1, "{going}");
    let again = terminal.until("convergence", |frame| frame.contains("3/3 ready, generation 1"));
    assert_eq!(bars(&again), 1, "{again}");
    assert!(
        terminal.text().contains("\x1b[32m"),
        "no green in {}",
        terminal.text()
    );
    terminal.signal(Signal::TERM);
    assert!(terminal.end().contains("1 replaced"));
}

#[test]
fn an_idle_fleet_on_a_terminal_wakes_up_for_nothing() {
    // A window of time is what is measured here, and nothing else is waited for.
    const WINDOW: Duration = Duration::from_secs(10);
    let world = World::new(workers(20));
    let mut terminal = OnTerminal::start(&world, &[], true);
    terminal.until("convergence", |frame| frame.contains("generation 1 is reached"));
    // What follows on the convergence dies away first.
    thread::sleep(WINDOW / 5);
    let before = wake_ups(&[terminal.child.id()]);
    thread::sleep(WINDOW);
    let ours = more(&before, &wake_ups(&[terminal.child.id()]));
    assert!(ours <= 10, "{ours} wake-ups of the fleet in {WINDOW:?}");
    terminal.signal(Signal::TERM);
    terminal.end();
}

#[test]
fn a_machine_that_never_joins_is_shown_with_what_it_waits_for_while_nothing_happens() {
    let never = group("hostile", 1, r#"exec "$FLEET" agent --never-join"#);
    let world = World::new(workers(2) + &never);
    let mut terminal = OnTerminal::start(&world, &[], true);
    let row = |frame: &str| {
        let rows = frame.lines().filter(|line| line.starts_with("hostile-0 "));
        rows.map(str::to_owned)
            .find(|row| row.contains("its bootstrap, until +"))
    };
    // Nothing happens any more once the others are ready: the time alone has these drawn.
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        let frame = terminal.until("a wait", |frame| {
            frame.contains("workers  2/2 ready") && row(frame).is_some()
        });
        seen.extend(row(&frame));
    }
    terminal.signal(Signal::TERM);
    while terminal.frame().is_some() {}
}
