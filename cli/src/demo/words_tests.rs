use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn plain(text: &[u8]) -> Counts {
    let mut counts = Counts::new();
    single_pass(text, &mut counts).unwrap();
    counts
}

fn counts(words: &[(&str, u64)]) -> Counts {
    words.iter().map(|(word, count)| (word.as_bytes().to_vec(), *count)).collect()
}

/// Counts `text` cut at `cuts`, as workers do.
fn in_pieces(text: &[u8], cuts: &[usize]) -> Vec<Counts> {
    let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).chain([0, text.len()]).collect();
    edges.sort_unstable();
    let piece = |edge: &[usize]| {
        let (from, to) = (edge[0], edge[1]);
        let mut counter = Counter::default();
        let inside = from > 0 && text[from - 1].is_ascii_alphabetic();
        counter.piece(Cursor::new(&text[from..]), (to - from) as u64, inside).unwrap();
        counter.counts()
    };
    edges.windows(2).map(piece).collect()
}

#[test]
fn a_word_is_a_run_of_ascii_letters() {
    let text = "It's the THE\u{00e9}the 3rd; na\u{00ef}ve\0end".as_bytes();
    let expected = counts(&[("it", 1), ("s", 1), ("the", 3), ("rd", 1), ("na", 1), ("ve", 1), ("end", 1)]);
    assert_eq!(plain(text), expected);
    assert_eq!(in_pieces(text, &[]), [expected]);
    assert!(plain(b"12 34 \xff\xfe").is_empty());
}

#[test]
fn a_word_longer_than_a_block_is_one_word() {
    let mut text = vec![b'a'; 600_000];
    text.extend_from_slice(b" b");
    let found = plain(&text);
    assert_eq!((found.len(), total(&found)), (2, 2));
    assert_eq!(in_pieces(&text, &[])[0], found);
}

#[test]
fn the_top_is_ordered_by_count_then_alphabet() {
    let found = top(&counts(&[("b", 2), ("a", 2), ("c", 9), ("d", 1)]), 3);
    assert_eq!(found, [("c".to_owned(), 9), ("a".to_owned(), 2), ("b".to_owned(), 2)]);
}

#[test]
fn files_that_were_cut_or_altered_are_refused() {
    assert!(lines(b"").unwrap().is_empty());
    for (bad, line) in [(&b"a 1"[..], 1), (b"a 1\nb", 2), (b"a\n", 1), (b"a 1\n\n", 2), (b"A 1\n", 1), (b"a x\n", 1)] {
        assert_eq!(reduce(bad).unwrap_err().0, line, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn map_shuffle_reduce_equals_a_single_pass(
        text in vec(prop_oneof![4 => proptest::sample::select(b"abcABC".to_vec()), 1 => any::<u8>(), 1 => Just(b' ')], 0..400),
        cuts in vec(any::<usize>(), 0..8),
        reducers in 1_usize..6,
    ) {
        let mapped: Vec<Vec<Vec<u8>>> =
            in_pieces(&text, &cuts).iter().map(|counts| partition(counts, reducers)).collect();
        let mut found = Counts::new();
        for reducer in 0..reducers {
            let shuffled = shuffle(mapped.iter().map(|files| files[reducer].as_slice())).unwrap();
            let reduced = reduce(&shuffled).unwrap();
            let mut part = Counts::new();
            read(&reduced, &mut part).unwrap();
            // No word has two reducers.
            prop_assert!(part.keys().all(|word| !found.contains_key(word)));
            found.extend(part);
        }
        prop_assert_eq!(found, plain(&text));
    }

    #[test]
    fn any_reading_in_chunks_counts_the_same(text in vec(any::<u8>(), 0..200), chunk in 1_usize..9) {
        let mut counter = Counter::default();
        let reader = io::BufReader::with_capacity(chunk, Cursor::new(&text));
        counter.piece(reader, text.len() as u64, false).unwrap();
        prop_assert_eq!(counter.counts(), plain(&text));
    }
}
