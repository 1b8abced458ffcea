//! The blocking stream, beside `std::net::TcpStream`: one program runs on both. On the device that `VALKEY_RDMA_TEST_DEVICE` names.

#![cfg(feature = "emulated")]

mod device_peer;

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_peer::{any_port, device};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use valkey_rdma_transport::blocking::{Listener, Stream};
use valkey_rdma_transport::{Config, TransportError, bridge};

/// What the program below uses of a `TcpStream`.
trait Socket: Read + Write + Send + Sized + 'static {
    fn try_clone(&self) -> io::Result<Self>;
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

macro_rules! socket {
    ($socket:ty) => {
        impl Socket for $socket {
            fn try_clone(&self) -> io::Result<Self> {
                self.try_clone()
            }
            fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(limit)
            }
            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }
        }
    };
}

socket!(TcpStream);
socket!(Stream);

/// A server that answers each line in capitals, and a client that talks to it. Returns what the client saw.
fn program<S: Socket>(client: S, server: S) -> io::Result<Vec<String>> {
    let serving = thread::spawn(move || {
        let mut answers = server.try_clone()?;
        let lines = BufReader::new(server).lines();
        lines
            .map(|line| line.and_then(|line| writeln!(answers, "{}", line.to_uppercase())))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut seen = Vec::new();
    let mut questions = client.try_clone()?;
    client.set_read_timeout(Some(Duration::from_millis(1)))?;
    let mut answers = BufReader::new(client.try_clone()?);
    let early = answers.read(&mut [0]).expect_err("nothing was asked");
    seen.push(format!("{:?}", early.kind()));
    client.set_read_timeout(None)?;

    for question in ["one", "two"] {
        writeln!(questions, "{question}")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        seen.push(answer);
    }
    // Far more than either side keeps: one thread asks while another reads.
    let asking = thread::spawn(move || {
        let line = format!("{}\n", "x".repeat(99));
        (0..50_000).try_for_each(|_| questions.write_all(line.as_bytes())).map(|()| questions)
    });
    let mut bytes = vec![0; 50_000 * 100];
    answers.read_exact(&mut bytes)?;
    seen.push(format!("{} capitals", bytes.iter().filter(|byte| **byte == b'X').count()));
    asking.join().expect("no panic")?.shutdown(Shutdown::Write)?;
    seen.push(format!("{} bytes, then the end", answers.read(&mut [0])?));
    seen.push(format!("{} lines", serving.join().expect("no panic")?.len()));
    Ok(seen)
}

fn pair() -> (Stream, Stream) {
    let listener = Listener::bind(device(), any_port(), &Config::default()).expect("listens");
    let addr = listener.local_addr();
    let connecting = thread::spawn(move || Stream::connect(device(), addr, &Config::default()));
    let server = listener.accept().expect("accepts");
    (connecting.join().expect("no panic").expect("connects"), server)
}

#[test]
fn a_program_for_tcp_runs_on_it_unchanged() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let over_tcp = program(client, listener.accept().expect("accepts").0).expect("runs");
    let (client, server) = pair();
    assert_eq!(program(client, server).expect("runs"), over_tcp);
}

#[test]
fn both_ends_know_their_addresses() {
    let (client, server) = pair();
    assert_eq!(client.peer_addr(), server.local_addr());
    assert_eq!(server.peer_addr(), client.local_addr());
    assert_eq!(client.info().device.kind, device());
}

#[test]
fn a_write_that_the_peer_leaves_lying_ends_at_its_deadline() {
    let (mut client, mut server) = pair();
    client.set_write_timeout(Some(Duration::from_millis(50))).expect("a limit");
    let chunk = vec![7; 1 << 20];
    let mut written = 0;
    let error = loop {
        match client.write(&chunk) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // Nothing of it is lost, and it goes on.
    let mut bytes = vec![0; written];
    server.read_exact(&mut bytes).expect("all that was written");
    client.set_write_timeout(None).expect("no limit");
    client.write_all(b"more").expect("there is room");
    server.read_exact(&mut [0; 4]).expect("it comes");
    assert_eq!(
        client.set_write_timeout(Some(Duration::ZERO)).expect_err("std's rule").kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_drop_delivers_and_the_peer_reads_to_the_end() {
    let (mut client, mut server) = pair();
    let bytes = vec![5; 300_000];
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        server.read_to_end(&mut all).map(|_| all)
    });
    client.write_all(&bytes).expect("writes");
    drop(client);
    assert!(reading.join().expect("no panic").expect("reads") == bytes, "bytes differ");
}

#[test]
fn reading_can_be_shut_down_alone() {
    let (mut client, mut server) = pair();
    server.write_all(b"unread").expect("writes");
    client.shutdown(Shutdown::Read).expect("shuts down");
    assert_eq!(client.read(&mut [0; 8]).expect("the end"), 0);
    client.write_all(b"still").expect("writes");
    server.read_exact(&mut [0; 5]).expect("reads");
}

#[test]
fn a_timeout_that_never_ends_is_none() {
    let (client, mut server) = pair();
    client.set_read_timeout(Some(Duration::MAX)).expect("not zero");
    client.set_write_timeout(Some(Duration::MAX)).expect("not zero");
    (&client).write_all(b"question").expect("writes");
    server.write_all(b"answer").expect("writes");
    assert_eq!((&client).read(&mut [0; 6]).expect("reads"), 6);
}

/// Runs it on another thread. Panics if it hangs.
fn ends<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(call()));
    ended.recv_timeout(Duration::from_secs(120)).expect("it ends")
}

