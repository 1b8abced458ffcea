//! [`UrlOptions`]: what the URLs of clients and servers say about the transport of their connections.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::Config;
use crate::polling::Polling;

/// The options of a URL that are settings of [`Config`]. The URL of a client has others beside them; that of a server takes fewer.
///
/// A new option is a field here, with its line in [`set`](Self::set), [`pairs`](Self::pairs) and [`apply_to`](Self::apply_to).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlOptions {
    /// [`Config::rx_size`], one of [`Config::URL_RX_SIZES`].
    pub rx_size: Option<u32>,
    /// [`Config::send_buffer`], one of [`Config::URL_SEND_BUFFERS`].
    pub send_buffer: Option<u32>,
    /// [`Config::device`], not empty.
    pub device: Option<String>,
    /// [`Config::gid_index`].
    pub gid: Option<u32>,
    /// [`Config::source`].
    pub source: Option<IpAddr>,
    /// [`Config::polling`].
    pub polling: Option<Polling>,
}

impl UrlOptions {
    /// Sets an option to the text of its value, which is decoded already. `false` if the transport has no such option.
    ///
    /// # Errors
    /// What the value can be, in words that complete "use" and "is not".
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match name {
            "rx_size" => self.rx_size = Some(size(value, &Config::URL_RX_SIZES)?),
            "send_buffer" => self.send_buffer = Some(size(value, &Config::URL_SEND_BUFFERS)?),
            "device" if value.is_empty() => return Err("the name of an RDMA device"),
            "device" => self.device = Some(value.to_owned()),
            "gid" => self.gid = Some(value.parse().map_err(|_| "the index of a GID, such as 1")?),
            "source" => self.source = Some(value.parse().map_err(|_| "an IP address of this machine")?),
            "poll" => self.polling = Some(value.parse().map_err(|_| "event, busy or adaptive")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Names and values of the options that are set, in the order in which a URL has them. [`set`](Self::set) takes them again, except
    /// values that code has set and that no URL can have.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("rx_size", self.rx_size.map(|bytes| bytes.to_string())),
            ("send_buffer", self.send_buffer.map(|bytes| bytes.to_string())),
            ("device", self.device.clone()),
            ("gid", self.gid.map(|index| index.to_string())),
            ("source", self.source.map(|address| address.to_string())),
            ("poll", self.polling.map(|mode| mode.to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// `config` with the options that are set.
    #[must_use]
    pub fn apply_to(&self, mut config: Config) -> Config {
        if let Some(bytes) = self.rx_size {
            config = config.rx_size(bytes);
        }
        if let Some(bytes) = self.send_buffer {
            config = config.send_buffer(bytes);
        }
        if let Some(name) = &self.device {
            config = config.device(name);
        }
        if let Some(index) = self.gid {
            config = config.gid_index(index);
        }
        if let Some(address) = self.source {
            config = config.source(address);
        }
        if let Some(mode) = self.polling {
            config = config.polling(mode);
        }
        config
    }
}

/// A number of bytes. Both ranges are the same, and the error names it.
fn size(text: &str, range: &RangeInclusive<u32>) -> Result<u32, &'static str> {
    let bytes = text.parse().ok().filter(|bytes| range.contains(bytes));
    bytes.ok_or("a number of bytes from 65536 to 16777216")
}

/// Decodes each `%XX` of a part of a URL. `None` if two hexadecimal digits are missing after a `%`, or if the bytes are not UTF-8.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (digit(bytes.next()?)? << 4 | digit(bytes.next()?)?) as u8,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_they_are_read_and_reach_the_configuration() {
        let pairs = [
            ("rx_size", "65536"),
            ("send_buffer", "131072"),
            ("device", "mlx5_0"),
            ("gid", "3"),
            ("source", "fd00::2"),
            ("poll", "adaptive"),
        ];
        let mut options = UrlOptions::default();
        for (name, value) in pairs {
            assert_eq!(options.set(name, value), Ok(true), "{name}");
        }
        let written: Vec<_> = options.pairs().collect();
        assert_eq!(written, pairs.map(|(name, value)| (name, value.to_owned())));

        let config = options.apply_to(Config::default());
        let device = config.device_options();
        assert_eq!((config.rx_size, config.send_buffer), (65_536, 131_072));
        assert_eq!(config.polling, Polling::Adaptive);
        assert_eq!((device.device.as_deref(), device.gid), (Some("mlx5_0"), Some(3)));
        assert_eq!(device.source, "fd00::2".parse().ok());
    }

    #[test]
    fn what_is_not_said_stays_as_it_is() {
        let config = Config::default().rx_size(100_000).polling(Polling::Busy);
        let config = UrlOptions::default().apply_to(config);
        assert_eq!((config.rx_size, config.polling), (100_000, Polling::Busy));
        assert_eq!(UrlOptions::default().pairs().count(), 0);
    }

    #[test]
    fn a_default_that_is_said_counts() {
        let mut options = UrlOptions::default();
        assert_eq!(options.set("poll", "event"), Ok(true));
        assert_eq!(options.pairs().collect::<Vec<_>>(), [("poll", "event".to_owned())]);
        let config = options.apply_to(Config::default().polling(Polling::Busy));
        assert_eq!(config.polling, Polling::Event);
    }

    #[test]
    fn a_wrong_value_changes_nothing_and_the_error_says_what_is_allowed() {
        for (name, value, allowed) in [
            ("rx_size", "65535", "from 65536 to 16777216"),
            ("rx_size", "16777217", "from 65536 to 16777216"),
            ("rx_size", "1M", "a number of bytes"),
            ("send_buffer", "65535", "from 65536 to 16777216"),
            ("send_buffer", "16777217", "from 65536 to 16777216"),
            ("device", "", "the name of an RDMA device"),
            ("gid", "-1", "the index of a GID"),
            ("source", "localhost", "an IP address"),
            ("poll", "often", "event, busy or adaptive"),
        ] {
            let mut options = UrlOptions::default();
            let error = options.set(name, value).expect_err(value);
            assert!(error.contains(allowed), "{name}={value}: {error}");
            assert_eq!(options, UrlOptions::default());
        }
        assert_eq!(UrlOptions::default().set("timeout", "5s"), Ok(false));
    }

    #[test]
    fn text_is_decoded_if_it_is_encoded_as_urls_ask() {
        for (text, decoded) in [
            ("store-1.example", Some("store-1.example")),
            ("%C3%a9%25", Some("é%")),
            ("a+b", Some("a+b")),
            ("100%", None),
            ("%4", None),
            ("%+1", None),
            ("%é0", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), decoded, "{text}");
        }
    }
}
