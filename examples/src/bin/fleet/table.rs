//! The table that a terminal shows: the bar, the counts, what is not settled, and a line per group.
//!
//! A function of what is known, of the terminal and of the moment, and of nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use console::{Style, measure_text_width, truncate_str};
use jiff::Timestamp;
use nodewright::id::GroupId;
use nodewright::node::Stage;

use crate::board::{Board, Row};
use crate::condition::Standing;
use crate::wording::{Phase, age, clean, waits_for};

/// The widest a group's name is shown: what else a row says leaves it so much of 80 columns.
const NAME: usize = 20;

/// What is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) colour: bool,
}

impl Terminal {
    /// How many lines a table may have: so few that news above it stay in sight.
    fn height(self) -> usize {
        self.rows.saturating_sub(1 + self.rows / 6).max(1)
    }

    fn style(self, style: Style, text: String) -> String {
        style.apply_to(text).force_styling(self.colour).to_string()
    }
}

/// The lines of the table: no more of them, and none wider, than the terminal can show.
///
/// What is not settled comes first, as much as fits, and of that what needs a person. A group is one line of
/// counts, however large it is.
pub(crate) fn lines(board: &Board, terminal: Terminal, now: Timestamp) -> Vec<String> {
    let height = terminal.height();
    let mut lines = vec![bar(board, terminal)];
    if height > 1 {
        lines.push(stages(board));
    }
    let room = height.saturating_sub(lines.len()) / 2;
    lines.extend(providers(board, terminal, now).take(room));
    let mut unsettled: Vec<&Row> = board.rows().filter(|row| !row.is_settled()).collect();
    // Rows of one urgency stay in their order, so that a row is found where it was.
    unsettled.sort_by_key(|row| Urgency::of(row));
    let groups = Group::all(board);
    let left = height.saturating_sub(lines.len());
    // The heading of the rows is one of them.
    let wanted = unsettled.len() + usize::from(!unsettled.is_empty());
    let for_groups = groups.len().min(left.saturating_sub(wanted).max(left / 2));
    lines.extend(rows(&unsettled, left - for_groups, terminal, now));
    lines.extend(folded(groups, for_groups));
    let fits = |line: String| truncate_str(&line, terminal.columns, "…").into_owned();
    lines.into_iter().map(fits).collect()
}

/// How pressing a row is; the most pressing comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// Nothing goes on without a person.
    Stuck,
    /// Something went wrong, and is tried again.
    Troubled,
    /// Something is done about it.
    AtWork,
    /// Others come first.
    Behind,
}

impl Urgency {
    fn of(row: &Row) -> Self {
        match Phase::of(&row.status) {
            Some(Phase::Halted | Phase::Faulty) => Self::Stuck,
            Some(Phase::Waiting(_)) => Self::Behind,
            _ if row.status.failed_attempts > 0 || row.status.last_error.is_some() => Self::Troubled,
            _ => Self::AtWork,
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Stuck => Style::new().red().bold(),
            Self::Troubled => Style::new().yellow(),
            Self::AtWork | Self::Behind => Style::new(),
        }
    }
}

fn bar(board: &Board, terminal: Terminal) -> String {
    let width = (terminal.columns / 3).min(30);
    let ready = board.rows().filter(|row| row.status.ready).count();
    let wanted = usize::try_from(board.wanted).unwrap_or(usize::MAX);
    // Of a shape that became smaller more may be ready than are wanted.
    let full = (width * ready.min(wanted)).checked_div(wanted).unwrap_or(0);
    let done = terminal.style(Style::new().green(), "█".repeat(full));
    let rest = "░".repeat(width - full);
    format!(
        "{done}{rest} {ready}/{wanted} ready, generation {}",
        board.generation
    )
}

/// How many are at each stage, in the order of a node's life.
fn stages(board: &Board) -> String {
    let mut counts: BTreeMap<Option<Stage>, usize> = BTreeMap::new();
    for row in board.rows() {
        *counts.entry(row.status.stage).or_default() += 1;
    }
    let count = |(stage, count): (&Option<Stage>, &usize)| format!("{count} {}", stage_name(*stage));
    let counts: Vec<String> = counts.iter().map(count).collect();
    if counts.is_empty() {
        return "nothing is there".to_owned();
    }
    counts.join(", ")
}

