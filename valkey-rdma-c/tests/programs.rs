//! Programs in C and Python talk over the library, to the mock and to themselves.

use std::path::PathBuf;
use std::process::{Command, Output};

use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

/// The library, as built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("libvalkey_rdma.so")
}

fn here(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Builds the C program of `tests/`, and runs it.
fn ping(url: &str) -> Output {
    let program =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ping-{:?}", std::thread::current().id()));
    let library = library();
    let folder = library.parent().expect("a file is in a folder");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(here("tests/ping.c"));
    compile.arg("-I").arg(here("include")).arg("-L").arg(folder).arg("-lvalkey_rdma");
    compile.arg(format!("-Wl,-rpath,{}", folder.display()));
    let compiled = compile.output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Command::new(program).arg(url).output().expect("the program starts")
}

fn python(arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(here("tests/sockets.py")).arg(library()).args(arguments);
    command.output().expect("python3")
}

fn printed(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// A mock in a process of its own thread, and its URL.
fn with_mock(run: impl FnOnce(&str)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let starting = async {
        let config = TransportConfig::default();
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &config).start().await
    };
    let server = runtime.block_on(starting).expect("the mock");
    let url = server.urls().next().expect("a URL").to_string();
    run(&url);
    runtime.block_on(server.shutdown());
}

#[test]
fn a_c_program_talks_to_a_server() {
    with_mock(|url| assert_eq!(printed(&ping(url)), "+PONG\r\n"));
}

#[test]
fn python_sockets_talk_to_a_server() {
    with_mock(|url| assert_eq!(printed(&python(&[url])), "+OK\n300000 bytes, as sent\n"));
}

#[test]
fn python_sockets_talk_to_each_other() {
    assert_eq!(printed(&python(&["listen", "emulated://127.0.0.1:0"])), "as if it were TCP\n");
}

#[test]
fn errors_say_what_is_wrong() {
    for (url, wrong) in
        [("emulated://127.0.0.1:1", "refused"), ("rdma//10.0.0.1", "not a URL"), ("ftp://10.0.0.1", "ftp")]
    {
        let output = ping(url);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(wrong), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let output = python(&["listen", "emulated://localhost:0"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("not an IP address"), "{text}");
}
