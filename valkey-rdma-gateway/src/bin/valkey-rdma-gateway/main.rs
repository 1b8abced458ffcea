//! The program `valkey-rdma-gateway`.

mod top;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{error, info, warn};
use valkey_rdma_gateway::{
    Activation, Config, Gateway, GatewayError, Limits, Listen, RouteConfig, RouteTls, Share, notify,
};
use valkey_rdma_program::{
    LevelFilter, ServerTlsArgs, ShownError, Signals, fail, print, refuse, runtime, start,
};
use valkey_rdma_transport::address;

/// Any Valkey client reaches a server over RDMA, through a local socket
///
/// Prints `ready <where>` for each listener. SIGHUP reads the configuration, passwords and certificates again, without dropping connections. SIGTERM and
/// Ctrl-C stop it after the replies to the commands it has passed on. Logs go to standard error; RUST_LOG sets the level (default: info).
///
/// Exit status: 0 after SIGTERM or Ctrl-C, 1 if it cannot start, has no listener left, or `top` fails, 2 if the configuration or a flag is
/// wrong.
#[derive(Parser)]
#[command(
    name = "valkey-rdma-gateway",
    version = valkey_rdma_program::version!("verbs", "rdma-sys", "emulated", "tls"),
    after_help = "The Debian package has the manual in /usr/share/doc/valkey-rdma-tools/docs: gateway.md, operations.md, monitoring.md and troubleshooting.md.",
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// Where local clients connect; repeatable: unix:PATH, tcp:ADDR:PORT or rdma:ADDR:PORT, with TLS tls:ADDR:PORT or rdmas:ADDR:PORT. A link-local ADDR has its interface: [fe80::1%eth0]
    #[arg(long, value_name = "WHERE", required_unless_present = "config", value_parser = place)]
    listen: Vec<Listen>,

    /// The server: rdma://, valkey:// or redis://, at a Unix socket unix:///PATH, with TLS rdmas:// (another gateway), valkeys:// or rediss://, with the options of valkey-rdma-client, such as ?fallback=tcp, or the primary that
    /// Sentinels report: rdma+sentinel://SENTINEL,.../SERVICE. With --cluster repeatable: some of the nodes
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    server: Vec<String>,

    /// The whole cluster that the server belongs to, as one endpoint: commands go to the nodes of their keys
    #[arg(long)]
    cluster: bool,

    /// User of clients that do not log in themselves. Without it, the server's default user
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,

    /// File with the password for that, in place of one in the URL, which other users of this machine can see. A relative path is
    /// below $CREDENTIALS_DIRECTORY (systemd's LoadCredential=)
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    #[command(flatten)]
    tls: ServerTlsArgs,

    /// Whether clients share connections to the server: `auto`, except those with state; `never`
    #[arg(long, value_name = "auto|never", default_value_t = Share::Auto)]
    share: Share,

    /// Whether clients of listeners rdma: may get and set values in their registered memory: BLOB.GET and BLOB.SET become GET and SET at the server
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, value_parser = PossibleValuesParser::new(["on", "off"]).map(|text| text == "on"), action = ArgAction::Set)]
    direct: bool,

    /// What the commands for that begin with, in place of BLOB
    #[arg(long, value_name = "NAME", default_value = "BLOB")]
    direct_prefix: String,

    /// Serve /metrics and /health over HTTP here
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::parse)]
    metrics: Option<SocketAddr>,

    /// How long commands wait for a server that is away, at least 100: then they do not run, and their clients are closed. Set it below the time limit of
    /// clients, or what they have given up may run later. Other limits, and their ranges: docs/gateway.md
    #[arg(long, value_name = "MILLISECONDS", default_value_t = Limits::default().offline_ms, value_parser = clap::value_parser!(u64).range(100..))]
    offline_ms: u64,

    /// Read all of these from a TOML file instead, and other limits, which only a file can set
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "server", "cluster", "user", "password_file", "tls_cert", "share", "direct", "direct_prefix", "metrics", "offline_ms"])]
    config: Option<PathBuf>,

    /// Check the configuration and exit: with status 0 if it is valid, 2 if not. Prints which listeners offer direct transfers and when its certificates end, and warns of those that clients refuse
    #[arg(long)]
    check: bool,

    /// Threads that serve, 1 to 64. One is the most efficient, and serves a server with one thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Show what a running gateway does: clients, connections, batches, latencies
    Top {
        /// Where the gateway listens: unix:PATH or tcp:ADDR:PORT
        #[arg(value_parser = place_of_top)]
        address: Listen,

        /// Print one table, with averages since the start, and exit
        #[arg(long)]
        once: bool,
    },
}

/// Reads an address to listen on. Some write a URL, such as `tls://ADDR:PORT`: which forms there are can be said without its login.
fn place(text: &str) -> Result<Listen, Box<dyn Error + Send + Sync>> {
    text.parse().map_err(|error: GatewayError| match error {
        GatewayError::BadListen { .. } | GatewayError::Device(_) => ShownError(error.to_string()).into(),
        other => other.into(),
    })
}

