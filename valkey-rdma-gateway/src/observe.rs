//! What a gateway shows of itself: figures, `/metrics` and `/health`, and log lines that are not repeated too often.

pub(crate) mod http;
pub(crate) mod info;
pub(crate) mod metrics;
pub(crate) mod prometheus;
pub(crate) mod refusal_log;
pub(crate) mod seldom;
