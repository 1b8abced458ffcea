//! Commands that the gateway does not run: of transactions that cannot begin, of an overload, and with `--share always`.

use bytes::Bytes;
use valkey_rdma_resp::{Reply, words};

use super::unrun::Unrun;
use super::{Closed, Session};
use crate::class::{Class, Local, State};
use crate::open_error::one_line;

impl Session {
    /// Begins a transaction that will fail. As in the server, its commands have errors and EXEC ends it: a client that pipelines has
    /// sent them already, and none may run without the others.
    pub(super) fn fail_multi(&mut self, reason: Unrun) {
        self.failed_multi = Some(reason);
        self.put(&Reply::OK);
    }

    /// Answers the commands of a transaction that fails.
    pub(super) async fn answer_failed_multi(&mut self, class: Class) -> Result<(), Closed> {
        let Some(reason) = self.failed_multi.take() else { return Ok(()) };
        let is_complete = self.reader.scan().is_ok_and(|complete| complete);
        // QUIT and RESET run. So does DISCARD.
        let is_refused =
            !matches!(class, Class::State(State::Discard) | Class::Local(Local::Reset | Local::Quit));
        if is_refused {
            reason.count(self.metrics());
        }
        if let Class::Local(local @ (Local::Reset | Local::Quit)) = class
            && is_complete
        {
            let command = self.reader.take();
            return self.answer(local, &command).await;
        }
        match class {
            Class::State(State::Exec) => {
                let text = one_line(&String::from_utf8_lossy(reason.reply().get(1..).unwrap_or_default()));
                self.put(&Reply::error(format!("EXECABORT Transaction discarded: {}", text.trim_end())));
            }
            Class::State(State::Discard) => self.put(&Reply::OK),
            _ => {
                self.out.put(&reason.reply());
                self.failed_multi = Some(reason);
            }
        }
        self.drop_command(0).await
    }

    /// Refuses a command, because those of other clients take up all room there is.
    pub(super) fn refuse_overload(&mut self) {
        drop(self.reader.take());
        self.metrics().not_sent.add(1);
        let most = self.core.limits().queued_bytes_total;
        self.put(&Reply::error(format!(
            "NOUPSTREAM the command was not sent: commands of more than twice limits.queued_bytes_total = {most} bytes wait already"
        )));
    }

    /// Refuses a command with state, or one that is too long (`--share always`).
    pub(super) async fn refuse(&mut self, class: Class) -> Result<(), Closed> {
        let name = words(self.reader.current()).next().unwrap_or_default();
        let name = name.escape_ascii().to_string().to_uppercase();
        let is_complete = self.reader.scan().is_ok_and(|complete| complete);
        if !is_complete || self.reader.current().len() > self.longest(&self.core.limits()) {
            let text = self.too_long(&name);
            self.note_refusal(self.reader.current());
            self.metrics().commands_refused.add(1);
            self.put(&Reply::error(text));
            return self.drop_command(0).await;
        }
        let command = self.reader.take();
        self.note_refusal(&command);
        let text = "ERR the gateway runs with share=always, which refuses commands that need a connection of their own: ";
        let reply = Bytes::from(format!("-{text}{name}\r\n"));
        match class {
            Class::State(State::Multi) => self.fail_multi(Unrun::Refused(reply)),
            _ => {
                self.metrics().commands_refused.add(1);
                self.out.put(&reply);
            }
        }
        Ok(())
    }

    /// Logs that the gateway refuses a command, with the user of its client.
    pub(super) fn note_refusal(&self, command: &[u8]) {
        let user = self.client.details().user.clone();
        self.core.refusals.note(command, &user);
    }

    /// Why a command is refused that is longer than any that the gateway keeps.
    pub(super) fn too_long(&self, name: &str) -> String {
        let limits = self.core.limits();
        let most = self.longest(&limits);
        match self.route.pool.cluster {
            Some(_) => format!(
                "ERR the command is longer than limits.cluster_command_bytes = {most}, or too many commands wait"
            ),
            None => {
                format!("ERR {name} is longer than limits.command_bytes = {most}, which share=always refuses")
            }
        }
    }
}
