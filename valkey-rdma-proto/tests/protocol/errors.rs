//! What a person reads when a connection ends.

use std::collections::HashSet;
use std::time::Duration;

use valkey_rdma_proto::work::FailureStatus;
use valkey_rdma_proto::{CloseReason, FeatureSet, ProtocolError};

const PROTOCOL_ERRORS: [(ProtocolError, &str); 12] = [
    (ProtocolError::MessageTooLong, "M-1"),
    (ProtocolError::MessageLength { len: 31 }, "M-1"),
    (ProtocolError::Opcode { opcode: 9 }, "M-2"),
    (ProtocolError::EmptyWindow, "W-2"),
    (ProtocolError::WindowTooLarge { addr: u64::MAX, len: 2, limit: 1 << 30 }, "W-2"),
    (ProtocolError::WindowReplaced { written: 1, len: 2 }, "W-5"),
    (ProtocolError::ImmediateBeyondWindow { announced: 3, room: 2 }, "I-2"),
    (ProtocolError::ImmediateTooSmall { announced: 1, written: 2 }, "I-3"),
    (ProtocolError::TooManyRequests { limit: 1024 }, "F-4"),
    (ProtocolError::FeatureNotOffered { features: FeatureSet::TLS }, "F-6"),
    (ProtocolError::LateFeatures { features: FeatureSet::TLS }, "F-6"),
    (ProtocolError::DataBeforeAgreement, "F-7"),
];

#[test]
fn a_protocol_error_names_the_clause_that_was_broken() {
    for (error, clause) in PROTOCOL_ERRORS {
        assert_eq!(error.clause(), clause);
        assert!(error.to_string().contains(clause), "{error}");
    }
}

#[test]
fn every_close_reason_has_a_text_of_its_own() {
    use FailureStatus as Status;
    let statuses = [
        Status::LocalLength,
        Status::LocalQueuePair,
        Status::LocalProtection,
        Status::Flushed,
        Status::RemoteInvalidRequest,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
        Status::Other(99),
    ];
    let reasons = [
        CloseReason::Local,
        CloseReason::LocalUnfinished { bytes: 7 },
        CloseReason::Peer,
        CloseReason::HandshakeTimeout { after: Duration::from_secs(10) },
        CloseReason::NoAnswer { after: Duration::from_secs(10) },
        CloseReason::NotOffered { missing: FeatureSet::TLS },
        CloseReason::IdleTimeout { after: Duration::from_secs(20) },
        CloseReason::StallTimeout { after: Duration::from_secs(30) },
        CloseReason::KeepaliveTimeout { missed: 3 },
        CloseReason::Device,
    ];
    let texts: Vec<String> = (reasons.into_iter())
        .chain(statuses.map(CloseReason::Failed))
        .chain(PROTOCOL_ERRORS.map(|(error, _)| CloseReason::Protocol(error)))
        .map(|reason| reason.to_string())
        .collect();
    for text in &texts {
        assert!(!text.ends_with('.') && text.starts_with(|c: char| !c.is_uppercase()), "{text}");
    }
    assert_eq!(texts.iter().collect::<HashSet<_>>().len(), texts.len(), "{texts:#?}");
    let stated = |number: &str| texts.iter().any(|text| text.contains(number));
    assert!(stated("7 bytes") && stated("3 periods") && stated("status 99"), "evidence is part of the text");
}
