//! Failpoints, in builds for tests alone: `FAILPOINTS="store.before_commit=panic"`
//! ends the process at that step as `kill -9` would, with nothing tidied up.

use std::panic::{PanicHookInfo, set_hook, take_hook};

use rustix::process::{Signal, getpid, kill_process};

/// Reads `FAILPOINTS`, once, before anything else runs.
pub(crate) fn arm() {
    // Never torn down: the process ends with them armed.
    std::mem::forget(fail::FailScenario::setup());
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        usual(panic);
        if of_failpoint(panic) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }));
}

fn of_failpoint(panic: &PanicHookInfo<'_>) -> bool {
    let message = panic.payload_as_str().unwrap_or_default();
    message.starts_with("failpoint ") && message.ends_with(" panic")
}
