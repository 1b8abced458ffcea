//! [`Pipeline`]: commands that are sent together.

use valkey_rdma_resp::{FromValue, ServerError, UnexpectedReply, Value};

use crate::command::{Command, CommandClass, CommandName, Commands, EncodedPipeline, IntoCommand};
use crate::command::{RefusedCommand, Reply};
use crate::error::{Error, FailedCommand};
use crate::server::Server;

/// Commands sent together, without waiting for replies in between. No command of another task comes between them, so
/// MULTI to EXEC is safe here.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// let replies = client.pipeline().command(["GET", "a"]).command(["INCR", "b"]).send().await?;
/// for reply in replies {
///     match reply {
///         Ok(value) => println!("{value:?}"),
///         Err(error) => println!("the server refused: {error}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a pipeline does nothing until sent"]
pub struct Pipeline {
    client: Server,
    commands: EncodedPipeline,
    /// Why the pipeline cannot be sent: its first refused command.
    refused: Option<RefusedCommand>,
    /// Name of the command that began a transaction still open.
    multi: Option<String>,
}

impl Server {
    /// Begins a pipeline.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline { client: self.clone(), commands: EncodedPipeline::default(), refused: None, multi: None }
    }

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

    /// Adds a command in place, for loops. A [`Command`] that is sent often can be passed by reference: it is not cloned.
    pub fn push(&mut self, command: impl IntoCommand) -> &mut Self {
        command.with_command(|command| self.add(command));
        self
    }

    fn add(&mut self, command: &Command) {
        if self.refused.is_none() {
            self.refused = match command.class() {
                // Within a transaction nothing blocks.
                CommandClass::Blocks | CommandClass::Waits if self.multi.is_none() => {
                    command.shared_refusal()
                }
                _ => command.refusal_among_others(),
            };
        }
        match command.class() {
            CommandClass::Multi => self.multi = Some(command.name()),
            CommandClass::EndMulti => self.multi = None,
            _ => {}
        }
        self.commands.push(command);
    }

    /// Number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.count()
    }

    /// True if the pipeline is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.count() == 0
    }

    /// Sends the commands and waits for all replies: one per command, in order. The error reply to one command says
    /// nothing about the others, so it is an element of the result. Without commands, nothing is sent.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection ended before the last reply, [`Error::TimedOut`] if the replies did not come
    /// in time, [`Error::Refused`] if a command cannot be shared; then none was sent.
    ///
    /// # Cancel safety
    /// Dropping the future discards the replies and never shifts those of others. The commands may or may not run.
    pub async fn send(mut self) -> Result<Vec<Result<Value, ServerError>>, Error> {
        self.check()?;
        if self.is_empty() {
            return Ok(Vec::new());
        }
        self.client.run_pipeline(self.commands).await
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
        let names = self.commands.names();
        convert_replies(&names, self.send().await?)
    }

    /// Sends as [`send`](Self::send) does, but passes each reply to `each` with the index of its command as soon as it
    /// arrives. Long pipelines then never hold all replies in memory.
    ///
    /// # Errors
    /// Same errors as [`send`](Self::send), after the replies that had arrived were passed on. Once the first was,
    /// nothing is sent again after a lost connection, not even commands that only read.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_each(
        mut self,
        mut each: impl FnMut(usize, Result<Value, ServerError>),
    ) -> Result<(), Error> {
        self.check()?;
        if self.is_empty() {
            return Ok(());
        }
        let mut sent = self.client.send_streamed(self.commands);
        let mut replies = Vec::new();
        let mut place = 0;
        loop {
            let is_last = sent.arrived(&mut replies).await;
            for reply in replies.drain(..) {
                each(place, reply);
                place += 1;
            }
            if is_last {
                return Ok(sent.await.all().map(drop)?);
            }
        }
    }

    /// Refuses commands that cannot be shared, and a transaction left open.
    fn check(&mut self) -> Result<(), RefusedCommand> {
        match (self.refused.take(), self.multi.take()) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(command)) => Err(RefusedCommand { command, reason: OPEN_MULTI }),
            (None, None) => Ok(()),
        }
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

const OPEN_MULTI: &str = "the pipeline must end the transaction it begins; add EXEC";
