//! How many file descriptors this process may have, compared with what its limits need.

use std::fs;

/// A text for the log, if clients will wait for a descriptor before `limits.clients` is reached. `connections`: descriptors that
/// those to servers may need.
pub(crate) fn shortage(clients: usize, connections: usize) -> Option<String> {
    shortage_in(&fs::read_to_string("/proc/self/limits").ok()?, clients, connections)
}

/// How many this process may have open; `None` if that is not limited, or not known.
pub(crate) fn limit() -> Option<usize> {
    limit_in(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn limit_in(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // It may be "unlimited".
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn shortage_in(limits: &str, clients: usize, connections: usize) -> Option<String> {
    let limit = limit_in(limits)?;
    let need = clients.saturating_add(connections).saturating_add(OTHERS);
    (need > limit).then(|| {
        format!(
            "this process may open {limit} files, and limits.clients = {clients} with {connections} for connections to servers needs \
             {need}: clients above that will wait; raise LimitNOFILE= of the unit (ulimit -n), or lower limits.clients"
        )
    })
}

/// Listeners, and what the runtime and the log need.
const OTHERS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_counts() {
        let limits = |soft: &str| {
            format!(
                "Limit    Soft Limit  Hard Limit  Units\nMax open files    {soft}    4096    files\nMax pending signals 1 1 signals\n"
            )
        };
        let short = shortage_in(&limits("1024"), 10_000, 256).unwrap();
        assert!(short.contains("1024 files") && short.contains("needs 10288"), "{short}");
        assert_eq!(shortage_in(&limits("1024"), 500, 256), None);
        assert_eq!(shortage_in(&limits("unlimited"), 10_000, 256), None);
        assert_eq!(shortage_in("", 10_000, 256), None);
    }
}
