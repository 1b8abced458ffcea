//! `--mesh`.

use crate::{LIMIT, free_ports, start};

#[test]
fn three_nodes_check_each_other_and_all_print_the_same_matrix() {
    let list = free_ports::<3>().join(",");
    let mut nodes: Vec<_> = (0..3).map(|_| start(&["--mesh", &list, "--device", "emulated"])).collect();
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
    let ports = free_ports::<3>();
    let list = ports.join(",");
    let args = ["--mesh", &list, "--device", "emulated", "--wait", "2s"];
    let mut nodes = [start(&args), start(&args)];
    for node in &mut nodes {
        let status = node.wait(LIMIT).unwrap();
        let out = node.stdout();
        assert_eq!(status.code(), Some(1), "{out}");
        assert!(out.ends_with("1 of 3 pairs work.\n"), "{out}");
        assert!(out.contains(&format!("FAILED  {} and {}: {0} is not there", ports[2], ports[0])), "{out}");
    }
}
