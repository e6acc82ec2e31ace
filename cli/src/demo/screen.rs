//! What a person sees while the demo runs. On a terminal, a block for the
//! barrier that everybody waits for is drawn over and over; elsewhere a line is
//! added when its sentence changes.

use std::io::{self, IsTerminal, Write};

use muster_protocol::generation::State;
use muster_protocol::identity::Timestamp;
use muster_wire::answer::{Reason, Status};

use crate::render::{self, visible, visible_line};

/// More lines than this could be more than the terminal has.
const BLOCK_LINES_MAX: usize = 16;
/// More that are missing are a number.
const NAMED_MAX: u32 = 3;
/// Long lines are cut by the terminal, or a block would be higher than counted.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// Where the demo speaks to people.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    live: bool,
    /// The block as it stands there, and what it shows.
    block: Vec<String>,
    shown: Option<Status>,
    /// The last sentence that was added, where nothing is drawn over.
    sentence: String,
}

impl Screen {
    /// On standard error when standard output is for a program.
    pub(crate) fn new(program: bool) -> Self {
        match program {
            true => Self::over(Box::new(io::stderr()), io::stderr().is_terminal()),
            false => Self::over(Box::new(io::stdout()), io::stdout().is_terminal()),
        }
    }

    fn over(out: Box<dyn Write + Send>, live: bool) -> Self {
        Self { out, live, block: Vec::new(), shown: None, sentence: String::new() }
    }

    /// Says something that stays.
    pub(crate) fn say(&mut self, text: &str) {
        let block = std::mem::take(&mut self.block);
        self.erase(block.len());
        self.write(&format!("{}\n", visible(text.trim_end())));
        self.draw(block);
    }

    /// Shows how far a barrier has come; once it has ended, that stays.
    pub(crate) fn show(&mut self, status: &Status, now: Timestamp) {
        let ended = matches!(status.state, State::Released | State::Broken);
        match (self.live, ended) {
            (true, true) => {
                self.erase(self.block.len());
                self.settle();
                self.say(&ended_line(status));
            }
            (true, false) => {
                self.shown = Some(status.clone());
                self.redraw(now);
            }
            (false, true) => self.say(&ended_line(status)),
            (false, false) => self.add(status),
        }
    }

    /// Draws the block again: time passes though nothing happens.
    pub(crate) fn redraw(&mut self, now: Timestamp) {
        if let Some(status) = &self.shown {
            let block = block(status, now);
            self.erase(self.block.len());
            self.draw(block);
        }
    }

    /// Leaves what is drawn as it is.
    pub(crate) fn settle(&mut self) {
        self.block.clear();
        self.shown = None;
    }

    fn add(&mut self, status: &Status) {
        let sentence = format!("{}@{}: {}", status.barrier, status.generation, status.message);
        if sentence != self.sentence {
            let (arrived, expected) = (status.arrived, status.expected);
            let line = format!("◌ {}  {arrived}/{expected}  {}", status.barrier, status.message);
            self.say(&format!("{line}{}", missing(status)));
            self.sentence = sentence;
        }
    }

    fn draw(&mut self, block: Vec<String>) {
        if !block.is_empty() {
            self.write(&format!("{NO_WRAP}{}\n{WRAP}", block.join("\n")));
        }
        self.block = block;
    }

    fn erase(&mut self, lines: usize) {
        if lines > 0 {
            self.write(&format!("\x1b[{lines}A\x1b[J"));
        }
    }

    fn write(&mut self, text: &str) {
        // Nobody reads any more: the demo goes on, its exit code tells.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.flush();
    }
}

fn ended_line(status: &Status) -> String {
    let mark = if status.state == State::Broken { "✖" } else { "✔" };
    let (arrived, expected) = (status.arrived, status.expected);
    format!("{mark} {}  {arrived}/{expected}  {}", status.barrier, status.message)
}

/// Who is missing, where it is a few.
fn missing(status: &Status) -> String {
    let number: u32 = status.regions.iter().map(|region| region.missing_count).sum();
    let names = status.regions.iter().filter(|region| !region.missing.is_empty());
    let names: Vec<String> = names.map(|region| format!("{}/{}", region.name, region.missing)).collect();
    match names.is_empty() || number > NAMED_MAX {
        true => String::new(),
        false => format!(": {}", names.join(", ")),
    }
}

fn block(status: &Status, now: Timestamp) -> Vec<String> {
    let mut lines: Vec<String> = render::tree(status, now).lines().map(str::to_owned).collect();
    let told = !matches!(status.reason, Reason::WaitingForParticipants | Reason::Idle);
    let message = if told { lines.pop() } else { Some(visible_line(&status.message)) };
    if lines.len() > BLOCK_LINES_MAX {
        let more = lines.len() - BLOCK_LINES_MAX;
        lines.truncate(BLOCK_LINES_MAX);
        lines.push(format!("   and {more} regions more"));
    }
    lines.extend(message);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn status(state: &str, arrived: u64, message: &str) -> Status {
        let region = |name: &str, arrived: u64, missing: &str| {
            json!({"name": name, "state": if missing.is_empty() { "complete" } else { "gathering" }, "arrived": arrived,
                   "expected": 2, "failed": 0, "missing": missing, "missingCount": 1, "applied": false, "link": "up"})
        };
        let document: Value = json!({
            "barrier": "demo/map", "generation": "k", "n": 1, "round": 0, "state": state,
            "reason": if state == "gathering" { "waiting-for-participants" } else { "released" }, "message": message,
            "expected": 4, "arrived": arrived, "failed": 0, "waiting": 0, "openedAt": "2026-10-07T12:00:00Z",
            "deadlineAt": null, "decidedAt": null, "index": "x:1", "owner": "", "next": null,
            "regions": [region("a", 2, ""), region("b", arrived - 2, if arrived < 4 { "2" } else { "" })],
            "release": null, "broken": null, "skewSeconds": null, "links": {},
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn elsewhere_a_line_is_added_when_the_sentence_changes() {
        let paper = Paper::default();
        let mut screen = Screen::over(Box::new(paper.clone()), false);
        for message in ["2 missing", "2 missing", "1 missing"] {
            screen.show(&status("gathering", 3, message), Timestamp(0));
        }
        screen.show(&status("released", 4, "released everywhere"), Timestamp(0));
        let expected =
            "◌ demo/map  3/4  2 missing: b/2\n◌ demo/map  3/4  1 missing: b/2\n✔ demo/map  4/4  released everywhere\n";
        assert_eq!(paper.text(), expected);
    }

    #[test]
    fn on_a_terminal_the_block_is_drawn_over_and_what_is_said_stays() {
        let paper = Paper::default();
        let mut screen = Screen::over(Box::new(paper.clone()), true);
        screen.show(&status("gathering", 3, "b/2 is missing"), Timestamp(0));
        let drawn = paper.text();
        assert!(drawn.contains("demo/map@k") && drawn.contains("missing 2"), "{drawn}");
        assert!(drawn.ends_with(&format!("b/2 is missing\n{WRAP}")), "{drawn}");
        screen.say("a note");
        let after = paper.text()[drawn.len()..].to_owned();
        assert!(after.starts_with("\x1b[4A\x1b[Ja note\n"), "{after:?}");
        assert!(after.contains("b/2 is missing"), "drawn again: {after:?}");
        screen.show(&status("released", 4, "released everywhere"), Timestamp(0));
        assert!(paper.text().ends_with("\x1b[4A\x1b[J✔ demo/map  4/4  released everywhere\n"), "{:?}", paper.text());
    }
}
