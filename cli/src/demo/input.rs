//! The text to count: which files, and who maps which bytes of them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use walkdir::{DirEntry, WalkDir};

use super::words::{Counter, Counts, single_pass};
use crate::render::count;

/// A file with a zero byte so near its beginning is not text.
const PROBE_BYTES: u64 = 1_024;
const BUFFER_BYTES: usize = 256 * 1_024;
/// Folders of tools rather than of people; hidden ones are left out as well.
const TOOL_FOLDERS: &[&str] = &["target", "node_modules", "CVS"];

/// Text files below a folder, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Input {
    files: Vec<TextFile>,
    skipped: Skipped,
}

#[derive(Debug)]
struct TextFile {
    path: PathBuf,
    /// At the scan. What is written to it later is not part of the input.
    size: u64,
    changed: Option<SystemTime>,
}

/// What was found and left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Skipped {
    folders: u64,
    binaries: u64,
    links: u64,
    unreadable: Vec<String>,
}

/// Bytes of one file that one worker maps: the words that begin in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slice {
    /// Not text: a name may be any bytes.
    file: OsString,
    from: u64,
    to: u64,
    /// Of the file, at the scan.
    size: u64,
}

impl Input {
    /// Finds the text files below `root`, which may also be a file itself.
    ///
    /// # Errors
    /// `root` can't be read at all.
    pub(crate) fn scan(root: &Path) -> anyhow::Result<Self> {
        let mut input = Self::default();
        fs::metadata(root).with_context(|| format!("read the input {}", root.display()))?;
        let mut entries = WalkDir::new(root).sort_by_file_name().into_iter();
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {
                    if entry.depth() > 0 && of_a_tool(&entry) {
                        input.skipped.folders += 1;
                        entries.skip_current_dir();
                    }
                }
                Ok(entry) => input.add(&entry),
                Err(error) if error.depth() == 0 => {
                    return Err(error).with_context(|| format!("read the input {}", root.display()));
                }
                Err(error) => input.skipped.unreadable.push(error.to_string()),
            }
        }
        Ok(input)
    }

    fn add(&mut self, entry: &DirEntry) {
        // The root alone is followed when it is a link: it was named.
        if entry.path_is_symlink() && entry.depth() > 0 {
            self.skipped.links += 1;
            return;
        }
        match TextFile::open(entry.path()) {
            Ok(Some(file)) if file.size > 0 => self.files.push(file),
            Ok(Some(_)) => {}
            Ok(None) => self.skipped.binaries += 1,
            Err(error) => self.skipped.unreadable.push(format!("{}: {error}", entry.path().display())),
        }
    }

    /// How many bytes there are to count.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// What there is, in one line.
    pub(crate) fn summary(&self) -> String {
        format!("{} in {}", size(self.bytes()), count(self.files.len() as u64, "text file"))
    }

    /// What was left out, in a few lines.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let Skipped { folders, binaries, links, unreadable } = &self.skipped;
        let kinds = [
            (*folders, "folder", " that is hidden or a tool's", "s that are hidden or tools'"),
            (*binaries, "file", " that is not text", "s that are not text"),
            (*links, "link", "", "s"),
        ];
        let kinds = kinds.into_iter().filter(|kind| kind.0 > 0).map(|(number, what, one, many)| match number {
            1 => format!("1 {what}{one}"),
            _ => format!("{number} {what}{many}"),
        });
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let mut lines = if kinds.is_empty() { Vec::new() } else { vec![format!("left out: {kinds}")] };
        lines.extend(unreadable.iter().take(5).map(|error| format!("left out, can't be read: {error}")));
        if let more @ 1.. = unreadable.len().saturating_sub(5) {
            lines.push(format!("left out, can't be read: {more} more"));
        }
        lines
    }

    /// Divides all bytes evenly between so many workers.
    pub(crate) fn split(&self, workers: usize) -> Vec<Vec<Slice>> {
        let total = u128::from(self.bytes());
        // Below a u64, since it is at most the total.
        let edge = |worker: usize| (total * worker as u128 / workers as u128) as u64;
        let mut files = self.files.iter().peekable();
        // Where the current file begins, counted over all files.
        let mut start = 0;
        let mut shares = Vec::with_capacity(workers);
        for worker in 0..workers {
            let (first, last) = (edge(worker), edge(worker + 1));
            let mut share = Vec::new();
            while let Some(file) = files.peek() {
                let (from, to) = (first.max(start), last.min(start + file.size));
                if from < to {
                    share.push(file.slice(from - start, to - start));
                }
                if last < start + file.size {
                    break;
                }
                start += file.size;
                files.next();
            }
            shares.push(share);
        }
        shares
    }

    /// Counts all of it in one pass, file after file.
    pub(crate) fn count(&self) -> anyhow::Result<Counts> {
        let mut counts = Counts::new();
        for TextFile { path, size, .. } in &self.files {
            File::open(path)
                .and_then(|file| single_pass(file.take(*size), &mut counts))
                .with_context(|| format!("read {}", path.display()))?;
        }
        Ok(counts)
    }

    /// Files that are not any more what they were at the scan.
    pub(crate) fn changed(&self) -> Vec<&Path> {
        let same = |file: &&TextFile| {
            let now = fs::metadata(&file.path).ok();
            now.is_some_and(|now| now.len() == file.size && now.modified().ok() == file.changed)
        };
        self.files.iter().filter(|file| !same(file)).map(|file| file.path.as_path()).collect()
    }
}

impl TextFile {
    /// `None` for what is not text, or not a file.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        // Before it is opened: opening a pipe would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut beginning = Vec::new();
        file.take(PROBE_BYTES).read_to_end(&mut beginning)?;
        let text = !beginning.contains(&0);
        Ok(text.then(|| Self { path: path.to_owned(), size: metadata.len(), changed: metadata.modified().ok() }))
    }

    fn slice(&self, from: u64, to: u64) -> Slice {
        Slice { file: self.path.clone().into_os_string(), from, to, size: self.size }
    }
}

impl Slice {
    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.to - self.from
    }

    /// Counts the words that begin here.
    pub(crate) fn count(&self, counter: &mut Counter) -> anyhow::Result<()> {
        self.read(counter).with_context(|| format!("read {}", self.file.display()))
    }

    fn read(&self, counter: &mut Counter) -> io::Result<()> {
        let mut file = File::open(&self.file)?;
        let mut before = [0];
        if self.from > 0 {
            file.seek(SeekFrom::Start(self.from - 1))?;
            file.read_exact(&mut before)?;
        }
        let text = BufReader::with_capacity(BUFFER_BYTES, file.take(self.size - self.from));
        counter.piece(text, self.bytes(), before[0].is_ascii_alphabetic())
    }
}

fn of_a_tool(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    name.as_encoded_bytes().starts_with(b".") || TOOL_FOLDERS.iter().any(|tool| name == *tool)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => count(bytes, "byte"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
