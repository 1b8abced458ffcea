use super::*;
use crate::limits::Limits;

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

#[test]
fn a_shortage_of_descriptors_says_what_to_do() {
    for (code, advice) in [(EMFILE, "raise it with `ulimit -n`"), (ENFILE, "sysctl fs.file-max")] {
        let text = AcceptError::of_tcp(io::Error::from_raw_os_error(code)).to_string();
        assert!(text.contains("for accept") && text.contains(advice), "{text}");
    }
}

/// A client whose machine has vanished must not hold its place for ever.
#[tokio::test]
async fn connections_are_probed_unless_that_is_turned_off() {
    let any = ([127, 0, 0, 1], 0).into();
    let socket = Socket::bind(Transport::Tcp, any, &TransportConfig::default()).await.unwrap();
    let mut listener = socket.into_listener(None, false);
    let addr = listener.listening().addr;
    for (limits, expected) in [
        (Limits::default(), Some((300, 100))),
        (Limits::default().tcp_keepalive(Duration::from_millis(1)), Some((1, 1))),
        (Limits::default().tcp_keepalive(Duration::MAX), Some((32_767, 10_922))),
        (Limits::default().tcp_keepalive(None), None),
    ] {
        let _client = TcpStream::connect(addr).await.unwrap();
        let request = listener.request().await.unwrap();
        let accepted = request.accept(None, limits.tcp_keepalive).unwrap();
        let AnyStream::Tcp(stream) = accepted.stream else { panic!("{:?}", accepted.stream) };
        assert_eq!(sockopt::socket_keepalive(&stream).unwrap(), expected.is_some(), "{limits:?}");
        if let Some(expected) = expected {
            let times = [sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream)];
            let [idle, interval] = times.map(|time| time.unwrap().as_secs());
            assert_eq!((idle, interval), expected, "{limits:?}");
        }
    }
}

/// One error of each kind, with its scope.
#[test]
fn only_a_shortage_makes_a_listener_rest() {
    use Scope::{Client, Shortage};
    for (code, scope) in
        [(EMFILE, Shortage), (ENFILE, Shortage), (ENOMEM, Shortage), (ENOBUFS, Shortage), (103, Client)]
    {
        let error = || io::Error::from_raw_os_error(code);
        assert_eq!(AcceptError::of_tcp(error()).scope(), scope, "{}", error());
        let device = TransportError::Device { call: "rdma_create_qp", source: error().into() };
        assert_eq!(AcceptError::from(device).scope(), scope, "{}", error());
        // The calls that wait for the next client.
        for call in ["epoll_wait", "rdma_get_cm_event"] {
            let waiting = TransportError::Device { call, source: error().into() };
            assert_eq!(AcceptError::from(waiting).scope(), Shortage, "{call}");
        }
        let memory = TransportError::Memory { bytes: 1, limit: None, source: error().into() };
        assert_eq!(AcceptError::from(memory).scope(), Shortage);
    }
    let other_device = TransportError::WrongDevice {
        peer: ([127, 0, 0, 1], 1).into(),
        wanted: "a".into(),
        found: "b".into(),
    };
    assert_eq!(AcceptError::from(other_device).scope(), Client);
    assert_eq!(AcceptError::from(TransportError::DeviceRemoved).scope(), Scope::Listener);
}
