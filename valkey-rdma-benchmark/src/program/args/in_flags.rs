//! Errors in the words of the command line. Those of the libraries name URLs and their options.

use super::{Args, ServerUrl, tls};

/// What errors say, and the flag that means the same.
type Words = [(&'static str, &'static str)];

/// Of `--cluster`, which names no URL of a cluster.
const OF_CLUSTER: &Words =
    &[("give the URL of a single server alone, without +cluster and not in a list", "leave out --cluster")];

/// Of a server that is not given by a URL. There is no flag for the timeout.
const OF_SERVER: &Words = &[
    (
        "give the password before the host: user:password@, or :password@ for the default user",
        "give the password in VALKEYCLI_AUTH or with -a, and its user with --user",
    ),
    ("check the database number after the port", "check --dbnum"),
    ("leave the number out of the URL", "leave out --dbnum"),
    ("use protocol=resp2", "leave out -3"),
    ("add ca=FILE if its issuer", "give --tls, and --cacert FILE if its issuer"),
    ("or use TLS over TCP: valkeys://", "or leave out --rdma"),
    ("use valkeys://", "use --tls"),
    ("needs valkeys://", "needs --tls"),
    ("is this its TLS port? else raise the timeout", "is this its TLS port? else leave out --tls"),
    ("raise the timeout", "raise the timeout: -u URL?timeout=30s"),
];

/// Of TLS, beside a URL too that says nothing of it but its scheme.
const OF_TLS: &Words = &[
    ("ca=FILE", "--cacert FILE"),
    ("cert=FILE", "--cert FILE"),
    ("key=FILE", "--key FILE"),
    ("server_name=NAME", "--sni NAME"),
];

impl Args {
    /// A reason in the words of the command line, where the user has given flags, or could give them.
    pub(crate) fn in_flags(&self, reason: String) -> String {
        // Flags are for the first server, and this may be the reason of the other one.
        if self.compare.is_some() {
            return reason;
        }
        let says_tls = |url: &ServerUrl| tls::OPTIONS.iter().any(|option| url.says(option));
        let spoken = [
            (OF_CLUSTER, self.cluster),
            (OF_SERVER, self.url.is_none()),
            (OF_TLS, !self.url.as_ref().is_some_and(says_tls)),
        ];
        let words = spoken.into_iter().filter(|(_, is_spoken)| *is_spoken).flat_map(|(words, _)| words);
        words.fold(reason, |reason, &(said, flag)| reason.replace(said, flag))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use valkey_rdma_client::{ClusterError, ConnectCause};
    use valkey_rdma_resp::{ServerError, TLS_REQUIRED};

    use super::*;

    fn rejected(reply: &str) -> String {
        ConnectCause::Rejected(ServerError::from_reply(reply.as_bytes())).to_string()
    }

    /// The texts are those of the client: a text that changes there must change here too.
    #[test]
    fn advice_about_a_url_is_advice_about_flags_where_there_is_no_url() {
        let limit = Duration::from_secs(5);
        let tls_required = String::from_utf8_lossy(&TLS_REQUIRED[1..]).trim_end().to_owned();
        for (reason, in_url, in_flags) in [
            (rejected("NOAUTH Authentication required."), "user:password@", "in VALKEYCLI_AUTH or with -a"),
            (rejected("ERR DB index is out of range"), "after the port", "; check --dbnum"),
            (rejected("ERR SELECT is not allowed in cluster mode"), "out of the URL", "leave out --dbnum"),
            (rejected("NOPROTO unsupported protocol version"), "protocol=resp2", "leave out -3"),
            (rejected(&tls_required), "add --cacert FILE if", "; give --tls, and --cacert FILE if"),
            (ConnectCause::NoTlsOverRdma.to_string(), "valkeys://", "or leave out --rdma"),
            (
                ConnectCause::SilentInTls { limit }.to_string(),
                "else raise the timeout",
                "else leave out --tls",
            ),
            (
                ConnectCause::Deadline { limit, connected: true }.to_string(),
                "else raise the timeout",
                "else raise the timeout: -u URL?timeout=30s",
            ),
        ] {
            let said = |line: &[&str]| {
                let line = ["tool"].iter().chain(line);
                Args::from_command_line(line).unwrap().in_flags(reason.clone())
            };
            assert!(said(&["-u", "valkey://h"]).contains(in_url), "{}", said(&["-u", "valkey://h"]));
            assert!(said(&[]).contains(in_flags), "{}", said(&[]));
            assert!(said(&["--compare", "valkey://h"]).contains(&reason), "the other server has a URL");
        }
    }

    #[test]
    fn a_single_server_measured_as_a_cluster_leads_to_the_flag() {
        let error = ServerError::from_reply(b"ERR This instance has cluster support disabled");
        let reason = ClusterError::NotACluster { peer: "h:1".into(), error }.to_string();
        for server in [&["-h", "h"][..], &["-u", "valkey://h"]] {
            let line = [&["tool", "--cluster"][..], server].concat();
            let said = Args::from_command_line(line).unwrap().in_flags(reason.clone());
            assert!(said.ends_with("cluster support disabled): leave out --cluster"), "{said}");
        }
    }
}