/// What is unusual about the providers.
fn providers(board: &Board, terminal: Terminal, now: Timestamp) -> impl Iterator<Item = String> {
    let line = move |one: &Standing| terminal.style(Style::new().yellow(), clean(&one.words_at(now)));
    board.providers.iter().map(line)
}

fn stage_name(stage: Option<Stage>) -> &'static str {
    stage.map_or("empty", Stage::name)
}

/// The heading and as many rows as fit in this many lines; the last one says how many are not shown.
fn rows(unsettled: &[&Row], room: usize, terminal: Terminal, now: Timestamp) -> Vec<String> {
    // A heading alone says nothing.
    if unsettled.is_empty() || room < 2 {
        return Vec::new();
    }
    let fits = room - 1;
    let shown = if unsettled.len() > fits {
        fits - 1
    } else {
        unsettled.len()
    };
    let (shown, hidden) = unsettled.split_at(shown);
    let mut cells = vec![["slot", "attempt", "stage", "in stage", "waits for"].map(str::to_owned)];
    cells.extend(shown.iter().map(|row| {
        let status = &row.status;
        let attempt = status.attempt.map(|attempt| attempt.to_string());
        [
            // As a person writes it who asks for a retry.
            format!("{}-{}", short(status.node.group.as_str()), status.node.index),
            attempt.unwrap_or_else(|| "-".to_owned()),
            stage_name(status.stage).to_owned(),
            age(row.since, now),
            waits_for(row, now),
        ]
    }));
    let width = |column: usize| cells.iter().map(|cells| measure_text_width(&cells[column])).max();
    let [slot, attempt, stage, age] = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let line = |cells: &[String; 5]| {
        let [a, b, c, d, e] = cells;
        format!("{a:<slot$} {b:>attempt$} {c:<stage$} {d:>age$}  {e}")
    };
    let styles = shown.iter().map(|row| Urgency::of(row).style());
    let styles = std::iter::once(Style::new().dim()).chain(styles);
    let lines = cells.iter().map(line).zip(styles);
    let mut lines: Vec<String> = lines.map(|(line, style)| terminal.style(style, line)).collect();
    if !hidden.is_empty() {
        lines.push(format!("… and {} more that are not settled", hidden.len()));
    }
    lines
}

/// A group's name, cut where it takes too much of a line.
fn short(name: &str) -> Cow<'_, str> {
    truncate_str(name, NAME, "…")
}

/// A group in numbers.
#[derive(Debug, Default)]
struct Group {
    name: String,
    slots: usize,
    ready: usize,
    /// Those that are not settled.
    phases: BTreeMap<Phase, usize>,
}

impl Group {
    /// All of them, by name.
    fn all(board: &Board) -> Vec<Self> {
        let mut groups: BTreeMap<&GroupId, Self> = BTreeMap::new();
        for row in board.rows() {
            let group = groups.entry(&row.status.node.group).or_default();
            group.slots += 1;
            group.ready += usize::from(row.status.ready);
            if let Some(phase) = Phase::of(&row.status) {
                *group.phases.entry(phase).or_default() += 1;
            }
        }
        let named = |(name, group): (&GroupId, Self)| Self {
            name: name.to_string(),
            ..group
        };
        groups.into_iter().map(named).collect()
    }

    fn counts(&self) -> String {
        let mut text = format!("{}/{} ready", self.ready, self.slots);
        for (phase, count) in &self.phases {
            text.push_str(&format!(", {count} {phase}"));
        }
        text
    }
}

/// A line per group, as many as fit; those that are settled give way first, and the last line sums them up.
fn folded(mut groups: Vec<Group>, room: usize) -> Vec<String> {
    let hidden = if groups.len() > room {
        groups.sort_by_key(|group| group.phases.is_empty());
        groups.split_off(room.saturating_sub(1))
    } else {
        Vec::new()
    };
    let width = groups.iter().map(|group| short(&group.name).chars().count());
    let width = width.max().unwrap_or(0);
    let line = |group: &Group| format!("{:<width$}  {}", short(&group.name), group.counts());
    let mut lines: Vec<String> = groups.iter().map(line).collect();
    if !hidden.is_empty() && room > 0 {
        let sum = |number: fn(&Group) -> usize| hidden.iter().map(number).sum::<usize>();
        let (ready, slots) = (sum(|group| group.ready), sum(|group| group.slots));
        lines.push(format!(
            "… and {} more groups: {ready}/{slots} ready",
            hidden.len()
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
