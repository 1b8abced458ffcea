//! What the demo says: what ran, the one comparison that matters, what to try next. At most 100 columns, one screen.

use std::fmt::Write;

use super::{Shown, VALUE_LEN};
use crate::measure::{Comparison, Counter};

/// The demo's results on one screen.
pub(crate) fn screen(shown: &Shown) -> String {
    let comparisons = &shown.comparisons;
    let sides = || comparisons.iter().flat_map(|comparison| &comparison.sides);
    let replies: u64 = sides().map(|side| side.total.replies()).sum();
    let wrong: u64 = shown.faults().map(|result| result.tally.faults.total()).sum();
    let verdict = match wrong {
        0 if comparisons.len() == shown.planned => "all were right".to_owned(),
        0 => format!(
            "all were right, but {} of {} comparisons are missing",
            shown.planned - comparisons.len(),
            shown.planned
        ),
        _ => format!("{wrong} were wrong or did not come"),
    };
    let mut text = format!(
        "Valkey over RDMA, without an adapter\n\n\
         What ran\n  \
         A small Valkey server and a client in this process. PING, SET and GET of {VALUE_LEN} bytes went over the\n  \
         emulated RDMA device and over TCP loopback, in turns. Every byte of {replies} replies was compared:\n  \
         {verdict}.\n\n\
         The comparison that matters: GET, three ways to arrange the work of a program\n  \
         {:34} {:>14} {:>14} {:>20}\n",
        "", "emulated, /s", "TCP, /s", "messages a request"
    );
    let gets: Vec<&Comparison> = comparisons.iter().filter(|comparison| comparison.title == "GET").collect();
    for comparison in &gets {
        let shape = &comparison.shape;
        let arranged = match (shape.connections, shape.tasks_per_connection) {
            (1, None) => "1 task with a connection".to_owned(),
            (connections, None) => format!("{connections} tasks, each with a connection"),
            (_, Some(tasks)) => format!("{tasks} tasks that share a connection"),
        };
        let [emulated, tcp] = &comparison.sides;
        let messages =
            emulated.total.per_request().map_or(0.0, |counters| counters.of(Counter::WorkRequests));
        let (one, other) = (emulated.median(|round| round.rate), tcp.median(|round| round.rate));
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {arranged:34} {one:>14.0} {other:>14.0} {messages:>20.2}");
    }
    if let Some(times) = gain(&gets) {
        let _ = writeln!(
            text,
            "  Sharing: {times:.1} times the rate of separate connections over the emulated device. The client\n  \
             sends what waits at the same time in one RDMA message. A message costs more than its bytes."
        );
    }
    text.push_str(
        "\nWhat this does not show\n  \
         How fast RDMA is. The emulated device is software; its times are noise beside those of an adapter.\n  \
         It obeys the rules of one, so the programs and tests are the same.\n\n\
         What to try next\n  \
         valkey-rdma-benchmark --demo=tables                  all workloads, ratios, percentiles, counters\n  \
         valkey-rdma-doctor                                   does RDMA work on this machine?\n  \
         valkey-rdma-benchmark -u rdma://HOST:6379 -t set,get a real server; --html FILE writes a report\n  \
         docs/getting-started.md                              the client in your program\n\n  \
         In a clone: cargo run --profile quick -p valkey-rdma-doctor\n",
    );
    text
}

/// How many times as much tasks do that share a connection as the same number with one each; `None` if either is missing.
fn gain(gets: &[&Comparison]) -> Option<f64> {
    let rate = |shared: bool| {
        let found = gets.iter().find(|comparison| {
            let shape = &comparison.shape;
            shape.tasks_per_connection.is_some() == shared && (shared || shape.connections > 1)
        });
        found.map(|comparison| comparison.sides[0].median(|round| round.rate))
    };
    Some(rate(true)? / rate(false)?).filter(|times| times.is_finite())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Limit;
    use crate::measure::{Fault, FaultKind, TestResult};
    use crate::program::demo::{Pace, demo};
    use crate::run::Progress;
    use valkey_rdma_program::Interrupt;

    #[tokio::test]
    async fn the_demo_fits_on_a_screen_of_100_columns_and_names_what_it_compared() {
        let pace = Pace { rounds: 2, turn: Limit::Time(Duration::from_millis(10)) };
        let shown = demo(pace, Progress::Line, &Interrupt::never()).await.unwrap();
        assert!(shown.is_right());
        let text = screen(&shown);
        assert!(text.lines().count() <= 35, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for part in [
            "all were right",
            "50 tasks that share a connection",
            "50 tasks, each",
            "Sharing: ",
            "--demo=tables",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_test_that_failed_before_its_first_round_counted_is_not_all_right() {
        let mut result = TestResult::empty("SET");
        result.tally.faults.add(Fault { kind: FaultKind::ConnectionLost, detail: "gone".to_owned() });
        let failed = Shown { failed: vec![(0, result)], planned: 9, ..Shown::default() };
        assert!(!failed.is_right() && screen(&failed).contains("1 were wrong or did not come"));

        let incomplete = Shown { planned: 9, ..Shown::default() };
        assert!(!incomplete.is_right() && screen(&incomplete).contains("9 of 9 comparisons are missing"));
    }

    #[test]
    fn an_interrupted_demo_has_no_gain() {
        assert!(!screen(&Shown::default()).contains("Sharing"));
    }
}
