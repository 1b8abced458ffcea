//! The golden vectors of `spec/vectors/`, in both directions.

use std::collections::VecDeque;

use valkey_rdma_proto::wire::{ControlMessage, Features, XferMemory};
use valkey_rdma_proto::work::SendOp;
use valkey_rdma_proto::{CloseReason, Config, Event, FeatureSet, Role};

use crate::scripted::Scripted;

const MESSAGES: &str = include_str!("../vectors/messages.txt");
const LENIENT: &str = include_str!("../vectors/messages-lenient.txt");
const INVALID: &str = include_str!("../vectors/messages-invalid.txt");
const CONVERSATIONS: &str = include_str!("../vectors/conversations.txt");

/// A block of lines, each a key and a value.
struct Vector<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Vector<'a> {
    fn all(text: &'a str) -> Vec<Self> {
        let vectors: Vec<_> = text
            .split("\n\n")
            .map(|block| {
                let lines = block.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
                Self(lines.map(|line| line.split_once(' ').unwrap()).map(|(k, v)| (k, v.trim())).collect())
            })
            .filter(|vector| !vector.0.is_empty())
            .collect();
        assert!(!vectors.is_empty());
        vectors
    }

    fn find(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn get(&self, key: &str) -> &'a str {
        self.find(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
    }

    /// The feature bits that `key` names; none without it.
    fn features(&self, key: &str) -> FeatureSet {
        FeatureSet::from_bits(self.find(key).map_or(0, |bits| u64::from_str_radix(bits, 16).unwrap()))
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    assert!(digits.len().is_multiple_of(2), "{hex}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of `name=` in a description: hexadecimal with a prefix, decimal without.
fn field(text: &str, name: &str) -> u64 {
    let value = text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap();
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => value.parse().unwrap(),
    }
}

fn meaning(text: &str) -> ControlMessage {
    let features =
        || Features { select: field(text, "select").try_into().unwrap(), bits: field(text, "bits") };
    match text.split(' ').next().unwrap() {
        "get-server-feature" => ControlMessage::GetServerFeature(features()),
        "set-client-feature" => ControlMessage::SetClientFeature(features()),
        "keepalive" => ControlMessage::Keepalive,
        "register" => ControlMessage::RegisterXferMemory(XferMemory {
            addr: field(text, "addr"),
            len: field(text, "len").try_into().unwrap(),
            key: field(text, "key").try_into().unwrap(),
        }),
        other => panic!("{other}"),
    }
}

#[test]
fn messages_encode_and_decode_as_written_m4_m5() {
    for vector in Vector::all(MESSAGES) {
        let (bytes, message) = (bytes(vector.get("hex")), meaning(vector.get("means")));
        assert_eq!(hex(&message.encode()), hex(&bytes), "{}", vector.get("vector"));
        assert_eq!(ControlMessage::decode(&bytes), Ok(message), "{}", vector.get("vector"));
    }
}

#[test]
fn reserved_bytes_are_ignored_and_never_sent_m2() {
    for vector in Vector::all(LENIENT) {
        let (bytes, message) = (bytes(vector.get("hex")), meaning(vector.get("means")));
        assert_eq!(ControlMessage::decode(&bytes), Ok(message), "{}", vector.get("vector"));
        assert_ne!(message.encode()[..], bytes, "{}", vector.get("vector"));
    }
}

#[test]
fn what_is_no_message_is_refused_with_its_clause_m1_m2() {
    for vector in Vector::all(INVALID) {
        let error = ControlMessage::decode(&bytes(vector.get("hex"))).unwrap_err();
        assert_eq!(error.clause(), vector.get("refused"), "{}", vector.get("vector"));
    }
}

/// One side of a conversation, and what of it has been compared.
struct Played {
    side: Scripted,
    messages: usize,
    data: usize,
    readable: u64,
    agreed: bool,
    closed: bool,
}

impl Played {
    fn new(role: Role, vector: &Vector<'_>) -> Self {
        let config = Config {
            keepalive: None,
            offers: vector.features("offers"),
            wants: vector.features("wants"),
            requires: vector.features("requires"),
            ..Config::new(role)
        };
        let mut side = Scripted::new(role, config);
        side.establish();
        side.acknowledge();
        Self { side, messages: 1, data: 0, readable: 0, agreed: false, closed: false }
    }

    fn happens(&mut self, what: &str) {
        let (kind, rest) = what.split_once(' ').unwrap();
        match kind {
            "established" => assert_eq!(rest, "now"),
            "message" => self.side.says_bytes(&bytes(rest)),
            "written" => {
                let (len, imm) = rest.split_once(' ').unwrap();
                let imm = u32::from_be_bytes(bytes(imm).try_into().unwrap());
                self.side.announces(len.parse().unwrap(), imm);
            }
            "write" => {
                let len = rest.parse().unwrap();
                assert_eq!(self.side.write(len), len);
            }
            "read" => assert_eq!(self.side.read(), rest.parse::<u32>().unwrap()),
            other => panic!("{other}"),
        }
        self.side.acknowledge();
    }

    fn does(&mut self) -> VecDeque<String> {
        let mut lines = VecDeque::new();
        let core = &self.side.core;
        let received = core.counters().bytes_received;
        if received > self.readable && core.agreed().is_some() {
            lines.push_back(format!("readable {}", received - self.readable));
            self.readable = received;
        }
        for message in &self.side.messages[self.messages..] {
            lines.push_back(format!("message {}", hex(&message.encode())));
        }
        for send in &self.side.data[self.data..] {
            let SendOp::WriteWithImm { addr, rkey, imm } = send.op else { panic!("{send:?}") };
            let (len, imm) = (send.local.len, hex(&imm.to_be_bytes()));
            lines.push_back(format!("write addr={addr:#x} key={rkey:#x} len={len} imm={imm}"));
        }
        (self.messages, self.data) = (self.side.messages.len(), self.side.data.len());
        for event in &self.side.events {
            if let Event::Agreed { features } = event
                && !self.agreed
            {
                self.agreed = true;
                lines.push_back(format!("agreed {:x}", features.bits()));
            }
        }
        if let Some(reason) = self.side.close_reason().filter(|_| !self.closed) {
            self.closed = true;
            lines.push_back(match reason {
                CloseReason::Protocol(error) => format!("refused {}", error.clause()),
                CloseReason::NotOffered { missing } => format!("not-offered {:x}", missing.bits()),
                reason => panic!("{reason}"),
            });
        }
        lines
    }
}

#[test]
fn conversations_are_played_as_written_w4_i2_f6() {
    for vector in Vector::all(CONVERSATIONS) {
        let name = vector.get("vector");
        let role = if vector.get("role") == "client" { Role::Client } else { Role::Server };
        let mut played = Played::new(role, &vector);
        let mut done = VecDeque::new();
        for &(key, value) in &vector.0 {
            match key {
                ">" => {
                    assert_eq!(done, VecDeque::<String>::new(), "{name}: before {value}");
                    played.happens(value);
                    done = played.does();
                }
                "<" => {
                    let value = match value.strip_prefix("message ") {
                        Some(digits) => format!("message {}", hex(&bytes(digits))),
                        None => value.to_owned(),
                    };
                    assert_eq!(done.pop_front(), Some(value), "{name}");
                }
                _ => {}
            }
        }
        assert_eq!(done, VecDeque::<String>::new(), "{name}: at its end");
    }
}

#[test]
fn every_error_names_its_clause_m1() {
    for vector in Vector::all(INVALID) {
        let error = ControlMessage::decode(&bytes(vector.get("hex"))).unwrap_err();
        assert!(error.to_string().ends_with(&format!("(clause {})", error.clause())), "{error}");
    }
}
