//! What runs: the default tests that the flags choose, or a command of the user's own.

use std::borrow::Cow;

use valkey_rdma_program::printable;

use super::Args;
use crate::program::matrix::Matrix;
use crate::workload::DefaultTest;

/// Characters of a title before `...`.
const LONGEST_TITLE: usize = 100;

impl Args {
    /// The default tests that run, or that `--ratio` mixes. None beside a command of the user's own.
    pub(crate) fn chosen_tests(&self) -> Vec<DefaultTest> {
        if !self.command.is_empty() {
            return Vec::new();
        }
        if let Some(mix) = &self.ratio {
            return mix.tests().copied().collect();
        }
        let tests = self.tests.clone().unwrap_or_else(DefaultTest::all);
        let tests = match self.direct {
            true => tests.into_iter().filter(DefaultTest::has_transfers).collect(),
            false => tests,
        };
        let shared = self.is_shared() || self.matrix.as_ref().is_some_and(Matrix::has_tasks);
        if shared { DefaultTest::without_inline(&tests) } else { tests }
    }

    /// The title of the user's own command: the words as typed. What `-x` read may be long, and anything.
    pub(crate) fn command_title(&self) -> String {
        let typed = self.command.len().saturating_sub(usize::from(self.stdin));
        let words = self.command.iter().take(typed).map(|word| word.to_string_lossy());
        let words: Vec<_> = words.chain(self.stdin.then_some(Cow::Borrowed("<stdin>"))).collect();
        let title = printable(&words.join(" ")).to_string();
        let end = title.char_indices().nth(LONGEST_TITLE).map(|(end, _)| end);
        end.map_or_else(|| title.clone(), |end| format!("{}...", &title[..end]))
    }
}
