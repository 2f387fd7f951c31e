//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Brings the machines of a shape up as processes of this host, and keeps them up.
///
/// The file is followed: a saved change is applied as the next generation, one with mistakes is reported and
/// changes nothing. Ctrl-C or SIGTERM takes everything down; a second one leaves at once, and the next start
/// takes over what was left.
///
/// Exit status: 0 if all went as asked; 1 if the shape was not reached or something was left, or after the
/// timeout; 2 if the input is bad or another fleet works on the run: then nothing was started.
#[derive(Debug, Parser)]
#[command(
    name = "fleet",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) up: Option<UpOptions>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Be an agent on a machine: say that it joined, and live. Start commands find this program as $FLEET.
    Agent(AgentOptions),
}

/// What to bring up, and how.
#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// The shape, in TOML or JSON.
    pub(crate) shape: PathBuf,
    /// Write one line per change instead of a table; so it is, too, where the output is no terminal.
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Write one JSON object per event, one for each slot that comes to wait, with the reason, the groups that it
    /// waits for, and until when, and one whenever a provider is slowed down or a group degraded, and when that is
    /// over; the last one is {"summary": …}. Input that was refused is told as
    /// {"refused": [{"line", "column", "path", "message"}, …]} before it.
    #[arg(long)]
    pub(crate) json: bool,
    /// Reach the shape once, then take everything down and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Reach the shape once, then leave the machines running and end; the next start takes them over.
    #[arg(long, conflicts_with = "once")]
    pub(crate) detach: bool,
    /// Obey lines on standard input: `retry NODE` tries a slot again at once, halted or backing off, `replace
    /// NODE` replaces its machine, and `sweep` compares all machines with what is known of them now.
    #[arg(long)]
    pub(crate) commands: bool,
    /// Kill the holders of this many random machines once the shape is reached, and wait until each slot is
    /// ready again.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) kill: u32,
    /// Give up after this time: take everything down within half a minute more, leave the rest, end with 1.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Where state lies, in a directory named after the run. Otherwise in .nodewright beside the shape.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long a machine may take until it is ready before it is replaced.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) startup_timeout: Duration,
    /// How long a machine that is not ready may say nothing at all before it is replaced.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) stall_timeout: Duration,
    /// Halt a slot after this many failed attempts in a row. Otherwise it is tried for ever, with backoff.
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<NonZeroU32>,
    /// How often the machines are listed and compared with what is known of them: what died unseen or was
    /// deleted by hand is replaced, and what nobody owns is ended.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) sweep: Duration,
    /// Do not watch machines die: only sweeps find what is dead.
    #[arg(long)]
    pub(crate) no_watch: bool,
}

/// How the agent behaves; without an option, well.
#[derive(Debug, Args)]
pub(crate) struct AgentOptions {
    /// Never say that it joined.
    #[arg(long)]
    pub(crate) never_join: bool,
    /// End at once with this status, without joining.
    #[arg(long, value_name = "STATUS")]
    pub(crate) exit: Option<u8>,
    /// Write this many bytes of lines to standard output first.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) flood: u64,
    /// Leave the session of the machine for one of its own.
    #[arg(long)]
    pub(crate) leave_session: bool,
    /// Do not end when asked to by SIGTERM.
    #[arg(long)]
    pub(crate) ignore_term: bool,
}

/// A time above zero, in seconds, which may have a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "is not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(number).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("has to be above zero".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_a_shape_or_a_subcommand_is_required() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["fleet"]).is_err());
        assert!(Cli::try_parse_from(["fleet", "a.toml", "--json", "--plain"]).is_err());
        let cli = Cli::try_parse_from(["fleet", "agent", "--flood", "7"]).unwrap();
        assert!(matches!(cli.command, Some(Command::Agent(agent)) if agent.flood == 7));
        let cli = Cli::try_parse_from(["fleet", "a.toml", "--timeout", "0.5"]).unwrap();
        assert_eq!(cli.up.unwrap().timeout, Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        for bad in ["0", "-1", "NaN", "inf", "soon", "1e30"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
