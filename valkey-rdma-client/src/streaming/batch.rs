//! [`Dedicated::get_each`]: several values, each read straight into the caller's memory.

use std::future::poll_fn;
use std::time::Duration;

use valkey_rdma_resp::{Header, RespError, UnexpectedReply, Value};

use super::header;
use super::reader::read_some;
use crate::command::{CRLF, Command};
use crate::dedicated::Dedicated;
use crate::error::{Error, LostCause};
use crate::link::{Outstanding, RawConnection};
use crate::spans::Call;

/// What became of one key of [`Dedicated::get_each`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fetched {
    /// The value was read; it has this many bytes.
    Read(usize),
    /// The key does not exist.
    Missing,
    /// The value has this many bytes, for which `place` returned no memory. They were skipped.
    Skipped(usize),
    /// The server answered with an error ([`Error::Server`]), or with something other than a string
    /// ([`Error::Unexpected`]).
    Refused(Error),
}

impl Dedicated {
    /// Sends GET for all keys together and reads each value straight into memory of the caller. Every byte is copied
    /// once, out of the receive window.
    ///
    /// `place` returns the memory for a value, given the index of its key and its length in bytes. The memory must have
    /// exactly that length. With `None`, or memory of another length, the value is skipped. `limit` applies to every
    /// group of keys that is sent at once (16 KiB of commands).
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// let mut values = vec![vec![0; 1 << 20]; 2];
    /// let mut connection = client.dedicated().await?;
    /// let mut places: Vec<_> = values.iter_mut().map(|value| Some(&mut value[..])).collect();
    /// let fetched = connection
    ///     .get_each(&["kv:1", "kv:2"], None, |index, len| places[index].take().and_then(|place| place.get_mut(..len)))
    ///     .await?;
    /// println!("{fetched:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection ended, [`Error::TimedOut`] after `limit`. The connection is unusable then, and
    /// the content of the memory is undefined.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn get_each<'a>(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        limit: Option<Duration>,
        mut place: impl FnMut(usize, usize) -> Option<&'a mut [u8]>,
    ) -> Result<Vec<Fetched>, Error> {
        let call = Call::times(self.endpoint(), "GET", keys.len());
        let fetch = async {
            let mut fetched = Vec::with_capacity(keys.len());
            while fetched.len() < keys.len() {
                let group = first_group(&keys[fetched.len()..]);
                let (fetched, place) = (&mut fetched, &mut place);
                self.with_connection(limit, async |raw| get_group(raw, group, fetched, place).await).await?;
            }
            Ok(fetched)
        };
        call.run(fetch).await
    }
}

/// As many keys as are sent at once. The server takes that much before it has written a reply.
fn first_group<K: AsRef<[u8]>>(keys: &[K]) -> &[K] {
    let mut bytes = 0;
    let fits = |key: &&K| {
        bytes += key.as_ref().len() + GET_OVERHEAD;
        bytes <= GROUP_BYTES
    };
    let count = keys.iter().take_while(fits).count();
    &keys[..count.max(1)]
}

async fn get_group<'a>(
    raw: &mut RawConnection,
    keys: &[impl AsRef<[u8]>],
    fetched: &mut Vec<Fetched>,
    place: &mut impl FnMut(usize, usize) -> Option<&'a mut [u8]>,
) -> Result<(), LostCause> {
    for key in keys {
        raw.write_buffer.push(&Command::new("GET").arg(key.as_ref()));
    }
    raw.outstanding = Outstanding::Replies(keys.len());
    raw.flush().await?;
    for then in (0..keys.len()).rev() {
        let outcome = match header(raw, then).await? {
            Header::String(len) => {
                let outcome = match place(fetched.len(), len).filter(|memory| memory.len() == len) {
                    Some(memory) => {
                        read_all(raw, memory).await?;
                        Fetched::Read(len)
                    }
                    None => {
                        skip(raw, len).await?;
                        Fetched::Skipped(len)
                    }
                };
                let mut end = [0; CRLF];
                read_all(raw, &mut end).await?;
                if end != *b"\r\n" {
                    return Err(LostCause::Protocol(RespError::Unterminated { len }));
                }
                raw.outstanding = Outstanding::Replies(then);
                outcome
            }
            Header::Other(Value::Nil) => Fetched::Missing,
            Header::Other(Value::Error(error)) => Fetched::Refused(error.into()),
            Header::Other(other) => {
                let unexpected = UnexpectedReply::new("a bulk string", other.describe());
                Fetched::Refused(unexpected.in_reply_to("GET").into())
            }
        };
        fetched.push(outcome);
    }
    Ok(())
}

/// Fills the memory. Reads with few system calls: all that has arrived is read at once, and over TCP what is behind it too.
async fn read_all(raw: &mut RawConnection, memory: &mut [u8]) -> Result<(), LostCause> {
    let mut filled = raw.decoder.take_into(memory);
    raw.outstanding.less(filled);
    while filled < memory.len() {
        let read = poll_fn(|cx| raw.poll_read_into(cx, &mut memory[filled..])).await?;
        raw.outstanding.less(read);
        filled += read;
    }
    Ok(())
}

async fn skip(raw: &mut RawConnection, len: usize) -> Result<(), LostCause> {
    let mut unwanted = vec![0; len.min(SKIPPED_AT_ONCE)];
    let mut left = len;
    while left > 0 {
        let most = left.min(unwanted.len());
        left -= read_some(raw, &mut unwanted[..most]).await?;
    }
    Ok(())
}

/// Bytes of commands that are sent at once.
const GROUP_BYTES: usize = 16 * 1024;

/// What GET adds to a key, about.
const GET_OVERHEAD: usize = 32;

const SKIPPED_AT_ONCE: usize = 64 * 1024;
