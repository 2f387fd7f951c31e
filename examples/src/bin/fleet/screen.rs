//! The lines at the lower end of a terminal that are drawn again and again, and those that stay above them.

use std::io::{self, Write};

use console::measure_text_width;

/// Clears from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// What was drawn last: the cursor stands below it.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    lines: Vec<String>,
    /// How many lines the cursor went down since, without us.
    echoed: usize,
}

impl Screen {
    /// Draws these lines in place of the last ones; nothing if they are the same.
    ///
    /// # Errors
    ///
    /// What the system says; so with all that writes here.
    pub(crate) fn draw(
        &mut self,
        out: &mut impl Write,
        lines: Vec<String>,
        columns: usize,
    ) -> io::Result<()> {
        if lines == self.lines && self.echoed == 0 {
            return Ok(());
        }
        let mut text = self.back(columns);
        self.lines = lines;
        self.append(&mut text);
        write(out, &text)
    }

    /// Writes a text that stays, above the lines.
    pub(crate) fn above(&mut self, out: &mut impl Write, text: &str, columns: usize) -> io::Result<()> {
        let mut whole = self.back(columns);
        whole.push_str(text);
        whole.push('\n');
        self.append(&mut whole);
        write(out, &whole)
    }

    /// Takes the lines away.
    pub(crate) fn erase(&mut self, out: &mut impl Write, columns: usize) -> io::Result<()> {
        let text = self.back(columns);
        self.lines.clear();
        write(out, &text)
    }

    /// Notes that somebody typed this many lines, which the terminal wrote where the cursor was.
    pub(crate) const fn echoed(&mut self, lines: usize) {
        self.echoed += lines;
    }

    /// Goes to where the lines began, and clears them. A terminal that became narrower has wrapped them.
    fn back(&mut self, columns: usize) -> String {
        let height = |line: &String| measure_text_width(line).div_ceil(columns.max(1)).max(1);
        let up = self.lines.iter().map(height).sum::<usize>() + std::mem::take(&mut self.echoed);
        // Going up by 0 goes up by 1.
        let up = if up == 0 {
            String::new()
        } else {
            format!("\x1b[{up}A")
        };
        format!("\r{up}{CLEAR_BELOW}")
    }

    fn append(&self, text: &mut String) {
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
    }
}

/// In one go, so that nobody sees half of it.
fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    const COLUMNS: usize = 20;

    fn size(lines: usize) -> NonZeroU16 {
        u16::try_from(lines).unwrap().try_into().unwrap()
    }

    /// A terminal in memory, with its screen.
    struct Seen {
        terminal: vt100::Parser,
        screen: Screen,
    }

    impl Seen {
        fn new() -> Self {
            Self {
                terminal: vt100::Parser::new(size(8), size(COLUMNS), 0),
                screen: Screen::default(),
            }
        }

        /// Does something, and says what it wrote.
        fn then(&mut self, does: impl FnOnce(&mut Screen, &mut Vec<u8>)) -> usize {
            let mut out = Vec::new();
            does(&mut self.screen, &mut out);
            // As a terminal does that was set up as usual.
            let text = String::from_utf8(out).unwrap().replace('\n', "\r\n");
            self.terminal.process(text.as_bytes());
            text.len()
        }

        fn draw(&mut self, lines: &[&str]) -> usize {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            self.then(|screen, out| screen.draw(out, lines, COLUMNS).unwrap())
        }

        fn shows(&self) -> String {
            self.terminal.screen().contents()
        }
    }

    #[test]
    fn what_is_drawn_takes_the_place_of_what_was_and_what_is_told_stays_above() {
        let mut seen = Seen::new();
        seen.draw(&["one", "two", "three"]);
        seen.then(|screen, out| screen.above(out, "news", COLUMNS).unwrap());
        assert_eq!(seen.shows(), "news\none\ntwo\nthree");
        seen.draw(&["four"]);
        assert_eq!(seen.shows(), "news\nfour");
        seen.then(|screen, out| screen.erase(out, COLUMNS).unwrap());
        assert_eq!(seen.shows(), "news");
    }

    #[test]
    fn the_same_lines_are_not_written_again() {
        let mut seen = Seen::new();
        assert!(seen.draw(&["one"]) > 0);
        assert_eq!(seen.draw(&["one"]), 0);
    }

    #[test]
    fn a_typed_line_is_drawn_over_and_leaves_no_old_line_behind() {
        let mut seen = Seen::new();
        seen.draw(&["one", "two"]);
        seen.terminal.process(b"retry w-0\r\n");
        seen.screen.echoed(1);
        seen.draw(&["one", "two"]);
        assert_eq!(seen.shows(), "one\ntwo");
    }

    #[test]
    fn lines_that_a_narrower_terminal_wrapped_are_cleared_in_full() {
        let mut seen = Seen::new();
        // Each takes two lines of this terminal, as they would if it had just become so narrow.
        seen.draw(&[
            "a line that is longer than that",
            "and another one, as long as that",
        ]);
        seen.draw(&["short"]);
        assert_eq!(seen.shows(), "short");
    }
}