/// Reads an address that `top` connects to.
fn place_of_top(text: &str) -> Result<Listen, Box<dyn Error + Send + Sync>> {
    match text.parse::<Listen>() {
        Ok(address @ (Listen::Unix(_) | Listen::Tcp(_))) => Ok(address),
        Err(GatewayError::Address { source, .. }) => Err(source.into()),
        _ => Err(ShownError("top connects to unix:PATH or tcp:ADDR:PORT".to_owned()).into()),
    }
}

impl Options {
    fn config(self) -> Result<Config, GatewayError> {
        if let Some(path) = &self.config {
            return Config::read(path);
        }
        let files = self.tls.tls_cert.zip(self.tls.tls_key);
        let (client_ca, client_auth) = (self.tls.tls_client_ca, self.tls.tls_client_auth);
        let tls = files.map(|(cert, key)| RouteTls { cert, key, client_ca, client_auth });
        let mut config = Config::new(RouteConfig {
            listen: self.listen,
            servers: self.server,
            cluster: self.cluster,
            user: self.user,
            password_file: self.password_file,
            share: self.share,
            tls,
            direct: self.direct,
            direct_prefix: self.direct_prefix,
        });
        config.metrics = self.metrics;
        config.limits.offline_ms = self.offline_ms;
        config.check()?;
        Ok(config)
    }
}

fn main() -> ExitCode {
    let options: Options = match start(LevelFilter::INFO) {
        Ok(options) => options,
        Err(status) => return status,
    };
    if let Some(Command::Top { address, once }) = &options.command {
        return top::run(address, *once).map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS);
    }
    let (check, threads, path) = (options.check, options.threads, options.config.clone());
    let config = match options.config() {
        Ok(config) => config,
        Err(error) => {
            let file = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
            return refuse(&format!("{file}{error}"));
        }
    };
    if check {
        for doubt in config.doubts() {
            let _ = writeln!(io::stderr(), "warning: {doubt}");
        }
        for line in config.direct().into_iter().chain(config.ends()) {
            print(&format!("{line}\n"));
        }
        print("the configuration is valid\n");
        return ExitCode::SUCCESS;
    }
    raise_open_files();
    let ended = runtime(threads.into()).and_then(|runtime| runtime.block_on(run(config, path.as_deref())));
    ended.map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS)
}

/// Raises the limit of open files as far as a user may. The soft limit protects programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        warn!(%error, "cannot raise the limit of open files from {:?} to {:?}", limit.current, limit.maximum);
    }
}

async fn run(config: Config, path: Option<&Path>) -> Result<(), String> {
    let describe = |error: io::Error| format!("cannot handle signals: {error}");
    // Before `ready` is printed: a signal may come at once after it.
    let mut stop = Signals::to_stop().map_err(describe)?;
    let mut hang_up = Signals::to_reload().map_err(describe)?;

    let activation = Activation::from_env();
    let started = Gateway::start(&config, &activation).await;
    let mut gateway = started.map_err(|error| error.to_string())?;
    announce(&gateway, &activation);
    report("READY=1");
    loop {
        tokio::select! {
            () = stop.next() => break,
            () = hang_up.next() => reload(&mut gateway, path, &config, &activation).await,
            () = gateway.wait() => return Err("no listener is left".to_owned()),
        }
    }
    info!("stopping");
    report("STOPPING=1");
    gateway.shutdown().await;
    Ok(())
}

/// Reads the configuration file again, and the files with passwords and certificates. Without a file, `config` stays.
async fn reload(gateway: &mut Gateway, path: Option<&Path>, config: &Config, activation: &Activation) {
    let reloaded = match path {
        Some(path) => gateway.reload_file(path, activation).await,
        None => gateway.reload(config, activation).await,
    };
    match (reloaded, path) {
        (Ok(()), Some(path)) => {
            info!(path = %path.display(), "configuration read again");
            report("STATUS=configuration read again");
            announce(gateway, activation);
        }
        (Ok(()), None)
            if config.routes.iter().any(|route| route.password_file.is_some() || route.tls.is_some()) =>
        {
            info!("there is no configuration file; the files with password and certificates are read again");
        }
        (Ok(()), None) => {
            info!(
                "there is no configuration file, no certificate and no password file: there is nothing to read again"
            );
        }
        (Err(error), _) => {
            error!(%error, "the configuration has not changed");
            report(&format!("STATUS=the configuration has not changed: {error}"));
        }
    }
}

fn announce(gateway: &Gateway, activation: &Activation) {
    for address in gateway.listening() {
        print(&format!("ready {address}\n"));
    }
    for address in gateway.unserved(activation) {
        warn!(%address, "a socket was passed that no `listen` names: clients that connect there wait for ever");
    }
}

/// Reports to systemd. Without it, nothing is sent.
fn report(state: &str) {
    if let Err(error) = notify(state) {
        error!(%error, "cannot notify systemd");
    }
}
