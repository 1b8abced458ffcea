//! Spans of calls and connects, with the names of OpenTelemetry's
//! [conventions for databases](https://opentelemetry.io/docs/specs/semconv/db/redis/): `tracing-opentelemetry` exports them as they are.
//!
//! A call opens its span where the program makes it, so that the span covers every try, and closes it when the caller has the reply. What
//! carries the call out reports the connection that it used ([`used`]). Tasks that drive connections never hold a span of a call.
//!
//! Without the feature `spans`, everything here is empty: [`off`](self) has the same functions, which do nothing.

#[cfg(feature = "spans")]
mod call;
#[cfg(feature = "spans")]
mod failure;
#[cfg(not(feature = "spans"))]
mod off;

#[cfg(feature = "spans")]
pub(crate) use self::call::{Call, connect, used};
#[cfg(not(feature = "spans"))]
pub(crate) use self::off::{Call, connect, used};

/// The target of the spans, and of what happens to a call: a filter by this name chooses them alone. Their level is DEBUG, so that
/// programs that log up to INFO do not pay for them.
pub(crate) const TARGET: &str = "valkey_rdma_client::spans";

/// How commands go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Without a promise that no others come between.
    Pipeline,
    /// From MULTI to EXEC.
    Transaction,
}
