//! [`Moving`]: a value on its way between the server and the client's memory. While one half of the staging memory fills, the other is emptied,
//! so neither side waits for the other longer than for one half, and no more of the value is here.

use std::future::{Future, poll_fn};
use std::iter::Peekable;
use std::task::Poll;

use valkey_rdma_server::RemoteRanges;
use valkey_rdma_transport::{Direct, DirectSlice, RemoteRange, TransportError};

use super::staging::Staging;
use super::upstream::{Lost, Sink, Source};

/// Why a value did not arrive.
#[derive(Debug)]
pub(super) enum Failed {
    Client(TransportError),
    Upstream(Lost),
}

pub(super) struct Moving<'a> {
    pub(super) direct: &'a Direct,
    pub(super) staging: &'a Staging,
    pub(super) ranges: &'a RemoteRanges,
    pub(super) len: usize,
}

impl Moving<'_> {
    /// Writes the value into the client's ranges. Returns its CRC-32C. When this returns, also with an error of the server, all that is
    /// written has started, so that a reply comes after it (spec clause D-3).
    pub(super) async fn write_from(&self, source: &mut Source<'_>) -> Result<u32, Failed> {
        let mut crc = 0;
        for (round, batch) in self.batches().enumerate() {
            // The other half is on its way meanwhile.
            let mut half = self.staging.take(round, total(&batch)).await;
            source.fill(&mut half).await.map_err(Failed::Upstream)?;
            crc = crc32c::crc32c_append(crc, &half);
            let mut bytes = half.freeze();
            for to in batch {
                let piece = bytes.split_to(to.len as usize);
                self.direct.start_write(to, piece, ()).await.map_err(Failed::Client)?;
            }
        }
        Ok(crc)
    }

    /// Reads the value out of the client's ranges. `sink` is awaited when the first piece is there: before, the server knows of nothing.
    /// When this returns an error of the server, no READ is in flight.
    pub(super) async fn read_into<'s>(
        &self,
        sink: impl Future<Output = Result<Sink<'s>, Lost>>,
    ) -> Result<(), Failed> {
        let mut batches = self.batches().enumerate();
        let mut arrived = match batches.next() {
            Some((round, batch)) => self.read(round, batch).await?,
            None => Vec::new(),
        };
        let mut sink = sink.await.map_err(Failed::Upstream)?;
        for (round, batch) in batches {
            let send = send(&mut sink, std::mem::take(&mut arrived));
            // The first failure ends both: the other one may wait for ever.
            let moved = tokio::try_join!(send, self.read(round, batch));
            if let Err(Failed::Upstream(_)) = moved {
                // The READs go on, and a reply may follow: they must have completed before it (spec clause D-3).
                drop(self.staging.take(round, self.staging.half()).await);
            }
            ((), arrived) = moved?;
        }
        send(&mut sink, arrived).await?;
        sink.finish().await.map_err(Failed::Upstream)
    }

    async fn read(&self, round: usize, batch: Vec<RemoteRange>) -> Result<Vec<DirectSlice>, Failed> {
        let mut rest = self.staging.take(round, total(&batch)).await;
        all(batch.into_iter().map(|from| {
            let later = rest.split_off(from.len as usize);
            self.direct.read(from, std::mem::replace(&mut rest, later))
        }))
        .await
    }

    /// What is moved together: at most one half, and few pieces.
    fn batches(&self) -> impl Iterator<Item = Vec<RemoteRange>> {
        let half = u32::try_from(self.staging.half()).unwrap_or(u32::MAX);
        let mut pieces = self.ranges.pieces(self.len, half).peekable();
        std::iter::from_fn(move || Some(batch(&mut pieces, half)).filter(|batch| !batch.is_empty()))
    }
}

fn batch(pieces: &mut Peekable<impl Iterator<Item = RemoteRange>>, half: u32) -> Vec<RemoteRange> {
    let (mut batch, mut room) = (Vec::new(), half);
    while batch.len() < MOST_AT_ONCE
        && let Some(piece) = pieces.next_if(|piece| piece.len <= room)
    {
        room -= piece.len;
        batch.push(piece);
    }
    batch
}

fn total(batch: &[RemoteRange]) -> usize {
    batch.iter().map(|piece| piece.len as usize).sum()
}

/// Sends pieces in their order. Each place in the staging memory is free when its piece is sent.
async fn send(sink: &mut Sink<'_>, pieces: Vec<DirectSlice>) -> Result<(), Failed> {
    for piece in pieces {
        sink.send(&piece).await.map_err(Failed::Upstream)?;
    }
    Ok(())
}

/// Starts all of these transfers, and waits for them.
async fn all<T>(
    transfers: impl Iterator<Item = impl Future<Output = Result<T, TransportError>>>,
) -> Result<Vec<T>, Failed> {
    let mut transfers: Vec<_> = transfers.map(|transfer| (Box::pin(transfer), None)).collect();
    poll_fn(|cx| {
        let mut is_complete = true;
        for (transfer, result) in transfers.iter_mut().filter(|(_, result)| result.is_none()) {
            match transfer.as_mut().poll(cx) {
                Poll::Ready(Ok(done)) => *result = Some(done),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failed::Client(error))),
                Poll::Pending => is_complete = false,
            }
        }
        match is_complete {
            true => Poll::Ready(Ok(transfers.iter_mut().filter_map(|(_, result)| result.take()).collect())),
            false => Poll::Pending,
        }
    })
    .await
}

/// Transfers that are started together, at most.
const MOST_AT_ONCE: usize = 64;
