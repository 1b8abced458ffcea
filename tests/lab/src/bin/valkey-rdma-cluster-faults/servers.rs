//! Six real servers: three primaries with a replica each.

mod reshard;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep, timeout};
use valkey_rdma_client::{Client, Config, Endpoint, Value};
use valkey_rdma_lab::valkey;
use valkey_rdma_testkit::{Authority, Child, Folder, Pair, Signal};

/// Primaries at the start.
pub(crate) const SHARDS: usize = 3;

/// How the servers are started and reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct Setup {
    /// The folder with valkey-server, valkey-cli and valkey-rdma.so
    #[arg(long, value_name = "FOLDER")]
    pub(crate) valkey: PathBuf,

    /// Connect over RDMA to servers with the RDMA module
    #[arg(long)]
    pub(crate) rdma: bool,

    /// Connect over TLS to servers that have nothing else, between each other either. The certificates are made for this run
    #[arg(long, conflicts_with_all = ["rdma", "far"])]
    pub(crate) tls: bool,

    /// The address of the servers
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) bind: IpAddr,

    /// The first of six ports
    #[arg(long, value_name = "N", default_value_t = 7600)]
    pub(crate) port: u16,

    /// Milliseconds without an answer after which the nodes call another failed (cluster-node-timeout)
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub(crate) node_timeout: u32,

    /// The address of node 2, which runs elsewhere, on the third port, as an empty node of a cluster. Ends by SHUTDOWN
    #[arg(long, value_name = "ADDR")]
    pub(crate) far: Option<IpAddr>,

    /// The shell command that separates the RDMA fabrics of node 2 and the client, for the event partition
    #[arg(long, value_name = "COMMAND", requires = "mend")]
    pub(crate) cut: Option<String>,

    /// The shell command that repairs what --cut has done
    #[arg(long, value_name = "COMMAND", requires = "cut")]
    pub(crate) mend: Option<String>,
}

/// The node that may run elsewhere: the first primary of the last shard.
pub(crate) const FAR: usize = 2;

/// The running servers.
pub(crate) struct Servers {
    setup: Setup,
    /// Their working directories.
    data: Folder,
    /// The issuer of the servers' certificate, and that certificate, if they speak TLS.
    tls: Option<(Authority, Pair)>,
    /// `None`: killed, or elsewhere.
    children: Vec<Option<Child>>,
}

impl Servers {
    /// Starts the servers, and joins them to a cluster.
    pub(crate) async fn start(setup: Setup) -> Result<Self, String> {
        let tls = setup.tls.then(|| {
            let authority = Authority::new("valkey-rdma-cluster-faults");
            let pair = authority.issue(&[&setup.bind.to_string()]);
            (authority, pair)
        });
        let mut servers = Self { setup, data: Folder::new("cluster"), tls, children: Vec::new() };
        for node in 0..SHARDS * 2 {
            let child =
                if servers.is_far(node) { None } else { Some(servers.launch(node, servers.setup.rdma)?) };
            servers.children.push(child);
        }
        servers.join().await?;
        Ok(servers)
    }

    /// Ends the node that runs elsewhere. The others end with this process.
    pub(crate) async fn end(&self) {
        if self.setup.far.is_some() {
            // It does not answer: it is gone.
            let _ = self.ask(FAR, &["SHUTDOWN", "NOSAVE"]).await;
        }
    }

    /// URLs of the first primaries.
    pub(crate) fn urls(&self) -> Vec<String> {
        let rdma = |node| format!("rdma://{}", self.address(node));
        (0..SHARDS).map(|node| if self.setup.rdma { rdma(node) } else { self.tcp_url(node) }).collect()
    }

    /// URLs for the client that is examined. It uses a node that RDMA does not reach over TCP.
    pub(crate) fn seeds(&self) -> Vec<String> {
        let options = if self.setup.rdma { "?fallback=tcp" } else { "" };
        self.urls().into_iter().map(|url| url + options).collect()
    }

    fn is_far(&self, node: usize) -> bool {
        node == FAR && self.setup.far.is_some()
    }

    fn host(&self, node: usize) -> IpAddr {
        self.setup.far.filter(|_| node == FAR).unwrap_or(self.setup.bind)
    }

    fn port(&self, node: usize) -> u16 {
        self.setup.port + u16::try_from(node).unwrap_or(0)
    }

    fn address(&self, node: usize) -> String {
        SocketAddr::new(self.host(node), self.port(node)).to_string()
    }

    fn tcp_url(&self, node: usize) -> String {
        let address = self.address(node);
        match &self.tls {
            Some((authority, _)) => format!("valkeys://{address}?ca={}", authority.ca().display()),
            None => format!("valkey://{address}"),
        }
    }

