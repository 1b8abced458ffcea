//! `--url` with a password that is not in it, and Unix sockets.

use std::net::SocketAddr;

use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Child, Folder};

use super::{LIMIT, command};

/// Runs the program to its end, without the variables that have passwords: exit status, standard output, standard error.
fn run(args: &[&str], variable: Option<(&str, &str)>) -> (Option<i32>, String, String) {
    let mut command = command(args);
    for name in ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"] {
        command.env_remove(name);
    }
    command.envs(variable);
    let mut child = Child::start(&mut command).unwrap();
    let status = child.wait(LIMIT).unwrap();
    (status.code(), child.stdout(), child.stderr())
}

async fn server() -> (Server, String) {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let server = Server::builder(Mock::new().requirepass("s3cret")).tcp(any).start().await.unwrap();
    let url = format!("valkey://{}", server.listening()[0].addr);
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_comes_from_a_variable_or_a_file() {
    let (_server, url) = server().await;
    let folder = Folder::new("password");
    let file = folder.file("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let (status, out, _) = run(&["--url", &url], None);
    assert_eq!(status, Some(1), "{out}");
    for name in ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"] {
        let (status, out, err) = run(&["--url", &url], Some((name, "s3cret")));
        assert_eq!(status, Some(0), "{out}{err}");
        assert!(!out.contains("s3cret"), "{out}");
    }
    let from_file = ["--url", &url, "--user", "default", "--password-file", &file];
    let (status, out, err) = run(&from_file, Some(("VALKEY_RDMA_PASSWORD", "another")));
    assert_eq!(status, Some(0), "{out}{err}");
    for (text, problem) in [
        (String::new(), "it is empty"),
        ("s3cret\nmore\n".to_owned(), "it is more than one line"),
        ("x".repeat(5000), "it is longer than 4096 bytes"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (status, _, err) = run(&from_file, None);
        assert!(status == Some(2) && err.contains(problem) && err.contains(&file), "{err}");
    }
    let (status, _, err) = run(&["--url", &url, "--user", "app"], None);
    assert!(status == Some(2) && err.contains("--user needs a password"), "{err}");
    let with_login = url.replace("://", "://app:s3cret@");
    let (status, _, err) = run(&["--url", &with_login, "--user", "app"], None);
    assert!(status == Some(2) && err.contains("--url has a login") && !err.contains("s3cret"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_is_examined() {
    let (server, _) = server().await;
    let folder = Folder::new("socket");
    let path = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let addr = server.listening()[0].addr;
    let forward = tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let mut there = tokio::net::TcpStream::connect(addr).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        }
    });
    let url = format!("unix:{}", path.display());
    let (status, out, err) = run(&["--url", &url], Some(("VALKEY_RDMA_PASSWORD", "s3cret")));
    assert!(
        status == Some(0) && out.contains("hello") && out.contains(&format!("{url} answers.")),
        "{out}{err}"
    );
    let (status, out, err) = run(&["--url", &url], Some(("VALKEY_RDMA_PASSWORD", "wrong")));
    assert!(
        status == Some(1) && out.contains("WRONGPASS") && !out.contains("localhost") && !out.contains("tcp"),
        "{out}{err}"
    );
    forward.abort();
    std::fs::remove_file(&path).unwrap();
    let (status, out, err) = run(&["--url", &url], None);
    assert!(
        status == Some(1) && out.contains("No such file") && out.contains("cannot be used."),
        "{out}{err}"
    );
}
