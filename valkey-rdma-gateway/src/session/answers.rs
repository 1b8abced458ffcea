//! Commands about the local connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_resp::{Command, Reply, integer, words};

use super::{Closed, Session};
use crate::command::class::Local;
use crate::command::words::{all, encode, is, number};
use crate::session::clients::Client;
use crate::session::inbox::End;
use crate::upstream::private::Private;

impl Session {
    /// Answers a command. Nothing is in flight.
    pub(super) async fn answer(&mut self, local: Local, command: &Bytes) -> Result<(), Closed> {
        self.client.count(1, command, std::time::Instant::now());
        if let Local::Direct(verb) = local {
            // It is counted on its connection. An idle client keeps no room for that.
            return Box::pin(self.direct(verb, command)).await;
        }
        self.metrics().local_commands.add(1);
        let words = all(command);
        let args = words.get(2..).unwrap_or_default();
        match (local, args) {
            (Local::Auth, _) => return self.auth(command).await,
            (Local::Hello, _) => return self.hello(command).await,
            (Local::Select, _) => return self.select(command).await,
            (Local::Reset, _) => self.reset(),
            (Local::Quit, _) => {
                self.put(&Reply::OK);
                return Err(Closed);
            }
            (Local::Http, _) => {
                self.core.refusals.note_http(&self.client.peer);
                return Err(Closed);
            }
            (Local::SetName, [name]) => {
                let reply = self.set_name(name).err().unwrap_or(Reply::OK);
                self.put(&reply);
            }
            (Local::GetName, []) => {
                let name = self.client.details().name.clone();
                self.put(&if name.is_empty() { Reply::Null } else { Reply::bulk(name) });
            }
            (Local::SetInfo, [option, value]) => {
                let reply = self.set_info(option, value);
                self.put(&reply);
            }
            (Local::Id, []) => self.put(&Reply::Integer(i64::try_from(self.client.id).unwrap_or(i64::MAX))),
            (Local::Info, []) => {
                let line = self.client.line() + "\n";
                self.put(&Reply::Verbatim { format: *b"txt", text: line.into() });
            }
            (Local::List, args) => return self.list(args).await,
            (Local::Kill, args) => return self.kill(args).await,
            (Local::Unblock, args) => return self.unblock(args).await,
            (Local::GatewayInfo, _) => return self.gateway_info().await,
            (Local::WrongArity, _) => self.put(&wrong_arity(command)),
            // Wrong arguments: the server has the right error, and changes nothing.
            _ => return self.pass_on(false, command).await,
        }
        Ok(())
    }

    /// Asks the server to run a harmless form of a command that the gateway answers, so that the server's rules for its users hold
    /// here too. `false` if the server refused it: the client has the refusal.
    async fn is_allowed(&mut self, command: &[&str]) -> Result<bool, Closed> {
        let shared = self.route.backend.shared(&self.identity);
        let reply = self.ask(&shared, &encode(command)).await?;
        let allowed = !reply.starts_with(b"-");
        if !allowed {
            self.out.put(&reply);
        }
        Ok(allowed)
    }

    /// Whether the client may see what the gateway shows of itself and of its clients. What a process of the gateway's own user sees, it
    /// could take from the gateway's memory, so it needs no permission, and no server, until it logs in as a user of the server.
    async fn may_look(&mut self, command: &[&str]) -> Result<bool, Closed> {
        Ok(self.by_owner && self.identity.login.is_none() || self.is_allowed(command).await?)
    }

    /// Logs that the gateway refuses a command, with the user of its client.
    pub(super) fn note_refusal(&self, command: &[u8]) {
        let user = self.client.details().user.clone();
        self.core.refusals.note(command, &user);
    }

    pub(super) fn set_name(&self, name: &[u8]) -> Result<(), Reply> {
        let text = "ERR Client names cannot contain spaces, newlines or special characters.";
        self.client.details().name = printable(name).ok_or(Reply::error(text))?;
        Ok(())
    }

    fn set_info(&self, option: &[u8], value: &[u8]) -> Reply {
        let option = String::from_utf8_lossy(option).to_lowercase();
        let mut details = self.client.details();
        let field = match &*option {
            "lib-name" => &mut details.lib_name,
            "lib-ver" => &mut details.lib_ver,
            _ => return Reply::error(format!("ERR Unrecognized option '{option}'")),
        };
        match printable(value) {
            Some(value) => *field = value,
            None => {
                let text = "cannot contain spaces, newlines or special characters.";
                return Reply::error(format!("ERR {option} {text}"));
            }
        }
        Reply::OK
    }

