//! Emphasis, on terminals only.

use std::fmt;
use std::io::IsTerminal;

/// Whether text may carry colour and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Text alone.
    Plain,
    /// With escape sequences for a terminal.
    Terminal,
}

impl Style {
    /// The style for `stream`: plain unless it is a terminal, and plain if `NO_COLOR` is set.
    pub(crate) fn of(stream: &impl IsTerminal) -> Style {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if stream.is_terminal() && !unwanted { Style::Terminal } else { Style::Plain }
    }

    /// `text` in bold.
    pub(crate) fn bold<T>(self, text: T) -> Styled<T> {
        Styled { text, code: "1", style: self }
    }

    /// `text` in red.
    pub(crate) fn red<T>(self, text: T) -> Styled<T> {
        Styled { text, code: "31", style: self }
    }
}

/// Text with its emphasis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Styled<T> {
    text: T,
    code: &'static str,
    style: Style,
}

impl<T: fmt::Display> fmt::Display for Styled<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.style {
            Style::Plain => self.text.fmt(out),
            Style::Terminal => {
                write!(out, "\x1b[{}m", self.code)?;
                self.text.fmt(out)?;
                out.write_str("\x1b[0m")
            }
        }
    }
}
