//! HTTP over RDMA: the server and the client of hyper run on the byte stream as they run on a `TcpStream`.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::Bytes;
use common::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream};

/// The response's body is the request's, passed on while it arrives.
async fn echo(request: Request<Incoming>) -> std::result::Result<Response<Incoming>, Infallible> {
    Ok(Response::new(request.into_body()))
}

async fn listen_side(mut listener: Listener) -> Result {
    let stream = TokioIo::new(listener.accept().await?);
    server::conn::http1::Builder::new().serve_connection(stream, service_fn(echo)).await?;
    println!("listen: the client has left");
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let stream = TokioIo::new(Stream::connect(device, addr, &Config::default()).await?);
    let (mut requests, connection) = client::conn::http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    for len in [5, 8 << 20] {
        let sent = (0..len).map(|n: u32| (n % 251) as u8).collect::<Bytes>();
        let request = Request::post("/").header(HOST, addr.to_string()).body(Full::new(sent.clone()))?;
        let response = requests.send_request(request).await?;
        let status = response.status();
        let received = response.into_body().collect().await?.to_bytes();
        if sent != received {
            return Err("the bytes differ".into());
        }
        println!("connect: {status}, {} bytes came back as they were", received.len());
    }
    // The connection ends when no request can follow.
    drop(requests);
    connection.await??;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run_streams(listen_side, connect_side).await)
}
