//! Starting processes that end when this program does, even if it is killed.
//!
//! Linux can send a process a signal when its parent dies (`prctl`'s
//! `PR_SET_PDEATHSIG`, which `setpriv` sets). The parent it means is the thread
//! that started it, so all are started by one thread that lives as long as the
//! program.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

use anyhow::Context;

type Order = (Command, mpsc::SyncSender<std::io::Result<Child>>);

/// Starts a command, which should be [`mortal`].
///
/// # Errors
/// It can't be started.
pub fn spawn(command: Command) -> anyhow::Result<Child> {
    static ORDERS: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, ordered) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in ordered {
                // Nobody waits any more for an answer that can't be sent.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = mpsc::sync_channel(1);
    let what = format!("{command:?}");
    orders.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).context("start a process")?;
    answered.recv().context("start a process")?.with_context(|| format!("start {what}"))
}

/// A command that becomes `program` and is killed when this program ends.
#[must_use]
pub fn mortal(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
