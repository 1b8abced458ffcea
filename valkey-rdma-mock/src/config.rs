//! Settings that `CONFIG` shows and takes.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::glob;

/// Valkey's settings by name. `requirepass` and `proto-max-bulk-len` have an effect. The others exist
/// because tools read them.
pub(super) struct Settings(BTreeMap<&'static str, Bytes>);

impl Settings {
    /// Changes a setting. `false`: the setting does not exist.
    pub(super) fn set(&mut self, name: &str, value: Bytes) -> bool {
        match self.0.get_mut(name) {
            Some(setting) => *setting = value,
            None => return false,
        }
        true
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The settings whose name matches one of `patterns`, each once.
    pub(super) fn matching(&self, patterns: &[Bytes]) -> impl Iterator<Item = (&'static str, &Bytes)> {
        let wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
        self.0.iter().filter(move |(name, _)| wanted(name)).map(|(name, value)| (*name, value))
    }

    /// Longest string value; at most [`MAX_VALUE_LEN`], whatever is set.
    pub(super) fn max_value_len(&self) -> usize {
        let limit = self.0.get("proto-max-bulk-len").and_then(|limit| memory(limit)).unwrap_or(0);
        limit.min(MAX_VALUE_LEN)
    }

    /// The password of the only user, if there is one.
    pub(super) fn password(&self) -> Option<&Bytes> {
        self.0.get("requirepass").filter(|password| !password.is_empty())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self(DEFAULTS.iter().map(|(name, value)| (*name, Bytes::from_static(value.as_bytes()))).collect())
    }
}

/// An amount of memory: `100`, `1kb`, `1mb`, `1gb` (and `1k`, `1m`, `1g`, by thousands), as Valkey reads it.
pub(super) fn memory(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    str::from_utf8(number).ok()?.parse::<usize>().ok()?.checked_mul(unit)
}

/// Valkey's default.
const MAX_VALUE_LEN: usize = 512 << 20;

const DEFAULTS: &[(&str, &str)] = &[
    ("appendfsync", "everysec"),
    ("appendonly", "no"),
    ("client-query-buffer-limit", "1073741824"),
    ("cluster-enabled", "no"),
    ("databases", "16"),
    ("hz", "10"),
    ("io-threads", "1"),
    ("latency-monitor-threshold", "0"),
    ("loglevel", "notice"),
    ("maxclients", "10000"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("proto-max-bulk-len", "536870912"),
    ("protected-mode", "no"),
    ("requirepass", ""),
    ("save", ""),
    ("slowlog-log-slower-than", "10000"),
    ("slowlog-max-len", "128"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
];
