//! The options of an [`Endpoint`]'s URL. A new one is a row here and a field with its setter; everything else reads this table.

use std::path::Path;
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::{ClientTls, Verify};

use super::{Endpoint, EndpointError, RdmaPort, Transport};

/// An option of a URL, as in `rdma://host?name=value`.
pub(super) struct UrlOption {
    pub(super) name: &'static str,
    applies: Applies,
    /// Sets it from the text of a URL. The error says which values it can have.
    read: Read,
    /// Its text for a URL. `None` at its default.
    write: Write,
}

type Read = fn(&mut Endpoint, name: &str, text: &str) -> Result<(), &'static str>;
type Write = fn(&Endpoint, name: &str) -> Option<String>;

/// The endpoints whose URL can have an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applies {
    Everywhere,
    NotOnTcp,
    OnlyOnRdma,
    NotOnEmulated,
    OnlyWithTls,
    OnlyWithSentinels,
    OnlyOnUnix,
}

pub(super) const OPTIONS: &[UrlOption] = &[
    UrlOption {
        name: "protocol",
        applies: Applies::Everywhere,
        read: |endpoint, _, text| {
            endpoint.protocol = match text {
                "resp2" => Protocol::Resp2,
                "resp3" => Protocol::Resp3,
                _ => return Err("resp2 or resp3"),
            };
            Ok(())
        },
        write: |endpoint, _| (endpoint.protocol == Protocol::Resp2).then(|| "resp2".to_owned()),
    },
    UrlOption {
        name: "timeout",
        applies: Applies::Everywhere,
        read: |endpoint, _, text| {
            endpoint.timeout =
                duration(text).ok_or("a number above 0 with ms, s or m, such as 500ms or 5s")?;
            Ok(())
        },
        write: |endpoint, _| {
            let is_set = endpoint.timeout != Endpoint::DEFAULT_TIMEOUT;
            is_set.then(|| format!("{}ms", endpoint.timeout.as_millis()))
        },
    },
    UrlOption {
        name: "password_file",
        applies: Applies::Everywhere,
        read: |endpoint, _, text| endpoint.login.read_file(text),
        write: |endpoint, _| endpoint.login.password_file.as_deref().map(path_text),
    },
    of_transport("rx_size", Applies::NotOnTcp),
    of_transport("send_buffer", Applies::NotOnTcp),
    UrlOption {
        name: "side_buffers",
        applies: Applies::NotOnTcp,
        read: |endpoint, _, text| {
            let bytes = text.parse().ok().filter(|bytes| Endpoint::SIDE_BUFFERS.contains(bytes));
            endpoint.side_buffers = Some(bytes.ok_or("a number of bytes from 65536 to 16777216")?);
            Ok(())
        },
        write: |endpoint, _| endpoint.side_buffers.map(|bytes| bytes.to_string()),
    },
    of_transport("device", Applies::NotOnTcp),
    of_transport("gid", Applies::OnlyOnRdma),
    of_transport("source", Applies::NotOnEmulated),
    of_transport("poll", Applies::NotOnTcp),
    UrlOption {
        name: "fallback",
        applies: Applies::NotOnTcp,
        read: |endpoint, _, text| {
            endpoint.fallback = text == "tcp";
            if endpoint.fallback { Ok(()) } else { Err("tcp") }
        },
        write: |endpoint, _| endpoint.fallback.then(|| "tcp".to_owned()),
    },
    UrlOption {
        name: "rdma_port",
        applies: Applies::NotOnTcp,
        read: |endpoint, _, text| {
            endpoint.rdma_port = text.parse()?;
            Ok(())
        },
        write: |endpoint, _| (endpoint.rdma_port != RdmaPort::Same).then(|| endpoint.rdma_port.to_string()),
    },
    UrlOption {
        name: "direct_prefix",
        applies: Applies::NotOnTcp,
        read: |endpoint, _, text| {
            endpoint.direct_prefix = Some(text.to_owned());
            if text.is_empty() { Err("the prefix of commands, such as BLOB") } else { Ok(()) }
        },
        write: |endpoint, _| endpoint.direct_prefix.clone(),
    },
    UrlOption {
        name: "ca",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| endpoint.change_tls(text, FILE, ClientTls::with_ca),
        write: |endpoint, _| endpoint.tls()?.ca().map(path_text),
    },
    UrlOption {
        name: "cert",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| endpoint.change_tls(text, FILE, ClientTls::with_cert),
        write: |endpoint, _| endpoint.tls()?.cert().map(path_text),
    },
    UrlOption {
        name: "key",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| endpoint.change_tls(text, FILE, ClientTls::with_key),
        write: |endpoint, _| endpoint.tls()?.key().map(path_text),
    },
    UrlOption {
        name: "server_name",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| {
            endpoint.change_tls(text, "the name in the server's certificate", ClientTls::with_server_name)
        },
        write: |endpoint, _| endpoint.tls()?.server_name().map(str::to_owned),
    },
    UrlOption {
        name: "verify",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| {
            let verify = text.parse()?;
            endpoint.change_tls(text, "", |tls, _| tls.with_verify(verify))
        },
        write: |endpoint, _| {
            let verify = endpoint.tls()?.verify();
            (verify != Verify::Full).then(|| verify.to_string())
        },
    },
    UrlOption {
        name: "ciphers",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| endpoint.change_tls(text, SUITES, ClientTls::with_ciphers),
        write: |endpoint, _| endpoint.tls()?.ciphers().map(str::to_owned),
    },
    UrlOption {
        name: "ciphersuites",
        applies: Applies::OnlyWithTls,
        read: |endpoint, _, text| endpoint.change_tls(text, SUITES, ClientTls::with_ciphersuites),
        write: |endpoint, _| endpoint.tls()?.ciphersuites().map(str::to_owned),
    },
    UrlOption {
        name: "sentinel_tls",
        applies: Applies::OnlyWithSentinels,
        read: |endpoint, _, text| match &mut endpoint.sentinels {
            Some(sentinels) if text == "no" && endpoint.tls.is_some() => {
                sentinels.plain = true;
                Ok(())
            }
            _ => Err("no, and only with a scheme of TLS"),
        },
        write: |endpoint, _| endpoint.sentinels.as_ref()?.plain.then(|| "no".to_owned()),
    },
    UrlOption {
        name: "sentinel_user",
        applies: Applies::OnlyWithSentinels,
        read: |endpoint, _, text| {
            if let Some(sentinels) = &mut endpoint.sentinels {
                sentinels.login.user = Some(text.to_owned());
            }
            Ok(())
        },
        write: |endpoint, _| endpoint.sentinels.as_ref()?.login.user.clone(),
    },
    UrlOption {
        name: "sentinel_password",
        applies: Applies::OnlyWithSentinels,
        read: |endpoint, _, text| {
            if let Some(sentinels) = &mut endpoint.sentinels {
                sentinels.login.password = Some(text.to_owned());
            }
            Ok(())
        },
        write: |endpoint, _| endpoint.sentinels.as_ref()?.login.password.clone(),
    },
    UrlOption {
        name: "sentinel_password_file",
        applies: Applies::OnlyWithSentinels,
        read: |endpoint, _, text| match &mut endpoint.sentinels {
            Some(sentinels) => sentinels.login.read_file(text),
            None => Ok(()),
        },
        write: |endpoint, _| endpoint.sentinels.as_ref()?.login.password_file.as_deref().map(path_text),
    },
    UrlOption {
        name: "db",
        applies: Applies::OnlyOnUnix,
        read: |endpoint, _, text| {
            endpoint.database = text.parse().map_err(|_| "the number of a database, such as 0")?;
            Ok(())
        },
        // Elsewhere it stands behind the port.
        write: |endpoint, _| {
            let is_set = endpoint.transport == Transport::Unix && endpoint.database != 0;
            is_set.then(|| endpoint.database.to_string())
        },
    },
];

