//! Listens to one Sentinel for `+switch-master`.

use std::sync::{Arc, Weak};

use tracing::{debug, info, warn};
use valkey_rdma_resp::{ServerError, Value};

use super::Service;
use super::ask::Sentinel;
use crate::command::Command;
use crate::error::{Chain, LostCause};
use crate::link::RawConnection;
use crate::pubsub::SilenceCheck;

/// Listens until the service is gone. Subscribes again after a lost connection.
pub(super) async fn follow(sentinel: Arc<Sentinel>, service: Weak<Service>) {
    let (mut redialer, mut is_missed) = (sentinel.redialer(), false);
    loop {
        let why = match redialer.next(|| false, sentinel.connect()).await {
            Ok(raw) => match listen(raw, &sentinel, &service, &mut is_missed).await {
                Ok(()) => return,
                Err(cause) => {
                    redialer.lost();
                    Chain(&cause).to_string()
                }
            },
            Err(error) => format!("{error:#}"),
        };
        // A Sentinel that is away for long has many attempts.
        match std::mem::replace(&mut is_missed, true) {
            true => debug!(%why, "not listening to a Sentinel"),
            false => {
                warn!(sentinel = sentinel.address(), %why, "a Sentinel does not answer: it reports no failover")
            }
        }
    }
}

/// Returns `Ok` when the service is gone.
async fn listen(
    mut raw: RawConnection,
    sentinel: &Sentinel,
    service: &Weak<Service>,
    is_missed: &mut bool,
) -> Result<(), LostCause> {
    raw.write_buffer.push(&Command::from_args(["SUBSCRIBE", SWITCH]));
    let mut silence = SilenceCheck::new(&raw, sentinel.config());
    loop {
        let value = silence.receive(&mut raw, false).await?;
        // Whatever it sends shows that it is there.
        silence.owes_pong = false;
        let Some(service) = service.upgrade() else { return Ok(()) };
        match event(&value) {
            // A switch may have been missed before it listened.
            Some(Event::Listening) => {
                if std::mem::take(is_missed) {
                    info!(sentinel = sentinel.address(), "a Sentinel answers again");
                }
                service.switched().await;
            }
            Some(Event::Switched { name }) if name == service.name => service.switched().await,
            // The client finds the next primary when it loses the last one.
            Some(Event::Refused(error)) => {
                warn!(sentinel = sentinel.address(), %error, "a Sentinel refuses SUBSCRIBE: it reports no failover");
            }
            _ => {}
        }
    }
}

enum Event<'a> {
    Listening,
    Switched {
        name: &'a str,
    },
    /// The user may not subscribe.
    Refused(&'a ServerError),
}

/// A confirmation, or a message: `mymaster 10.0.0.1 6379 10.0.0.2 6379` (old address, new address).
///
/// Source: valkey `src/sentinel.c`, `sentinelFailoverSwitchToPromotedReplica`.
fn event(value: &Value) -> Option<Event<'_>> {
    if let Value::Error(error) = value {
        return Some(Event::Refused(error));
    }
    let (Value::Push(fields) | Value::Array(fields)) = value else { return None };
    match (fields.first()?.as_str()?, fields.get(1)?.as_str()?) {
        ("subscribe", SWITCH) => Some(Event::Listening),
        ("message", SWITCH) => {
            let name = fields.get(2)?.as_str()?.split(' ').next()?;
            Some(Event::Switched { name })
        }
        _ => None,
    }
}

const SWITCH: &str = "+switch-master";

#[cfg(test)]
mod tests {
    use super::*;

    fn push(fields: &[&'static str]) -> Value {
        Value::Push(fields.iter().map(|field| Value::Bulk(field.as_bytes().into())).collect())
    }

    #[test]
    fn a_switch_names_its_service() {
        let message = push(&["message", "+switch-master", "mymaster 10.0.0.1 6379 10.0.0.2 6379"]);
        assert!(matches!(event(&message), Some(Event::Switched { name: "mymaster" })));
        assert!(event(&push(&["message", "+sdown", "x"])).is_none());
        assert!(event(&push(&["message"])).is_none());
        assert!(event(&Value::Nil).is_none());
        let refusal = Value::Error(ServerError::from_reply(b"NOPERM no"));
        assert!(matches!(event(&refusal), Some(Event::Refused(error)) if error.code == "NOPERM"));
    }
}
