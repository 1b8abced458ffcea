//! A hostile peer ends its own connection with a typed error, and harms no other: raw work requests against the streams of a
//! listener and against a connecting stream. The same file runs on kernel verbs (`VALKEY_RDMA_TEST_DEVICE`, CONTRIBUTING.md).

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_conformance::peer::{Finding, Passive, Peer, PeerOptions, Session, Transcript};
use valkey_rdma_transport::device::wire::{ControlMessage, XferMemory};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream, TransportError};

/// What the hostile side does once both have exchanged windows, or instead of offering its own.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// An immediate of this many bytes more than the window has left.
    ImmBeyond(u32),
    /// A byte, then an immediate that wraps the sum.
    ImmWraps,
    /// An immediate smaller than the write.
    ImmShort,
    /// A write with a key that fits nothing.
    WrongKey,
    /// A message of this length.
    Message(usize),
    /// A message with this opcode.
    Opcode(u16),
    /// A first Register of this length.
    Register(u32),
    /// A Register while the window is partly written.
    RegisterEarly,
}

/// The attack, and a part of what the victim's error says.
const ATTACKS: &[(Attack, &str)] = &[
    (Attack::ImmBeyond(1), "clause I-2"),
    (Attack::ImmBeyond(1 << 30), "clause I-2"),
    (Attack::ImmWraps, "clause I-2"),
    (Attack::ImmShort, "clause I-3"),
    (Attack::WrongKey, "connection lost"),
    (Attack::Message(0), "clause M-1"),
    (Attack::Message(31), "clause M-1"),
    (Attack::Message(33), "clause M-1"),
    (Attack::Opcode(4), "clause M-2"),
    (Attack::Opcode(0xffff), "clause M-2"),
    (Attack::Register(0), "clause W-2"),
    (Attack::Register(u32::MAX), "clause W-2"),
    (Attack::RegisterEarly, "clause W-5"),
];

fn device() -> DeviceKind {
    let name = std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned());
    name.parse().expect("VALKEY_RDMA_TEST_DEVICE names a device")
}

fn any_port() -> SocketAddr {
    let host = std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    SocketAddr::new(host.parse().expect("VALKEY_RDMA_TEST_ADDR is an IP address"), 0)
}

fn options() -> PeerOptions {
    PeerOptions { patience: Duration::from_secs(60), ..PeerOptions::default() }
}

/// Fails a test that hangs. Each takes seconds here, and minutes on an emulated processor.
async fn bounded(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(900), test).await.expect("the test ends within its deadline");
}

async fn attack(peer: Peer, attack: Attack) -> Result<Session, Finding> {
    let mut session = Session::new(peer, 65_536)?;
    if let Attack::Register(len) = attack {
        session.remote().await?;
        let memory = XferMemory { addr: 0x1000, len, key: 7 };
        session.say(ControlMessage::RegisterXferMemory(memory)).await?;
        return Ok(session);
    }
    session.handshake().await?;
    let (addr, key) = session.place().await?;
    let peer = &mut session.peer;
    match attack {
        Attack::ImmBeyond(more) => {
            let len = session.room().await?;
            session.peer.write_imm(addr, key, b"x", len + more).await?;
        }
        Attack::ImmWraps => {
            peer.write_imm(addr, key, b"x", 1).await?;
            peer.write_imm(addr, key, b"x", u32::MAX).await?;
        }
        Attack::ImmShort => peer.write_imm(addr, key, b"four", 3).await?,
        Attack::WrongKey => peer.write(addr, key ^ 0x00ff_ff00, b"x").await?,
        Attack::Message(len) => peer.send(&vec![2; len]).await?,
        Attack::Opcode(opcode) => {
            let mut message = [0; 32];
            message[..2].copy_from_slice(&opcode.to_be_bytes());
            peer.send(&message).await?;
        }
        Attack::RegisterEarly => {
            // The victim has written something by now: the test sees to that.
            session.take_next().await?;
            session.offer().await?;
        }
        Attack::Register(_) => {}
    }
    Ok(session)
}

