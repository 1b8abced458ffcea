//! The line on a terminal that shows how far a test is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::task::JoinHandle;

/// How often the line is redrawn.
const REDRAW: Duration = Duration::from_millis(100);

/// Whether and where progress is shown: on standard error if that is a terminal, else nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// On standard error, if it is a terminal.
    Terminal,
    /// Nowhere.
    Hidden,
}

impl Progress {
    /// Shows `title` until the returned line is dropped, reading how many of `total` requests are done from `done`.
    ///
    /// Must be called within a tokio runtime.
    pub fn start(self, title: &str, total: u64, done: Arc<AtomicU64>) -> Line {
        let target = match self {
            Progress::Terminal => ProgressDrawTarget::stderr(),
            Progress::Hidden => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if bar.is_hidden() {
            return Line { bar, redraw: None };
        }
        let style = ProgressStyle::with_template("{msg:12} {bar:32} {percent:>3} %  {rate}/s  {eta} left")
            .expect("the template is valid")
            .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
                let _ = write!(out, "{:.0}", state.per_sec());
            });
        bar.set_style(style);
        bar.set_message(title.to_owned());
        let redraw = tokio::spawn({
            let bar = bar.clone();
            async move {
                let mut tick = tokio::time::interval(REDRAW);
                loop {
                    tick.tick().await;
                    bar.set_position(done.load(Ordering::Relaxed).min(total));
                }
            }
        });
        Line { bar, redraw: Some(redraw) }
    }
}

/// A progress line; dropping it takes it off the terminal.
#[derive(Debug)]
pub struct Line {
    bar: ProgressBar,
    redraw: Option<JoinHandle<()>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(redraw) = &self.redraw {
            redraw.abort();
        }
        self.bar.finish_and_clear();
    }
}
