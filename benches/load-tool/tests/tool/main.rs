//! The tool as a user runs it: exit status, standard output and standard error.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod failures;
mod mock;
mod modes;
mod replies;
mod scripted;