    /// Starts one server, with the RDMA module or without.
    fn launch(&self, node: usize, rdma: bool) -> Result<Child, String> {
        if self.is_far(node) {
            return Err(format!("node {node} runs elsewhere and cannot be started"));
        }
        let folder = self.data.path().join(node.to_string());
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let (bind, port) = (self.setup.bind.to_string(), self.port(node).to_string());
        let (mut command, ready) = if rdma {
            (valkey::server(&self.setup.valkey, &bind, &port), valkey::READY)
        } else {
            (valkey::tcp_server(&self.setup.valkey, &port), "Ready to accept connections")
        };
        command.current_dir(&folder).args([
            "--bind",
            &bind,
            "--cluster-enabled",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        command.args(["--cluster-node-timeout", &self.setup.node_timeout.to_string()]);
        if let Some((authority, pair)) = &self.tls {
            command.args([
                "--port",
                "0",
                "--tls-port",
                &port,
                "--tls-cluster",
                "yes",
                "--tls-replication",
                "yes",
            ]);
            command.arg("--tls-cert-file").arg(&pair.cert).arg("--tls-key-file").arg(&pair.key);
            command.arg("--tls-ca-cert-file").arg(authority.ca()).args(["--tls-auth-clients", "optional"]);
        }
        let child = Child::start(&mut command)?;
        // The wait blocks: the load must go on elsewhere meanwhile.
        tokio::task::block_in_place(|| child.line_with(ready, PATIENCE))?;
        Ok(child)
    }

    async fn join(&self) -> Result<(), String> {
        for node in 0..SHARDS {
            let (first, last) = (first_slot(node).to_string(), (first_slot(node + 1) - 1).to_string());
            self.ask(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
            // Different epochs, so that the nodes need not agree first.
            self.ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()]).await?;
        }
        let (bind, port) = (self.host(0).to_string(), self.port(0).to_string());
        for node in 1..SHARDS * 2 {
            self.ask(node, &["CLUSTER", "MEET", &bind, &port]).await?;
        }
        for replica in SHARDS..SHARDS * 2 {
            let primary = self.text(replica - SHARDS, &["CLUSTER", "MYID"]).await?;
            let primary = primary.trim();
            until("the replica knows its primary", async || {
                self.ask(replica, &["CLUSTER", "REPLICATE", primary]).await.map(|_| true)
            })
            .await?;
        }
        self.settled().await
    }

    /// Waits until every running node sees all slots served, and every replica follows.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        for node in 0..SHARDS * 2 {
            until("the cluster is healthy", async || self.is_settled(node).await).await?;
        }
        Ok(())
    }

    async fn is_settled(&self, node: usize) -> Result<bool, String> {
        let info = self.text(node, &["CLUSTER", "INFO"]).await?;
        let nodes = self.text(node, &["CLUSTER", "NODES"]).await?;
        let replication = self.text(node, &["INFO", "replication"]).await?;
        let follows = replication.contains("role:master") || replication.contains("master_link_status:up");
        let failing = nodes.contains("fail") || nodes.contains("handshake") || nodes.contains("noaddr");
        Ok(info.contains("cluster_state:ok")
            && info.contains("cluster_slots_ok:16384")
            && nodes.lines().count() == SHARDS * 2
            && follows
            && !failing)
    }

    /// Removes what the primaries hold: a slot that moves must not be large.
    pub(crate) async fn empty(&self) -> Result<(), String> {
        for shard in 0..SHARDS {
            let flush = async || {
                let (primary, _) = self.shard(shard).await?;
                self.ask(primary, &["FLUSHALL"]).await.map(|_| true)
            };
            until("the cluster is empty", flush).await?;
        }
        Ok(())
    }

    /// The node that is the primary of the shard that had these slots at the start, and its replica.
    pub(crate) async fn shard(&self, shard: usize) -> Result<(usize, usize), String> {
        let members = [shard, shard + SHARDS];
        for node in members {
            if self.text(node, &["INFO", "replication"]).await?.contains("role:master") {
                return Ok((node, members[0] + members[1] - node));
            }
        }
        Err(format!("shard {shard} has no primary"))
    }

    /// Which version serves.
    pub(crate) async fn version(&self) -> Result<String, String> {
        let info = self.text(0, &["INFO", "server"]).await?;
        let line = info.lines().find(|line| line.starts_with("valkey_version:"));
        Ok(line.map_or("of unknown version", str::trim).replace("valkey_version:", ""))
    }

    /// `CLUSTER FAILOVER` on the replica of a shard; `how` is empty, `FORCE` or `TAKEOVER`.
    pub(crate) async fn fail_over(&self, shard: usize, how: &str) -> Result<(), String> {
        let (_, replica) = self.shard(shard).await?;
        let words = ["CLUSTER", "FAILOVER", how];
        self.ask(replica, &words[..if how.is_empty() { 2 } else { 3 }]).await?;
        Ok(())
    }

    /// Moves the first slots that a shard had at the start to another shard, all at once: Valkey 9.0 and later.
    pub(crate) async fn migrate(&self, from: usize, to: usize, slots: usize) -> Result<(), String> {
        let (source, _) = self.shard(from).await?;
        let (target, _) = self.shard(to).await?;
        let target = self.text(target, &["CLUSTER", "MYID"]).await?;
        let (first, last) = (first_slot(from).to_string(), (first_slot(from) + slots - 1).to_string());
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", target.trim()];
        self.ask(source, &words).await?;
        let mut end = None;
        until("the slots have moved", async || {
            let all = self.ask(source, &["CLUSTER", "GETSLOTMIGRATIONS"]).await?;
            // The newest is the first.
            let newest = all.as_slice().and_then(|all| all.first()?.as_map()).unwrap_or_default();
            let state = newest.iter().find(|(name, _)| name.as_str() == Some("state"));
            let state = state.and_then(|(_, value)| value.as_str().map(str::to_owned));
            end = state.filter(|state| ["success", "failed", "cancelled"].contains(&state.as_str()));
            Ok(end.is_some())
        })
        .await?;
        end.filter(|end| end == "success").map(drop).ok_or_else(|| "CLUSTER MIGRATESLOTS failed".to_owned())
    }

    /// Waits until the replica of `before` has become the primary.
    pub(crate) async fn promoted(&self, before: (usize, usize)) -> Result<(), String> {
        until("the replica is the primary", async || {
            Ok(self.text(before.1, &["INFO", "replication"]).await?.contains("role:master"))
        })
        .await
    }

    /// Kills a node with signal 9.
    pub(crate) fn kill(&mut self, node: usize) {
        self.children[node].take();
    }

    /// Starts a killed node again, with the RDMA module or without.
    pub(crate) fn restart(&mut self, node: usize, rdma: bool) -> Result<(), String> {
        let child = self.launch(node, rdma && self.setup.rdma)?;
        self.children[node] = Some(child);
        Ok(())
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        if let Some(child) = &self.children[node] {
            child.signal(signal);
        }
    }

    /// Separates the RDMA fabrics of [`FAR`] and the client.
    pub(crate) async fn cut(&self) -> Result<(), String> {
        shell(self.setup.cut.as_deref()).await
    }

    /// Joins the fabrics again.
    pub(crate) async fn mend(&self) -> Result<(), String> {
        shell(self.setup.mend.as_deref()).await
    }

    async fn text(&self, node: usize, words: &[&str]) -> Result<String, String> {
        Ok(self.ask(node, words).await?.as_str().unwrap_or_default().to_owned())
    }

    /// Runs a command on one node, over TCP.
    async fn ask(&self, node: usize, words: &[&str]) -> Result<Value, String> {
        let url = self.tcp_url(node);
        let endpoint: Endpoint = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let endpoint = endpoint.with_timeout(ANSWER);
        let config = Config::default().reconnect(None).command_timeout(ANSWER);
        let ask = async {
            let client = Client::connect_with(endpoint, &config).await?;
            client.command(words).await
        };
        let answer = timeout(ANSWER * 2, ask).await;
        answer
            .map_err(|_| format!("no answer from {url}"))?
            .map_err(|error| format!("{}: {error}", words.join(" ")))
    }
}

/// The first slot that a shard has at the start.
fn first_slot(shard: usize) -> usize {
    (shard * 16384).div_ceil(SHARDS)
}

/// Runs a command of the user's.
async fn shell(line: Option<&str>) -> Result<(), String> {
    let line = line.ok_or("--cut and --mend are missing")?;
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(|error| format!("cannot start sh: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{line}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Tries again until `holds` is true. An error counts as not yet.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool, String>) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let last = match holds().await {
            Ok(true) => return Ok(()),
            Ok(false) => "not yet".to_owned(),
            Err(error) => error,
        };
        if Instant::now() >= end {
            return Err(format!("not within {PATIENCE:?}: {what} ({last})"));
        }
        sleep(PAUSE).await;
    }
}

/// Longer than a cluster takes to recover, also on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a node may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Between two looks at a state that nothing announces.
const PAUSE: Duration = Duration::from_millis(100);
