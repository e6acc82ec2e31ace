//! Words and their numbers. A word is a maximal run of ASCII letters,
//! lower-cased; everything else, whatever its encoding, stands between words.
//!
//! Two counts are here that share nothing but this definition: [`Counter`],
//! which workers feed with pieces of files, and [`single_pass`], which reads
//! whole files one after the other and which their sum must equal.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read};

/// How often each word occurs. Keys hold a-z only.
pub(crate) type Counts = HashMap<Vec<u8>, u64>;

/// Counts words that come in pieces.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    counts: Counts,
    word: Vec<u8>,
}

impl Counter {
    /// Counts the words that begin in the first `owned` bytes of `text`, to
    /// their ends. `inside` says that the byte before `text` was a letter: then
    /// what it begins with is the end of a word that another piece counts.
    pub(crate) fn piece(&mut self, mut text: impl BufRead, owned: u64, inside: bool) -> io::Result<()> {
        let mut position = 0_u64;
        let mut foreign = inside;
        loop {
            let chunk = text.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let length = chunk.len();
            for &byte in chunk {
                if position >= owned && self.word.is_empty() {
                    return Ok(());
                }
                position += 1;
                if !byte.is_ascii_alphabetic() {
                    foreign = false;
                    self.end_word();
                } else if !foreign {
                    self.word.push(byte.to_ascii_lowercase());
                }
            }
            text.consume(length);
        }
        self.end_word();
        Ok(())
    }

    /// What was counted.
    pub(crate) fn counts(self) -> Counts {
        self.counts
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        match self.counts.get_mut(&self.word) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(self.word.clone(), 1)),
        }
        self.word.clear();
    }
}

/// Adds the words of one whole text, the plain way.
pub(crate) fn single_pass(mut text: impl Read, counts: &mut Counts) -> io::Result<()> {
    const BLOCK: usize = 256 * 1_024;
    let mut block = vec![0; BLOCK];
    // A word that a block cuts in two waits here for its end.
    let mut rest = Vec::new();
    loop {
        let length = text.read(&mut block)?;
        if length == 0 {
            break;
        }
        rest.extend_from_slice(&block[..length]);
        let whole = rest.iter().rposition(|byte| !byte.is_ascii_alphabetic()).map_or(0, |last| last + 1);
        add_words(&rest[..whole], counts);
        rest.drain(..whole);
    }
    add_words(&rest, counts);
    Ok(())
}

fn add_words(text: &[u8], counts: &mut Counts) {
    for run in text.split(|byte| !byte.is_ascii_alphabetic()).filter(|run| !run.is_empty()) {
        *counts.entry(run.to_ascii_lowercase()).or_default() += 1;
    }
}

/// The reducer of a word: FNV-1a, which every worker computes alike.
fn reducer(word: &[u8], reducers: usize) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in word {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The remainder is below a usize.
    (hash % reducers.max(1) as u64) as usize
}

/// Divides counts by the reducer of each word: one file for each, `word count`
/// a line.
pub(crate) fn partition(counts: &Counts, reducers: usize) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new(); reducers];
    for (word, count) in counts {
        let file = &mut files[reducer(word, reducers)];
        file.extend_from_slice(word);
        file.extend_from_slice(format!(" {count}\n").as_bytes());
    }
    files
}

/// Merges what all mappers left for one reducer: `word count count …` a line,
/// sorted.
pub(crate) fn shuffle<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, Malformed> {
    let mut grouped: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
    for file in files {
        for (word, mut counts) in lines(file)? {
            grouped.entry(word).or_default().append(&mut counts);
        }
    }
    let mut merged = Vec::new();
    for (word, counts) in grouped {
        merged.extend_from_slice(word);
        counts.iter().for_each(|count| merged.extend_from_slice(format!(" {count}").as_bytes()));
        merged.push(b'\n');
    }
    Ok(merged)
}

/// Sums what was shuffled for one reducer: `word count` a line, sorted.
pub(crate) fn reduce(file: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut reduced = Vec::new();
    for (word, counts) in lines(file)? {
        reduced.extend_from_slice(word);
        reduced.extend_from_slice(format!(" {}\n", counts.iter().sum::<u64>()).as_bytes());
    }
    Ok(reduced)
}

/// Reads counts back and adds them.
pub(crate) fn read(file: &[u8], counts: &mut Counts) -> Result<(), Malformed> {
    for (word, numbers) in lines(file)? {
        *counts.entry(word.to_vec()).or_default() += numbers.iter().sum::<u64>();
    }
    Ok(())
}

/// A file between phases that no worker wrote like this.
#[derive(Debug, thiserror::Error)]
#[error("line {0} is not a word and its counts")]
pub(crate) struct Malformed(usize);

/// A word and its counts.
type Line<'a> = (&'a [u8], Vec<u64>);

fn lines(file: &[u8]) -> Result<Vec<Line<'_>>, Malformed> {
    // A file that was cut ends without its last newline.
    let Some(text) = file.strip_suffix(b"\n") else {
        return if file.is_empty() {
            Ok(Vec::new())
        } else {
            Err(Malformed(file.split(|byte| *byte == b'\n').count()))
        };
    };
    let read = |(index, line)| line_of(line).ok_or(Malformed(index + 1));
    text.split(|byte| *byte == b'\n').enumerate().map(read).collect()
}

fn line_of(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.split(|byte| *byte == b' ');
    let word = parts.next().filter(|word| !word.is_empty() && word.iter().all(u8::is_ascii_lowercase))?;
    let counts: Vec<u64> = parts.map(|part| std::str::from_utf8(part).ok()?.parse().ok()).collect::<Option<_>>()?;
    (!counts.is_empty()).then_some((word, counts))
}

/// The number of all words.
pub(crate) fn total(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// The most frequent words, those that occur equally often by the alphabet.
pub(crate) fn top(counts: &Counts, number: usize) -> Vec<(String, u64)> {
    let mut words: Vec<(&Vec<u8>, u64)> = counts.iter().map(|(word, count)| (word, *count)).collect();
    words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    words.truncate(number);
    words.into_iter().map(|(word, count)| (String::from_utf8_lossy(word).into_owned(), count)).collect()
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