/// The error that ends the victim's stream, whole. What came before it does not matter.
async fn end_of(mut victim: Stream) -> String {
    let mut bytes = Vec::new();
    match victim.read_to_end(&mut bytes).await {
        Ok(_) => "end of file".to_owned(),
        Err(error) => {
            let typed = error.get_ref().and_then(|inner| inner.downcast_ref::<TransportError>());
            let typed = typed.unwrap_or_else(|| panic!("{error:?} is not a typed error"));
            let source = std::error::Error::source(typed);
            format!("{typed}: {}", source.map(ToString::to_string).unwrap_or_default())
        }
    }
}

#[tokio::test]
async fn an_accepted_stream_ends_with_a_typed_error_and_others_are_unharmed() {
    bounded(async {
        let config = Config::default();
        let mut listener = Listener::bind(device(), any_port(), &config).await.expect("listens");
        let addr = listener.local_addr();
        let (neighbour, accepted) = tokio::join!(Stream::connect(device(), addr, &config), listener.accept());
        let (mut neighbour, mut neighbour_at_server) =
            (neighbour.expect("connects"), accepted.expect("accepts"));
        for &(kind, expected) in ATTACKS {
            let victim = async {
                let mut victim = listener.accept().await.expect("accepts");
                // On a hostile handshake this may fail already.
                let _ = victim.write_all(b"hello").await;
                end_of(victim).await
            };
            let attacker = async {
                let peer = Peer::connect(device(), addr, &options(), &Transcript::default()).await?;
                let mut session = attack(peer, kind).await?;
                session.peer.end().await
            };
            let (error, ended) = tokio::join!(victim, attacker);
            assert!(error.contains(expected), "{kind:?}: {error:?} instead of {expected:?}");
            ended.unwrap_or_else(|finding| panic!("{kind:?}: {finding}"));

            neighbour.write_all(b"still here").await.expect("writes");
            let mut heard = [0; 10];
            neighbour_at_server.read_exact(&mut heard).await.expect("reads");
            assert_eq!(&heard, b"still here", "{kind:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_connecting_stream_ends_with_a_typed_error() {
    bounded(async {
        let mut passive = Passive::listen(device(), any_port(), &options()).await.expect("listens");
        let addr = passive.local_addr();
        let config = Config::default();
        for &(kind, expected) in ATTACKS {
            let victim = async {
                match Stream::connect(device(), addr, &config).await {
                    Ok(mut victim) => {
                        let _ = victim.write_all(b"hello").await;
                        end_of(victim).await
                    }
                    Err(error) => {
                        let source = std::error::Error::source(&error);
                        format!("{error}: {}", source.map(ToString::to_string).unwrap_or_default())
                    }
                }
            };
            let attacker = async {
                let mut peer = passive.accept(&Transcript::default()).await?;
                peer.establish().await?;
                // Either side's first message is its Register.
                let mut session = attack(peer, kind).await?;
                session.peer.end().await
            };
            let (error, ended) = tokio::join!(victim, attacker);
            assert!(error.contains(expected), "{kind:?}: {error:?} instead of {expected:?}");
            ended.unwrap_or_else(|finding| panic!("{kind:?}: {finding}"));
        }
    })
    .await;
}

#[tokio::test]
async fn five_thousand_immediates_of_one_byte_are_all_taken_h5() {
    bounded(async {
        let config = Config::default();
        let mut listener = Listener::bind(device(), any_port(), &config).await.expect("listens");
        let addr = listener.local_addr();
        let server = async {
            let mut stream = listener.accept().await.expect("accepts");
            let mut bytes = vec![0; 5000];
            stream.read_exact(&mut bytes).await.expect("reads");
            (bytes, stream)
        };
        let client = async {
            let peer = Peer::connect(device(), addr, &options(), &Transcript::default()).await?;
            let mut session = Session::new(peer, 65_536)?;
            session.handshake().await?;
            for number in 0..5000_u32 {
                session.write_one(&[number as u8]).await?;
            }
            session.peer.acknowledged().await?;
            Ok::<_, Finding>(session)
        };
        let ((bytes, _stream), session) = tokio::join!(server, client);
        session.expect("sends all");
        assert_eq!(bytes, (0..5000_u32).map(|number| number as u8).collect::<Vec<_>>());
    })
    .await;
}