/// One that the transport reads and writes.
const fn of_transport(name: &'static str, applies: Applies) -> UrlOption {
    UrlOption {
        name,
        applies,
        read: |endpoint, name, text| endpoint.settings.set(name, text).map(|_| ()),
        write: |endpoint, name| endpoint.settings.pairs().find(|(set, _)| *set == name).map(|(_, text)| text),
    }
}

const FILE: &str = "the path of a file in PEM";
const SUITES: &str = "names of cipher suites with colons between them";

/// No URL can have a path that is not UTF-8. An empty one is refused there, as [`Endpoint::check`] refuses the path.
fn path_text(path: &Path) -> String {
    path.to_str().unwrap_or_default().to_owned()
}

impl Endpoint {
    /// The names of all options that a URL can have, in the order of the documentation. Which of them one URL can have depends on its
    /// scheme.
    pub fn option_names() -> impl Iterator<Item = &'static str> {
        OPTIONS.iter().map(|option| option.name)
    }

    /// Sets an option as a URL does.
    pub(super) fn set_option(&mut self, name: &str, value: &str) -> Result<(), EndpointError> {
        let unknown = || EndpointError::UnknownOption { name: name.to_owned() };
        let option = OPTIONS.iter().find(|option| option.name == name).ok_or_else(unknown)?;
        let name = option.name;
        match (option.applies, self.transport) {
            (Applies::OnlyOnUnix | Applies::Everywhere, Transport::Unix) => {}
            (Applies::OnlyOnUnix, _) => return Err(unknown()),
            (_, Transport::Unix) => return Err(EndpointError::NotOnUnix { what: name }),
            (Applies::NotOnTcp, Transport::Tcp) => return Err(EndpointError::NotOnTcp { option: name }),
            (Applies::OnlyOnRdma, Transport::Tcp | Transport::Emulated) => {
                return Err(EndpointError::OnlyOnRdma { option: name });
            }
            (Applies::NotOnEmulated, Transport::Emulated) => {
                return Err(EndpointError::NotOnEmulated { option: name });
            }
            (Applies::OnlyWithTls, _) if self.tls.is_none() => {
                return Err(EndpointError::OnlyWithTls { option: name });
            }
            (Applies::OnlyWithSentinels, _) if self.sentinels.is_none() => return Err(unknown()),
            _ => {}
        }
        let bad =
            |allowed| EndpointError::BadOption { name: name.to_owned(), value: value.to_owned(), allowed };
        (option.read)(self, name, value).map_err(bad)
    }

    /// Changes the settings of TLS, which there are, by a text that is not empty.
    fn change_tls(
        &mut self,
        text: &str,
        expected: &'static str,
        change: impl FnOnce(ClientTls, String) -> ClientTls,
    ) -> Result<(), &'static str> {
        match &mut self.tls {
            Some(tls) if !text.is_empty() => **tls = change(std::mem::take(&mut **tls), text.to_owned()),
            _ => return Err(expected),
        }
        Ok(())
    }

    /// The options that are not at their default, as their names and texts in a URL.
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        OPTIONS.iter().filter_map(|option| Some((option.name, (option.write)(self, option.name)?)))
    }
}

