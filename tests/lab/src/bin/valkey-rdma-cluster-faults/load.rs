//! The load: tasks that count, and what they find. A load tool can tell that a reply is right. That a command ran twice, or an
//! acknowledged one was lost, only a task knows that remembers what it has done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use valkey_rdma_mock::MockCluster;

use crate::servers::SHARDS;
use crate::target::{DEADLINE, Outcome, Target};

/// The running tasks.
pub(crate) struct Load {
    board: Arc<Board>,
    tasks: JoinSet<()>,
}

/// What the tasks write down.
struct Board {
    stop: AtomicBool,
    page: Mutex<Page>,
}

struct Page {
    /// When each shard last answered.
    last_success: [Instant; SHARDS],
    seen: Seen,
}

/// What happened during one event.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The longest time without a success, by shard.
    pub(crate) gaps: [Duration; SHARDS],
    pub(crate) commands: u64,
    /// Acknowledged writes that are gone.
    pub(crate) lost: u64,
    pub(crate) slowest: Duration,
    /// Error texts, with numbers left out, and how often.
    pub(crate) errors: BTreeMap<(Kind, String), u64>,
}

/// What went wrong with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Hung,
    MayHaveRun,
    NotRun,
    Twice,
    Wrong,
}

impl Seen {
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.errors.iter().filter(|((other, _), _)| *other == kind).map(|(_, count)| count).sum()
    }

    pub(crate) fn is_clean(&self) -> bool {
        [Kind::Wrong, Kind::Hung, Kind::Twice].into_iter().all(|kind| self.count(kind) == 0)
    }
}

impl Load {
    /// Starts the tasks, equally many for each shard.
    pub(crate) fn start(target: Arc<Target>, tasks: usize, rate: u32) -> Self {
        let page = Page { last_success: [Instant::now(); SHARDS], seen: Seen::default() };
        let board = Arc::new(Board { stop: AtomicBool::new(false), page: Mutex::new(page) });
        let period = Duration::from_secs(1).mul_f64(tasks as f64 / f64::from(rate.max(1)));
        let mut set = JoinSet::new();
        for number in 0..tasks {
            let (target, board) = (target.clone(), board.clone());
            let first = Instant::now() + period.mul_f64(fastrand::f64());
            set.spawn(async move {
                let mut task = Task::new(number);
                let mut ticks = interval_at(first, period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !board.stop.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    task.step(&target, &board).await;
                }
            });
        }
        Self { board, tasks: set }
    }

    /// Forgets what was seen before.
    pub(crate) fn begin(&self) {
        let _ = self.end();
    }

    /// What was seen since [`begin`](Self::begin).
    pub(crate) fn end(&self) -> Seen {
        let mut page = self.board.page();
        // The gaps that have not ended yet count too.
        (0..SHARDS).for_each(|shard| page.answered(shard));
        std::mem::take(&mut page.seen)
    }

    pub(crate) async fn stop(mut self) {
        self.board.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Board {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) {
        self.page().seen.lost += 1;
    }

    fn error(&self, kind: Kind, text: &str) {
        *self.page().seen.errors.entry((kind, without_numbers(text))).or_default() += 1;
    }
}

impl Page {
    fn answered(&mut self, shard: usize) {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.last_success[shard], now);
        self.seen.gaps[shard] = self.seen.gaps[shard].max(gap);
    }
}

/// With `#` for each number.
fn without_numbers(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if short.ends_with('#') => {}
            true => short.push('#'),
            false => short.push(c),
        }
    }
    short
}

/// One task: a counter that only it increments, and a text that only it writes.
struct Task {
    number: usize,
    shard: usize,
    counter: String,
    text: String,
    /// The counter's value in the last reply.
    counted: i64,
    /// Increments that may have run, and that no reply has shown yet.
    doubts: i64,
    /// The number in the text that was acknowledged last.
    written: Option<u64>,
    steps: u64,
}

impl Task {
    fn new(number: usize) -> Self {
        let shard = number % SHARDS;
        let tag = tag_of(shard, number);
        Self {
            number,
            shard,
            counter: format!("{{{tag}}}:count"),
            text: format!("{{{tag}}}:text"),
            counted: 0,
            doubts: 0,
            written: None,
            steps: 0,
        }
    }

