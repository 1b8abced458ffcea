//! The load: tasks that count, and what they find.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    started: Instant,
    stop: AtomicBool,
    shards: [Shard; SHARDS],
    commands: AtomicU64,
    wrong: AtomicU64,
    hung: AtomicU64,
    twice: AtomicU64,
    lost: AtomicU64,
    not_run: AtomicU64,
    may_have_run: AtomicU64,
    slowest_us: AtomicU64,
    /// Error texts of this event, with numbers left out, and how often.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// When a shard last answered.
#[derive(Default)]
struct Shard {
    /// Microseconds since the start.
    last_success: AtomicU64,
    longest_gap: AtomicU64,
}

/// What happened during one event.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The longest time without a success, by shard.
    pub(crate) gaps: [Duration; SHARDS],
    pub(crate) commands: u64,
    pub(crate) wrong: u64,
    pub(crate) hung: u64,
    pub(crate) twice: u64,
    pub(crate) lost: u64,
    pub(crate) not_run: u64,
    pub(crate) may_have_run: u64,
    pub(crate) slowest: Duration,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Seen {
    pub(crate) fn is_clean(&self) -> bool {
        self.wrong == 0 && self.hung == 0 && self.twice == 0
    }
}

impl Load {
    /// Starts the tasks, equally many for each shard.
    pub(crate) fn start(target: Arc<Target>, tasks: usize, rate: u32) -> Self {
        let board = Arc::new(Board::new());
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
        self.board.take()
    }

    pub(crate) async fn stop(mut self) {
        self.board.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Board {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            stop: AtomicBool::new(false),
            shards: Default::default(),
            commands: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            not_run: AtomicU64::new(0),
            may_have_run: AtomicU64::new(0),
            slowest_us: AtomicU64::new(0),
            errors: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        micros(self.started.elapsed())
    }

    fn success(&self, shard: usize) {
        let now = self.now();
        let shard = &self.shards[shard];
        let last = shard.last_success.swap(now, Ordering::Relaxed);
        shard.longest_gap.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
    }

    fn error(&self, counter: &AtomicU64, kind: &str, text: &str) {
        add(counter);
        let text: String = text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(format!("{kind}: {}", squeeze(&text))).or_default() += 1;
    }

    fn take(&self) -> Seen {
        let now = self.now();
        let gaps = std::array::from_fn(|index| {
            let shard = &self.shards[index];
            // The gap that has not ended yet counts too.
            let current = now.saturating_sub(shard.last_success.swap(now, Ordering::Relaxed));
            Duration::from_micros(shard.longest_gap.swap(0, Ordering::Relaxed).max(current))
        });
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Seen {
            gaps,
            commands: take(&self.commands),
            wrong: take(&self.wrong),
            hung: take(&self.hung),
            twice: take(&self.twice),
            lost: take(&self.lost),
            not_run: take(&self.not_run),
            may_have_run: take(&self.may_have_run),
            slowest: Duration::from_micros(take(&self.slowest_us)),
            errors: std::mem::take(&mut *self.errors.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Runs of `#` as one.
fn squeeze(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars() {
        if c != '#' || !short.ends_with('#') {
            short.push(c);
        }
    }
    short
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
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
                    board.error(&board.twice, "ran twice", &text);
                    self.doubts = 0;
                } else if more < 0 {
                    // A new primary did not have the last increments.
                    add(&board.lost);
                } else {
                    self.doubts -= more;
                }
                self.counted = value;
                board.success(self.shard);
            }
            Some(Outcome::MayHaveRun(text)) => {
                self.doubts += 1;
                board.error(&board.may_have_run, "may have run", &text);
            }
            // What becomes of it is unknown.
            None => self.doubts += 1,
            Some(other) => self.failed(board, other),
        }
    }

    async fn write(&mut self, target: &Target, board: &Board) {
        let text = format!("{}:{}", self.number, self.steps);
        match self.run(target, board, &["SET", &self.text, &text]).await {
            Some(Outcome::Text(Some(ok))) if ok == "OK" => {
                self.written = Some(self.steps);
                board.success(self.shard);
            }
            Some(other) => self.failed(board, other),
            None => {}
        }
    }

    async fn read(&mut self, target: &Target, board: &Board) {
        match self.run(target, board, &["GET", &self.text]).await {
            Some(Outcome::Text(found)) => {
                let found = found.as_deref().map(|text| self.steps_in(text));
                match (found, self.written) {
                    (Some(None), _) => board.error(&board.wrong, "wrong", "a text of another task"),
                    (Some(Some(step)), _) if step > self.steps => {
                        board.error(&board.wrong, "wrong", "a text that was never written");
                    }
                    (Some(Some(step)), Some(written)) if step < written => add(&board.lost),
                    (None, Some(_)) => add(&board.lost),
                    _ => {}
                }
                self.written = found.flatten();
                board.success(self.shard);
            }
            Some(other) => self.failed(board, other),
            None => {}
        }
    }

    /// The number in a text of this task.
    fn steps_in(&self, text: &str) -> Option<u64> {
        text.strip_prefix(&format!("{}:", self.number))?.parse().ok()
    }

    /// Runs a command. `None`: it hung.
    async fn run(&self, target: &Target, board: &Board, words: &[&str]) -> Option<Outcome> {
        add(&board.commands);
        let begun = Instant::now();
        let outcome = timeout(DEADLINE + GRACE, target.run(words)).await;
        board.slowest_us.fetch_max(micros(begun.elapsed()), Ordering::Relaxed);
        if outcome.is_err() {
            board.error(&board.hung, "hung", words[0]);
        }
        outcome.ok()
    }

    fn failed(&self, board: &Board, outcome: Outcome) {
        match outcome {
            Outcome::MayHaveRun(text) => board.error(&board.may_have_run, "may have run", &text),
            Outcome::NotRun(text) => board.error(&board.not_run, "not run", &text),
            Outcome::Wrong(text) => board.error(&board.wrong, "wrong", &text),
            other => board.error(&board.wrong, "wrong", &format!("{other:?}")),
        }
    }
}

/// A hash tag in the slots that a shard has at the start.
fn tag_of(shard: usize, number: usize) -> String {
    let tags = (0u64..).map(|salt| format!("{number}-{salt}"));
    let mut own = tags.filter(|tag| usize::from(MockCluster::slot(tag)) * SHARDS / 16384 == shard);
    own.next().expect("there are endless tags")
}

/// How long a command may take beyond its deadline.
const GRACE: Duration = Duration::from_secs(60);
