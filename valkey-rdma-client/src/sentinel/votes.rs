//! What several Sentinels say, as one list.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::ask::{Answer, Sentinel};
use crate::endpoint::NodeAddress;
use crate::error::ConnectCause;

/// Asks all Sentinels at once. Returns the addresses that they report, the one with the most votes first.
///
/// Returns as soon as most of them agree, unless it is to hear `all`: soon after a failover most may report the old primary. After
/// the first answer it waits for [`PATIENCE`] at most, because one that is dead reports nothing.
///
/// # Errors
/// [`ConnectCause::NoSentinel`] if none answers, [`ConnectCause::UnknownService`] if none knows a primary.
pub(super) async fn collect(
    service: &str,
    sentinels: &[Arc<Sentinel>],
    all: bool,
) -> Result<Vec<NodeAddress>, ConnectCause> {
    let mut asked = JoinSet::new();
    for sentinel in sentinels {
        let (sentinel, service) = (sentinel.clone(), service.to_owned());
        asked.spawn(async move { sentinel.ask(&service).await });
    }
    let mut tally = Tally::default();
    let mut patience: Option<Instant> = None;
    loop {
        let answer = tokio::select! {
            answer = asked.join_next() => answer,
            () = async { sleep_until(patience.unwrap_or_else(Instant::now)).await }, if patience.is_some() => break,
        };
        match answer {
            None => break,
            Some(answer) => tally.count(answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))),
        }
        if !all && tally.most() * 2 > sentinels.len() {
            break;
        }
        if tally.most() > 0 {
            patience.get_or_insert_with(|| Instant::now() + PATIENCE);
        }
    }
    tally.result(service, sentinels.len())
}

/// How long the others may take after the first answer.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Tally {
    /// Addresses and their votes, in the order in which they were first reported.
    votes: Vec<(NodeAddress, usize)>,
    unknown: usize,
    failure: Option<String>,
}

impl Tally {
    fn count(&mut self, answer: Answer) {
        match answer {
            Answer::Primary(address) => match self.votes.iter_mut().find(|(known, _)| *known == address) {
                Some((_, votes)) => *votes += 1,
                None => self.votes.push((address, 1)),
            },
            Answer::Unknown => self.unknown += 1,
            Answer::Failed(why) => self.failure = Some(why),
        }
    }

    fn most(&self) -> usize {
        self.votes.iter().map(|(_, votes)| *votes).max().unwrap_or(0)
    }

    fn result(mut self, service: &str, asked: usize) -> Result<Vec<NodeAddress>, ConnectCause> {
        // Stable: among equals the first answer stays first.
        self.votes.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        if !self.votes.is_empty() {
            return Ok(self.votes.into_iter().map(|(address, _)| address).collect());
        }
        Err(match self.failure {
            Some(last) if self.unknown == 0 => ConnectCause::NoSentinel { asked, last: last.into() },
            _ => ConnectCause::UnknownService { service: service.into(), asked },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(answers: &[Answer]) -> Tally {
        let mut tally = Tally::default();
        answers.iter().cloned().for_each(|answer| tally.count(answer));
        tally
    }

    fn at(port: u16) -> Answer {
        Answer::Primary(NodeAddress::new("h", port))
    }

    #[test]
    fn the_address_with_the_most_votes_is_first() {
        let found = tally(&[at(1), at(2), Answer::Failed("dead".to_owned()), at(2)]).result("m", 4);
        let ports: Vec<u16> = found.expect("votes").iter().map(|address| address.port).collect();
        assert_eq!(ports, [2, 1]);
    }

    #[test]
    fn no_answer_and_no_primary_are_different_failures() {
        let dead = tally(&[Answer::Failed("h:1 is dead".to_owned())]).result("m", 1).expect_err("none");
        assert_eq!(
            dead.to_string(),
            "none of 1 Sentinels answers; check their addresses in the URL; the last one: h:1 is dead"
        );
        let unknown =
            tally(&[Answer::Failed(String::new()), Answer::Unknown]).result("m", 2).expect_err("none");
        assert!(unknown.to_string().contains("know no primary of \"m\""), "{unknown}");
    }
}
