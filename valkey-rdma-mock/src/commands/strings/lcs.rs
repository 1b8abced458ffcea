//! The longest common subsequence.

use bytes::Bytes;

use super::super::{Context, Failure, Outcome, count};
use crate::args::{Options, integer, lowercase};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

/// `LCS key key [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]`
pub(super) fn lcs(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (mut only_len, mut indexes, mut with_len, mut min_len) = (false, false, false, 0);
    let mut options = Options::new(&command.args()[2..]);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "len" => only_len = true,
            "idx" => indexes = true,
            "withmatchlen" => with_len = true,
            "minmatchlen" => min_len = usize::try_from(integer(options.value()?)?).unwrap_or(0),
            _ => return Err(Failure::SYNTAX),
        }
    }
    if only_len && indexes {
        return Err(Failure::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let database = context.database();
    let fetch = |key: &Bytes| {
        let value = database
            .get::<Bytes>(key)
            .map_err(|_| Failure::new("ERR The specified keys must contain string values"))?;
        Ok::<_, Failure>(value.cloned().unwrap_or_default())
    };
    let (one, other) = (fetch(&command.args()[0])?, fetch(&command.args()[1])?);
    // The table is the product of both lengths.
    if one.len().saturating_add(1).saturating_mul(other.len() + 1) > MAX_CELLS {
        return Err(Failure::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let matches = Matches::find(&one, &other);
    if only_len {
        return Ok(count(matches.len));
    }
    if !indexes {
        let bytes: Vec<u8> =
            matches.runs.iter().rev().flat_map(|run| &one[run.0..run.0 + run.2]).copied().collect();
        return Ok(Reply::bulk(bytes));
    }
    let span = |start: usize, len: usize| Reply::Array(vec![count(start), count(start + len - 1)]);
    let shown = matches.runs.iter().filter(|run| run.2 >= min_len).map(|&(one, other, len)| {
        let mut parts = vec![span(one, len), span(other, len)];
        parts.extend(with_len.then(|| count(len)));
        Reply::Array(parts)
    });
    Ok(Reply::Map(vec![
        (Reply::bulk("matches"), Reply::Array(shown.collect())),
        (Reply::bulk("len"), count(matches.len)),
    ]))
}

/// Common stretches: start in the one, start in the other, length; from the last to the first.
struct Matches {
    runs: Vec<(usize, usize, usize)>,
    len: usize,
}

impl Matches {
    fn find(one: &[u8], other: &[u8]) -> Self {
        let width = other.len() + 1;
        let mut table = vec![0_u32; (one.len() + 1) * width];
        for i in 1..=one.len() {
            for j in 1..=other.len() {
                table[i * width + j] = if one[i - 1] == other[j - 1] {
                    table[(i - 1) * width + j - 1] + 1
                } else {
                    table[(i - 1) * width + j].max(table[i * width + j - 1])
                };
            }
        }
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        let (mut i, mut j) = (one.len(), other.len());
        while i > 0 && j > 0 {
            if one[i - 1] == other[j - 1] {
                (i, j) = (i - 1, j - 1);
                match runs.last_mut() {
                    Some(run) if run.0 == i + 1 && run.1 == j + 1 => *run = (i, j, run.2 + 1),
                    _ => runs.push((i, j, 1)),
                }
            } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        let len = runs.iter().map(|run| run.2).sum();
        Self { runs, len }
    }
}

/// 256 MiB of table.
const MAX_CELLS: usize = 64 << 20;
