//! The faults by name.

use std::ops::RangeInclusive;

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// `register-missing`
    RegisterMissing,
    /// `register-late`
    RegisterLate,
    /// `register-twice`
    RegisterTwice,
    /// `register-early`
    RegisterEarly,
    /// `register-length`
    RegisterLength,
    /// `register-key`
    RegisterKey,
    /// `imm-over`
    ImmOver,
    /// `imm-wrap`
    ImmWrap,
    /// `imm-short`
    ImmShort,
    /// `imm-swapped`
    ImmSwapped,
    /// `imm-zero`
    ImmZero,
    /// `imm-split`
    ImmSplit,
    /// `write-first`
    WriteFirst,
    /// `tail-missing`
    TailMissing,
    /// `address-off`
    AddressOff,
    /// `address-stale`
    AddressStale,
    /// `keepalive-flood`
    KeepaliveFlood,
    /// `keepalive-missing`
    KeepaliveMissing,
    /// `opcode`
    Opcode,
    /// `message-length`
    MessageLength,
    /// `reserved`
    Reserved,
    /// `answer-opcode`
    AnswerOpcode,
    /// `answer-select`
    AnswerSelect,
    /// `answer-echo`
    AnswerEcho,
    /// `answer-missing`
    AnswerMissing,
    /// `stall`
    Stall,
    /// `receives-missing`
    ReceivesMissing,
    /// `lenient-opcode`
    LenientOpcode,
    /// `lenient-length`
    LenientLength,
    /// `lenient-imm`
    LenientImm,
    /// `refuse`
    Refuse,
    /// `close-before`
    CloseBefore,
    /// `close-after`
    CloseAfter,
    /// `close-missing`
    CloseMissing,
    /// `garbage`
    Garbage,
    /// `transfer-key`
    TransferKey,
    /// `transfer-off`
    TransferOff,
    /// `transfer-missing`
    TransferMissing,
    /// `transfer-half`
    TransferHalf,
    /// `transfer-late`
    TransferLate,
}

/// When a fault may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A connect request came to the listener.
    Request,
    /// This side sends a Register.
    Register,
    /// This side sends a keepalive.
    Keepalive,
    /// This side sends GetServerFeature: an answer, if it is a server.
    Answer,
    /// This side sends a control message of any kind.
    Message,
    /// This side writes data and announces it.
    Data,
    /// This side writes to memory that the peer has exposed, or reads it.
    Transfer,
    /// This side posts sends of any kind.
    Post,
    /// This side posts receives again.
    Receives,
    /// The peer's data has arrived.
    Arrival,
    /// A control message of the peer has arrived.
    Control,
    /// This side disconnects.
    Disconnect,
}

impl Occasion {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Request => "connect request",
            Self::Register => "Register sent",
            Self::Keepalive => "keepalive sent",
            Self::Answer => "feature answer sent",
            Self::Message => "message sent",
            Self::Data => "data sent",
            Self::Transfer => "direct transfer",
            Self::Post => "anything sent",
            Self::Receives => "receives posted again",
            Self::Arrival => "data received",
            Self::Control => "message received",
            Self::Disconnect => "own disconnect",
        }
    }
}

/// What a fault is called and what it needs.
pub(super) struct Entry {
    pub(super) fault: Fault,
    pub(super) name: &'static str,
    /// Name and range of its value, if it has one.
    pub(super) value: Option<(&'static str, RangeInclusive<u32>)>,
    pub(super) occasion: Occasion,
    pub(super) about: &'static str,
}

impl Fault {
    pub(super) fn entry(self) -> &'static Entry {
        TABLE.iter().find(|entry| entry.fault == self).expect("every fault is in the table")
    }
}

const fn entry(fault: Fault, name: &'static str, occasion: Occasion, about: &'static str) -> Entry {
    Entry { fault, name, value: None, occasion, about }
}

const fn with(value: &'static str, range: RangeInclusive<u32>, entry: Entry) -> Entry {
    Entry { value: Some((value, range)), ..entry }
}

/// Half of the usual send queue: the wrapper keeps that much for what it adds.
const PIECES: RangeInclusive<u32> = 1..=500;
const DAY_MS: u32 = 86_400_000;

use Fault as F;
use Occasion as On;

