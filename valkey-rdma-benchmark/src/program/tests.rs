//! Tests of more than one module.

mod arguments;
mod emulated;
mod together;
