//! Values of a pool on the emulated device over TCP.

mod lending;
