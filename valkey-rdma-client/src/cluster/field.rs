//! [`field`]: what a server's description of something says under a name.

use valkey_rdma_resp::Value;

/// A field of a map, or of an array of names and values, as RESP2 has them.
pub(super) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value),
        other => {
            let mut pairs = other.as_slice()?.chunks_exact(2);
            pairs.find(|pair| pair[0].as_str() == Some(name)).map(|pair| &pair[1])
        }
    }
}
