use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::folder::RunFolder;
use super::*;

fn folder(name: &str) -> RunFolder {
    RunFolder::create(&format!("input-{name}-{}", std::process::id()), false).unwrap()
}

fn put(root: &RunFolder, name: impl AsRef<Path>, content: &[u8]) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn counted(shares: &[Vec<Slice>]) -> Counts {
    let mut all = Counts::new();
    for share in shares {
        let mut counter = Counter::default();
        share.iter().for_each(|slice| slice.count(&mut counter).unwrap());
        counter.counts().into_iter().for_each(|(word, count)| *all.entry(word).or_default() += count);
    }
    all
}

#[test]
fn text_is_found_and_all_else_is_told() {
    let root = folder("found");
    put(&root, "a b.txt", b"one two");
    put(&root, "sub/c", b"two\n");
    put(&root, ".hidden-file", b"three");
    put(&root, OsString::from_vec(b"caf\xe9".to_vec()), b"four");
    put(&root, "empty", b"");
    put(&root, "image", b"\x89PNG\0 word");
    put(&root, ".git/config", b"no");
    put(&root, "target/debug/x.d", b"no");
    symlink(root.path().join("a b.txt"), root.path().join("link")).unwrap();
    symlink(root.path(), root.path().join("circle")).unwrap();
    let input = Input::scan(root.path()).unwrap();
    assert_eq!(input.summary(), "20 bytes in 4 text files");
    let left_out = ["left out: 2 folders that are hidden or tools', 1 file that is not text, 2 links"];
    assert_eq!(input.left_out(), left_out);
    let counts = input.count().unwrap();
    assert_eq!(counts[&b"two".to_vec()], 2);
    assert_eq!(counted(&input.split(9)), counts);
    assert!(input.changed().is_empty());
    put(&root, "sub/c", b"three\n");
    assert_eq!(input.changed(), [root.path().join("sub/c")]);
}

#[test]
fn a_root_is_what_was_named_whatever_it_is_called() {
    let root = folder("root");
    put(&root, ".tool/target/a", b"one");
    let hidden = root.path().join(".tool/target");
    assert_eq!(Input::scan(&hidden).unwrap().bytes(), 3);
    assert_eq!(Input::scan(&hidden.join("a")).unwrap().bytes(), 3, "a single file");
    symlink(&hidden, root.path().join("link")).unwrap();
    assert_eq!(Input::scan(&root.path().join("link")).unwrap().bytes(), 3, "a link that was named");
    assert_eq!(Input::scan(root.path()).unwrap().bytes(), 0);
    let missing = format!("{:#}", Input::scan(&root.path().join("nowhere")).unwrap_err());
    assert!(missing.contains("nowhere"), "{missing}");
}

#[test]
fn shares_are_even_and_cut_files() {
    let root = folder("even");
    put(&root, "a", &[b'x'; 100]);
    put(&root, "b", b"y");
    let input = Input::scan(root.path()).unwrap();
    let shares = input.split(4);
    let sizes: Vec<u64> = shares.iter().map(|share| share.iter().map(Slice::bytes).sum()).collect();
    assert_eq!(sizes, [25, 25, 25, 26]);
    // One word in three pieces is one word.
    assert_eq!(counted(&shares), input.count().unwrap());
    assert_eq!(Input::default().split(2), [vec![], vec![]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_byte_has_one_worker(sizes in vec(1_u64..50, 0..8), workers in 1_usize..12) {
        let file = |(index, &size): (usize, &u64)| TextFile { path: index.to_string().into(), size, changed: None };
        let input = Input { files: sizes.iter().enumerate().map(file).collect(), skipped: Skipped::default() };
        let shares = input.split(workers);
        prop_assert_eq!(shares.len(), workers);
        let mut reached = vec![0; sizes.len()];
        for slice in shares.iter().flatten() {
            let file: usize = slice.file.to_str().unwrap().parse().unwrap();
            prop_assert_eq!(reached[file], slice.from);
            prop_assert!(slice.from < slice.to);
            reached[file] = slice.to;
        }
        prop_assert_eq!(reached, sizes);
    }
}
