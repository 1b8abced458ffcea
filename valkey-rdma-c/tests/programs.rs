//! Programs in C and Python talk over the library, to the mock and to themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use valkey_rdma_mock::{Address, DeviceKind, Mock, Server, ServerTls, TransportConfig};
use valkey_rdma_testkit::Authority;

/// A folder where the library of this build is installed, as a packager does it.
fn installed() -> &'static Path {
    static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("installed");
        printed(&install(&folder).output().expect("a shell"));
        folder
    });
    &INSTALLED
}

/// Installs the library of this build.
fn install(prefix: &Path) -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let mut install = Command::new(here("install.sh"));
    install.arg(test.parent().expect("a file is in a folder")).arg(prefix);
    install.env_remove("DESTDIR").env_remove("LIBDIR");
    install
}

fn here(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Builds the C program `name` of `tests/`, and runs it.
fn c(name: &str, arguments: &[&str]) -> Output {
    let program =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:?}", std::thread::current().id()));
    let lib = installed().join("lib");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(here(&format!("tests/{name}.c")));
    compile.arg("-I").arg(installed().join("include")).arg("-L").arg(&lib).arg("-lvalkey_rdma");
    compile.arg(format!("-Wl,-rpath,{}", lib.display()));
    let compiled = compile.output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // Cargo sets this to folders with a library of another build.
    Command::new(program).args(arguments).env_remove("LD_LIBRARY_PATH").output().expect("the program starts")
}

fn python(arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(here("tests/sockets.py")).arg(installed().join("lib/libvalkey_rdma.so.0")).args(arguments);
    command.output().expect("python3")
}

