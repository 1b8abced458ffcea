//! What is known to go wrong with a version of Valkey over RDMA. The source is `spec/peers.md`: a test compares.

use super::version::Version;
use crate::report::{Finding, Section, Verdict};

/// Something that goes wrong with a range of versions.
struct Bug {
    /// The first version that has it, as far as is known.
    first: Version,
    /// The last one.
    last: Version,
    verdict: Verdict,
    what: &'static str,
    avoid: &'static str,
    /// Words of the line in `spec/peers.md` that says so.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers, and for the test that compares"))]
    source: &'static str,
}

/// The newest version that was examined. What later ones have is not known.
const NEWEST: Version = Version(9, 1, 2);

const OURS_AVOIDS: &str = "this project's client never sends that; keep other clients from it";

const BUGS: &[Bug] = &[
    Bug {
        first: Version(8, 0, 0),
        last: Version(8, 0, u16::MAX),
        verdict: Verdict::Warning,
        what: "uses freed memory when it closes a connection itself",
        avoid: "avoid QUIT and CLIENT KILL; let clients disconnect; or update to 8.1",
        source: "frees a timer's memory when it closes a connection itself",
    },
    Bug {
        first: Version(8, 0, 0),
        last: Version(8, 0, u16::MAX),
        verdict: Verdict::Warning,
        what: "with I/O threads, input of about 20 KB makes it loop for ever",
        avoid: "`io-threads 1`; or update to 8.1",
        source: "input of about 20 KB with I/O threads loops for ever",
    },
    Bug {
        first: Version(8, 1, 0),
        last: Version(9, 1, 1),
        verdict: Verdict::Warning,
        what: "I/O threads can hang or crash it",
        avoid: "`io-threads 1`; or update to 9.1.2",
        source: "I/O threads are safe from 9.1.2",
    },
    Bug {
        first: Version(8, 1, 0),
        last: NEWEST,
        verdict: Verdict::Note,
        what: "dies if a client changes the length of its window",
        avoid: OURS_AVOIDS,
        source: "a changed window length kills it",
    },
    Bug {
        first: Version(8, 1, 0),
        last: Version(8, 1, u16::MAX),
        verdict: Verdict::Warning,
        what: "dies if a client disconnects while a large reply waits for its window",
        avoid: "clients must read replies to their end, as this project's does; or update to 9.1.2",
        source: "8.1.1 dies when a client disconnects while a large reply waits for its window",
    },
    Bug {
        first: Version(8, 1, 0),
        last: Version(8, 1, u16::MAX),
        verdict: Verdict::Note,
        what: "dies after a message with an unknown opcode or a wrong length",
        avoid: OURS_AVOIDS,
        source: "8.1.1 dies a second after it has closed a connection for an unknown opcode",
    },
    Bug {
        first: Version(8, 0, 0),
        last: NEWEST,
        verdict: Verdict::Note,
        what: "aborts if a client announces more bytes than its window has",
        avoid: OURS_AVOIDS,
        source: "immediate of window + 1, or a wrapping one",
    },
    Bug {
        first: Version(8, 0, 0),
        last: NEWEST,
        verdict: Verdict::Note,
        what: "dies if a client offers a window of length 0, or of 4 GiB",
        avoid: OURS_AVOIDS,
        source: "second Register with another length; length 0; first Register of 4 GiB - 1",
    },
    Bug {
        first: Version(8, 0, 0),
        last: NEWEST,
        verdict: Verdict::Note,
        what: "aborts if a client sends thousands of feature queries at once",
        avoid: OURS_AVOIDS,
        source: "3000 GetServerFeature from a client with 4 posted receives",
    },
    Bug {
        first: Version(8, 0, 0),
        last: NEWEST,
        verdict: Verdict::Warning,
        what: "dies if a client's process ends between connect request and accept",
        avoid: "do not kill clients while they connect; restart the server with a supervisor",
        source: "client process gone between connect request and accept",
    },
    Bug {
        first: Version(9, 1, 2),
        last: NEWEST,
        verdict: Verdict::Warning,
        what: "dies if a client's process ends with many large replies on their way",
        avoid: "let clients read what they asked for, or close; restart the server with a supervisor",
        source: "client process gone with 16 values of 4 MiB asked for and connects in flight",
    },
    Bug {
        first: Version(8, 1, 0),
        last: NEWEST,
        verdict: Verdict::Warning,
        what: "aborts after 102 minutes with a client that stays connected and never polls",
        avoid: "do not leave `valkey-cli --rdma` waiting at its prompt",
        source: "client that stays connected and never polls, such as `valkey-cli --rdma`",
    },
    Bug {
        first: Version(8, 0, 0),
        last: NEWEST,
        verdict: Verdict::Note,
        what: "keeps some 500 KiB of each connection that has ended",
        avoid: "keep connections, and restart the server now and then if its clients do not",
        source: "Each connection that has ended leaves a completion queue",
    },
    Bug {
        first: Version(8, 1, 0),
        last: Version(8, 1, u16::MAX),
        verdict: Verdict::Note,
        what: "copies replies: 50 connections with 16 GETs of 3.5 MiB each took 3.2 GB",
        avoid: "fewer large GETs at once; or update to 9.1.2",
        source: "A Valkey 8.1 server copies replies before it sends them",
    },
];

