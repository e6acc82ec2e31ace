//! Ports that stay a part's own while it is dead, so that it comes back at the
//! address its clients know.
//!
//! Picked below the range from which the kernel gives ports to outgoing
//! connections, and locked by a file, so that test programs which run beside
//! each other do not meet.

use std::fs::{File, TryLockError};
use std::net::TcpListener;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, bail};
use rand::RngExt;

/// Below those of the real services, which begin at 26000.
const PORTS: Range<u16> = 18_000..26_000;
const TRIES_MAX: usize = 2_000;

/// A port, reserved until this is dropped.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port that nobody uses.
    ///
    /// # Errors
    /// None is free, or the folder for the locks can't be written.
    pub fn reserve() -> anyhow::Result<Self> {
        let folder = folder();
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        for _ in 0..TRIES_MAX {
            let number = rand::rng().random_range(PORTS);
            let path = folder.join(number.to_string());
            let lock = File::options().create(true).truncate(false).write(true).open(&path);
            let lock = lock.with_context(|| format!("open {}", path.display()))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error).context("lock a port"),
            }
            // Somebody who knows nothing of the locks may sit on it.
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("no port of {PORTS:?} is free")
    }
}

fn folder() -> PathBuf {
    std::env::temp_dir().join("muster-test-ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_nobody_elses() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(|port| port.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        let path = folder().join(numbers[0].to_string());
        let locked = File::options().write(true).open(path).unwrap().try_lock();
        assert!(matches!(locked, Err(TryLockError::WouldBlock)));
    }
}