/// What to do about an option that does not exist.
pub(super) fn instead_of_option(name: &str) -> String {
    match name {
        "db" | "database" => {
            return "put the database after the port: /1, or behind the path of a Unix socket: ?db=1"
                .to_owned();
        }
        "user" | "username" | "pass" | "password" => {
            return "put the login in front: user:password@, or :password@ for the default user".to_owned();
        }
        "ssl" | "tls" => return "for TLS use its scheme: valkeys://, rdmas://".to_owned(),
        _ => {}
    }
    let names = |applies: fn(Applies) -> bool| {
        OPTIONS.iter().filter(|option| applies(option.applies)).map(|option| option.name).collect::<Vec<_>>()
    };
    let listed = |names: &[&str], last: &str| match names {
        [others @ .., end] if !others.is_empty() => format!("{} {last} {end}", others.join(", ")),
        names => names.concat(),
    };
    let for_all = names(|applies| {
        !matches!(applies, Applies::OnlyWithTls | Applies::OnlyWithSentinels | Applies::OnlyOnUnix)
    });
    let with_tls = names(|applies| applies == Applies::OnlyWithTls);
    let with_sentinels = names(|applies| applies == Applies::OnlyWithSentinels);
    format!(
        "use {}; with TLS also {}; with Sentinels also {}",
        listed(&for_all, "or"),
        listed(&with_tls, "and"),
        listed(&with_sentinels, "and")
    )
}

fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let millis = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}