/// What is known of this version.
pub(super) fn section(version: Version) -> Section {
    let mut section = Section::new("known bugs");
    for bug in BUGS.iter().filter(|bug| (bug.first..=bug.last).contains(&version)) {
        section.push(Finding::new("bug", bug.verdict, bug.what).remedy(bug.avoid));
    }
    if version > NEWEST {
        section.push(Finding::note("bugs", format!("{version} is newer than what was examined, {NEWEST}")));
    } else if section.findings.is_empty() {
        section.push(Finding::note("bugs", "none known; RDMA came with Valkey 8.0"));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, with each paragraph and each row of a table on one line.
    fn peers() -> Vec<String> {
        let text = include_str!("../../peers.md");
        let blocks = text.split("\n\n").flat_map(|block| {
            if block.starts_with('|') {
                block.lines().map(str::to_owned).collect()
            } else {
                vec![block.replace('\n', " ")]
            }
        });
        blocks.collect()
    }

    #[test]
    fn every_bug_is_in_the_specification() {
        let peers = peers();
        for bug in BUGS {
            assert!(
                peers.iter().any(|line| line.contains(bug.source)),
                "not in spec/peers.md: {}",
                bug.source
            );
        }
    }

    #[test]
    fn every_server_and_every_stimulus_that_kills_one_is_in_the_table() {
        let peers = peers();
        let start = peers.iter().position(|line| line.starts_with("## What kills")).expect("a heading");
        let end =
            peers.iter().skip(start + 1).position(|line| line.starts_with("##")).expect("another") + start;
        let of_servers = peers.iter().filter(|line| line.starts_with("| Valkey "));
        let deadly = peers[start..=end].iter().filter(|line| line.starts_with("| "));
        let rows: Vec<&String> =
            of_servers.chain(deadly).filter(|line| !line.starts_with("| stimulus")).collect();
        assert!(!rows.is_empty(), "the headings have changed");
        for row in rows {
            assert!(BUGS.iter().any(|bug| row.contains(bug.source)), "no bug for: {row}");
        }
    }

    #[test]
    fn a_version_has_the_bugs_of_its_range() {
        let has = |version, what: &str| {
            section(version).findings.iter().any(|finding| finding.value.contains(what))
        };
        assert!(has(Version(8, 0, 4), "about 20 KB") && !has(Version(8, 1, 0), "about 20 KB"));
        assert!(has(Version(9, 1, 1), "I/O threads can hang") && !has(Version(9, 1, 2), "I/O threads"));
        assert!(has(Version(9, 2, 0), "newer than what was examined, 9.1.2"));
        assert!(has(Version(7, 2, 5), "none known"));
    }
}
