//! The options of an [`Endpoint`]'s URL. A new one is a row here and a field with its setter; everything else reads this table.

use std::time::Duration;

use valkey_rdma_resp::Protocol;

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
    OnlyWithSentinels,
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
    of_transport("rx_size", Applies::NotOnTcp),
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

impl Endpoint {
    /// Sets an option as a URL does.
    pub(super) fn set_option(&mut self, name: &str, value: &str) -> Result<(), EndpointError> {
        let unknown = || EndpointError::UnknownOption { name: name.to_owned() };
        let option = OPTIONS.iter().find(|option| option.name == name).ok_or_else(unknown)?;
        let name = option.name;
        match (option.applies, self.transport) {
            (Applies::NotOnTcp, Transport::Tcp) => return Err(EndpointError::NotOnTcp { option: name }),
            (Applies::OnlyOnRdma, Transport::Tcp | Transport::Emulated) => {
                return Err(EndpointError::OnlyOnRdma { option: name });
            }
            (Applies::NotOnEmulated, Transport::Emulated) => {
                return Err(EndpointError::NotOnEmulated { option: name });
            }
            (Applies::OnlyWithSentinels, _) if self.sentinels.is_none() => return Err(unknown()),
            _ => {}
        }
        let bad =
            |allowed| EndpointError::BadOption { name: name.to_owned(), value: value.to_owned(), allowed };
        (option.read)(self, name, value).map_err(bad)
    }

    /// The options that are not at their default, as their names and texts in a URL.
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        OPTIONS.iter().filter_map(|option| Some((option.name, (option.write)(self, option.name)?)))
    }
}

/// What to do about an option that does not exist.
pub(super) fn instead_of_option(name: &str) -> String {
    if let "db" | "database" = name {
        return "put the database after the port: /1".to_owned();
    }
    let names = |with_sentinels: bool| {
        let those =
            OPTIONS.iter().filter(|option| (option.applies == Applies::OnlyWithSentinels) == with_sentinels);
        those.map(|option| option.name).collect::<Vec<_>>()
    };
    let listed = |names: &[&str], last: &str| match names {
        [others @ .., end] if !others.is_empty() => format!("{} {last} {end}", others.join(", ")),
        names => names.concat(),
    };
    format!("use {}; with Sentinels also {}", listed(&names(false), "or"), listed(&names(true), "and"))
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
