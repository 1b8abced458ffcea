//! A cable that is cut between two machines: nothing arrives any more in either direction, not even a disconnect.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{DeviceKind, Listener, Stream, TransportError};

use crate::census::Census;
use crate::child;
use crate::outcome::{Outcome, bounded, ensure};
use crate::peers::{self, Bystander, EchoServer};

/// How long the listening connection of the near end tolerates silence: it sends nothing itself, so that its device
/// notices nothing.
const SILENCE: Duration = Duration::from_secs(12);

/// Echoes to two connections, until both are gone.
pub(crate) async fn far(listen: SocketAddr) -> Outcome {
    // The near end retries until it is accepted, and the kernel has an identifier for each request that waits. So the
    // baseline is counted before the real listener exists, with another one that keeps the device open.
    let _unknown =
        Listener::bind(DeviceKind::Verbs, SocketAddr::new(listen.ip(), 0), &peers::small()).await?;
    let before = Census::settled().await?;
    let mut listener = Listener::bind(DeviceKind::Verbs, listen, &peers::small()).await?;
    let mut echoing = Vec::new();
    for _ in 0..2 {
        let stream = bounded("a connection from the near end", listener.accept()).await??;
        echoing.push(tokio::spawn(peers::echo(stream)));
    }
    drop(listener);
    println!("== cable cut, far end");
    for echo in echoing {
        let end = bounded("the end of a connection", echo).await??;
        let error = end.err().ok_or("a connection ended in order")?;
        println!("   server: {error}");
    }
    let after = before.objects_returned().await?;
    println!("{}", before.beside(&[("after", &after)]));
    Ok(())
}

/// One connection that talks and one that listens to the far end; a third within this machine.
pub(crate) async fn near(far: SocketAddr, local: SocketAddr) -> Outcome {
    let here = EchoServer::start(local, &peers::small()).await?;
    let bystander = Bystander::start(here.addr).await?;
    let before = Census::settled().await?;
    let talking = connect_when_up(far).await?;
    let patient = peers::small().idle_timeout(Some(SILENCE));
    let mut listening = Stream::connect(DeviceKind::Verbs, far, &patient).await?;
    peers::exchange(&mut listening, 1).await?;
    let monitor = talking.monitor();
    let talking = tokio::spawn(talk(talking));
    peers::traffic(&monitor).await?;

    cut("d0").await?;
    let began = Instant::now();
    println!("== cable cut, near end");
    let talking = async { bounded("the end of the talking connection", talking).await };
    let listening = async {
        let read = listening.read_u8();
        let end = bounded("the end of the listening connection", read).await;
        drop(listening);
        end
    };
    let (talked, listened) = tokio::join!(talking, listening);
    let (talked, listened) = (talked??, listened?.err().ok_or("a byte came over a cut cable")?);
    for (who, error) in [("talking", &talked), ("listening", &listened)] {
        let typed = error.get_ref().and_then(|error| error.downcast_ref::<TransportError>());
        ensure(typed.is_some(), format!("{who}: no error of the transport: {error}"))?;
        ensure(error.kind() == std::io::ErrorKind::TimedOut, format!("{who}: {:?}: {error}", error.kind()))?;
        println!("   {who}: {error}");
    }
    println!("   both within {:.0} s of the cut", began.elapsed().as_secs_f64());
    bystander.goes_on().await?;
    let after = before.objects_returned().await?;
    println!("{}", before.beside(&[("after", &after)]));
    println!("   the bystander made {} exchanges meanwhile", bystander.finish().await?);
    Ok(())
}

/// Sends without waiting for answers, so that something is always in flight, until the connection ends.
async fn talk(stream: Stream) -> std::io::Error {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let listen = async {
        let mut buffer = [0; 64];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) => return std::io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    };
    let send = async {
        loop {
            if let Err(error) = writer.write_all(b"is anybody there").await {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        error = listen => error,
        error = send => error,
    }
}

/// The far end's machine may still be booting.
async fn connect_when_up(far: SocketAddr) -> Outcome<Stream> {
    bounded("the far end", async {
        loop {
            match peers::connect(far).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    })
    .await
}

/// Drops every packet in both directions. Address resolution stays as it was, so that nothing notices early.
async fn cut(interface: &str) -> Outcome {
    let tc = async |words: &str| {
        let words = ["tc"].into_iter().chain(words.split(' ')).collect::<Vec<_>>();
        child::run(&words).await
    };
    tc(&format!("qdisc add dev {interface} ingress")).await?;
    tc(&format!("filter add dev {interface} ingress matchall action drop")).await?;
    tc(&format!("qdisc add dev {interface} root netem loss 100%")).await
}
