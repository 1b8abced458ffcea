//! Asks a cluster whether it still admits clients without a login: see [`Admission`](crate::admission::Admission).

use valkey_rdma_client::cluster::Route;
use valkey_rdma_client::{Command, Value};
use valkey_rdma_transport::sync::lock;

use super::Cluster;
use super::command_on;

impl Cluster {
    /// Whether a new connection would have to log in, by what some node says of its default user to clients of this generation.
    /// `false` if none of them is connected, or if they may not ask.
    ///
    /// The library sends no `AUTH`, with which a single server is asked. So the user must be allowed `ACL GETUSER`.
    pub(crate) async fn refuses_newcomers(&self, generation: u64) -> bool {
        let client = {
            let members = lock(&self.members);
            let mut known = members.values().filter(|member| member.key.is_without_login(generation));
            known.find_map(|member| lock(&member.client).clone())
        };
        let Some(client) = client else { return false };
        let question = Command::from_args(["ACL", "GETUSER", "default"]).idempotent();
        command_on(&client, Route::Any, question).await.is_ok_and(|user| requires_login(&user))
    }
}

/// Whether the default user, as ACL GETUSER describes it, is off or has a password. What is no such description says neither.
fn requires_login(user: &Value) -> bool {
    let is_flags = |name: &Value| name.as_str() == Some("flags");
    let flags = match (user.as_map(), user.as_slice()) {
        (Some(pairs), _) => pairs.iter().find(|(name, _)| is_flags(name)).map(|(_, flags)| flags),
        (_, Some(items)) => items.chunks(2).find(|pair| is_flags(&pair[0])).and_then(|pair| pair.get(1)),
        _ => None,
    };
    let Some(flags) = flags.and_then(Value::as_slice) else { return false };
    let has = |flag: &str| flags.iter().any(|known| known.as_str() == Some(flag));
    has("off") || !has("nopass")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&'static str]) -> Vec<Value> {
        words.iter().map(|word| Value::Bulk(word.as_bytes().into())).collect()
    }

    #[test]
    fn a_user_who_is_off_or_has_a_password_requires_a_login() {
        for (flags, expected) in [
            (&["on", "nopass"][..], false),
            (&["on", "nopass", "sanitize-payload"], false),
            (&["on"], true),
            (&["off", "nopass"], true),
        ] {
            let (name, flags) = (texts(&["flags"]), texts(flags));
            let map = Value::Map(vec![(name[0].clone(), Value::Set(flags.clone()))]);
            let array = Value::Array([name, vec![Value::Array(flags)]].concat());
            assert_eq!((requires_login(&map), requires_login(&array)), (expected, expected));
        }
        assert!(!requires_login(&Value::Nil) && !requires_login(&Value::Array(texts(&["flags"]))));
    }
}
