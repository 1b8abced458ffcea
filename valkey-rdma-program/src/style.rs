//! Emphasis, on terminals only.

use std::fmt;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor;

/// Whether text may carry colour and weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text alone.
    Plain,
    /// With escape sequences for a terminal.
    Terminal,
}

impl Style {
    /// The style for `stream`, by the rules of the crate `anstream`: plain unless it is a terminal, and as `NO_COLOR`,
    /// `CLICOLOR`, `CLICOLOR_FORCE` and `TERM` say.
    pub fn of(stream: &impl RawStream) -> Self {
        match AutoStream::choice(stream) {
            ColorChoice::Never => Self::Plain,
            _ => Self::Terminal,
        }
    }

    /// `text` in bold.
    pub fn bold<T: fmt::Display>(self, text: T) -> impl fmt::Display {
        self.styled(text, anstyle::Style::new().bold())
    }

    /// `text` in bold red.
    pub fn red<T: fmt::Display>(self, text: T) -> impl fmt::Display {
        self.styled(text, AnsiColor::Red.on_default().bold())
    }

    /// `text` with this emphasis.
    pub fn styled<T: fmt::Display>(self, text: T, style: anstyle::Style) -> impl fmt::Display {
        let style = if self == Self::Terminal { style } else { anstyle::Style::new() };
        Styled { text, style }
    }
}

struct Styled<T> {
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
