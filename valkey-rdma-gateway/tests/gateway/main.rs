//! A gateway between clients and a mock server, over all transports that need no device.

#![cfg(feature = "emulated")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ahead;
mod cluster;
mod counters;
mod direct;
mod ends;
mod failures;
mod health;
mod large;
mod listeners;
mod lost;
mod malformed;
mod moved;
mod one_server;
mod operation;
mod overtaking;
mod passwords;
mod places;
mod plain;
mod refused;
mod reset;
mod room;
mod scripted;
mod sentinel;
mod standing;
mod state;
mod support;
mod uncounted;
mod unix_server;
