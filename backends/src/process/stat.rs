//! One line of `/proc/PID/stat`.

use std::io;

/// What is read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    state: u8,
    pub(super) session: u32,
    flags: u64,
    /// In clock ticks since the boot: with the number it names a process for good.
    pub(super) start: u64,
}

impl ProcessStat {
    /// The kernel's flag of its own threads.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    /// Reads it; none where there is no such process.
    pub(super) fn read(pid: u32) -> io::Result<Option<Self>> {
        let text = match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = Self::parse(&text);
        stat.map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat")))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name is in parentheses and may hold anything, parentheses and blanks included.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(&text[end + 1..])
            .ok()?
            .split_ascii_whitespace()
            .collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            // The kernel says 0 or less for what has none.
            session: fields.get(3)?.parse::<i64>().ok()?.try_into().unwrap_or(0),
            flags: number(9)?,
            start: number(22)?,
        })
    }

    pub(super) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    pub(super) fn is_stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    pub(super) fn is_kernel_thread(self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }
}

/// Whether a file of `/proc` is missing because its process is.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_shifts_no_field() {
        let text = b"42 (a) Z (b) T 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1000 5";
        let stat = ProcessStat::parse(text).unwrap();
        assert_eq!((stat.session, stat.start), (39, 987));
        assert!(stat.is_stopped() && !stat.is_zombie() && !stat.is_kernel_thread());
    }

    #[test]
    fn this_process_is_found_and_number_zero_is_not() {
        let own = ProcessStat::read(std::process::id()).unwrap().unwrap();
        assert!(!own.is_zombie() && own.start > 0);
        assert_eq!(ProcessStat::read(u32::MAX).unwrap(), None);
    }
}
