//! [`Pipeline`]: commands that are sent together.

use futures_util::FutureExt;
use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};

use crate::client::{Client, Deployment};
use crate::cluster::{Cluster, slot_of};
use crate::command::{Command, CommandClass, CommandName, Commands, EncodedPipeline, IntoCommand};
use crate::command::{RefusedCommand, Reply};
use crate::error::{Error, FailedCommand};
use crate::server::Server;
use crate::spans::{Batch, Call};

/// Commands sent together, without waiting for replies in between.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// let replies = client.pipeline().command(["GET", "a"]).command(["INCR", "b"]).send().await?;
/// for reply in replies {
///     match reply {
///         Ok(value) => println!("{value:?}"),
///         Err(error) => println!("{error}; {}", error.fate()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Order
/// One server runs the commands in their order, and no command of another task comes between them: MULTI to EXEC is safe here. Commands
/// that block, and WAIT, are refused between them too, because the server may refuse MULTI: a [`Transaction`](crate::Transaction) takes them.
///
/// In a cluster, the commands of one node go there in one write, and to different nodes at the same time. Commands with keys of the same slot
/// run in their order, unless that slot moves to another node meanwhile, or its node becomes ready in the middle (LOADING, CLUSTERDOWN): what was
/// refused runs later. Between slots there is no order. Commands that concern several nodes, such as DBSIZE or MGET of several slots, run beside
/// the others.
#[derive(Clone, Debug)]
#[must_use = "a pipeline does nothing until sent"]
pub struct Pipeline {
    to: To,
    /// Why the pipeline cannot be sent: its first refused command.
    refused: Option<RefusedCommand>,
}

/// Where the commands go.
#[derive(Clone, Debug)]
enum To {
    Server {
        server: Server,
        commands: EncodedPipeline,
        /// Name of the command that began a transaction still open.
        multi: Option<String>,
    },
    Cluster {
        cluster: Cluster,
        commands: Vec<Command>,
        /// The slot whose node gets the commands that any node may run.
        keyless: Option<u16>,
    },
}

impl Client {
    /// Begins a pipeline.
    pub fn pipeline(&self) -> Pipeline {
        let to = match &self.deployment {
            Deployment::Server(server) => {
                To::Server { server: server.clone(), commands: EncodedPipeline::default(), multi: None }
            }
            Deployment::Cluster(cluster) => {
                To::Cluster { cluster: cluster.clone(), commands: Vec::new(), keyless: None }
            }
        };
        Pipeline { to, refused: None }
    }
}

impl Server {
    pub(crate) async fn run_pipeline(&self, commands: EncodedPipeline) -> Result<Vec<Reply>, Error> {
        let deadline = self.deadline(&commands);
        Ok(self.send(Commands::Many(commands), deadline).await.all()?)
    }
}

impl Pipeline {
    /// Adds a command.
    pub fn command(mut self, command: impl IntoCommand) -> Self {
        self.push(command);
        self
    }

    /// Adds a command in place, for loops. A [`Command`] that is sent often can be passed by reference: to one server, it is not cloned.
    pub fn push(&mut self, command: impl IntoCommand) -> &mut Self {
        match &mut self.to {
            To::Server { commands, multi, .. } => command.with_command(|command| {
                let refusal = match command.class() {
                    CommandClass::Blocks | CommandClass::Waits if multi.is_some() => {
                        Some(RefusedCommand { command: command.name(), reason: BLOCKS_BEHIND_MULTI })
                    }
                    CommandClass::Blocks | CommandClass::Waits => command.shared_refusal(),
                    _ => command.refusal_among_others(),
                };
                match command.class() {
                    CommandClass::Multi => *multi = Some(command.name()),
                    // With arguments it is refused, and not every server ends the transaction then.
                    CommandClass::EndMulti if command.arguments() == 1 => *multi = None,
                    _ => {}
                }
                commands.push(command);
                self.refused = self.refused.take().or(refusal);
            }),
            To::Cluster { commands, .. } => {
                let command = command.into_command();
                let refusal = transaction_refusal(&command).or_else(|| command.shared_refusal());
                commands.push(command);
                self.refused = self.refused.take().or(refusal);
            }
        }
        self
    }

    /// Sends the commands that any node of a cluster may run, such as PUBLISH or ECHO, to the node of this key, in their order. Without
    /// this, each goes to some primary, beside the others. While that node leaves commands unanswered or cannot be reached, they go to another. One
    /// server runs all commands anyway.
    pub fn keyless_beside(mut self, key: impl AsRef<[u8]>) -> Self {
        if let To::Cluster { keyless, .. } = &mut self.to {
            *keyless = Some(slot_of(key.as_ref()));
        }
        self
    }

