//! One run, from the options to the exit code.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use muster_protocol::name::Key;
use muster_wire::code::Code;
use muster_wire::time::format_duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::arguments::MapreduceArguments;
use super::barriers;
use super::course::Course;
use super::crew::{Crew, Ending};
use super::folder::{self, RunFolder};
use super::follow::{LAST_WORD, Mail, follow};
use super::input::Input;
use super::job::{self, Job};
use super::report::Report;
use super::roster::{Phase, Roster};
use super::screen::Screen;
use super::services::Services;
use super::words::{self, Counts};
use crate::arguments::Format;
use crate::connect::{Context, print};
use crate::failure::Failure;
use crate::render::count;
use crate::signals::Signals;

/// The barriers break at their deadline; this is for services that don't come
/// back at all.
const LIMIT: Duration = Duration::from_secs(barriers::DEADLINE.as_secs() + 30);
const TIMED_OUT: u8 = 124;

/// Runs the demo.
///
/// # Errors
/// As [`demo`](super::demo).
pub(super) async fn mapreduce(arguments: MapreduceArguments, context: &Context) -> Result<(), Failure> {
    let json = match context.format() {
        Format::Table => false,
        Format::Json => true,
        _ => return Err(Failure::usage("the demo prints a table or JSON: -o table or -o json")),
    };
    if let Some(region) = arguments.repeated_region() {
        return Err(Failure::usage(format!("--regions names {region} twice")));
    }
    let deadline = context.until().unwrap_or_else(|| Instant::now() + LIMIT);
    let mut signals = Signals::listen()?;
    let mut screen = Screen::new(json);
    let demo = tokio::select! {
        demo = Demo::prepare(&arguments, &mut screen) => demo?,
        code = signals.next() => return Err(Failure::Code(code)),
        () = sleep_until(deadline) => return Err(too_late("the services were not ready")),
    };
    demo.run(&arguments, deadline, &mut signals, &mut screen, json).await
}

fn too_late(why: &str) -> Failure {
    eprintln!("muster: time is up: {why}");
    Failure::Code(TIMED_OUT)
}

/// A run that is ready to begin.
struct Demo {
    input: Arc<Input>,
    services: Services,
    roster: Roster,
    key: Key,
    folder: RunFolder,
}

impl Demo {
    async fn prepare(arguments: &MapreduceArguments, screen: &mut Screen) -> Result<Self, Failure> {
        let root = arguments.input.clone();
        let input = aside(move || Input::scan(&root)).await?;
        let left_out = input.left_out();
        if input.bytes() == 0 {
            left_out.iter().for_each(|line| screen.say(line));
            let root = arguments.input.display();
            return Err(Failure::usage(format!("there is no text below {root}; name a folder with --input DIR")));
        }
        let services = match &arguments.server {
            Some(server) => Services::running(server, arguments.regions.as_deref()).await?,
            None => Services::embedded(arguments.regions.clone()).await?,
        };
        let regions = services.regions.iter().map(|(region, _)| region.clone()).collect();
        let roster = Roster::new(regions, arguments.workers);
        if let Some(worker) = &arguments.kill {
            roster.check(worker, "--kill").map_err(Failure::Usage)?;
        }
        if let Some((worker, _)) = roster.slow(&arguments.slow) {
            roster.check(&worker, "--slow").map_err(Failure::Usage)?;
        }
        let key = barriers::open(&services.coordinator, &roster).await?;
        let folder = RunFolder::create(key.as_str(), arguments.keep)?;
        screen.say(&format!("run {key}: {} for {}", input.summary(), describe(&roster)));
        left_out.iter().for_each(|line| screen.say(line));
        Ok(Self { input: Arc::new(input), services, roster, key, folder })
    }

    async fn run(
        self,
        arguments: &MapreduceArguments,
        deadline: Instant,
        signals: &mut Signals,
        screen: &mut Screen,
        json: bool,
    ) -> Result<(), Failure> {
        if let Some((worker, by)) =
            self.roster.slow(&arguments.slow).filter(|(one, _)| arguments.kill.as_ref() != Some(one))
        {
            screen.say(&format!("{worker} is slow on purpose, by {} (--slow)", format_duration(by)));
        }
        let mut course = Course::new(self.roster.workers().len());
        let outcome = self.work(arguments, deadline, signals, &mut course, screen).await;
        tokio::select! {
            outcome = self.finish(&mut course, outcome, json, screen, arguments.keep) => outcome,
            // Asked twice: at once.
            code = signals.next() => Err(Failure::Code(code)),
        }
    }

    /// From the first worker to the result. However it ends, no worker is left.
    async fn work(
        &self,
        arguments: &MapreduceArguments,
        deadline: Instant,
        signals: &mut Signals,
        course: &mut Course,
        screen: &mut Screen,
    ) -> Result<(Counts, Counts), Failure> {
        let (post, mut mail) = Mail::new(&self.services.coordinator, &self.key);
        let input = self.input.clone();
        let single_pass = aside(move || input.count());
        let crew = Crew::hire(self.jobs(arguments, deadline), arguments.kill.as_ref(), &post)?;
        let ended = tokio::select! {
            outcome = async {
                follow(course, &mut mail, screen).await;
                screen.settle();
                self.conclude(course, single_pass, deadline, screen).await
            } => Ok(outcome),
            code = signals.next() => Err(("interrupted", code)),
            () = sleep_until(deadline) => Err(("time is up", TIMED_OUT)),
        };
        drop(mail);
        crew.dismiss().await;
        ended.unwrap_or_else(|(why, code)| {
            screen.settle();
            screen.say(&format!("{why}: every worker is ended"));
            Err(Failure::Code(code))
        })
    }

