//! Values of a pool on the emulated device over Unix sockets.

mod lending;
