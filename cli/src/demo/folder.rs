//! The folder of one run, in which workers leave files for each other:
//!
//! ```text
//! map/<worker>/<reducer>    what a worker counted, by reducer
//! shuffle/<reducer>         the same by reducer alone
//! reduce/<reducer>          its sums
//! ```
//!
//! A file is there whole or not at all, also after a crash: it is written
//! under another name, synced, and renamed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The folder of a run, removed when it is dropped unless it is to be kept.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    keep: bool,
}

impl RunFolder {
    /// Creates the folder of the run `key`, for nobody but this user.
    ///
    /// # Errors
    /// It is there, or can't be created.
    pub(crate) fn create(key: &str, keep: bool) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("muster-demo-{key}"));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("create {} (TMPDIR names another place)", path.display()))?;
        Ok(Self { path, keep })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.keep {
            // The system clears its temporary files; a run does not fail for it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The file that a mapper leaves for a reducer, below the run's folder.
pub(crate) fn mapped(worker: &str, reducer: usize) -> PathBuf {
    Path::new("map").join(worker).join(reducer.to_string())
}

/// The file that a shuffler leaves for a reducer.
pub(crate) fn shuffled(reducer: usize) -> PathBuf {
    Path::new("shuffle").join(reducer.to_string())
}

/// The file that a reducer leaves.
pub(crate) fn reduced(reducer: usize) -> PathBuf {
    Path::new("reduce").join(reducer.to_string())
}

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    write_whole(path, content).with_context(|| format!("write {}", path.display()))
}

fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(folder)?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = folder.join(unfinished);
    let mut file = File::create(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(folder)?.sync_all()
}

/// Reads a file that another worker left.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_the_folder_goes_with_its_run() {
        let folder = RunFolder::create(&format!("test-{}", std::process::id()), false).unwrap();
        let path = folder.path().join(mapped("ap-south-2", 7));
        write(&path, b"a 1\n").unwrap();
        write(&path, b"a 2\n").unwrap();
        assert_eq!(read(&path).unwrap(), b"a 2\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing unfinished is left");
        let root = folder.path().to_owned();
        assert!(RunFolder::create(&format!("test-{}", std::process::id()), false).is_err(), "never shared");
        drop(folder);
        assert!(!root.exists());
    }
}
