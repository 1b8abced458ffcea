//! The options of an [`Endpoint`]'s URL. A new one is a row here and a field with its setter; everything else reads this table.

use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::Polling;

use super::{Endpoint, EndpointError, RdmaPort, Transport, rdma_port};

/// An option of a URL, as in `rdma://host?name=value`.
pub(super) struct UrlOption {
    pub(super) name: &'static str,
    applies: Applies,
    /// Which values it can have, for the error about another one.
    allowed: &'static str,
    /// Sets it from the text of a URL. `None` if the value is not one of the allowed.
    read: fn(&mut Endpoint, &str) -> Option<()>,
    /// Its text for a URL. `None` at its default.
    write: fn(&Endpoint) -> Option<String>,
}

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
        allowed: "resp2 or resp3",
        read: |endpoint, text| {
            endpoint.protocol = match text {
                "resp2" => Protocol::Resp2,
                "resp3" => Protocol::Resp3,
                _ => return None,
            };
            Some(())
        },
        write: |endpoint| (endpoint.protocol == Protocol::Resp2).then(|| "resp2".to_owned()),
    },
    UrlOption {
        name: "timeout",
        applies: Applies::Everywhere,
        allowed: "a number above 0 with ms, s or m, such as 500ms or 5s",
        read: |endpoint, text| {
            endpoint.timeout = duration(text)?;
            Some(())
        },
        write: |endpoint| {
            let is_set = endpoint.timeout != Endpoint::DEFAULT_TIMEOUT;
            is_set.then(|| format!("{}ms", endpoint.timeout.as_millis()))
        },
    },
    UrlOption {
        name: "rx_size",
        applies: Applies::NotOnTcp,
        // As `Endpoint::RX_SIZES`.
        allowed: "a number of bytes from 65536 to 16777216",
        read: |endpoint, text| {
            endpoint.rx_size = Some(text.parse().ok().filter(|bytes| Endpoint::RX_SIZES.contains(bytes))?);
            Some(())
        },
        write: |endpoint| endpoint.rx_size.map(|bytes| bytes.to_string()),
    },
    UrlOption {
        name: "device",
        applies: Applies::NotOnTcp,
        allowed: "the name of an RDMA device",
        read: |endpoint, text| {
            endpoint.device = Some(text.to_owned()).filter(|name| !name.is_empty());
            endpoint.device.as_ref().map(|_| ())
        },
        write: |endpoint| endpoint.device.clone(),
    },
    UrlOption {
        name: "gid",
        applies: Applies::OnlyOnRdma,
        allowed: "the index of a GID, such as 1",
        read: |endpoint, text| {
            endpoint.gid = Some(text.parse().ok()?);
            Some(())
        },
        write: |endpoint| endpoint.gid.map(|index| index.to_string()),
    },
    UrlOption {
        name: "source",
        applies: Applies::NotOnEmulated,
        allowed: "an IP address of this machine",
        read: |endpoint, text| {
            endpoint.source = Some(text.parse().ok()?);
            Some(())
        },
        write: |endpoint| endpoint.source.map(|address| address.to_string()),
    },
    UrlOption {
        name: "poll",
        applies: Applies::NotOnTcp,
        allowed: "event, busy or adaptive",
        read: |endpoint, text| {
            endpoint.polling = text.parse().ok()?;
            Some(())
        },
        write: |endpoint| (endpoint.polling != Polling::default()).then(|| endpoint.polling.to_string()),
    },
    UrlOption {
        name: "fallback",
        applies: Applies::NotOnTcp,
        allowed: "tcp",
        read: |endpoint, text| {
            endpoint.fallback = text == "tcp";
            endpoint.fallback.then_some(())
        },
        write: |endpoint| endpoint.fallback.then(|| "tcp".to_owned()),
    },
    UrlOption {
        name: "rdma_port",
        applies: Applies::NotOnTcp,
        allowed: rdma_port::ALLOWED,
        read: |endpoint, text| {
            endpoint.rdma_port = text.parse().ok()?;
            Some(())
        },
        write: |endpoint| (endpoint.rdma_port != RdmaPort::Same).then(|| endpoint.rdma_port.to_string()),
    },
    UrlOption {
        name: "sentinel_user",
        applies: Applies::OnlyWithSentinels,
        allowed: "a name",
        read: |endpoint, text| {
            endpoint.sentinels.as_mut()?.login.user = Some(text.to_owned());
            Some(())
        },
        write: |endpoint| endpoint.sentinels.as_ref()?.login.user.clone(),
    },
    UrlOption {
        name: "sentinel_password",
        applies: Applies::OnlyWithSentinels,
        allowed: "a password",
        read: |endpoint, text| {
            endpoint.sentinels.as_mut()?.login.password = Some(text.to_owned());
            Some(())
        },
        write: |endpoint| endpoint.sentinels.as_ref()?.login.password.clone(),
    },
];

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
        (option.read)(self, value).ok_or_else(|| EndpointError::BadOption {
            name: name.to_owned(),
            value: value.to_owned(),
            allowed: option.allowed,
        })
    }

    /// The options that are not at their default, as their names and texts in a URL.
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        OPTIONS.iter().filter_map(|option| Some((option.name, (option.write)(self)?)))
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