    /// The clients of the same server: the server's rules say who may see and end them.
    fn neighbours(&self) -> Vec<Arc<Client>> {
        let mut all = self.core.clients.all();
        all.retain(|client| client.server == self.client.server);
        all
    }

    /// CLIENT LIST [TYPE type | ID number...]: the local clients.
    async fn list(&mut self, args: &[Vec<u8>]) -> Result<(), Closed> {
        if !self.may_look(&["CLIENT", "LIST", "ID", NO_CLIENT]).await? {
            return Ok(());
        }
        let all = self.neighbours().into_iter();
        let text: String = match args {
            [] => all.map(|client| client.line() + "\n").collect(),
            [option, kind] if is(option, "TYPE") => {
                all.filter(|client| is_of_type(client, kind)).map(|client| client.line() + "\n").collect()
            }
            [option, ids @ ..] if is(option, "ID") && !ids.is_empty() => {
                let ids = ids.iter().map(|id| number(id));
                let Some(ids) = ids.collect::<Option<Vec<_>>>() else {
                    self.put(&Reply::error("ERR Invalid client ID"));
                    return Ok(());
                };
                all.filter(|client| ids.contains(&client.id)).map(|client| client.line() + "\n").collect()
            }
            _ => {
                self.put(&Reply::error("ERR syntax error"));
                return Ok(());
            }
        };
        self.put(&Reply::Verbatim { format: *b"txt", text: text.into() });
        Ok(())
    }

    /// CLIENT KILL: local clients.
    async fn kill(&mut self, args: &[Vec<u8>]) -> Result<(), Closed> {
        if !self.is_allowed(&["CLIENT", "KILL", "ID", NO_CLIENT]).await? {
            return Ok(());
        }
        let all = self.neighbours();
        if let [address] = args {
            let found = all.iter().find(|client| client.peer.as_bytes() == &address[..]);
            let reply = found.map_or(Reply::error("ERR No such client"), |_| Reply::OK);
            self.put(&reply);
            return found.map_or(Ok(()), |client| self.kill_one(client));
        }
        let filter = match Filter::parse(args) {
            Ok(filter) => filter,
            Err(text) => {
                self.put(&Reply::error(text));
                return Ok(());
            }
        };
        let chosen: Vec<_> = all.iter().filter(|client| filter.matches(client, self.client.id)).collect();
        self.put(&Reply::Integer(i64::try_from(chosen.len()).unwrap_or(i64::MAX)));
        let mut closed = Ok(());
        for client in chosen {
            closed = closed.and(self.kill_one(client));
        }
        closed
    }

    /// A client that kills itself gets its reply first.
    fn kill_one(&self, client: &Client) -> Result<(), Closed> {
        self.metrics().killed.add(1);
        if client.id == self.client.id {
            return Err(Closed);
        }
        client.inbox.end(End::Killed);
        Ok(())
    }

    /// CLIENT UNBLOCK: a client that blocks has a private connection, whose number the server knows.
    async fn unblock(&mut self, args: &[Vec<u8>]) -> Result<(), Closed> {
        let [id, reason @ ..] = args else {
            return self.pass_on(false, &encode(["CLIENT", "UNBLOCK"])).await;
        };
        let client = number(id).and_then(|id| self.core.clients.get(id));
        let client = client.filter(|client| client.server == self.client.server);
        let theirs = client.map_or(0, |client| client.upstream_id());
        let number = match integer::parse(id) {
            None => String::from_utf8_lossy(id).into_owned(),
            Some(_) if theirs == 0 => NO_CLIENT.to_owned(),
            Some(_) => theirs.to_string(),
        };
        let fixed = ["CLIENT", "UNBLOCK", &number].map(str::as_bytes);
        let command = encode(fixed.into_iter().chain(reason.iter().map(|word| &word[..])));
        self.pass_on(false, &command).await
    }