    fn jobs(&self, arguments: &MapreduceArguments, deadline: Instant) -> Vec<Job> {
        let workers = self.roster.workers();
        let count = workers.len();
        let slow = self.roster.slow(&arguments.slow);
        let shares = self.input.split(count);
        let job = |(place, (worker, share)): (usize, (_, _))| {
            let rest = match &slow {
                // Time enough to be killed in.
                _ if arguments.kill.as_ref() == Some(&worker) => LIMIT,
                Some((one, by)) if *one == worker => *by,
                _ => Duration::ZERO,
            };
            let agents = self.services.regions.iter().find(|(region, _)| *region == worker.region);
            Job {
                key: self.key.clone(),
                place,
                workers: count,
                shuffles: job::shuffles(place, self.roster.per_region(), self.roster.regions()),
                agents: agents.map(|(_, agents)| agents.clone()).unwrap_or_default(),
                folder: self.folder.path().as_os_str().to_owned(),
                share,
                rest,
                limit: deadline.saturating_duration_since(Instant::now()),
                worker,
            }
        };
        workers.into_iter().zip(shares).enumerate().map(job).collect()
    }

    /// Every worker has ended: what came of it?
    async fn conclude(
        &self,
        course: &mut Course,
        single_pass: impl Future<Output = anyhow::Result<Counts>>,
        deadline: Instant,
        screen: &mut Screen,
    ) -> Result<(Counts, Counts), Failure> {
        if let Some((phase, _)) = course.broken() {
            let (heard, living) = (course.count(&Ending::Heard), course.living());
            screen.say(&format!("{heard} of {living} workers that live heard that {} is broken", phase.name()));
            return Err(Failure::Code(Code::Broken.exit()));
        }
        if !course.all_done() {
            return Err(anyhow::anyhow!("not every worker did its work, as said above").into());
        }
        // The demo reads the result, so it waits for its release like anybody.
        let target = barriers::target(Phase::Reduce, &self.key)?;
        self.services.coordinator.wait(&target, Some(deadline)).await?;
        let counts = self.collect()?;
        Ok((counts, single_pass.await?))
    }

    /// Puts together what the reducers left.
    fn collect(&self) -> anyhow::Result<Counts> {
        let mut counts = Counts::new();
        for reducer in 0..self.roster.workers().len() {
            let path = self.folder.path().join(folder::reduced(reducer));
            words::read(&folder::read(&path)?, &mut counts).with_context(|| format!("read {}", path.display()))?;
        }
        Ok(counts)
    }

    /// Leaves nothing open, and prints what there is to print.
    async fn finish(
        self,
        course: &mut Course,
        outcome: Result<(Counts, Counts), Failure>,
        json: bool,
        screen: &mut Screen,
        keep: bool,
    ) -> Result<(), Failure> {
        if outcome.is_err() {
            let why = course
                .broken()
                .map_or_else(|| "the demo ended early".to_owned(), |(phase, _)| format!("{} broke", phase.name()));
            barriers::abort(&self.services.coordinator, &self.key, &course.open(), &why).await;
        }
        self.last_words(course).await;
        let expected = self.roster.workers().len() as u64;
        let result = outcome.as_ref().ok().map(|(counts, single_pass)| (counts, single_pass));
        let report = Report::new(self.key.as_str(), course, expected, result);
        if let Some((_, single_pass)) = result {
            screen.say(&format!("\n{}", report.result(single_pass)));
            if !report.matches() {
                self.input
                    .changed()
                    .iter()
                    .for_each(|file| screen.say(&format!("{} changed meanwhile", file.display())));
            }
        }
        screen.say(&format!("\n{}", report.barriers()));
        if keep {
            screen.say(&format!("kept: {}", self.folder.path().display()));
        }
        self.services.stop().await;
        if json {
            let object = serde_json::to_string(&report).context("write JSON")?;
            print(&format!("{object}\n"))?;
        }
        match outcome {
            Ok(_) if report.matches() => Ok(()),
            Ok(_) => Err(Failure::Code(1)),
            Err(failure) => Err(failure),
        }
    }

    /// Asks once more about barriers whose end was not told yet.
    async fn last_words(&self, course: &mut Course) {
        let coordinator = self.services.coordinator.clone().until(Instant::now() + LAST_WORD);
        for phase in course.open() {
            if let Ok(status) = barriers::status(&coordinator, phase, &self.key).await {
                course.status(phase, status);
            }
        }
    }
}

/// Runs something that takes its time on a thread of its own, which nobody
/// waits for when the demo ends before it.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> impl Future<Output = anyhow::Result<T>> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || sender.send(work()));
    async move { receiver.await.context("a thread of the demo ended without a result")? }
}

fn describe(roster: &Roster) -> String {
    let workers = count(roster.workers().len() as u64, "worker");
    match roster.regions() {
        [one] => format!("{workers} in {one}"),
        many => {
            let regions: Vec<&str> = many.iter().map(|region| region.as_str()).collect();
            format!("{workers}, {} in each of {}", roster.per_region(), regions.join(", "))
        }
    }
}
