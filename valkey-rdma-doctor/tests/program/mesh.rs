//! `--mesh`.

use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_doctor::fabric::{Matrix, Node, Options};
use valkey_rdma_testkit::{ReservedPort, Signal};
use valkey_rdma_transport::DeviceKind;

use crate::{LIMIT, start};

/// The addresses of a mesh, with what keeps them for its nodes.
fn list<const N: usize>() -> ([ReservedPort; N], [SocketAddr; N]) {
    let ports = [(); N].map(|()| ReservedPort::new());
    let list = ports.each_ref().map(ReservedPort::addr);
    (ports, list)
}

fn joined(list: &[SocketAddr]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn an_interrupt_says_what_becomes_of_the_mesh() {
    let (_ports, list) = list::<2>();
    let mut child = start(&["--mesh", &joined(&list), "--device", "emulated", "--wait", "1h", "--json"]);
    // It listens when the port accepts.
    let first = list[0];
    valkey_rdma_testkit::wait_until("it listens", LIMIT, || std::net::TcpStream::connect(first).is_ok());
    child.signal(Signal::INT);
    assert_eq!(child.wait(LIMIT).unwrap().code(), Some(130));
    assert!(child.stderr().contains("so the mesh ends"), "{}", child.stderr());
    let json: serde_json::Value = serde_json::from_str(&child.stdout()).unwrap();
    assert_eq!((&json["works"], json["nodes"].as_array().map(Vec::len)), (&false.into(), Some(2)));
}

#[tokio::test]
async fn pairs_that_were_checked_stay_when_a_node_is_dropped() {
    let (_ports, list) = list::<3>();
    let options =
        Options { kind: DeviceKind::Emulated, time: Duration::from_millis(1), ..Options::default() };
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::join(&list, &options).await.unwrap());
    }
    let [first, second, third] = <[Node; 3]>::try_from(nodes).ok().unwrap();
    assert_eq!(third.number(), 2);
    let mut matrix = Matrix::new(list.to_vec());
    let (begun, mut last_pair) = tokio::sync::mpsc::unbounded_channel();
    let progress = |done: usize, _: usize, _: &str| {
        if done == 2 {
            let _ = begun.send(());
        }
    };
    let (mut of_second, mut of_third) = (Matrix::new(list.to_vec()), Matrix::new(list.to_vec()));
    // The first node is dropped when two of three pairs are checked.
    tokio::select! {
        biased;
        _ = last_pair.recv() => {}
        _ = first.run(LIMIT, &mut matrix, &progress) => {}
        _ = second.run(LIMIT, &mut of_second, &|_, _, _| {}) => {}
        _ = third.run(LIMIT, &mut of_third, &|_, _, _| {}) => {}
    }
    assert_eq!(matrix.links.len(), 2);
    assert!(!matrix.works());
    assert!(matrix.text().ends_with("2 of 3 pairs work.\n"), "{}", matrix.text());
}

#[test]
fn three_nodes_check_each_other_and_all_print_the_same_matrix() {
    let (_ports, list) = list::<3>();
    let args = ["--mesh", &joined(&list), "--device", "emulated"];
    let mut nodes: Vec<_> = (0..3).map(|_| start(&args)).collect();
    let mut texts = Vec::new();
    for node in &mut nodes {
        let status = node.wait(LIMIT).unwrap();
        assert_eq!(status.code(), Some(0), "{}", node.tail());
        texts.push(node.stdout());
    }
    assert!(texts[0].ends_with("3 of 3 pairs work.\n"), "{}", texts[0]);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
}

#[test]
fn a_missing_node_is_named_and_the_others_are_checked() {
    let (_ports, list) = list::<3>();
    let args = ["--mesh", &joined(&list), "--device", "emulated", "--wait", "2s"];
    let mut nodes = [start(&args), start(&args)];
    for node in &mut nodes {
        let status = node.wait(LIMIT).unwrap();
        let out = node.stdout();
        assert_eq!(status.code(), Some(1), "{out}");
        assert!(out.ends_with("1 of 3 pairs work.\n"), "{out}");
        assert!(out.contains(&format!("FAILED  {} and {}: {0} is not there", list[2], list[0])), "{out}");
    }
}

/// Without the reason, such a node would wait for as long as the whole mesh may take.
#[test]
fn a_node_with_another_list_is_sent_away() {
    let (_ports, [first, second, third]) = list::<3>();
    let join =
        |list: &[SocketAddr]| start(&["--mesh", &joined(list), "--device", "emulated", "--wait", "1h"]);
    let _nodes = [first, second].map(|addr| {
        let node = join(&[first, second, third]);
        valkey_rdma_testkit::wait_until("it listens", LIMIT, || std::net::TcpStream::connect(addr).is_ok());
        node
    });
    for other in [&[second, first, third][..], &[first, third]] {
        let mut node = join(other);
        assert_eq!(node.wait(LIMIT).unwrap().code(), Some(1), "{}", node.tail());
        assert!(node.stderr().contains("give all nodes the same list"), "{}", node.stderr());
    }
}
