//! What packages install beside the programs: man pages, shell completions, and the text of `--version`.

use std::process::{Command, Output};

use valkey_rdma_testkit::{Folder, program};

/// Each program, and a flag that nothing else of the program begins with.
const PROGRAMS: [(&str, &str); 5] = [
    ("valkey-rdma-benchmark", "--target-p99"),
    ("valkey-rdma-mock", "--requirepass"),
    ("valkey-rdma-doctor", "--connections"),
    ("valkey-rdma-gateway", "--metrics"),
    ("valkey-rdma-conformance", "--version"),
];

fn run(name: &str, args: &[&str]) -> Output {
    Command::new(program(name, name)).args(args).output().expect("it runs")
}

/// A folder with what all programs generate.
fn generated(test: &str) -> Folder {
    let folder = Folder::new(test);
    for (name, _) in PROGRAMS {
        let output = run(name, &["--generate", &folder.file("")]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty(), "{name} prints nothing");
    }
    folder
}

#[test]
fn the_version_names_origin_and_features() {
    for (name, _) in PROGRAMS {
        let output = run(name, &["--version"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let start = format!("{name} {} (", env!("CARGO_PKG_VERSION"));
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("(working tree, ") || text.contains("(commit "), "{text}");
        let verbs = if cfg!(feature = "verbs") { "features: verbs" } else { "features: none" };
        assert!(text.contains(verbs), "{text}");
    }
}

#[test]
fn each_program_and_each_command_of_it_has_a_man_page() {
    let folder = generated("man");
    for (name, flag) in PROGRAMS {
        let page = folder.read(&format!("man/man1/{name}.1"));
        assert!(page.contains(".SH NAME"), "{page}");
        assert!(page.contains(&flag.replace('-', "\\-")), "{name}: {flag} is not in its page");
    }
    for page in ["doctor-check", "doctor-listen", "gateway-top", "conformance-server", "conformance-client"] {
        folder.read(&format!("man/man1/valkey-rdma-{page}.1"));
    }
}

#[test]
fn shells_complete_flags() {
    let folder = generated("shells");
    for (name, flag) in PROGRAMS {
        let script = folder.file(&format!("bash-completion/completions/{name}"));
        let begun = &flag[..5];
        let function = name.replace('-', "__");
        let complete = format!(
            "source {script}; COMP_WORDS=({name} {begun}); COMP_CWORD=1; _{function} {name} {begun} {name}; echo \"${{COMPREPLY[*]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &complete]).output().expect("bash runs");
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.split_whitespace().any(|word| word == flag), "{name} {begun}: {answer}");
        folder.read(&format!("zsh/site-functions/_{name}"));
        folder.read(&format!("fish/vendor_completions.d/{name}.fish"));
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let output = run("valkey-rdma-mock", &["--generate", "/proc/none"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("error: --generate /proc/none: "), "{error}");
}