pub(super) const TABLE: &[Entry] = &[
    entry(F::Refuse, "refuse", On::Request, "rejects the connect request"),
    entry(F::RegisterMissing, "register-missing", On::Register, "does not send it"),
    with("MS", 0..=DAY_MS, entry(F::RegisterLate, "register-late", On::Register, "sends it so much later")),
    entry(F::RegisterTwice, "register-twice", On::Register, "sends it twice"),
    entry(F::RegisterEarly, "register-early", On::Data, "repeats the last Register before it"),
    with(
        "BYTES",
        0..=u32::MAX,
        entry(F::RegisterLength, "register-length", On::Register, "claims another length"),
    ),
    entry(F::RegisterKey, "register-key", On::Register, "names a key that fits nothing"),
    entry(F::ImmOver, "imm-over", On::Data, "announces more than any window holds"),
    entry(F::ImmWrap, "imm-wrap", On::Data, "announces 4 GiB - 1, which wraps a careless sum"),
    entry(F::ImmShort, "imm-short", On::Data, "announces one byte less than it wrote"),
    entry(F::ImmSwapped, "imm-swapped", On::Data, "announces in little-endian"),
    entry(F::ImmZero, "imm-zero", On::Data, "announces nothing first, with a write of nothing (legal)"),
    with(
        "PIECES",
        PIECES,
        entry(F::ImmSplit, "imm-split", On::Data, "cuts it into this number of announced pieces (legal)"),
    ),
    entry(
        F::WriteFirst,
        "write-first",
        On::Data,
        "writes half of it plainly and announces the whole (legal)",
    ),
    entry(F::TailMissing, "tail-missing", On::Data, "keeps back what would fill the peer's window"),
    entry(F::AddressOff, "address-off", On::Data, "leaves out a byte of the peer's window before it"),
    entry(F::AddressStale, "address-stale", On::Data, "writes to the peer's first window for ever"),
    with(
        "COUNT",
        PIECES,
        entry(F::KeepaliveFlood, "keepalive-flood", On::Data, "sends this number of keepalives after it"),
    ),
    entry(F::KeepaliveMissing, "keepalive-missing", On::Keepalive, "does not send it"),
    with("OPCODE", 0..=65535, entry(F::Opcode, "opcode", On::Data, "sends this opcode, unasked, before it")),
    with(
        "BYTES",
        0..=64,
        entry(F::MessageLength, "message-length", On::Data, "sends a message of this length before it"),
    ),
    entry(
        F::Reserved,
        "reserved",
        On::Message,
        "fills its reserved bytes with noise (breaks M-2; receivers must ignore it)",
    ),
    with("OPCODE", 0..=65535, entry(F::AnswerOpcode, "answer-opcode", On::Answer, "gives it this opcode")),
    entry(F::AnswerSelect, "answer-select", On::Answer, "gives it another selector"),
    entry(F::AnswerEcho, "answer-echo", On::Answer, "copies the feature bits of the question into it"),
    entry(F::AnswerMissing, "answer-missing", On::Answer, "does not send it"),
    with("MS", 0..=DAY_MS, entry(F::Stall, "stall", On::Arrival, "takes no notice of anything for so long")),
    entry(F::ReceivesMissing, "receives-missing", On::Receives, "does not post them"),
    entry(F::LenientOpcode, "lenient-opcode", On::Control, "overlooks an unknown opcode"),
    entry(F::LenientLength, "lenient-length", On::Control, "overlooks a wrong length"),
    entry(F::LenientImm, "lenient-imm", On::Arrival, "believes the byte count and not the immediate"),
    entry(F::CloseBefore, "close-before", On::Post, "disconnects instead"),
    entry(F::CloseAfter, "close-after", On::Post, "disconnects as soon as it is acknowledged"),
    entry(F::CloseMissing, "close-missing", On::Disconnect, "does not disconnect"),
    entry(F::Garbage, "garbage", On::Data, "replaces its bytes with noise"),
    entry(F::TransferKey, "transfer-key", On::Transfer, "names a key that fits nothing"),
    with(
        "BYTES",
        1..=u32::MAX,
        entry(F::TransferOff, "transfer-off", On::Transfer, "is so far behind the place that the peer named"),
    ),
    entry(F::TransferMissing, "transfer-missing", On::Transfer, "does not do it, and replies as if it had"),
    with(
        "MS",
        0..=DAY_MS,
        entry(
            F::TransferHalf,
            "transfer-half",
            On::Transfer,
            "does half of it, and takes no notice of anything for so long",
        ),
    ),
    entry(
        F::TransferLate,
        "transfer-late",
        On::Transfer,
        "replies as if it had done it, and does it when the peer's next data arrives",
    ),
];
