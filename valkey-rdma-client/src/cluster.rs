//! A Valkey Cluster, as a [`Client`](crate::Client) sees it.
//!
//! ```no_run
//! use valkey_rdma_client::Client;
//!
//! # async fn example() -> Result<(), valkey_rdma_client::Error> {
//! let client = Client::connect("rdma+cluster://10.0.0.1:6379,10.0.0.2:6379").await?;
//! client.command(["SET", "greeting", "hello"]).await?;
//! for node in client.cluster().expect("a cluster").status().nodes {
//!     println!("{node}"); // address, role, slots, and which transport this really is
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How a command finds its node
//! The positions of its keys come from Valkey's own descriptions of its commands, which are compiled in. A server is asked
//! once about each command that these do not know (COMMAND INFO). The keys give the slot, and the map gives the node. To
//! find a connected node takes no lock.
//!
//! MGET, MSET, MSETEX without NX and XX, DEL, UNLINK, EXISTS and TOUCH with keys of several slots are split by slot, sent in parallel, and
//! their replies are joined; the parts run independently of each other. Other commands with keys of several slots fail with
//! [`ClusterError::CrossSlot`](crate::ClusterError::CrossSlot). Keys with the same text in braces, such as `{user1}:name`
//! and `{user1}:mail`, share a slot.
//!
//! # Commands without keys
//! | commands | nodes | reply |
//! |---|---|---|
//! | DBSIZE, SLOWLOG LEN and the like | all primaries, or all nodes | the sum |
//! | KEYS, SLOWLOG GET | all primaries, or all nodes | one array |
//! | FLUSHALL, FLUSHDB, FUNCTION LOAD, PING | all primaries | that of one node, or the first error |
//! | SCRIPT LOAD, SCRIPT FLUSH, CONFIG SET, ACL SETUSER | all nodes | that of one node, or the first error |
//! | SCRIPT EXISTS | all primaries | 1 where all nodes say 1 |
//! | SCRIPT KILL, FUNCTION KILL | all primaries, on connections of their own | the first success |
//! | INFO, MEMORY STATS, LATENCY LATEST, RANDOMKEY | all primaries, or all nodes | a map from address to reply |
//! | SCAN | refused: see [`Client::scan`](crate::Client::scan) | |
//! | SHUTDOWN, BGSAVE, DEBUG, most of CLUSTER, ACL LOAD, CLIENT KILL, UNBLOCK, PAUSE, UNPAUSE | refused: see [`Cluster::command_on`] | |
//! | others, such as PUBLISH, TIME, CONFIG GET | some primary, if possible one that answers | its reply |
//!
//! "All nodes" are those of the client's map, which [`Cluster::status`] lists. For some seconds after a node was added, the map may lack it.
//! If a command succeeds on some nodes and fails on others, the error is [`ClusterError::Partial`](crate::ClusterError::Partial).
//!
//! # When something fails
//! Each node has its own connection, which its own task makes when the first command needs it. So a node that does not
//! answer delays its own commands only.
//!
//! | the server | the client |
//! |---|---|
//! | MOVED | patches the map at once, sends the command to the named node, reads the map again |
//! | ASK | sends the command to the named node, behind ASKING |
//! | TRYAGAIN, CLUSTERDOWN, LOADING, MASTERDOWN, READONLY | waits and tries again |
//! | closes the connection before the command was sent, or cannot be reached | reads the map again, waits for the node or its successor |
//! | closes the connection before the reply | sends reading and [idempotent](crate::Command::idempotent) commands again; others fail with [`Fate::MayHaveRun`](crate::Fate::MayHaveRun) |
//! | refuses the login | the command fails at once with what the server says: users must exist on every node |
//! | does not answer | the command fails after its time limit; the map is read again |
//!
//! All of this happens within the command's time limit. A command waits for a reachable node no longer than
//! [`Config::offline_timeout`](crate::Config::offline_timeout), and then fails with the reason. A command for all primaries
//! waits for each of them or its successor. One for all nodes, or for a node by name, waits while the node loads, and otherwise
//! fails with what the node says. It follows at most
//! [`Config::max_redirects`](crate::Config::max_redirects) redirections.
//!
//! A script, a function or a command of a module may return errors of its own in these forms, after it has run. Its MOVED and ASK are followed
//! if the node redirects the command's first key too (EXISTS), and, for a user who may not run EXISTS, if they name a node of the map, which is read
//! again for that. For the others it is sent again only if their text is the server's. Every other error is its answer.
//!
//! The map is read again after failures and every [`Config::refresh_interval`](crate::Config::refresh_interval), by one task, from three nodes at a
//! time, and not more often than [`Config::min_refresh_interval`](crate::Config::min_refresh_interval).
//!
//! # Runtime
//! All connections belong to the [runtime](crate::Client#runtime) that called `connect`. When that runtime is
//! dropped, commands fail at once.
//!
//! # RDMA ports
//! Clusters announce TCP ports only. By default the same port number is used over RDMA. The URL's option `rdma_port=` has
//! other rules, see [`RdmaPort`](crate::RdmaPort), and [`Config::address_map`](crate::Config::address_map) maps each address by a function. With
//! `fallback=tcp`, nodes whose RDMA fails are reached over TCP, and [`Cluster::status`] shows which these are.
//!
//! # TLS
//! All nodes are reached as the seeds are, with the same options: over TLS, clusters announce their TLS ports. Each certificate is compared with
//! the address that the cluster announces for its node. If the certificates have names, let the nodes announce those
//! (`cluster-announce-hostname` with `cluster-preferred-endpoint-type hostname`), give the name that all of them share as `server_name=`, or
//! verify the issuer alone (`verify=ca`).

mod address;
mod call;
mod client;
mod core;
mod dedicated;
mod direct;
mod discovery;
mod join;
mod learned;
mod node;
mod pipeline;
mod pubsub;
mod refresh;
mod replicas;
mod route;
mod scan;
mod several_nodes;
mod silence;
mod slot_map;
mod slots_reply;
mod status;
mod topology;
mod transaction;
mod unknown_commands;

pub(crate) use self::address::PortRules;
pub use self::client::Cluster;
pub use self::route::Route;
pub(crate) use self::route::slot_of;
// For the gateway, which keeps commands of a transaction together itself.
#[doc(hidden)]
pub use self::route::Routing;
pub(crate) use self::scan::ClusterScan;
pub use self::status::{ClusterStatus, NodeStatus};
pub use crate::config::{ReadCandidate, ReadFrom};
pub use crate::endpoint::{MappedAddress, NodeAddress};
pub use crate::stats::ClusterCounters;
