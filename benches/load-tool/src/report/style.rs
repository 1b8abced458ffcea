//! Emphasis, on terminals only.

use std::fmt;

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anstyle::AnsiColor;

/// Whether text may carry colour and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Text alone.
    Plain,
    /// With escape sequences for a terminal.
    Terminal,
}

impl Style {
    /// The style for `stream`, by the rules of the crate `anstream`: plain unless it is a terminal, and as `NO_COLOR`,
    /// `CLICOLOR`, `CLICOLOR_FORCE` and `TERM` say.
    pub(crate) fn of(stream: &impl RawStream) -> Style {
        match AutoStream::choice(stream) {
            ColorChoice::Never => Style::Plain,
            _ => Style::Terminal,
        }
    }

    /// `text` in bold.
    pub(crate) fn bold<T>(self, text: T) -> Styled<T> {
        self.styled(text, anstyle::Style::new().bold())
    }

    /// `text` in red.
    pub(crate) fn red<T>(self, text: T) -> Styled<T> {
        self.styled(text, AnsiColor::Red.on_default())
    }

    fn styled<T>(self, text: T, style: anstyle::Style) -> Styled<T> {
        let style = if self == Style::Terminal { style } else { anstyle::Style::new() };
        Styled { text, style }
    }
}

/// Text with its emphasis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Styled<T> {
    text: T,
    style: anstyle::Style,
}

impl<T: fmt::Display> fmt::Display for Styled<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.style)?;
        self.text.fmt(out)?;
        write!(out, "{:#}", self.style)
    }
}
