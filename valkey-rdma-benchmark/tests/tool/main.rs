//! The tool as a user runs it: exit status, standard output and standard error.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod direct;
mod encrypted;
mod evidence;
mod failures;
mod keys_and_login;
mod mock;
mod modes;
mod page;
mod replies;
mod scripted;
