//! The figures of one run, read from the output of the program.

use valkey_rdma_testkit::csv_column;

/// The figures, as far as the program measures them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Requests per second; for a bandwidth test, messages per second; for a latency test, round trips.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: Option<f64>,
    /// Milliseconds.
    pub(crate) p99: Option<f64>,
}

/// valkey-benchmark's CSV, which ours begins with: a header, then one line a test.
pub(crate) fn read_csv(printed: &str) -> Result<Figures, String> {
    let csv = printed.lines().filter(|line| line.starts_with('"')).collect::<Vec<_>>().join("\n");
    let column = |name| match &csv_column(&csv, name)?[..] {
        [cell] => cell.parse().map_err(|_| format!("{name} is not a number in {printed:?}")),
        _ => Err(format!("a header and one line of CSV are expected, not {printed:?}")),
    };
    Ok(Figures {
        rate: column("rps")?,
        p50: column("p50_latency_ms").ok(),
        p99: column("p99_latency_ms").ok(),
    })
}

/// perftest's table of a bandwidth test: message length, iterations, peak and average MiB/s.
pub(crate) fn read_bandwidth(printed: &str, message_len: u32) -> Result<Figures, String> {
    let [average] = perftest_columns(printed, message_len, [3])?;
    Ok(Figures { rate: average * f64::from(1 << 20) / f64::from(message_len), p50: None, p99: None })
}

/// perftest's table of a latency test: message length, iterations, then microseconds one way: least, most, typical, average,
/// deviation, 99 % and 99.9 %. Figures as round trips.
pub(crate) fn read_latency(printed: &str, message_len: u32) -> Result<Figures, String> {
    let round_trips = perftest_columns(printed, message_len, [4, 5, 7])?.map(|one_way| 2.0 * one_way / 1e3);
    let [typical, average, p99] = round_trips;
    Ok(Figures { rate: 1e3 / average, p50: Some(typical), p99: Some(p99) })
}

fn perftest_columns<const N: usize>(
    printed: &str,
    message_len: u32,
    columns: [usize; N],
) -> Result<[f64; N], String> {
    let cells = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.first() == Some(&&*message_len.to_string()))
        .ok_or_else(|| format!("no line for {message_len} bytes in {printed:?}"))?;
    let mut figures = [0.0; N];
    for (figure, column) in figures.iter_mut().zip(columns) {
        let cell = cells.get(column).and_then(|cell| cell.parse().ok());
        *figure = cell.ok_or_else(|| format!("no number in column {} of {cells:?}", column + 1))?;
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_csv_are_found_by_name() {
        let printed = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n\"GET\",\"1000.50\",\"0.100\",\"0.300\"\n";
        let figures = read_csv(printed).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((figures.rate, figures.p50, figures.p99), (1000.5, Some(0.1), Some(0.3)));
    }

    #[test]
    fn output_without_figures_is_an_error() {
        assert!(read_csv("\"test\",\"rps\"\n").is_err());
        assert!(read_csv("Could not connect\n").is_err());
        assert!(read_bandwidth("Couldn't connect", 65_536).is_err());
        assert!(read_latency(" 64 1000 20.0 30.0\n", 64).is_err());
    }

    #[test]
    fn a_bandwidth_is_told_as_messages_per_second() {
        let printed = " #bytes  #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n 65536 1000 70.00 64.00 0.001024\n";
        let figures = read_bandwidth(printed, 65_536).unwrap_or_else(|failure| panic!("{failure}"));
        assert!((figures.rate - 1024.0).abs() < 0.01);
    }

    #[test]
    fn a_latency_is_told_as_a_round_trip() {
        let printed = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] \
            99% percentile[usec] 99.9% percentile[usec]\n 64 1000 20.00 900.00 50.00 62.50 9.00 100.00 800.00\n";
        let figures = read_latency(printed, 64).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((figures.rate, figures.p50, figures.p99), (8000.0, Some(0.1), Some(0.2)));
    }
}
