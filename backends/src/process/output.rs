//! A file of output that is followed while it grows, and given back to the disk behind the reader.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nodewright_core::bootstrap::{Line, LineSource};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

/// How much is read at once: the lines of one reading are all in memory.
const CHUNK: u64 = 64 * 1024;
/// Where a line is cut.
const LINE_LIMIT: usize = 8 * 1024;
/// A reader that is this many limits behind skips: the disk stays flat whatever a machine prints.
const LAG_LIMITS: u64 = 4;

/// A file whose beginning is given back to the disk. Its length stays what it is; its writers append.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    /// All before this was given back.
    given_back: u64,
    limit: u64,
}

impl Spool {
    /// Opens it; what was given back earlier is found as the hole at its beginning.
    pub(super) fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let given_back = match seek(&file, SeekFrom::Data(0)) {
            Ok(data) => data,
            // There is nothing but a hole.
            Err(rustix::io::Errno::NXIO) => file.metadata()?.len(),
            Err(_) => 0,
        };
        Ok(Self {
            file,
            given_back,
            limit,
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Gives back what lies more than the limit before this offset, a chunk at a time at least.
    ///
    /// This blocks, for a fifth of a millisecond where it was measured. To hand it to another thread would
    /// let a fast writer fill the disk while that thread waits for its turn.
    fn give_back(&mut self, read: u64) {
        const BLOCK: u64 = 4096;
        let end = read.saturating_sub(self.limit) / BLOCK * BLOCK;
        if end < self.given_back.saturating_add(CHUNK) {
            return;
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let begin = self.given_back / BLOCK * BLOCK;
        if let Err(error) = fallocate(&self.file, mode, begin, end - begin) {
            tracing::debug!(%error, "this file system takes nothing back");
        }
        self.given_back = end;
    }

    /// Gives back all but the last of what is there. For a file that nobody reads any more.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let length = self.len()?;
        self.give_back(length);
        Ok(())
    }
}

/// Where the bytes of a source come from.
#[derive(Debug)]
enum Input {
    /// The job's own output, which nobody else reads.
    Own(Spool),
    /// A file that somebody keeps for himself: it may be missing, cut off, or replaced by another.
    Foreign { path: PathBuf, file: Option<File> },
}

/// Reads the lines of one file as they are written.
#[derive(Debug)]
pub(super) struct Source {
    source: LineSource,
    input: Input,
    offset: u64,
    partial: Vec<u8>,
    /// The rest of the line is left out, up to its end.
    cutting: bool,
}

impl Source {
    /// Reads a job's own output from its first byte that is still there.
    pub(super) fn own(source: LineSource, spool: Spool) -> Self {
        let offset = spool.given_back;
        Self::new(source, Input::Own(spool), offset)
    }

    /// Reads a file that may come and go.
    pub(super) fn foreign(source: LineSource, path: PathBuf) -> Self {
        Self::new(source, Input::Foreign { path, file: None }, 0)
    }

    fn new(source: LineSource, input: Input, offset: u64) -> Self {
        Self {
            source,
            input,
            offset,
            partial: Vec::new(),
            cutting: false,
        }
    }

    /// Reads what is there, at most a chunk, and adds the lines that it ended. False where nothing was new.
    pub(super) fn read(&mut self, lines: &mut Vec<Line>) -> io::Result<bool> {
        let length = match &mut self.input {
            Input::Own(spool) => {
                let length = spool.len()?;
                let lag = length.saturating_sub(self.offset);
                if lag > spool.limit.saturating_mul(LAG_LIMITS).max(2 * CHUNK) {
                    let skipped = lag - CHUNK;
                    self.offset += skipped;
                    self.partial.clear();
                    self.cutting = true;
                    spool.give_back(self.offset);
                    lines.push(Line {
                        source: self.source,
                        text: format!("[{skipped} bytes came faster than they could be read]"),
                    });
                }
                length
            }
            Input::Foreign { path, file } => {
                let there = std::fs::metadata(&*path).ok();
                let open = file.as_ref().and_then(|file| file.metadata().ok());
                let same =
                    |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
                let length = match (open, there) {
                    // The rest of a file that was moved away comes before its successor.
                    (Some(open), _) if open.len() > self.offset => open.len(),
                    (Some(open), Some(there)) if same(&open, &there) => open.len(),
                    (Some(open), None) => open.len(),
                    (_, Some(there)) => {
                        *file = File::open(&*path).ok();
                        self.offset = 0;
                        there.len()
                    }
                    (None, None) => 0,
                };
                if length < self.offset {
                    self.offset = 0;
                }
                length
            }
        };
        let wanted = length.saturating_sub(self.offset).min(CHUNK);
        let file = match &self.input {
            Input::Own(spool) => &spool.file,
            Input::Foreign { file: Some(file), .. } => file,
            Input::Foreign { file: None, .. } => return Ok(false),
        };
        let mut chunk = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
        let read = file.read_at(&mut chunk, self.offset)?;
        self.offset += read as u64;
        self.split(&chunk[..read], lines);
        if let Input::Own(spool) = &mut self.input {
            spool.give_back(self.offset);
        }
        Ok(read > 0)
    }

    fn split(&mut self, chunk: &[u8], lines: &mut Vec<Line>) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = piece
                .strip_suffix(b"\n")
                .map_or((piece, false), |text| (text, true));
            if !self.cutting {
                let room = LINE_LIMIT - self.partial.len();
                self.partial.extend_from_slice(&text[..text.len().min(room)]);
                if ended || text.len() > room {
                    self.end_line(lines);
                    self.cutting = true;
                }
            }
            if ended {
                self.cutting = false;
            }
        }
    }

    /// Adds the last line, where it has no end.
    pub(super) fn finish(&mut self, lines: &mut Vec<Line>) {
        if !self.partial.is_empty() {
            self.end_line(lines);
        }
    }

    fn end_line(&mut self, lines: &mut Vec<Line>) {
        let text = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        lines.push(Line {
            source: self.source,
            text: String::from_utf8_lossy(text).into_owned(),
        });
        self.partial.clear();
        self.partial.shrink_to(LINE_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits these pieces of output, and ends it.
    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut source = Source::foreign(LineSource::Stdout, PathBuf::new());
        let mut lines = Vec::new();
        for piece in pieces {
            source.split(piece, &mut lines);
        }
        source.finish(&mut lines);
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        let whole: &[u8] = b"one\r\n\ntwo \xff\nlast";
        let expected = ["one", "", "two \u{fffd}", "last"];
        for at in 0..=whole.len() {
            let (head, tail) = whole.split_at(at);
            assert_eq!(lines(&[head, tail]), expected);
        }
    }

    #[test]
    fn an_overlong_line_is_cut_once_and_its_rest_left_out() {
        let long = vec![b'x'; LINE_LIMIT * 3];
        for piece in [LINE_LIMIT - 1, LINE_LIMIT, LINE_LIMIT + 1, long.len()] {
            let mut pieces: Vec<&[u8]> = long.chunks(piece).collect();
            pieces.push(b"\nnext\n");
            let lines = lines(&pieces);
            assert_eq!(lines.len(), 2, "in pieces of {piece}");
            assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_LIMIT, "next"));
        }
        let exact = [&long[..LINE_LIMIT], b"\n"].concat();
        assert_eq!(lines(&[&exact]).len(), 1);
    }
}