    /// Number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.to {
            To::Server { commands, .. } => commands.count(),
            To::Cluster { commands, .. } => commands.len(),
        }
    }

    /// True if the pipeline is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the commands and waits for all replies: one per command, in order. The error of one command says nothing about the others,
    /// so it is an element of the result: the server's error, or in a cluster any error, with its own [fate](Error::fate), since some
    /// commands may have run and others not. All of them share one time limit, the longest that one of them has. Without commands, nothing
    /// is sent.
    ///
    /// # Errors
    /// [`Error::Refused`] if a command cannot be shared; then none was sent. In a cluster also for MULTI, because
    /// [`Client::transaction`] keeps its commands together. With one server, [`Error::Lost`] if the connection ended before the last reply,
    /// and [`Error::TimedOut`] if the replies did not come in time.
    ///
    /// # Cancel safety
    /// Dropping the future discards the replies and never shifts those of others. The commands may or may not run.
    pub async fn send(self) -> Result<Vec<Result<Value, Error>>, Error> {
        match self.checked()? {
            To::Server { commands, .. } if commands.count() == 0 => Ok(Vec::new()),
            To::Server { server, mut commands, .. } => {
                let call = Call::pipeline(server.endpoint(), &mut commands);
                let replies = call.run_all(server.run_pipeline(commands)).await?;
                Ok(replies.into_iter().map(|reply| reply.map_err(Error::Server)).collect())
            }
            To::Cluster { cluster, commands, keyless } => {
                let call = Call::batch(cluster.endpoint(), Batch::Pipeline, &commands);
                call.run_all(cluster.run_pipeline(commands, keyless).map(Ok).boxed()).await
            }
        }
    }

    /// Sends as [`send`](Self::send) does, and converts all replies together: to a tuple with a type for each, to a vector, or to
    /// `()` to check them only.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// let pipeline = client.pipeline().command(["INCR", "visits"]).command(["GET", "name"]);
    /// let (visits, name): (i64, Option<String>) = pipeline.query().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`send`](Self::send). [`Error::InPipeline`] is the first error reply, or the first reply that does not convert,
    /// with the index and the name of its command; the other commands ran all the same. [`Error::Unexpected`] if the number of
    /// replies does not fit the type.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn query<T: FromValue>(mut self) -> Result<T, Error> {
        let names: Vec<_> = match &mut self.to {
            To::Server { commands, .. } => commands.names().collect(),
            To::Cluster { commands, .. } => commands.iter().map(Command::kept_name).collect(),
        };
        convert_replies(&names, self.send().await?)
    }

    /// Sends as [`send`](Self::send) does, but passes each reply to `each` with the index of its command as soon as it
    /// arrives. Long pipelines then never hold all replies in memory. In a cluster, the replies are passed on after the last one.
    ///
    /// # Errors
    /// Same errors as [`send`](Self::send), after the replies that had arrived were passed on. Once the first was,
    /// nothing is sent again after a lost connection, not even commands that only read.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_each(self, mut each: impl FnMut(usize, Result<Value, Error>)) -> Result<(), Error> {
        let (server, mut commands) = match self.checked()? {
            To::Server { commands, .. } if commands.count() == 0 => return Ok(()),
            To::Server { server, commands, .. } => (server, commands),
            To::Cluster { cluster, commands, keyless } => {
                let call = Call::batch(cluster.endpoint(), Batch::Pipeline, &commands);
                let replies = call.run_all(cluster.run_pipeline(commands, keyless).map(Ok).boxed()).await?;
                replies.into_iter().enumerate().for_each(|(place, reply)| each(place, reply));
                return Ok(());
            }
        };
        let call = Call::pipeline(server.endpoint(), &mut commands);
        let mut sent = server.send_streamed(commands);
        let receive = async {
            let mut replies = Vec::new();
            let mut place = 0;
            loop {
                let is_last = sent.arrived(&mut replies).await;
                for reply in replies.drain(..) {
                    if let Err(error) = &reply {
                        call.failed(error);
                    }
                    each(place, reply.map_err(Error::Server));
                    place += 1;
                }
                if is_last {
                    return Ok(sent.await.all().map(drop)?);
                }
            }
        };
        call.run(receive).await
    }

    /// Refuses commands that cannot be shared, and a transaction left open.
    fn checked(self) -> Result<To, RefusedCommand> {
        match (self.refused, self.to) {
            (Some(refusal), _) => Err(refusal),
            (None, To::Server { multi: Some(command), .. }) => {
                Err(RefusedCommand { command, reason: OPEN_MULTI })
            }
            (None, to) => Ok(to),
        }
    }
}

/// In a cluster, MULTI and EXEC would be sent to some node, and the commands between them to others.
fn transaction_refusal(command: &Command) -> Option<RefusedCommand> {
    match command.class() {
        CommandClass::Multi | CommandClass::EndMulti => {
            Some(RefusedCommand { command: command.name(), reason: USE_TRANSACTION })
        }
        _ => None,
    }
}

/// The replies of a pipeline or a transaction as one value, or the first error among them. `names` are those of its commands.
pub(crate) fn convert_replies<T: FromValue, E: Into<Error>>(
    names: &[CommandName],
    replies: Vec<Result<Value, E>>,
) -> Result<T, Error> {
    let count = replies.len();
    let failed = |index: usize, error: Error| match names.get(index) {
        Some(name) => Error::InPipeline(Box::new(FailedCommand::new(index, name.to_string(), error))),
        None => error,
    };
    let values = replies.into_iter().enumerate();
    let values = values.map(|(index, reply)| reply.map_err(|error| failed(index, error.into())));
    let all = Value::Array(values.collect::<Result<_, _>>()?);
    let whole = all.describe();
    all.convert().map_err(|mut error: UnexpectedReply| match error.take_outermost() {
        Some(index) => failed(index, error.into()),
        // The replies together are what does not fit.
        None if error.got == whole && count == 1 => UnexpectedReply::new(error.wanted, ONE_REPLY).into(),
        None if error.got == whole => UnexpectedReply::new(error.wanted, format!("{count} replies")).into(),
        None => error.into(),
    })
}

const ONE_REPLY: &str = "a list of one reply: ask for a tuple such as (String,)";

const USE_TRANSACTION: &str = "a pipeline may go to several nodes; use Client::transaction";

const OPEN_MULTI: &str = "the pipeline must end the transaction it begins; add EXEC";

/// Within a transaction nothing blocks. But the pipeline does not know whether the server will take MULTI.
const BLOCKS_BEHIND_MULTI: &str = "commands of other tasks would wait behind it if the server refuses MULTI; \
    use a Transaction, or Client::dedicated";
