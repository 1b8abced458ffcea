//! What the load tool and the micro-benchmarks share.
