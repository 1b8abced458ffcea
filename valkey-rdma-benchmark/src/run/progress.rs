//! What is shown on standard error while a test runs: its progress in one line, or what was measured each second.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;

use crate::drive::Watch;
use crate::measure::Tally;

/// What is shown while a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A line, if standard error is a terminal; else a line when no connection is left.
    Line,
    /// Rate, latencies and errors, as a line each second.
    Live,
    /// Nothing.
    Hidden,
}

/// How often the line is redrawn.
const REDRAW: Duration = Duration::from_millis(100);
/// How often a line is written.
const LINES: Duration = Duration::from_secs(1);
/// Steps of the bar.
const STEPS: u64 = 1000;

impl Progress {
    /// Shows `title` and how far the test is until the returned line is dropped.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn start(self, title: &str, watch: Watch) -> Line {
        let title = title.to_owned();
        let terminal = io::stderr().is_terminal();
        match self {
            Progress::Hidden => Line { bar: None, task: None },
            Progress::Line if !terminal => {
                let mut said = false;
                Line::written(move |_| {
                    let outage = watch.outage();
                    let news = outage.filter(|_| !said);
                    said = outage.is_some();
                    news.map(|outage| format!("{title}: {}", away(outage)))
                })
            }
            Progress::Line => Line::drawn(title, watch),
            Progress::Live => Line::written(move |before| Some(live_line(&title, &watch, before))),
        }
    }
}

/// What is being shown; dropping it takes it off the terminal.
#[derive(Debug)]
pub(crate) struct Line {
    bar: Option<ProgressBar>,
    task: Option<JoinHandle<()>>,
}

/// Replies and time when something was shown last.
type Before = (u64, Duration);

impl Line {
    /// A bar of indicatif, with its estimate of the time left, before the rate.
    fn drawn(title: String, watch: Watch) -> Line {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()).with_prefix(title);
        let template = "{prefix:12!} {bar:32} {percent:>3} %  {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▌░"));
        }
        let task = tokio::spawn({
            let bar = bar.clone();
            async move {
                let mut before = Before::default();
                let mut tick = tokio::time::interval(REDRAW);
                loop {
                    tick.tick().await;
                    bar.set_position((watch.progress() * STEPS as f64) as u64);
                    let rate = rate(&watch, &mut before);
                    bar.set_message(watch.outage().map_or_else(|| format!("{rate:.0}/s"), away));
                }
            }
        });
        Line { bar: Some(bar), task: Some(task) }
    }

    /// What `text` has to say, now and then.
    fn written(mut text: impl FnMut(&mut Before) -> Option<String> + Send + 'static) -> Line {
        let task = tokio::spawn(async move {
            let mut before = Before::default();
            let mut tick = tokio::time::interval(LINES);
            tick.tick().await;
            loop {
                tick.tick().await;
                if let Some(text) = text(&mut before) {
                    let _ = writeln!(io::stderr(), "{text}");
                }
            }
        });
        Line { bar: None, task: Some(task) }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar over steps whose lengths are known beforehand, if standard error is a terminal.
#[derive(Debug)]
pub(crate) struct Whole {
    bar: ProgressBar,
    task: JoinHandle<()>,
    /// Where the present step ends, in milliseconds of all of them.
    end: Arc<AtomicU64>,
}

impl Whole {
    /// A bar over steps that take `time` together. Dropping it takes it off the terminal.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn start(time: Duration) -> Whole {
        let len = time.as_millis() as u64;
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3} %  {eta} left  {msg}") {
            bar.set_style(style.progress_chars("█▌░"));
        }
        let end = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn({
            let (bar, end) = (bar.clone(), Arc::clone(&end));
            async move {
                let mut tick = tokio::time::interval(REDRAW);
                loop {
                    tick.tick().await;
                    // A step that takes longer than expected waits at its end.
                    let next = bar.position() + REDRAW.as_millis() as u64;
                    bar.set_position(next.min(end.load(Ordering::Relaxed)));
                }
            }
        });
        Whole { bar, task, end }
    }

    /// Begins the next step: `number` of `count`, which takes about `time`.
    pub(crate) fn step(&self, title: &str, (number, count): (usize, usize), time: Duration) {
        // The one before may have been faster.
        let begin = self.end.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        self.bar.set_position(begin);
        self.bar.set_message(format!("{title} ({number} of {count})"));
    }

    /// Takes the bar away while `write` writes to the terminal.
    pub(crate) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

/// Replies per second since the last look.
fn rate(watch: &Watch, before: &mut Before) -> f64 {
    let now = (watch.done(), watch.elapsed());
    let (replies, time) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    *before = now;
    if time.is_zero() { 0.0 } else { replies as f64 / time.as_secs_f64() }
}

fn live_line(title: &str, watch: &Watch, before: &mut Before) -> String {
    let tally = watch.tally();
    let seconds = watch.elapsed().as_secs_f64();
    let rate = rate(watch, before);
    let now = watch.outage().map_or_else(|| format!("{rate:.0}/s"), away);
    format!("{title}: {seconds:.0} s, {now}, {}", numbers(&tally))
}

fn away((since, patience): (Duration, Duration)) -> String {
    let (since, patience) = (since.as_secs_f64(), patience.as_secs_f64());
    format!("no connection for {since:.0} s; connecting again for up to {patience:.0} s")
}

fn numbers(tally: &Tally) -> String {
    let latencies = tally.corrected.as_ref().unwrap_or(&tally.service);
    let ms = |quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
    format!(
        "p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms, {} errors",
        ms(0.5),
        ms(0.99),
        ms(0.999),
        latencies.max().as_secs_f64() * 1e3,
        tally.faults.total()
    )
}
