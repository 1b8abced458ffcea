//! The release whose replies the mock imitates.

/// The version of that release.
pub(crate) const VALKEY_VERSION: &str = "9.1.2";

/// The version that this release reports to clients that know only Redis.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