fn printed(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// A mock in a thread of its own, and its URL.
fn with_mock(run: impl FnOnce(&str)) {
    with_urls(|emulated, _| run(emulated));
}

/// The same, with its URL for TCP beside it.
fn with_urls(run: impl FnOnce(&str, &str)) {
    with_addresses(|address| address, run);
}

/// The same with TLS, and the certificate of the issuer.
fn with_tls(run: impl FnOnce(&str, &str, &str)) {
    let authority = Authority::new("issuer");
    let pair = authority.issue(&["127.0.0.1"]);
    let tls = ServerTls::new(pair.cert, pair.key);
    let ca = authority.ca();
    with_addresses(
        |address| address.tls(tls.clone()),
        |emulated, tcp| run(emulated, tcp, ca.to_str().expect("UTF-8")),
    );
}

fn with_addresses(encrypted: impl Fn(Address) -> Address, run: impl FnOnce(&str, &str)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let starting = async {
        let emulated = Address::rdma(DeviceKind::Emulated, any, &TransportConfig::default());
        let builder = Server::builder(Mock::new()).listen(encrypted(emulated));
        builder.listen(encrypted(Address::tcp(any))).start().await
    };
    let server = runtime.block_on(starting).expect("the mock");
    let urls: Vec<_> = server.urls().collect();
    let url = |scheme| urls.iter().find(|url| url.starts_with(scheme)).expect("a URL");
    run(url("emulated"), url("valkey"));
    runtime.block_on(server.shutdown());
}

#[test]
fn a_c_program_talks_to_a_server() {
    with_mock(|url| assert_eq!(printed(&c("ping", &[url])), "+PONG\r\n"));
}

#[test]
fn python_sockets_talk_to_a_server() {
    with_mock(|url| assert_eq!(printed(&python(&[url])), "+OK\n300000 bytes, as sent\n"));
}

#[test]
fn python_sockets_talk_to_each_other() {
    assert_eq!(
        printed(&python(&["listen", "emulated://127.0.0.1:0"])),
        "as if it were TCP\nthe listener was stopped\n"
    );
}

#[test]
fn signals_are_for_the_program() {
    with_mock(|url| assert_eq!(printed(&c("process", &["signals", url])), "the program has the signal\n"));
}

#[test]
fn a_forked_child_connects_itself() {
    with_mock(|url| assert_eq!(printed(&c("process", &["fork", url])), "both are connected\n"));
}

#[test]
fn a_forked_child_does_not_keep_what_its_parent_closes() {
    with_mock(|url| assert_eq!(printed(&c("process", &["hold", url])), "the parent has closed\n"));
}

#[test]
fn children_forked_while_threads_connect_can_connect() {
    // Not over the emulated device, whose directories children inherit.
    with_urls(|_, tcp| {
        assert_eq!(printed(&c("process", &["storm", tcp])), "all children have connected\n");
    });
}

#[test]
fn a_listener_belongs_to_the_process_that_made_it() {
    assert_eq!(
        printed(&c("process", &["listen", "emulated://127.0.0.1:0?device=tcp"])),
        "the parent listens\n"
    );
}

#[test]
fn a_destructor_of_a_thread_may_call_the_library() {
    assert_eq!(printed(&c("process", &["thread", "-"])), "the thread has ended\n");
}

#[test]
fn closing_twice_is_an_error() {
    with_mock(|url| {
        let error = printed(&c("process", &["close", url]));
        assert!(error.contains("not open"), "{error}");
    });
}

#[test]
fn a_connection_says_what_it_is() {
    with_mock(|url| {
        let expected = format!(
            "emulated to {}, device tcp, by {}\n",
            url.trim_start_matches("emulated://"),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(printed(&c("process", &["describe", url])), expected);
    });
}

#[test]
fn the_bytes_of_an_encrypted_connection_are_plain_at_the_descriptor() {
    with_tls(|emulated, tcp, ca| {
        for url in [emulated, tcp] {
            let with_ca = format!("{url}?ca={ca}");
            assert_eq!(printed(&c("ping", &[&with_ca])), "+PONG\r\n");
            assert_eq!(printed(&python(&[&with_ca])), "+OK\n300000 bytes, as sent\n");
            // Closing delivers all.
            assert_eq!(printed(&c("process", &["signals", &with_ca])), "the program has the signal\n");
            let described = printed(&c("process", &["describe", &with_ca]));
            assert!(described.contains(", TLS 1.3 TLS_"), "{described}");
            let untrusted = c("ping", &[url]);
            let error = String::from_utf8_lossy(&untrusted.stderr);
            assert!(untrusted.status.code() == Some(1) && error.contains("issuer"), "{error}");
        }
    });
}

#[test]
fn listeners_for_tls_are_refused() {
    let output = python(&["listen", "emulateds://127.0.0.1:0"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot listen with TLS here"), "{error}");
}

#[test]
fn listeners_refuse_what_they_would_ignore() {
    for (url, wrong) in [
        ("emulated://:secret@127.0.0.1:0", "with a login"),
        ("emulated://secret:secret@127.0.0.1:0?device=tcp", "with a login"),
        ("emulated://127.0.0.1:0?password_file=/run/secret", "with a login"),
        ("emulated://127.0.0.1:0/3", "with a database"),
        ("emulated://127.0.0.1:0?fallback=tcp", "use rx_size, send_buffer, poll, device, gid or source"),
        (
            "emulated://127.0.0.1:0?device=tcp&timeout=1s",
            "use rx_size, send_buffer, poll, device, gid or source",
        ),
        ("emulated://127.0.0.1:0?protocol=resp3", "use rx_size, send_buffer, poll, device, gid or source"),
        ("emulated+cluster://127.0.0.1:7000", "for a cluster or Sentinels"),
        ("emulated+sentinel://127.0.0.1:7000/127.0.0.1", "for a cluster or Sentinels"),
    ] {
        let output = python(&["listen", url]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(wrong), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn packagers_find_the_library() {
    let config =
        std::fs::read_to_string(installed().join("lib/pkgconfig/valkey_rdma.pc")).expect("installed");
    assert!(config.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{config}");
    assert!(config.contains(&format!("prefix={}\n", installed().display())), "{config}");
    let lib = installed().join("lib");
    for name in ["libvalkey_rdma.so", "libvalkey_rdma.so.0"] {
        let file = lib.join(name).canonicalize().expect("a link to a file");
        assert_eq!(
            file.file_name().and_then(|name| name.to_str()),
            Some(concat!("libvalkey_rdma.so.", env!("CARGO_PKG_VERSION")))
        );
    }
    let package = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("package");
    for (libdir, folder, in_config) in
        [("/usr/lib64", "usr/lib64", "/usr/lib64"), ("lib/arch", "usr/lib/arch", "${prefix}/lib/arch")]
    {
        // What an earlier run of this test has left would hide what this one does not install.
        let _ = std::fs::remove_dir_all(&package);
        let mut packaging = install(Path::new("/usr"));
        printed(&packaging.env("DESTDIR", &package).env("LIBDIR", libdir).output().expect("a shell"));
        let folder = package.join(folder);
        assert!(folder.join("libvalkey_rdma.so").exists(), "{libdir}");
        let config = std::fs::read_to_string(folder.join("pkgconfig/valkey_rdma.pc")).expect("installed");
        assert!(config.contains(&format!("prefix=/usr\nlibdir={in_config}\n")), "{config}");
    }
    let refused = install(Path::new("usr")).env("DESTDIR", &package).output().expect("a shell");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("absolute path, such as /usr, and is usr"), "{error}");
}

#[test]
fn errors_say_what_is_wrong() {
    for (url, wrong) in
        [("emulated://127.0.0.1:1", "refused"), ("rdma//10.0.0.1", "not a URL"), ("ftp://10.0.0.1", "ftp")]
    {
        let output = c("ping", &[url]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(wrong), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let output = python(&["listen", "emulated://localhost:0"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("not an IP address"), "{text}");
}
