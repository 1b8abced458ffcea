//! [`EndpointError`]: why an endpoint is invalid, and what is allowed.

use super::options::instead_of_option;

/// Why a URL, or an endpoint built in code, is invalid. Never contains a password, nor a part of one that is not escaped, or
/// that no host follows. It does name unknown options, and values that an option cannot have. So do not escape a password by half:
/// in `host:1?rest=of`, a number and a bare `?` make an option of the rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// No `scheme://`.
    #[error("not a URL: expected rdma://host:port, emulated://host:port, valkey://host:port or unix:///path")]
    NotAUrl,
    /// A scheme that is not ours.
    #[error("unknown URL scheme \"{scheme}\": use rdma, emulated, valkey or redis, with an s behind it for TLS, or unix{}", instead_of(.scheme))]
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
    /// redis-rs's way to say that the server's certificate is not verified.
    #[error("a URL here has no '#insecure': to leave the server's certificate unverified, say verify=none")]
    Insecure,
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
    #[error(
        "the URL names a user but no password: expected user:password@host, or password_file=FILE as an option"
    )]
    UserWithoutPassword,
    /// A password, and a file with a password.
    #[error("there are a password and a file with a password for the same login: leave out one of them")]
    PasswordTwice,
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
    /// What a Unix socket does not have: TLS, Sentinels, a cluster, or an option of a network.
    #[error("{what} makes no sense at a Unix socket: leave it out, or use valkey:// or rdma://")]
    NotOnUnix {
        /// An option, or what the scheme asks for.
        what: &'static str,
    },
    /// The path of a Unix socket is not absolute, or has a zero byte. It is not shown, because it may be a part of a login.
    #[error(
        "a Unix socket needs an absolute path, as in unix:///run/valkey.sock or unix://user:password@/run/valkey.sock"
    )]
    BadSocketPath,
    /// The path of a Unix socket is too long for the kernel.
    #[error("the path {path:?} has {bytes} bytes, and a Unix socket's has at most 107: use a shorter one")]
    LongSocketPath {
        /// As given.
        path: String,
        /// Its length.
        bytes: usize,
    },
    /// An option of TLS on an endpoint without.
    #[error("option {option} makes sense with TLS only: use valkeys:// or rdmas://, or leave it out")]
    OnlyWithTls {
        /// The option.
        option: &'static str,
    },
    /// A certificate without a key, or the reverse.
    #[error(
        "a certificate and its private key belong together: cert=FILE needs key=FILE, and key=FILE needs cert=FILE"
    )]
    HalfOfAPair,
    /// A file whose path no URL can have.
    #[error("the path of a file is not UTF-8, which a URL cannot say: {path:?}")]
    PathNotUtf8 {
        /// The path.
        path: std::path::PathBuf,
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
        "sentinel" | "redis-sentinel" | "rediss-sentinel" => {
            ", with +sentinel behind it: valkey+sentinel://host:26379/service, or valkeys+sentinel:// for TLS"
        }
        _ if scheme.ends_with("+cluster") || scheme.ends_with("-cluster") => {
            ", with +cluster behind it: valkey+cluster://host:6379,host:6379"
        }
        _ => "",
    }
}
