//! Drives a connection directly: one task encodes, writes, reads and checks.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_resp::RespError;

use super::dial::dial;
use super::job::Run;
use super::out::{MAX_SLICES, Out};
use super::reply_timer::{NoReply, ReplyTimer};
use super::retry::connect_again;
use super::share::Share;
use crate::check::{Skimmer, WantNothing};
use crate::measure::{Fault, FaultKind, Replies, Tally};
use crate::workload::Step;
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::sync::lock;

/// Room for received bytes. Nothing is kept, so it need not hold a whole reply.
const INPUT: usize = 64 * 1024;
/// An open connection.
pub(super) struct Link {
    stream: AnyStream,
    skimmer: Skimmer,
    input: Box<[u8]>,
    /// Bytes of `input` that were received and not yet looked at.
    fresh: Range<usize>,
}

impl Link {
    pub(super) fn new(stream: AnyStream) -> Link {
        let input = vec![0; INPUT].into_boxed_slice();
        Link { stream, skimmer: Skimmer::default(), input, fresh: 0..0 }
    }

    pub(super) fn stream(&self) -> &AnyStream {
        &self.stream
    }

    /// Driven by the task that exchanges requests and replies.
    fn at_work(self) -> Link {
        Link { stream: self.stream.driven(), ..self }
    }

    /// Driven in the background, until the next job.
    fn at_rest(self) -> Link {
        Link { stream: self.stream.resting(), ..self }
    }
}

/// The connection of a task. What it has counted is kept when it is closed, also where the task is aborted.
struct Held<'a> {
    share: &'a Share,
    link: Option<Link>,
}

impl Held<'_> {
    fn retire(&mut self) {
        if let Some(link) = self.link.take() {
            self.share.retire(link.stream());
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the server closed the connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Reply(#[from] RespError),
    #[error("a reply without a request")]
    Unasked,
    #[error(
        "{silent}: {partial} bytes of it arrived, {behind} more replies are outstanding on this connection"
    )]
    NoReply { silent: NoReply, partial: u64, behind: usize },
}

/// Sends requests over `link` until none is left, and gives the connection back if it lives.
pub(super) async fn work(run: Arc<Run>, share: Arc<Share>, link: Option<Link>) -> Option<Link> {
    exchange(run, share, link).await.map(Link::at_rest)
}

async fn exchange(run: Arc<Run>, share: Arc<Share>, link: Option<Link>) -> Option<Link> {
    // A task that waits for its next request to be due does not read meanwhile.
    let at_work = |link: Link| if share.has_schedule() { link } else { link.at_work() };
    let mut held = Held { share: &share, link: link.map(at_work) };
    let mut batch = Batch::new(&run);
    loop {
        let connected = match &mut held.link {
            Some(connected) => connected,
            None => {
                let fresh = connect_again(&run, || dial(&share.target)).await.map(Link::new)?;
                run.outages.back();
                held.link.insert(at_work(fresh))
            }
        };
        let Some((requests, intended)) = share.next(&run).await else { return held.link.take() };
        batch.fill(&run, requests);
        let sent = run.now();
        let intended = intended.unwrap_or(sent);
        let exchange = poll_fn(|cx| batch.poll(cx, connected, &run, &share, sent, intended)).await;
        match exchange {
            Ok(()) if run.job.keep_alive => {}
            Ok(()) => {
                held.retire();
                held.link = reopened(&run, &share).await.map(at_work);
            }
            Err(lost) => {
                let left = batch.waiting.len() as u64;
                let detail = match batch.waiting.front() {
                    Some(&(request, step)) => {
                        format!("{}: {lost}", describe(&run.job.script.steps()[step], &run, request))
                    }
                    None => lost.to_string(),
                };
                let kind = match lost {
                    Lost::NoReply { silent, .. } => {
                        run.no_reply(silent.0);
                        FaultKind::NoReply
                    }
                    _ => FaultKind::ConnectionLost,
                };
                lock(&share.tally).faults.add_many(Fault { kind, detail }, left.max(1));
                held.retire();
                run.outages.lost();
                if run.job.fail_fast {
                    run.stop();
                }
            }
        }
    }
}

/// A new connection in place of one that was used up (`-k 0`), if anything is left to send.
async fn reopened(run: &Run, share: &Share) -> Option<Link> {
    let begin = Instant::now();
    match dial(&share.target).await {
        Ok(stream) => {
            lock(&share.connects).record(begin.elapsed());
            Some(Link::new(stream))
        }
        Err(error) => {
            let fault = Fault { kind: FaultKind::ConnectFailed, detail: error_chain(&error) };
            lock(&share.tally).faults.add(fault);
            run.outages.lost();
            None
        }
    }
}

