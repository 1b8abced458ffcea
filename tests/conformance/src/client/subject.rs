//! The client under test: a command, or a closure in this process.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use valkey_rdma_transport::DeviceKind;

/// The client under test, run once per case against the scripted server.
#[derive(Clone)]
pub enum Subject {
    /// A program and its arguments, in which `{host}`, `{port}` and `{url}` are replaced.
    Command(Vec<String>),
    /// A function that gets the server's address. Its error is a text.
    InProcess(Arc<dyn Fn(SocketAddr) -> Running + Send + Sync>),
}

/// A client that runs in this process.
pub type Running = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// How a client ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended with success.
    Well,
    /// It ended with an error: the last line it printed.
    Error(String),
    /// A signal killed it.
    Crashed(String),
    /// It did not end within the limit.
    Hung,
    /// It could not be started: which program, and why.
    NotStarted(String),
}

impl Subject {
    /// Runs the client against the server at `addr`, for `limit` at most.
    pub async fn run(&self, device: DeviceKind, addr: SocketAddr, limit: Duration) -> Ended {
        match self {
            Self::Command(args) => command(args, device, addr, limit).await,
            Self::InProcess(client) => match timeout(limit, client(addr)).await {
                Ok(Ok(())) => Ended::Well,
                Ok(Err(error)) => Ended::Error(error),
                Err(_) => Ended::Hung,
            },
        }
    }
}

async fn command(args: &[String], device: DeviceKind, addr: SocketAddr, limit: Duration) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    let (host, port) = (addr.ip().to_string(), addr.port().to_string());
    let url = format!("{}://{addr}", device.scheme());
    let mut args =
        args.iter().map(|arg| arg.replace("{host}", &host).replace("{port}", &port).replace("{url}", &url));
    let Some(program) = args.next() else { return Ended::NotStarted("no command is given".to_owned()) };
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = match timeout(limit, command.output()).await {
        Err(_) => return Ended::Hung,
        Ok(Err(error)) => return Ended::NotStarted(format!("cannot start `{program}`: {error}")),
        Ok(Ok(output)) => output,
    };
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let last = printed.split(['\n', '\r']).rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let last: String = last.trim().chars().take(200).collect();
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ended::Well,
        (_, Some(signal)) => Ended::Crashed(format!("killed by signal {signal}, after printing: {last}")),
        (code, None) => Ended::Error(format!("exit status {}: {last}", code.unwrap_or(-1))),
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("the client ended with success"),
            Self::Error(text) => write!(f, "the client failed: {text}"),
            Self::Crashed(text) => write!(f, "the client crashed: {text}"),
            Self::Hung => f.write_str("the client hung"),
            Self::NotStarted(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(args) => f.debug_tuple("Command").field(args).finish(),
            Self::InProcess(_) => f.write_str("InProcess"),
        }
    }
}
