//! A process whose output is kept.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// A running process. Every line that it prints is kept; it is killed when this is dropped.
///
/// Two threads read its standard output and standard error, so it never blocks on a full pipe.
pub struct Child {
    name: String,
    process: process::Child,
    log: Arc<Log>,
    readers: Vec<JoinHandle<()>>,
}

/// The stream a line was printed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Log {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<(Source, String)>,
    /// Streams that have ended.
    ended: usize,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Child {
    /// Starts `command` with no standard input and without `RUST_LOG`.
    ///
    /// # Errors
    /// A text that names the program, if it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let name = name_of(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RUST_LOG");
        let mut process = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let log = Arc::new(Log::default());
        let readers = [
            process.stdout.take().map(|stdout| read(stdout, Source::Stdout, &log)),
            process.stderr.take().map(|stderr| read(stderr, Source::Stderr, &log)),
        ];
        Ok(Self { name, process, log, readers: readers.into_iter().flatten().collect() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for `count` lines on standard output that start with `prefix`, and returns the rest of each.
    ///
    /// # Errors
    /// A text with the last lines it printed, if it ended or `deadline` passed before.
    pub fn lines(&self, prefix: &str, count: usize, deadline: Duration) -> Result<Vec<String>, String> {
        self.wait_for(prefix, deadline, |state| {
            let stdout = state.lines.iter().filter(|(source, _)| *source == Source::Stdout);
            let found: Vec<String> = stdout
                .filter_map(|(_, line)| line.strip_prefix(prefix).map(str::to_owned))
                .take(count)
                .collect();
            (found.len() == count).then_some(found)
        })
    }

    /// Waits for the first line `ready URL` or `ready ADDRESS`, and returns what follows `ready`.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub fn ready(&self, deadline: Duration) -> Result<String, String> {
        Ok(self.lines("ready ", 1, deadline)?.remove(0))
    }

    /// Waits for a line on either stream that contains `text`, and returns it.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub fn line_with(&self, text: &str, deadline: Duration) -> Result<String, String> {
        self.wait_for(text, deadline, |state| {
            state.lines.iter().find(|(_, line)| line.contains(text)).map(|(_, line)| line.clone())
        })
    }

    /// The lines it has printed to either stream so far.
    pub fn printed(&self) -> Vec<String> {
        self.log.state().lines.iter().map(|(_, line)| line.clone()).collect()
    }

    /// What it has printed to standard output so far.
    pub fn stdout(&self) -> String {
        self.stream(Source::Stdout)
    }

    /// What it has printed to standard error so far.
    pub fn stderr(&self) -> String {
        self.stream(Source::Stderr)
    }

    /// The last lines it printed to either stream, indented, for a failure's message.
    pub fn tail(&self) -> String {
        tail(&self.log.state())
    }

    /// Sends it a signal. Has no effect on a process that has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // It fails only if the process has ended, which its exit status shows.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until it has ended and all of its output is kept.
    ///
    /// # Errors
    /// A text with the last lines it printed, if it still runs after `deadline`.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, String> {
        let end = Instant::now() + deadline;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => {
                    self.readers.drain(..).for_each(|reader| drop(reader.join()));
                    return Ok(status);
                }
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
                Ok(None) => {
                    let seconds = deadline.as_secs_f64();
                    return Err(format!("{} still runs after {seconds} s\n{}", self.name, self.tail()));
                }
                Err(error) => return Err(format!("cannot wait for {}: {error}", self.name)),
            }
        }
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn stream(&self, wanted: Source) -> String {
        let state = self.log.state();
        let lines = state.lines.iter().filter(|(source, _)| *source == wanted);
        lines.flat_map(|(_, line)| [line.as_str(), "\n"]).collect()
    }

    fn wait_for<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut found: impl FnMut(&State) -> Option<T>,
    ) -> Result<T, String> {
        let end = Instant::now() + deadline;
        let mut state = self.log.state();
        loop {
            if let Some(found) = found(&state) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            let why = match (state.ended, left.is_zero()) {
                (2.., _) => "ended without".to_owned(),
                (_, true) => format!("did not print within {} s:", deadline.as_secs_f64()),
                _ => {
                    let woken = self.log.changed.wait_timeout(state, left);
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            return Err(format!("{} {why} {what:?}\n{}", self.name, tail(&state)));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.name).field("id", &self.id()).finish_non_exhaustive()
    }
}

/// An exit status in words. A signal is a crash.
pub fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn name_of(command: &Command) -> String {
    let path = std::path::Path::new(command.get_program());
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn tail(state: &State) -> String {
    const LINES: usize = 12;
    let last = &state.lines[state.lines.len().saturating_sub(LINES)..];
    last.iter().map(|(_, line)| format!("    {line}\n")).collect()
}

fn read(stream: impl Read + Send + 'static, source: Source, log: &Arc<Log>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        // An unreadable stream has ended, as far as a test is concerned.
        while stream.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            log.state().lines.push((source, text));
            log.changed.notify_all();
            line.clear();
        }
        log.state().ended += 1;
        log.changed.notify_all();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    fn shell(script: &str) -> Child {
        Child::start(Command::new("sh").args(["-c", script])).expect("sh starts")
    }

    #[test]
    fn lines_of_both_streams_are_kept_apart() {
        let mut child = shell("echo ready here; echo ready there; echo oh >&2; exit 3");
        assert_eq!(child.lines("ready ", 2, LIMIT).expect("both lines"), ["here", "there"]);
        assert_eq!(child.line_with("oh", LIMIT).expect("a line"), "oh");
        assert_eq!(child.wait(LIMIT).expect("ends").code(), Some(3));
        assert_eq!((child.stdout(), child.stderr()), ("ready here\nready there\n".into(), "oh\n".into()));
    }

    #[test]
    fn a_process_that_ends_before_it_is_ready_is_an_error_with_what_it_printed() {
        let error = shell("echo no license >&2").ready(LIMIT).expect_err("it is not ready");
        assert_eq!(error, "sh ended without \"ready \"\n    no license\n");
    }

    #[test]
    fn a_process_that_hangs_is_an_error_and_is_killed_when_dropped() {
        let mut child = shell("echo hello; exec sleep 1000");
        child.line_with("hello", LIMIT).expect("it runs");
        let error = child.wait(Duration::from_millis(10)).expect_err("it hangs");
        assert_eq!(error, "sh still runs after 0.01 s\n    hello\n");
        let id = child.id();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_signal_ends_it_and_is_described() {
        let mut child = shell("exec sleep 1000");
        child.signal(Signal::TERM);
        assert_eq!(describe(child.wait(LIMIT).expect("ends")), "was killed by signal 15");
    }
}
