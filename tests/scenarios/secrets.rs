//! No program prints a part of a password that stands in a wrong URL, or in a URL in a wrong place.

use std::fs;
use std::process::Command;
use std::time::Duration;

use valkey_rdma_testkit::{Child, Folder, program};

/// Wrong URLs, and the secrets in each. No three characters in a row of a secret stand in any text of the programs.
const URLS: [(&str, &[&str]); 35] = [
    // Separators that are not escaped.
    ("rdma://u:Zq7?Xw4Kv@127.0.0.1:1", &["Zq7?Xw4Kv"]),
    ("rdma://u:Zq7Xw4?password9Kv@127.0.0.1:1", &["Zq7Xw4", "9Kv"]),
    ("rdma://u:Zq7#Xw4Kv@127.0.0.1:1", &["Zq7#Xw4Kv"]),
    ("rdma://u:Zq7/Xw4Kv@127.0.0.1:1", &["Zq7/Xw4Kv"]),
    ("rdma://u:Zq7Xw4@Jy8Hd5/Gb3@127.0.0.1:1", &["Zq7Xw4@Jy8Hd5/Gb3"]),
    ("rdma://u:Zq7Xw4?Jy8@Hd5Gb3@127.0.0.1:1", &["Zq7Xw4?Jy8@Hd5Gb3"]),
    ("rdma://u:123/Zq7Xw4@127.0.0.1:1", &["Zq7Xw4"]),
    ("rdma://u:Zq7Xw4://Jy8Hd5@127.0.0.1:1", &["Zq7Xw4", "Jy8Hd5"]),
    ("rdma://u:Zq7 Xw4Kv@127.0.0.1:x", &["Zq7 Xw4Kv"]),
    ("rdma://u:Zq7\"Xw4Kv\\Jy8@127.0.0.1:x", &["Zq7\"Xw4Kv\\Jy8"]),
    // The host is missing.
    ("rdma://u:Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:Zq7Xw4Kv@", &["Zq7Xw4Kv"]),
    ("rdma://u:Zq7Xw4Kv@:1", &["Zq7Xw4Kv"]),
    ("rdma://:/Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:/Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:?Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:1/Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:1?Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    // Percent signs.
    ("rdma://u:Zq7%Xw4Kv@127.0.0.1:1", &["Zq7%Xw4Kv"]),
    ("rdma://u:Zq7%FFXw4Kv@127.0.0.1:1", &["Zq7", "Xw4Kv"]),
    // Other schemes, ports, databases and users.
    ("http://u:Zq7Xw4Kv@127.0.0.1:1", &["Zq7Xw4Kv"]),
    // TLS: half of a pair of files, and redis-rs's way to verify nothing.
    ("rediss://u:Zq7Xw4Kv@127.0.0.1:1?cert=/x", &["Zq7Xw4Kv"]),
    ("rediss://u:Zq7Xw4Kv@127.0.0.1:1#insecure", &["Zq7Xw4Kv"]),
    ("u:Zq7Xw4Kv@127.0.0.1:1", &["Zq7Xw4Kv"]),
    ("u:Zq7Xw4://Kv3@127.0.0.1:1", &["Zq7Xw4", "Kv3"]),
    ("rdma://u:Zq7Xw4Kv@127.0.0.1:99999", &["Zq7Xw4Kv"]),
    ("rdma://u:Zq7Xw4Kv@127.0.0.1:1/first", &["Zq7Xw4Kv"]),
    ("rdma://Zq7Xw4Kv@127.0.0.1:1", &["Zq7Xw4Kv"]),
    // Options.
    ("rdma://127.0.0.1:1?pass=Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://127.0.0.1:1?password=Zq7Xw4Kv", &["Zq7Xw4Kv"]),
    ("rdma://u:Zq7Xw4Kv@127.0.0.1:1?sentinel_password=Jy8Hd5Gb", &["Zq7Xw4Kv", "Jy8Hd5Gb"]),
    // Sentinels, with a second login.
    ("rdma+sentinel://u:Zq7Xw4Kv@127.0.0.1:1/m?sentinel_pass=Jy8Hd5Gb", &["Zq7Xw4Kv", "Jy8Hd5Gb"]),
    ("rdma+sentinel://u:Zq7Xw4Kv@127.0.0.1:1/m?sentinel_password=Jy8@Hd5Gb", &["Zq7Xw4Kv", "Jy8@Hd5Gb"]),
    ("rdma+sentinel://u:Zq7Xw4Kv@127.0.0.1:1?sentinel_password=Jy8Hd5Gb", &["Zq7Xw4Kv", "Jy8Hd5Gb"]),
    ("rdma+sentinel://u:Zq7#Xw4@127.0.0.1:1/m?sentinel_password=Jy8#Hd5Gb&gid=x", &["Zq7#Xw4", "Jy8#Hd5Gb"]),
];

/// Where URLs are given, rightly or not. `URL` stands for it.
const LINES: &[(&str, &[&str])] = &[
    ("valkey-rdma-gateway", &["--check", "--listen", "unix:/tmp/x", "--server", "URL"]),
    ("valkey-rdma-gateway", &["--check", "--listen", "URL", "--server", "rdma://h"]),
    (
        "valkey-rdma-gateway",
        &["--check", "--listen", "unix:/tmp/x", "--cluster", "--server", "rdma://h", "--server", "URL"],
    ),
    (
        "valkey-rdma-gateway",
        &["--check", "--listen", "unix:/tmp/x", "--server", "rdma://h", "--metrics", "URL"],
    ),
    (
        "valkey-rdma-gateway",
        &["--check", "--listen", "unix:/tmp/x", "--server", "rdma://h", "--share", "URL"],
    ),
    ("valkey-rdma-gateway", &["top", "--once", "URL"]),
    ("valkey-rdma-gateway", &["URL"]),
    ("valkey-rdma-mock", &["--bind", "URL"]),
    ("valkey-rdma-mock", &["--port", "0", "--device", "emulated", "--proxy", "URL"]),
    ("valkey-rdma-mock", &["--port", "0", "--device", "emulated", "--faults", "URL"]),
    ("valkey-rdma-mock", &["--device", "URL"]),
    ("valkey-rdma-mock", &["URL"]),
    ("valkey-rdma-benchmark", &["--url", "URL", "-t", "ping", "-n", "1"]),
    ("valkey-rdma-benchmark", &["--url", "rdma://h", "--compare", "URL", "-t", "ping", "-n", "1"]),
    ("valkey-rdma-benchmark", &["-p", "URL"]),
    ("valkey-rdma-benchmark", &["--rdma", "--poll", "URL", "-t", "ping", "-n", "1"]),
    ("valkey-rdma-benchmark", &["-h", "URL", "-t", "ping", "-n", "1", "--reply-timeout", "1"]),
    ("valkey-rdma-benchmark", &["--rdma", "-h", "URL", "-t", "ping", "-n", "1", "--reply-timeout", "1"]),
    ("valkey-rdma-doctor", &["--url", "URL"]),
    ("valkey-rdma-doctor", &["check", "URL"]),
    ("valkey-rdma-doctor", &["check", "127.0.0.1:1", "URL"]),
    ("valkey-rdma-doctor", &["listen", "URL"]),
    ("valkey-rdma-doctor", &["--mesh", "127.0.0.1:1,URL"]),
    ("valkey-rdma-doctor", &["--host", "URL"]),
    ("valkey-rdma-doctor", &["URL"]),
    ("valkey-rdma-conformance", &["server", "URL"]),
    ("valkey-rdma-conformance", &["server", "--patience", "URL", "rdma://h"]),
    ("valkey-rdma-conformance", &["client", "--bind", "URL", "--", "true"]),
];

/// What a program prints, which must not run for long with a wrong URL. One that serves is stopped.
fn printed(name: &str, args: &[String]) -> String {
    let mut child = Child::start(Command::new(program(name, name)).args(args)).expect("it starts");
    child.wait(Duration::from_secs(60)).unwrap_or_else(|error| panic!("{name} {args:?}: {error}"));
    child.printed().join("\n")
}

/// A secret's part of three characters that a text has.
fn leak<'a>(text: &str, secrets: &[&'a str]) -> Option<&'a str> {
    let parts = secrets.iter().flat_map(|secret| (3..=secret.len()).map(|end| &secret[end - 3..end]));
    parts.into_iter().find(|part| text.contains(part))
}

