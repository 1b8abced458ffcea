//! [`Hidden`]: names and addresses that a published file does not have.

use std::net::IpAddr;

use serde_json::Value;
use valkey_rdma_client::Endpoint;

use crate::measure::RunInfo;

/// What stands for the server.
const SERVER: &str = "SERVER";
/// What stands for this machine.
const HERE: &str = "THIS-MACHINE";

/// Replaces names and addresses of the server and of this machine.
pub(super) struct Hidden {
    /// Addresses, each with what stands for it.
    addresses: Vec<(String, &'static str)>,
    /// Names of the server. They can be ordinary words, so only their places in URLs are theirs.
    names: Vec<String>,
    /// Users of the server, as URLs in texts have them.
    logins: Vec<String>,
    shows_all: bool,
}

impl Hidden {
    /// Hides the hosts of `servers` and their addresses, unless the user wants to see all.
    pub(super) async fn new(shows_all: bool, servers: &[&Endpoint]) -> Hidden {
        let mut hidden = Hidden { addresses: Vec::new(), names: Vec::new(), logins: Vec::new(), shows_all };
        for server in servers {
            let user = server.user().filter(|user| !user.is_empty());
            hidden.logins.extend(user.map(|user| format!("{user}:***@")));
            let host = server.host();
            if host.parse::<IpAddr>().is_ok() {
                hidden.addresses.push((host.to_owned(), SERVER));
                continue;
            }
            hidden.names.push(host.to_owned());
            let found = tokio::net::lookup_host((host, server.port())).await;
            hidden
                .addresses
                .extend(found.into_iter().flatten().map(|found| (found.ip().to_string(), SERVER)));
        }
        hidden
    }

    /// Whether nothing is hidden.
    pub(super) fn shows_all(&self) -> bool {
        self.shows_all
    }

    /// A text without names and addresses.
    pub(super) fn text(&self, text: &str) -> String {
        if self.shows_all {
            return text.to_owned();
        }
        let mut text = self.logins.iter().fold(text.to_owned(), |text, login| text.replace(login, ""));
        for (address, by) in &self.addresses {
            text = replaced(&text, address, by, |_, _| true);
        }
        for name in &self.names {
            let of_a_url = |before: &str, after: &str| {
                before.ends_with(['/', '@'])
                    || after
                        .strip_prefix(':')
                        .is_some_and(|after| after.starts_with(|next: char| next.is_ascii_digit()))
            };
            text = replaced(&text, name, SERVER, of_a_url);
        }
        text
    }

    /// A run whose server has neither name nor login.
    pub(super) fn run(&self, mut run: RunInfo) -> RunInfo {
        if !self.shows_all {
            let scheme = run.target.split("://").next().unwrap_or_default();
            run.target = format!("{scheme}://{SERVER}");
            run.environment.facts.retain(|(name, _)| *name != "gid");
        }
        run
    }

    /// All texts of a document, without names and addresses of the server and of `here`.
    pub(super) fn document(&self, document: &mut Value, here: &[IpAddr]) {
        if self.shows_all {
            return;
        }
        // Those of each machine say nothing.
        let here =
            here.iter().filter(|address| !address.is_loopback()).map(|address| (address.to_string(), HERE));
        let all = Hidden {
            addresses: self.addresses.iter().cloned().chain(here).collect(),
            names: self.names.clone(),
            logins: self.logins.clone(),
            shows_all: false,
        };
        all.replace_in(document);
    }

    fn replace_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace_in(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.replace_in(value)),
            _ => {}
        }
    }
}

/// `text` with `by` in each place of `word` that is not a part of a longer word, and that `is_one` accepts by what is before and after.
fn replaced(text: &str, word: &str, by: &str, is_one: impl Fn(&str, &str) -> bool) -> String {
    let is_part = |next: char| next.is_ascii_alphanumeric();
    let (mut out, mut end) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(word) {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        if !before.ends_with(is_part) && !after.starts_with(is_part) && is_one(before, after) {
            out.push_str(&text[end..at]);
            out.push_str(by);
            end = at + word.len();
        }
    }
    out.push_str(&text[end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(address: &str, name: &str) -> Hidden {
        let addresses = vec![(address.to_owned(), SERVER)];
        Hidden {
            addresses,
            names: vec![name.to_owned()],
            logins: vec!["app:***@".to_owned()],
            shows_all: false,
        }
    }

    #[test]
    fn an_address_and_a_login_are_hidden_and_a_longer_address_stays() {
        let hidden = hidden("10.0.0.7", "store");
        let text = "cannot connect to rdma://app:***@10.0.0.7:6379 (10.0.0.7): not 10.0.0.71, nor 110.0.0.7";
        assert_eq!(
            hidden.text(text),
            "cannot connect to rdma://SERVER:6379 (SERVER): not 10.0.0.71, nor 110.0.0.7"
        );
    }

    #[test]
    fn a_name_is_hidden_in_urls_and_stays_as_a_word() {
        let hidden = hidden("10.0.0.7", "valkey");
        assert_eq!(
            hidden.text("valkey 9.1.2 at rdma://valkey:6379, valkey:7000"),
            "valkey 9.1.2 at rdma://SERVER:6379, SERVER:7000"
        );
    }

    #[test]
    fn a_document_has_no_address_of_this_machine() {
        let hidden = hidden("10.0.0.7", "store");
        let mut document =
            serde_json::json!({ "a": ["eth0, up, 10.0.0.8"], "b": { "c": "127.0.0.1 and fd00::8" } });
        let here = ["10.0.0.8", "127.0.0.1", "fd00::8"].map(|address| address.parse().unwrap());
        hidden.document(&mut document, &here);
        let expected = serde_json::json!({ "a": ["eth0, up, THIS-MACHINE"], "b": { "c": "127.0.0.1 and THIS-MACHINE" } });
        assert_eq!(document, expected);
    }
}
