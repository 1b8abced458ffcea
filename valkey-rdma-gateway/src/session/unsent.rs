//! Commands that are not sent: those of a transaction that found no connection, and those of an overload.

use bytes::Bytes;
use valkey_rdma_resp::Reply;

use super::route::Refusal;
use super::{Closed, Session};
use crate::command::class::{Class, Local, State};
use crate::upstream::open_error::{OpenError, one_line};

/// Why the commands of a transaction do not run, and what their client gets.
pub(super) struct FailedMulti {
    error: OpenError,
    reply: Bytes,
}

impl Session {
    /// Answers a command that is not sent.
    pub(super) async fn refuse(&mut self, refusal: Refusal) -> Result<(), Closed> {
        match refusal {
            Refusal::FailedMulti(class) => self.answer_failed_multi(class).await,
            Refusal::Overload => {
                self.refuse_overload();
                Ok(())
            }
        }
    }

    /// Begins a transaction that will fail. As in the server, its commands have errors and EXEC ends it: a client that pipelines has
    /// sent them already, and none may run without the others.
    pub(super) fn fail_multi(&mut self, error: OpenError, reply: Bytes) {
        self.failed_multi = Some(FailedMulti { error, reply });
        self.put(&Reply::OK);
    }

    async fn answer_failed_multi(&mut self, class: Class) -> Result<(), Closed> {
        let Some(reason) = self.failed_multi.take() else { return Ok(()) };
        let is_complete = self.reader.scan().is_ok_and(|complete| complete);
        // QUIT and RESET run. So does DISCARD.
        let is_refused =
            !matches!(class, Class::State(State::Discard) | Class::Local(Local::Reset | Local::Quit));
        if is_refused {
            reason.error.count_unsent(1, self.metrics());
        }
        if let Class::Local(local @ (Local::Reset | Local::Quit)) = class
            && is_complete
        {
            let command = self.reader.take();
            return self.answer(local, &command).await;
        }
        match class {
            Class::State(State::Exec) => {
                let text = one_line(&String::from_utf8_lossy(reason.reply.get(1..).unwrap_or_default()));
                self.put(&Reply::error(format!("EXECABORT Transaction discarded: {}", text.trim_end())));
            }
            Class::State(State::Discard) => self.put(&Reply::OK),
            _ => {
                self.out.put(&reason.reply);
                self.failed_multi = Some(reason);
            }
        }
        self.drop_command(0).await
    }

    /// Refuses a command, because those of other clients take up all room there is.
    fn refuse_overload(&mut self) {
        drop(self.reader.take());
        self.metrics().not_sent.add(1);
        let most = self.core.limits().queued_bytes_total;
        self.put(&Reply::error(format!(
            "NOUPSTREAM the command was not sent: commands of more than twice limits.queued_bytes_total = {most} bytes wait already"
        )));
    }
}