/// Requests that are sent together, and the replies they wait for.
struct Batch {
    out: Out,
    flushed: bool,
    /// Requests without a reply, oldest first: number, and which step of the script.
    waiting: VecDeque<(u64, usize)>,
    payload: u64,
    /// Those that came together.
    replies: Replies,
    timer: ReplyTimer,
    /// When the last reply arrived; before the first one, when the requests were encoded.
    progress: Duration,
    /// Bytes that arrived of a reply that is not complete.
    partial: u64,
}

impl Batch {
    fn new(run: &Run) -> Batch {
        Batch {
            out: Out::default(),
            flushed: false,
            waiting: VecDeque::new(),
            payload: 0,
            replies: Replies::new(run.job.script.parts()),
            timer: ReplyTimer::new(run.job.reply_timeout),
            progress: Duration::ZERO,
            partial: 0,
        }
    }

    /// Encodes requests.
    fn fill(&mut self, run: &Run, requests: Range<u64>) {
        self.out.clear();
        self.waiting.clear();
        self.flushed = false;
        self.partial = 0;
        let job = &run.job;
        for request in requests {
            for step in job.script.request(request) {
                job.script.steps()[step].template.fill(&job.keys, &job.values, request, &mut self.out);
                self.waiting.push_back((request, step));
            }
        }
        self.payload = self.out.payload;
    }

    /// Writes and reads until every reply is here. Both go on at once: a server may stop reading until its replies are
    /// read.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        run: &Run,
        share: &Share,
        sent: Duration,
        intended: Duration,
    ) -> Poll<Result<(), Lost>> {
        loop {
            self.write(cx, &mut link.stream)?;
            if link.fresh.is_empty() {
                let mut buf = ReadBuf::new(&mut link.input);
                match Pin::new(&mut link.stream).poll_read(cx, &mut buf) {
                    Poll::Ready(read) => read?,
                    Poll::Pending => {
                        let progress = self.progress.max(sent);
                        self.timer.check(cx, || run.started + progress).map_err(|silent| Lost::NoReply {
                            silent,
                            partial: self.partial,
                            behind: self.waiting.len().saturating_sub(1),
                        })?;
                        return Poll::Pending;
                    }
                }
                link.fresh = 0..buf.filled().len();
                if link.fresh.is_empty() {
                    return Poll::Ready(Err(Lost::Closed));
                }
            }
            self.take_replies(link, run, share, sent, intended)?;
            if self.waiting.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, stream: &mut AnyStream) -> Result<(), Lost> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = self.out.slices(&mut slices);
            match Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Err(Lost::Closed),
                Poll::Ready(Ok(len)) => self.out.advance(len),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => return Ok(()),
            }
        }
        if !self.flushed {
            match Pin::new(stream).poll_flush(cx) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending => return Ok(()),
            }
            self.flushed = true;
        }
        Ok(())
    }

    /// Looks at what was received. The clock stopped when it came.
    fn take_replies(
        &mut self,
        link: &mut Link,
        run: &Run,
        share: &Share,
        sent: Duration,
        intended: Duration,
    ) -> Result<(), Lost> {
        let now = run.now();
        let mut tally = lock(&share.tally);
        let looked_at = self.look_at(link, run, &mut tally, now);
        if let Some((_, count)) = tally.count(&mut self.replies, sent, intended) {
            self.progress = now;
            run.replied(now);
            tally.payload += std::mem::take(&mut self.payload);
            share.done.fetch_add(count, Ordering::Relaxed);
        }
        looked_at
    }

    /// Looks at what was received at `now`, up to bytes that are wrong.
    fn look_at(&mut self, link: &mut Link, run: &Run, tally: &mut Tally, now: Duration) -> Result<(), Lost> {
        while !link.fresh.is_empty() {
            let input = &link.input[link.fresh.clone()];
            let Some(&(request, number)) = self.waiting.front() else {
                // Only what answers nothing may follow the last reply.
                let (taken, complete) = link.skimmer.feed(input, &WantNothing)?;
                if complete {
                    return Err(Lost::Unasked);
                }
                link.fresh.start += taken;
                continue;
            };
            let step = &run.job.script.steps()[number];
            let (taken, complete) = if step.expect.is_of_values() {
                link.skimmer.feed(input, &run.want(&step.template, request))?
            } else {
                link.skimmer.feed(input, &WantNothing)?
            };
            link.fresh.start += taken;
            if !complete {
                self.partial += taken as u64;
                continue;
            }
            self.partial = 0;
            self.waiting.pop_front();
            let seen = link.skimmer.seen();
            self.replies.came(|| now);
            self.replies.add(number, seen.payload);
            if !step.expect.is_met(seen) {
                let request = describe(step, run, request);
                tally.faults.add(step.expect.fault(&request, seen));
                if run.job.fail_fast {
                    run.stop();
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn describe(step: &Step, run: &Run, request: u64) -> String {
    step.describe(&run.job.keys, &run.job.values, request)
}
