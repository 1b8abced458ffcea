use super::*;
use crate::error::{Error, LostConnection};

fn too_many_files() -> io::Error {
    io::Error::from_raw_os_error(EMFILE)
}

/// This process has too many files open: the same number on every Unix.
const EMFILE: i32 = 24;

fn device(call: &'static str) -> TransportError {
    TransportError::Device { call, source: too_many_files().into() }
}

/// The whole text in one line.
fn text(error: impl Into<Error>) -> String {
    format!("{:#}", error.into())
}

/// The text and those of its sources, as anyhow and eyre print them.
fn report(error: impl Into<Error>) -> Vec<String> {
    let error = error.into();
    let first: &dyn std::error::Error = &error;
    std::iter::successors(Some(first), |error| error.source()).map(ToString::to_string).collect()
}

#[test]
fn no_text_repeats_that_of_its_source() {
    let system = too_many_files().to_string();
    let files = "raise the limit of open files (ulimit -n), or open fewer connections";
    let connect = |cause| {
        report(ConnectError { peer: "h:1".into(), transport: Some(Transport::Rdma), tls: false, cause })
    };
    let begin = "cannot connect to h:1 over rdma";

    let cause = ConnectCause::Device(Arc::new(device("ibv_create_cq")));
    assert_eq!(connect(cause), [format!("{begin}: ibv_create_cq failed; {files}"), system.clone()]);
    let cause = ConnectCause::Device(Arc::new(TransportError::NoDevice));
    assert_eq!(connect(cause), [format!("{begin}: {}", TransportError::NoDevice)]);
    let cause = ConnectCause::Resolve(Arc::new(io::Error::other("no such name")));
    let resolve = format!("{begin}: the name does not resolve; check the host");
    assert_eq!(connect(cause), [&resolve, "no such name"]);
    let cause = ConnectCause::Io(Arc::new(io::Error::other("no route")));
    assert_eq!(connect(cause), [&format!("{begin}; check host and port"), "no route"]);
    let cause = ConnectCause::Lost(Arc::new(LostCause::Io(io::Error::other("reset"))));
    let handshake =
        format!("{begin}: the handshake failed; is it a Valkey server, and does it admit this address?");
    assert_eq!(connect(cause), [&handshake, "reset"]);

    let lost = |cause| report(LostConnection::new("h:1".into(), Arc::new(cause), false));
    let io = LostCause::Io(io::Error::other(device("ibv_poll_cq")));
    assert_eq!(lost(io), ["connection to h:1 lost: ibv_poll_cq failed; the command was not sent", &system]);
    let closed = "connection to h:1 lost: the peer closed it; the command was not sent";
    assert_eq!(lost(LostCause::PeerClosed), [closed]);
    let reset = io::Error::from_raw_os_error(104);
    let expected = format!("connection to h:1 lost: {reset}; the command was not sent");
    assert_eq!(lost(LostCause::Io(reset)), [expected]);
}

#[test]
fn a_failed_connect_tells_the_whole_story() {
    let connect = |transport, cause| {
        text(ConnectError { peer: "h:1".into(), transport: Some(transport), tls: false, cause })
    };
    let system = too_many_files();
    let files = "raise the limit of open files (ulimit -n), or open fewer connections";

    let cause = ConnectCause::Device(Arc::new(device("rdma_create_event_channel")));
    assert_eq!(
        connect(Transport::Rdma, cause),
        format!("cannot connect to h:1 over rdma: rdma_create_event_channel failed: {system}; {files}")
    );
    let cause = ConnectCause::Deadline { limit: Duration::from_secs(5), connected: false };
    assert!(connect(Transport::Emulated, cause.clone()).ends_with("servers answer emulated://"));
    assert!(connect(Transport::Rdma, cause).ends_with("raise the timeout"));
    for (cause, transport) in [
        (ConnectCause::Io(Arc::new(too_many_files())), Transport::Tcp),
        (ConnectCause::Resolve(Arc::new(too_many_files())), Transport::Rdma),
    ] {
        let text = connect(transport, cause);
        assert!(text.contains(&format!("{system}")) && text.ends_with(files), "{text}");
    }
    let lost = io::Error::other(device("ibv_poll_cq"));
    let text = connect(Transport::Rdma, ConnectCause::Lost(Arc::new(LostCause::Io(lost))));
    assert!(text.contains(&format!(": ibv_poll_cq failed: {system} during the handshake")), "{text}");
}

#[test]
fn a_lost_connection_tells_the_whole_story() {
    let cause = Arc::new(LostCause::Io(io::Error::other(device("ibv_poll_cq"))));
    let text = text(LostConnection::new("h:1".into(), cause, true));
    let system = too_many_files();
    let expected = format!("connection to h:1 lost: ibv_poll_cq failed: {system}; the command may have run");
    assert_eq!(text, expected);
}

#[test]
fn a_refused_name_leads_to_its_setting() {
    let refusal =
        ServerError::from_reply(b"ERR Client names cannot contain spaces, newlines or special characters.");
    let text = ConnectCause::Rejected(refusal).to_string();
    assert!(text.ends_with("; give Config::name a name without blanks"), "{text}");
}

/// The transport's own text begins with these words.
#[test]
fn a_lost_connection_says_so_once() {
    let reason = valkey_rdma_transport::CloseReason::Peer;
    let io = || LostCause::Io(io::Error::other(TransportError::Lost(reason)));
    let lost = LostConnection::new("h:1".into(), Arc::new(io()), true);
    let expected = format!("connection to h:1 lost: {reason}; the command may have run");
    assert_eq!((lost.to_string(), text(lost.clone())), (expected.clone(), expected.clone()));
    assert_eq!(report(lost), [expected]);
    let event = crate::events::ConnectionEvent::Lost { node: None, connection: 0, cause: Arc::new(io()) };
    assert_eq!(event.to_string(), format!("connection 0 lost: {reason}"));
}

#[test]
fn a_database_of_a_cluster_is_left_out() {
    let refusal = ServerError::from_reply(b"ERR SELECT is not allowed in cluster mode");
    assert!(advice_on_login(&refusal).contains("out of the URL"), "{}", advice_on_login(&refusal));
}
