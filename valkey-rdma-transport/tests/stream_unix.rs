//! `Stream` and `Listener` on the emulated device over Unix sockets.

mod stream;
