//! The frames between two processes, as bytes. See the [table](super).

use std::time::Duration;

use valkey_rdma_proto::work::{FailureStatus, SendOp};

use crate::emulated::queue_pair::Terms;
use crate::emulated::{MAX_MESSAGE, MAX_READS, RNR_RETRY_FOREVER};

/// Length of a frame's header, in bytes.
pub(super) const HEADER: usize = 32;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Connect {
        port: u16,
        terms: Terms,
    },
    Accept {
        terms: Terms,
    },
    Reject {
        reason: i32,
    },
    Ready,
    Disconnect,
    /// `len` bytes follow, or are asked for by a read.
    Request {
        sequence: u64,
        op: SendOp,
        len: u32,
    },
    /// The answer to a read: `len` bytes follow.
    Bytes {
        sequence: u64,
        len: u32,
    },
    Done {
        sequence: u64,
    },
    NotReady {
        sequence: u64,
        timer: Duration,
    },
    Denied {
        sequence: u64,
        status: FailureStatus,
    },
    Resume,
    Probe,
    Alive,
}

/// Bytes that are no frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Default)]
struct Fields {
    kind: u8,
    len: u32,
    sequence: u64,
    addr: u64,
    key: u32,
    value: u32,
}

impl Frame {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let fields = match *self {
            Frame::Connect { port, terms } => Fields {
                kind: 1,
                sequence: MAGIC,
                addr: VERSION,
                key: port.into(),
                value: terms_number(terms),
                ..Fields::default()
            },
            Frame::Accept { terms } => Fields { kind: 2, value: terms_number(terms), ..Fields::default() },
            Frame::Reject { reason } => {
                Fields { kind: 3, value: reason.cast_unsigned(), ..Fields::default() }
            }
            Frame::Ready => Fields { kind: 4, ..Fields::default() },
            Frame::Disconnect => Fields { kind: 5, ..Fields::default() },
            Frame::Request { sequence, op: SendOp::Send, len } => {
                Fields { kind: 16, len, sequence, ..Fields::default() }
            }
            Frame::Request { sequence, op: SendOp::Write { addr, rkey }, len } => {
                Fields { kind: 17, len, sequence, addr, key: rkey, value: 0 }
            }
            Frame::Request { sequence, op: SendOp::WriteWithImm { addr, rkey, imm }, len } => {
                Fields { kind: 18, len, sequence, addr, key: rkey, value: imm }
            }
            Frame::Request { sequence, op: SendOp::Read { addr, rkey }, len } => {
                Fields { kind: 19, len, sequence, addr, key: rkey, value: 0 }
            }
            Frame::Request { sequence, op: SendOp::SendWithImm { imm }, len } => {
                Fields { kind: 20, len, sequence, value: imm, ..Fields::default() }
            }
            Frame::Bytes { sequence, len } => Fields { kind: 38, len, sequence, ..Fields::default() },
            Frame::Done { sequence } => Fields { kind: 32, sequence, ..Fields::default() },
            Frame::NotReady { sequence, timer } => {
                let value = u32::try_from(timer.as_micros()).unwrap_or(u32::MAX);
                Fields { kind: 33, sequence, value, ..Fields::default() }
            }
            Frame::Denied { sequence, status } => {
                Fields { kind: 34, sequence, value: status_number(status), ..Fields::default() }
            }
            Frame::Resume => Fields { kind: 35, ..Fields::default() },
            Frame::Probe => Fields { kind: 36, ..Fields::default() },
            Frame::Alive => Fields { kind: 37, ..Fields::default() },
        };
        let mut bytes = [0; HEADER];
        bytes[0] = fields.kind;
        bytes[4..8].copy_from_slice(&fields.len.to_be_bytes());
        bytes[8..16].copy_from_slice(&fields.sequence.to_be_bytes());
        bytes[16..24].copy_from_slice(&fields.addr.to_be_bytes());
        bytes[24..28].copy_from_slice(&fields.key.to_be_bytes());
        bytes[28..32].copy_from_slice(&fields.value.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Malformed> {
        let long =
            |at: usize| bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let word = |at: usize| (long(at - 4) & u64::from(u32::MAX)) as u32;
        let (len, sequence, addr, key, value) = (word(4), long(8), long(16), word(24), word(28));
        let [_, _, read_depth, rnr_retry_count] = value.to_be_bytes();
        let terms = Terms { rnr_retry_count, read_depth };
        let frame = match bytes[0] {
            1 => Frame::Connect { port: (key & 0xffff) as u16, terms },
            2 => Frame::Accept { terms },
            3 => Frame::Reject { reason: value.cast_signed() },
            4 => Frame::Ready,
            5 => Frame::Disconnect,
            16 => Frame::Request { sequence, op: SendOp::Send, len },
            17 => Frame::Request { sequence, op: SendOp::Write { addr, rkey: key }, len },
            18 => Frame::Request { sequence, op: SendOp::WriteWithImm { addr, rkey: key, imm: value }, len },
            19 => Frame::Request { sequence, op: SendOp::Read { addr, rkey: key }, len },
            20 => Frame::Request { sequence, op: SendOp::SendWithImm { imm: value }, len },
            32 => Frame::Done { sequence },
            33 => Frame::NotReady { sequence, timer: Duration::from_micros(value.into()) },
            34 => Frame::Denied { sequence, status: status_of(value).ok_or(Malformed)? },
            35 => Frame::Resume,
            36 => Frame::Probe,
            37 => Frame::Alive,
            38 => Frame::Bytes { sequence, len },
            _ => return Err(Malformed),
        };
        // What a frame does not use is zero, and what it uses is in range: then it reads back as it came.
        let in_range = len <= MAX_MESSAGE && terms_in_range(&frame);
        if in_range && frame.encode() == *bytes { Ok(frame) } else { Err(Malformed) }
    }
}

fn terms_number(terms: Terms) -> u32 {
    u32::from_be_bytes([0, 0, terms.read_depth, terms.rnr_retry_count])
}

fn terms_in_range(frame: &Frame) -> bool {
    match frame {
        Frame::Connect { terms, .. } | Frame::Accept { terms } => {
            terms.rnr_retry_count <= RNR_RETRY_FOREVER && terms.read_depth <= MAX_READS
        }
        _ => true,
    }
}

/// A responder's verdict, by its number in `ibv_wc_status`.
fn status_number(status: FailureStatus) -> u32 {
    match status {
        FailureStatus::RemoteInvalidRequest => 9,
        FailureStatus::RemoteAccess => 10,
        _ => 11,
    }
}

fn status_of(number: u32) -> Option<FailureStatus> {
    Some(match number {
        9 => FailureStatus::RemoteInvalidRequest,
        10 => FailureStatus::RemoteAccess,
        11 => FailureStatus::RemoteOperation,
        _ => return None,
    })
}

/// `VRDMAEMU`.
const MAGIC: u64 = 0x5652_444d_4145_4d55;

const VERSION: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Frame; 17] = [
        Frame::Connect { port: 49_152, terms: Terms { rnr_retry_count: 7, read_depth: 16 } },
        Frame::Accept { terms: Terms { rnr_retry_count: 0, read_depth: 0 } },
        Frame::Reject { reason: 28 },
        Frame::Ready,
        Frame::Disconnect,
        Frame::Request { sequence: 1, op: SendOp::Send, len: 32 },
        Frame::Request { sequence: 2, op: SendOp::Write { addr: 3 << 32, rkey: 4 }, len: MAX_MESSAGE },
        Frame::Request {
            sequence: u64::MAX,
            op: SendOp::WriteWithImm { addr: u64::MAX, rkey: u32::MAX, imm: 0x0102_0304 },
            len: 0,
        },
        Frame::Done { sequence: 5 },
        Frame::NotReady { sequence: 6, timer: Duration::from_millis(10) },
        Frame::Denied { sequence: 7, status: FailureStatus::RemoteAccess },
        Frame::Resume,
        Frame::Probe,
        Frame::Alive,
        Frame::Request { sequence: 8, op: SendOp::Read { addr: 3 << 32, rkey: 4 }, len: 32 },
        Frame::Request { sequence: 9, op: SendOp::SendWithImm { imm: 5 }, len: 32 },
        Frame::Bytes { sequence: 8, len: 32 },
    ];

    #[test]
    fn frames_survive_the_way_to_bytes_and_back() {
        for frame in ALL {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn a_write_with_immediate_has_its_fields_where_the_table_says() {
        let op = SendOp::WriteWithImm { addr: 0x0102_0304_0506_0708, rkey: 0x0a0b_0c0d, imm: 0x1112_1314 };
        let bytes = Frame::Request { sequence: 9, op, len: 0x2021_2223 }.encode();
        let expected = [
            18, 0, 0, 0, 0x20, 0x21, 0x22, 0x23, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b,
            0x0c, 0x0d, 0x11, 0x12, 0x13, 0x14,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_a_frame_does_not_use_is_zero() {
        for frame in ALL {
            let bytes = frame.encode();
            for at in 1..4 {
                let mut spoiled = bytes;
                spoiled[at] = 1;
                assert_eq!(Frame::decode(&spoiled), Err(Malformed), "{frame:?}, byte {at}");
            }
        }
        let mut ready = Frame::Ready.encode();
        ready[31] = 1;
        assert_eq!(Frame::decode(&ready), Err(Malformed));
    }

    #[test]
    fn numbers_out_of_range_are_no_frame() {
        let spoil = |frame: Frame, at: usize, byte| {
            let mut bytes = frame.encode();
            bytes[at] = byte;
            Frame::decode(&bytes)
        };
        assert_eq!(spoil(ALL[1], 31, 8), Err(Malformed), "too many retries");
        assert_eq!(spoil(ALL[1], 30, 17), Err(Malformed), "too many reads");
        assert_eq!(spoil(ALL[0], 8, 0), Err(Malformed), "another magic");
        assert_eq!(spoil(ALL[0], 23, 1), Err(Malformed), "another version");
        assert_eq!(spoil(ALL[6], 4, 0xff), Err(Malformed), "a message too long");
        assert_eq!(spoil(ALL[10], 31, 1), Err(Malformed), "a status that is no responder's");
        assert_eq!(spoil(Frame::Ready, 0, 99), Err(Malformed), "an unknown kind");
    }
}