#[test]
fn no_program_prints_a_part_of_a_password() {
    let mut leaks = Vec::new();
    for (name, line) in LINES {
        for (url, secrets) in URLS {
            let args: Vec<_> = line.iter().map(|arg| arg.replace("URL", url)).collect();
            let text = printed(name, &args);
            assert!(!text.is_empty(), "{name} {args:?} says nothing");
            if let Some(part) = leak(&text, secrets) {
                leaks.push(format!("{name} {args:?} prints {part:?}: {text}"));
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}

/// A file of the gateway's configuration. `URL` stands for one.
const FILES: [&str; 9] = [
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = URL\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = ['rdma://h', URL]\ncluster = true\n",
    "[[route]]\nlisten = [URL]\nserver = 'rdma://h'\n",
    "metrics = URL\n[[route]]\nlisten = ['unix:/tmp/x']\nserver = 'rdma://h'\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = 'rdma://h'\nshare = URL\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = 'rdma://h'\ncluster = URL\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = URL\n\n[limits]\nclients = URL\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = URL URL\n",
    "[[route]]\nlisten = ['unix:/tmp/x']\nserver = { url = URL }\n",
];

#[test]
fn no_part_of_a_password_in_a_configuration_is_printed() {
    let mut leaks = Vec::new();
    let folder = Folder::new("secrets");
    let path = folder.file("gateway.toml");
    for file in FILES {
        for (url, secrets) in URLS {
            // TOML's strings have the escapes of Rust's.
            let text = file.replace("URL", &format!("{url:?}"));
            fs::write(&path, &text).expect("written");
            let args = ["--check", "--config", &path].map(str::to_owned);
            let printed = printed("valkey-rdma-gateway", &args);
            assert!(printed.contains("error: "), "{text} is accepted: {printed}");
            if let Some(part) = leak(&printed, secrets) {
                leaks.push(format!("{text} prints {part:?}: {printed}"));
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}
