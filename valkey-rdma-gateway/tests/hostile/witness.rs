//! [`Witness`]: clients that check every reply.

use std::time::Duration;

use tokio::time::timeout;

use crate::support::{Client, Running, encode, text};

/// Clients with connections of their own, whose values are unique.
pub(crate) struct Witness {
    resp2: Client,
    resp3: Client,
    number: u64,
    /// Replies that were right.
    pub(crate) checked: u64,
}

impl Witness {
    /// Makes the user that the clients log in as. A mock has the user `default` only.
    pub(crate) async fn prepare(gateway: &Running) {
        let user = "ACL SETUSER witness on >right ~* &* +@all";
        let made = gateway.client().await.say(user).await;
        assert!(made == "OK" || made.starts_with("-ERR unknown command"), "{made}");
    }

    pub(crate) async fn new(gateway: &Running) -> Self {
        let (resp2, mut resp3) = (gateway.client().await, gateway.tcp_client().await);
        resp3.hello3("").await;
        Self { resp2, resp3, number: 0, checked: 0 }
    }

    /// Asks on the connections that it has.
    pub(crate) async fn ask(&mut self) -> Result<(), String> {
        self.number += 1;
        let number = self.number;
        let asked = async {
            check(&mut self.resp2, "resp2", number).await?;
            check(&mut self.resp3, "resp3", number).await
        };
        in_time("of a client that stays", asked).await?;
        self.checked += 2 * REPLIES;
        Ok(())
    }

    /// Asks on a new connection, too, with a login.
    pub(crate) async fn ask_again(&mut self, gateway: &Running) -> Result<(), String> {
        self.ask().await?;
        self.number += 1;
        let number = self.number;
        let asked = async {
            let mut client = gateway.client().await;
            let logins = [client.say("AUTH witness right").await, client.say("AUTH default right").await];
            // One of them is not a user, or has no password.
            if !logins.contains(&"OK".to_owned()) || logins.iter().any(|login| login.contains("UPSTREAM")) {
                return Err(format!("AUTH: {logins:?}"));
            }
            let script = client.say(&format!("EVAL return{{ARGV[1]}} 0 {number}")).await;
            // The mock has no scripts.
            if script != format!("[{number}]") && !script.starts_with("-ERR this mock has no Lua") {
                return Err(format!("EVAL: {script} in place of {number}"));
            }
            check(&mut client, "with a login", number).await
        };
        in_time("of a new client", asked).await?;
        self.checked += 3 + REPLIES;
        Ok(())
    }
}

/// Sends a pipeline and checks its replies.
async fn check(client: &mut Client, name: &str, number: u64) -> Result<(), String> {
    let (key, value) = (format!("witness:{name}"), format!("{name}.{number}"));
    let lines = [vec!["SET", &key, &value], vec!["GET", &key], vec!["ECHO", &value], vec!["STRLEN", &key]];
    let expected = ["OK", &value, &value, &format!(":{}", value.len())];
    let bytes: Vec<u8> = lines.iter().flat_map(encode).collect();
    if client.stream_send(&bytes).await.is_none() {
        return Err(format!("{name}: it was closed"));
    }
    for (line, expected) in lines.iter().zip(expected) {
        let reply =
            client.try_reply().await.ok_or_else(|| format!("{name}: it was closed before {line:?}"))?;
        let reply = text(&reply);
        if reply != expected {
            return Err(format!("{name}: {line:?} had {:?}", &reply[..reply.len().min(500)]));
        }
    }
    Ok(())
}

async fn in_time(whose: &str, asked: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(format!("a command {whose} has no reply in time")))
}

/// What the gateway says of itself, if it still answers.
pub(crate) async fn state_of(gateway: &Running) -> String {
    let asked = async { gateway.client().await.say("INFO gateway").await };
    let lists = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("shared_") || line.contains("connections"));
        lines.collect::<Vec<_>>().join("\n")
    };
    timeout(PATIENCE, asked)
        .await
        .map_or_else(|_| "no answer to INFO gateway".to_owned(), |text| lists(&text))
}

/// Replies that one check reads.
const REPLIES: u64 = 4;
/// Longer than any reply takes, also on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(60);