    async fn step(&mut self, target: &Target, board: &Board) {
        self.steps += 1;
        match self.steps % 4 {
            0 => self.write(target, board).await,
            2 => self.read(target, board).await,
            _ => self.count(target, board).await,
        }
    }

    async fn count(&mut self, target: &Target, board: &Board) {
        match self.run(target, board, &["INCR", &self.counter]).await {
            Some(Outcome::Number(value)) => {
                let more = value - self.counted - 1;
                if more > self.doubts {
                    let text = format!("{} after {}, with {} in doubt", value, self.counted, self.doubts);
                    board.error(Kind::Twice, &text);
                    self.doubts = 0;
                } else if more < 0 {
                    // A new primary did not have the last increments.
                    board.lost();
                } else {
                    self.doubts -= more;
                }
                self.counted = value;
                board.page().answered(self.shard);
            }
            Some(Outcome::MayHaveRun(text)) => {
                self.doubts += 1;
                board.error(Kind::MayHaveRun, &text);
            }
            // What becomes of it is unknown.
            None => self.doubts += 1,
            Some(other) => failed(board, other),
        }
    }

    async fn write(&mut self, target: &Target, board: &Board) {
        let text = format!("{}:{}", self.number, self.steps);
        match self.run(target, board, &["SET", &self.text, &text]).await {
            Some(Outcome::Text(Some(ok))) if ok == "OK" => {
                self.written = Some(self.steps);
                board.page().answered(self.shard);
            }
            Some(other) => failed(board, other),
            None => {}
        }
    }

    async fn read(&mut self, target: &Target, board: &Board) {
        match self.run(target, board, &["GET", &self.text]).await {
            Some(Outcome::Text(found)) => {
                let found = found.as_deref().map(|text| self.steps_in(text));
                match (found, self.written) {
                    (Some(None), _) => board.error(Kind::Wrong, "a text of another task"),
                    (Some(Some(step)), _) if step > self.steps => {
                        board.error(Kind::Wrong, "a text that was never written");
                    }
                    (Some(Some(step)), Some(written)) if step < written => board.lost(),
                    (None, Some(_)) => board.lost(),
                    _ => {}
                }
                self.written = found.flatten();
                board.page().answered(self.shard);
            }
            Some(other) => failed(board, other),
            None => {}
        }
    }

    /// The number in a text of this task.
    fn steps_in(&self, text: &str) -> Option<u64> {
        text.strip_prefix(&format!("{}:", self.number))?.parse().ok()
    }

    /// Runs a command. `None`: it hung.
    async fn run(&self, target: &Target, board: &Board, words: &[&str]) -> Option<Outcome> {
        let begun = Instant::now();
        let outcome = timeout(DEADLINE + GRACE, target.run(words)).await;
        let mut page = board.page();
        page.seen.commands += 1;
        page.seen.slowest = page.seen.slowest.max(begun.elapsed());
        drop(page);
        if outcome.is_err() {
            board.error(Kind::Hung, words[0]);
        }
        outcome.ok()
    }
}

fn failed(board: &Board, outcome: Outcome) {
    match outcome {
        Outcome::MayHaveRun(text) => board.error(Kind::MayHaveRun, &text),
        Outcome::NotRun(text) => board.error(Kind::NotRun, &text),
        Outcome::Wrong(text) => board.error(Kind::Wrong, &text),
        other => board.error(Kind::Wrong, &format!("{other:?}")),
    }
}

/// A hash tag in the slots that a shard has at the start.
fn tag_of(shard: usize, number: usize) -> String {
    let tags = (0u64..).map(|salt| format!("{number}-{salt}"));
    let mut own = tags.filter(|tag| usize::from(MockCluster::slot(tag)) * SHARDS / 16384 == shard);
    own.next().expect("there are endless tags")
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Hung => "hung",
            Kind::MayHaveRun => "may have run",
            Kind::NotRun => "not run",
            Kind::Twice => "ran twice",
            Kind::Wrong => "wrong",
        })
    }
}

/// How long a command may take beyond its deadline.
const GRACE: Duration = Duration::from_secs(60);