    /// CLIENT TRACKING ... REDIRECT: the number of a local client becomes that of its private connection, which it gets if it has none.
    /// Of a client of another server, or one that gets no private connection, the server says that it does not exist.
    pub(super) async fn redirected(&mut self, private: &mut Private) -> Bytes {
        let command = self.reader.take();
        let mut words = all(&command);
        let mut at = 3;
        while at < words.len() {
            let option = &words[at];
            let is_redirect = is(option, "REDIRECT");
            at += if is_redirect || is(option, "PREFIX") { 2 } else { 1 };
            let Some(number) = words.get_mut(at - 1).filter(|_| is_redirect) else { continue };
            let Some(id) = integer::parse(number) else { continue };
            let client = u64::try_from(id).ok().and_then(|id| self.core.clients.get(id));
            let target = match client.filter(|client| client.server == self.client.server) {
                Some(client) => client.redirect().await,
                None => None,
            };
            let theirs = target.as_ref().map_or(NO_CLIENT.to_owned(), |(_, theirs)| theirs.to_string());
            *number = theirs.into_bytes();
            if let Some((target, theirs)) = target {
                private.set_redirect(target, theirs);
            }
        }
        encode(&words).into()
    }

    /// INFO gateway.
    async fn gateway_info(&mut self) -> Result<(), Closed> {
        if self.may_look(&["INFO", "gateway"]).await? {
            let text = crate::observe::info::section(&self.core, &self.route);
            self.put(&Reply::Verbatim { format: *b"txt", text: text.into() });
        }
        Ok(())
    }
}

/// Which clients CLIENT KILL ends.
#[derive(Default)]
struct Filter {
    id: Option<u64>,
    peer: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    kind: Option<Vec<u8>>,
    older_than: Option<Duration>,
    with_me: bool,
}

impl Filter {
    fn parse(args: &[Vec<u8>]) -> Result<Self, &'static str> {
        let mut filter = Self::default();
        let (pairs, rest) = args.as_chunks::<2>();
        if pairs.is_empty() || !rest.is_empty() {
            return Err("ERR syntax error");
        }
        for [option, value] in pairs {
            let number = number(value);
            match &option.to_ascii_uppercase()[..] {
                b"ID" => {
                    let id = number.filter(|id| *id > 0);
                    filter.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                b"ADDR" => filter.peer = Some(value.clone()),
                b"LADDR" => filter.local = Some(value.clone()),
                b"USER" => filter.user = Some(value.clone()),
                b"TYPE" => filter.kind = Some(value.clone()),
                b"MAXAGE" => {
                    let seconds = number.ok_or("ERR maxage is not an integer or out of range")?;
                    filter.older_than = Some(Duration::from_secs(seconds));
                }
                b"SKIPME" if is(value, "YES") => filter.with_me = false,
                b"SKIPME" if is(value, "NO") => filter.with_me = true,
                _ => return Err("ERR syntax error"),
            }
        }
        Ok(filter)
    }

    fn matches(&self, client: &Arc<Client>, me: u64) -> bool {
        let is = |wanted: &Option<Vec<u8>>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| &wanted[..] == text.as_bytes())
        };
        self.id.is_none_or(|id| id == client.id)
            && is(&self.peer, &client.peer)
            && is(&self.local, &client.local)
            && is(&self.user, &client.details().user)
            && self.kind.as_ref().is_none_or(|kind| is_of_type(client, kind))
            && self.older_than.is_none_or(|age| client.since.elapsed() >= age)
            && (self.with_me || client.id != me)
    }
}

fn is_of_type(client: &Client, kind: &[u8]) -> bool {
    match &kind.to_ascii_lowercase()[..] {
        b"normal" => !client.is_subscribed(),
        b"pubsub" => client.is_subscribed(),
        _ => false,
    }
}

/// The error of a server for a command with a wrong number of arguments.
pub(super) fn wrong_arity(command: &[u8]) -> Reply {
    let name = words(command).next().unwrap_or_default();
    Command::new(Bytes::copy_from_slice(name), Vec::<Bytes>::new()).wrong_arity()
}

/// A name that Valkey accepts for a client: printable ASCII without blanks.
fn printable(name: &[u8]) -> Option<String> {
    let name = name.iter().all(|byte| byte.is_ascii_graphic()).then_some(name)?;
    String::from_utf8(name.to_vec()).ok()
}

/// A number that no client of a server has.
const NO_CLIENT: &str = "9223372036854775807";
