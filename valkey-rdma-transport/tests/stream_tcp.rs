//! `Stream` and `Listener` on the emulated device over TCP.

mod stream;