#[test]
fn shutting_down_ends_a_read_that_waits() {
    for how in [Shutdown::Read, Shutdown::Both] {
        let (client, mut server) = pair();
        let mut reading = client.try_clone().expect("shares");
        let (first, is_read) = mpsc::channel();
        let reader = thread::spawn(move || {
            reading.read_exact(&mut [0]).expect("reads");
            first.send(()).expect("the test waits");
            reading.read(&mut [0])
        });
        server.write_all(b"x").expect("writes");
        is_read.recv().expect("the first byte");
        client.shutdown(how).expect("shuts down");
        assert_eq!(ends(move || reader.join()).expect("no panic").expect("end of file"), 0);
    }
}

#[test]
fn shutting_down_ends_a_write_that_waits() {
    let config = Config::default().close_timeout(Duration::from_millis(100));
    let listener = Listener::bind(device(), any_port(), &Config::default()).expect("listens");
    let addr = listener.local_addr();
    let connecting = thread::spawn(move || Stream::connect(device(), addr, &config));
    let _reads_nothing = listener.accept().expect("accepts");
    let client = connecting.join().expect("no panic").expect("connects");
    let mut writing = client.try_clone().expect("shares");
    client.set_write_timeout(Some(Duration::from_millis(50))).expect("a limit");
    // A full send buffer may still drain into the peer's window, on a busy machine slowly: only once that is full too, nothing moves.
    let mut in_vain = 0;
    while in_vain < 20 {
        match writing.write(&[0; 1 << 20]) {
            Ok(written) => in_vain = if written > 0 { 0 } else { in_vain + 1 },
            Err(full) => {
                assert_eq!(full.kind(), ErrorKind::WouldBlock);
                in_vain += 1;
            }
        }
    }
    client.set_write_timeout(None).expect("no limit");
    let writer = thread::spawn(move || writing.write(&[0]));
    let undelivered = ends(move || client.shutdown(Shutdown::Both)).expect_err("nothing is read");
    assert_eq!(undelivered.kind(), ErrorKind::TimedOut);
    let refused = ends(move || writer.join()).expect("no panic").expect_err("shut down");
    assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
}

/// Waits until the descriptor is readable, or fails the test.
fn wait_readable(fd: BorrowedFd<'_>) {
    assert!(is_readable(fd, Duration::from_secs(60)), "not readable");
}

fn is_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).expect("polls") == 1
}

