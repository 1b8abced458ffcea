use std::pin::pin;
use std::task::{Context, Waker};

use tokio::io::{DuplexStream, duplex};

use super::*;

fn accepted<S>(stream: S) -> Accepted<S> {
    Accepted { stream, remote: nowhere(), local: nowhere(), rdma: None }
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// An error of each kind, and who is to blame for it.
#[test]
fn only_a_shortage_makes_a_listener_rest() {
    for (code, rest) in [(EMFILE, true), (ENFILE, true), (ENOMEM, true), (ENOBUFS, true), (103, false)] {
        let error = || os_error(code);
        assert_eq!(TcpListener::would_recur(&error()), rest, "{}", error());
        let device = TransportError::Device { call: "rdma_create_qp", source: error() };
        assert_eq!(RdmaListener::would_recur(&device), rest, "{device}");
        let memory = TransportError::Memory { bytes: 1, limit: None, source: error() };
        assert!(RdmaListener::would_recur(&memory));
    }
    let other_device = TransportError::WrongDevice { peer: nowhere(), wanted: "a".into(), found: "b".into() };
    assert!(!RdmaListener::would_recur(&other_device));
    assert!(RdmaListener::would_recur(&TransportError::DeviceRemoved));
}

/// Comes back with these, last first.
struct Scripted(Vec<io::Result<Accepted<DuplexStream>>>);

impl Accept for Scripted {
    type Stream = DuplexStream;
    type Error = io::Error;

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn local_addr(&self) -> SocketAddr {
        nowhere()
    }

    fn would_recur(error: &io::Error) -> bool {
        TcpListener::would_recur(error)
    }

    async fn accept(&mut self) -> io::Result<Accepted<DuplexStream>> {
        self.0.pop().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanished_does_not_keep_the_next_one_waiting() {
    for (error, keeps) in [(io::ErrorKind::ConnectionAborted.into(), false), (os_error(EMFILE), true)] {
        let mut listener = Scripted(vec![Ok(accepted(duplex(1).0)), Err(error)]);
        let mut next = pin!(accept(&mut listener));
        assert_eq!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), keeps);
    }
}
