//! What the gateway reads of a command: where it ends, its name, and what follows from it.

pub(crate) mod class;
pub(crate) mod direct;
pub(crate) mod hello;
pub(crate) mod reader;
pub(crate) mod words;
