//! [`labels`]: the labels of a sample for Prometheus.

use std::fmt::{Display, Write};

/// `{name="value",...}` as Prometheus' text format wants it: `\`, `"` and line feeds in values are escaped. Without that, one value
/// makes Prometheus refuse all metrics of the gateway.
pub(crate) fn labels(pairs: &[(&str, &dyn Display)]) -> String {
    let mut text = String::from("{");
    for (at, (name, value)) in pairs.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let value = value.to_string().replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        for (value, expected) in [
            ("rdma://h:1", r#"{server="rdma://h:1"}"#),
            (r#"a"b"#, r#"{server="a\"b"}"#),
            (r"a\b", r#"{server="a\\b"}"#),
            (r"a\nb", r#"{server="a\\nb"}"#),
            ("a\nb", r#"{server="a\nb"}"#),
            ("\\\"\n", r#"{server="\\\"\n"}"#),
        ] {
            assert_eq!(labels(&[("server", &value)]), expected);
        }
        assert_eq!(labels(&[("server", &"h"), ("quantile", &0.5)]), r#"{server="h",quantile="0.5"}"#);
    }
}
