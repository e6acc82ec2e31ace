//! Follows a run while it goes on: workers tell by their supervisors, the
//! coordinator is asked, and a person sees it.

use std::time::Duration;

use muster_client::Client;
use muster_protocol::generation::State;
use muster_protocol::name::Key;
use muster_wire::answer::Status;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::barriers;
use super::course::Course;
use super::crew::{News, Post};
use super::roster::Phase;
use super::screen::Screen;
use crate::render::now;

/// How long the coordinator may take to say how a barrier ended.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(5);
/// A blocking read of a status asks for so long at a time.
const STATUS_HOLD: Duration = Duration::from_secs(10);
/// Between two reads of a status, however fast they are answered.
const STATUS_PAUSE: Duration = Duration::from_millis(50);
const STATUS_PAUSE_IN_TROUBLE: Duration = Duration::from_secs(1);
/// How often what a person sees is drawn again though nothing happened.
const REDRAW: Duration = Duration::from_millis(500);
const MAIL_MAX: usize = 1_024;

/// How far a barrier is, or why that can't be told.
type Told = Result<(Phase, Status), String>;

/// What comes in: from the workers, and of the barriers.
pub(crate) struct Mail {
    workers: mpsc::Receiver<(usize, News)>,
    statuses: mpsc::Receiver<Told>,
    /// Ends with this.
    _watch: JoinSet<()>,
}

impl Mail {
    /// Begins to ask the coordinator. Supervisors write to the post.
    pub(crate) fn new(coordinator: &Client, key: &Key) -> (Post, Self) {
        let (post, workers) = mpsc::channel(MAIL_MAX);
        let (told, statuses) = mpsc::channel(1);
        let mut watching = JoinSet::new();
        watching.spawn(watch(coordinator.clone(), key.clone(), told));
        (post, Self { workers, statuses, _watch: watching })
    }
}

/// Hears workers and the coordinator until all workers have ended and all
/// barriers are told of, which must not take long after that.
pub(crate) async fn follow(course: &mut Course, mail: &mut Mail, screen: &mut Screen) {
    let mut last_word = None;
    let mut redraw = interval(REDRAW);
    while !(course.all_ended() && course.told()) {
        if course.all_ended() && last_word.is_none() {
            last_word = Some(Instant::now() + LAST_WORD);
        }
        tokio::select! {
            // Deaths are told before the verdicts that they cause.
            biased;
            Some((worker, news)) = mail.workers.recv() => match news {
                News::Event(event) => course.event(worker, event),
                News::Note(note) => screen.say(&note),
                News::Ended(ending) => course.ended(worker, ending),
            },
            Some(told) = mail.statuses.recv() => match told {
                Ok((phase, status)) => {
                    screen.show(&status, now());
                    course.status(phase, status);
                }
                Err(note) => screen.say(&note),
            },
            _ = redraw.tick() => screen.redraw(now()),
            () = sleep_until(last_word.unwrap_or_else(Instant::now)), if last_word.is_some() => return,
        }
    }
}

/// Tells of each change of the barriers, one after the other, until the last
/// has ended or one broke.
async fn watch(coordinator: Client, key: Key, told: mpsc::Sender<Told>) {
    let mut phases = Phase::ALL.into_iter();
    let mut next = phases.next();
    let mut index: Option<String> = None;
    let mut trouble = String::new();
    while let Some(phase) = next {
        let Ok(target) = barriers::target(phase, &key) else { return };
        let newer = index.as_deref().map(|index| (index, STATUS_HOLD));
        let (news, pause) = match coordinator.status(&target, newer).await {
            Ok(status) => {
                trouble.clear();
                index = Some(status.index.clone());
                match status.state {
                    State::Broken => next = None,
                    State::Released => (next, index) = (phases.next(), None),
                    _ => {}
                }
                (Some(Ok((phase, status))), STATUS_PAUSE)
            }
            Err(error) => {
                let sentence = format!("the coordinator does not say how far it is: {error}");
                let new = sentence != trouble;
                trouble.clone_from(&sentence);
                (new.then_some(Err(sentence)), STATUS_PAUSE_IN_TROUBLE)
            }
        };
        if let Some(news) = news
            && told.send(news).await.is_err()
        {
            return;
        }
        sleep(pause).await;
    }
}
