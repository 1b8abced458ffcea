//! The text of `--version`.

/// The version of the calling crate, with the commit and those of the named features that it is built with:
/// `0.1.0 (commit 0a1b2c3d4e5f, features: verbs)`.
///
/// Pass it to clap as `#[command(version = valkey_rdma_program::version!("verbs"))]`.
#[macro_export]
macro_rules! version {
    ($($feature:literal),* $(,)?) => {{
        static TEXT: ::std::sync::LazyLock<::std::string::String> = ::std::sync::LazyLock::new(|| {
            $crate::version_text(
                env!("CARGO_PKG_VERSION"),
                &[$(($feature, cfg!(feature = $feature))),*],
                cfg!(debug_assertions),
            )
        });
        TEXT.as_str()
    }};
}

/// The text for a crate of this version, with features that are on or off.
#[must_use]
pub fn text(version: &str, features: &[(&str, bool)], debug: bool) -> String {
    let origin = match option_env!("VALKEY_RDMA_COMMIT_FOUND") {
        Some(commit) => format!("commit {commit}"),
        None => "working tree".to_owned(),
    };
    let on: Vec<&str> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let features = if on.is_empty() { "none".to_owned() } else { on.join(" ") };
    let profile = if debug { ", debug build" } else { "" };
    format!("{version} ({origin}, features: {features}{profile})")
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn the_version_names_the_features_that_are_on() {
        let text = text("1.2.3", &[("verbs", true), ("rdma-sys", false), ("emulated", true)], false);
        assert!(text.starts_with("1.2.3 ("), "{text}");
        assert!(text.ends_with(", features: verbs emulated)"), "{text}");
    }

    #[test]
    fn a_build_without_features_says_so() {
        let text = text("1.2.3", &[("verbs", false)], true);
        assert!(text.ends_with(", features: none, debug build)"), "{text}");
    }
}