#[test]
fn descriptors_say_when_to_try_again() {
    let (mut client, mut server) = pair();
    client.set_nonblocking(true);
    assert!(is_readable(client.readable_fd(), Duration::ZERO), "before the first try");
    for round in 0..100_u8 {
        // The peer's control messages may raise it for nothing, a few times.
        while is_readable(client.readable_fd(), Duration::ZERO) {
            assert_eq!(client.read(&mut [0]).expect_err("nothing there").kind(), ErrorKind::WouldBlock);
        }
        server.write_all(&[round; 3]).expect("writes");
        let mut received = Vec::new();
        while received.len() < 3 {
            wait_readable(client.readable_fd());
            match client.read(&mut [0; 2]) {
                Ok(count) => received.extend(vec![round; count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
    // Until there is no more room, also after the device has caught up.
    let chunk = vec![1; 1 << 20];
    let mut written = 0;
    loop {
        match client.write(&chunk) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                if !is_readable(client.writable_fd(), Duration::from_millis(200)) {
                    break;
                }
            }
        }
    }
    server.read_exact(&mut vec![0; written]).expect("reads");
    wait_readable(client.writable_fd());
    drop(server);
    // End of file is worth a try too.
    loop {
        wait_readable(client.readable_fd());
        match client.read(&mut [0]) {
            Ok(count) => break assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn a_descriptor_is_right_after_a_read_that_waited() {
    let (mut client, mut server) = pair();
    client.set_nonblocking(true);
    while is_readable(client.readable_fd(), Duration::ZERO) {
        assert_eq!(client.read(&mut [0]).expect_err("nothing there").kind(), ErrorKind::WouldBlock);
    }
    // The stream wakes who tried last: from here on this thread, and not the descriptor.
    client.set_nonblocking(false);
    client.set_read_timeout(Some(Duration::from_millis(1))).expect("a limit");
    assert_eq!(client.read(&mut [0]).expect_err("nothing there").kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(true);
    server.write_all(&[1]).expect("writes");
    loop {
        wait_readable(client.readable_fd());
        match client.read(&mut [0]) {
            Ok(count) => break assert_eq!(count, 1),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn a_refused_connect_says_so() {
    let addr = Listener::bind(device(), any_port(), &Config::default()).expect("listens").local_addr();
    let error = Stream::connect(device(), addr, &Config::default()).expect_err("no listener");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let source = error.get_ref().and_then(|source| source.downcast_ref::<TransportError>());
    assert!(matches!(source, Some(TransportError::Refused { .. })), "{error:?}");
}

#[test]
fn a_stopped_listener_accepts_no_more() {
    let listener = Listener::bind(device(), any_port(), &Config::default()).expect("listens");
    thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| listener.accept().map(drop)));
        listener.stop();
        for accept in waiting {
            let error = accept.join().expect("no panic").expect_err("without a connection");
            assert!(error.to_string().contains("stopped"), "{error}");
        }
    });
    listener.accept().expect_err("it stays stopped");
}

#[test]
fn the_connections_of_a_listener_end_when_it_is_stopped() {
    let listener = Listener::bind(device(), any_port(), &Config::default()).expect("listens");
    let addr = listener.local_addr();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut incoming = listener.incoming();
            // Kept: the client may still be connecting.
            let first = incoming.next();
            listener.stop();
            // No more than two: before, the errors never ended.
            (first, incoming.take(2).count())
        });
        let _client = Stream::connect(device(), addr, &Config::default()).expect("connects");
        let (first, more) = accepting.join().expect("no panic");
        assert_eq!((first.map(|accepted| accepted.is_ok()), more), (Some(true), 0));
    });
}

#[test]
fn connections_are_sockets_over_the_bridge() {
    let listener = Listener::bind(device(), any_port(), &Config::default()).expect("listens");
    let addr = listener.local_addr();
    let serving = thread::spawn(move || {
        let mut peer = UnixStream::from(bridge::accept(&listener).expect("accepts"));
        io::copy(&mut peer.try_clone().expect("clones"), &mut peer).expect("echoes")
    });
    let mut client = UnixStream::from(bridge::connect(device(), addr, &Config::default()).expect("connects"));
    let mut writing = client.try_clone().expect("clones");
    let bytes = (0..3_000_000).map(|n: u32| (n % 251) as u8).collect::<Vec<_>>();
    let sent = bytes.clone();
    let writer = thread::spawn(move || writing.write_all(&sent));
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).expect("comes back");
    writer.join().expect("no panic").expect("writes");
    assert!(back == bytes, "bytes differ");
    drop(client);
    assert_eq!(serving.join().expect("no panic"), 3_000_000, "then end of file");
}
