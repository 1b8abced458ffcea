//! [`EndpointError`]: why an endpoint is invalid, and what is allowed.

use super::options::instead_of_option;

/// Why a URL, or an endpoint built in code, is invalid. Never contains a password, nor a part of one that is not escaped, or
/// that no host follows. It does name unknown options, and values that an option cannot have. So do not escape a password by half:
/// in `host:1?rest=of`, a number and a bare `?` make an option of the rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// No `scheme://`.
    #[error("not a URL: expected rdma://host:port, emulated://host:port or valkey://host:port")]
    NotAUrl,
    /// A scheme that is not ours.
    #[error("unknown URL scheme \"{scheme}\": use rdma, emulated, valkey or redis{}", instead_of(.scheme))]
    UnknownScheme {
        /// As given.
        scheme: String,
    },
    /// The text breaks the syntax of URLs.
    #[error("bad URL: {reason} (write special characters in user and password as %XX)")]
    Syntax {
        /// What is wrong.
        reason: String,
    },
    /// A `#` in the URL, which is nearly always a password that is not percent-encoded.
    #[error("a URL here has no part after '#': write a '#' in a password as %23")]
    Fragment,
    /// An `@` after the first `/` or `?`, which is nearly always a user or password that is not percent-encoded.
    #[error(
        "a URL here has no '@' after '/' or '?': in user and password write '/' as %2F and '?' as %3F, \
         and elsewhere '@' as %40"
    )]
    BareSeparator,
    /// A URL without a host.
    #[error("the URL names no host: expected scheme://host:port")]
    MissingHost,
    /// A URL with a list of hosts.
    #[error(
        "the URL names several hosts: those of a cluster need +cluster behind the scheme, as in valkey+cluster://host:6379,host:6379, \
         and Sentinels +sentinel, as in valkey+sentinel://host:26379,host:26379/service"
    )]
    SeveralHosts,
    /// A Sentinel URL without the name of a service.
    #[error("the URL names no service: expected scheme+sentinel://sentinel:port/service")]
    MissingService,
    /// A Sentinel URL where one server's address is needed.
    #[error("Sentinels cannot be used here: give the address of a server, such as rdma://host:port")]
    SentinelHere,
    /// A cluster where one server's address is needed.
    #[error("a cluster cannot be used here: give the address of a server, such as rdma://host:port")]
    ClusterHere,
    /// Port 0.
    #[error("port 0 cannot be connected to: use 1 to 65535")]
    PortZero,
    /// A user but no password.
    #[error("the URL names a user but no password: expected user:password@host")]
    UserWithoutPassword,
    /// User, password, host, service or an option has an invalid `%` sequence, or decodes to something that is not UTF-8.
    #[error("user, password, host or an option is not percent-encoded UTF-8: write '%' as %25")]
    BadEncoding,
    /// The path is not a database number.
    #[error("bad database: expected a number after the host and port, such as /0")]
    BadDatabase,
    /// An option that does not exist.
    #[error("unknown URL option \"{name}\": {}", instead_of_option(.name))]
    UnknownOption {
        /// As given.
        name: String,
    },
    /// An option without `=`.
    #[error("a URL option has no value: expected name=value, and '?' in a password as %3F")]
    OptionWithoutValue,
    /// An option given twice.
    #[error("URL option \"{name}\" is given twice")]
    RepeatedOption {
        /// As given.
        name: String,
    },
    /// An option with a value out of range.
    #[error("bad value \"{value}\" for option {name}: use {allowed}")]
    BadOption {
        /// The option.
        name: String,
        /// Its value as given.
        value: String,
        /// What it can be.
        allowed: &'static str,
    },
    /// An option of RDMA on a TCP endpoint.
    #[error("option {option} makes no sense over TCP: leave it out, or use rdma:// or emulated://")]
    NotOnTcp {
        /// The option.
        option: &'static str,
    },
    /// An option of kernel verbs on another endpoint.
    #[error("option {option} makes sense with rdma:// only: leave it out")]
    OnlyOnRdma {
        /// The option.
        option: &'static str,
    },
    /// An option of real networks on the emulated device.
    #[error("option {option} makes no sense on the emulated device: leave it out")]
    NotOnEmulated {
        /// The option.
        option: &'static str,
    },
    /// An option of clusters on the endpoint of a single server.
    #[error("option {option} is for clusters: leave it out and give the server's own port")]
    OnlyForClusters {
        /// The option.
        option: &'static str,
    },
    /// The list of servers of a cluster to start from is empty.
    #[error("no server to start from: give at least one URL")]
    NoSeeds,
    /// The servers of a cluster to start from differ in more than their address.
    #[error("{other} differs from {first} in scheme, login or options: give the same for all servers")]
    MixedSeeds {
        /// The first.
        first: String,
        /// The one that differs.
        other: String,
    },
    /// A cache over RESP2.
    #[error("a cache needs RESP3: leave protocol=resp2 out")]
    NeedsResp3,
}

/// What to do where other clients' URLs name something that this one has no scheme for.
fn instead_of(scheme: &str) -> &'static str {
    match scheme {
        "rediss" | "valkeys" => {
            "; TLS is not supported, and those send the password as it is (a Rust program can give Client::connect_with_dialer a stream that encrypts)"
        }
        "unix" | "redis+unix" | "valkey+unix" => {
            "; Unix sockets are not supported (a Rust program can give one to Client::connect_with_dialer)"
        }
        "sentinel" | "redis-sentinel" | "rediss-sentinel" => {
            ", with +sentinel behind it: valkey+sentinel://host:26379/service"
        }
        _ if scheme.ends_with("+cluster") || scheme.ends_with("-cluster") => {
            ", with +cluster behind it: valkey+cluster://host:6379,host:6379"
        }
        _ => "",
    }
}
