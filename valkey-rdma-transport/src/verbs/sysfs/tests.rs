//! On a made-up `/sys/class`, which is removed at the end.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Machine {
    root: PathBuf,
    inventory: Sysfs,
}

impl Machine {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("valkey-rdma-inventory-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        let inventory = Sysfs { devices: root.join("infiniband"), interfaces: root.join("net") };
        Self { root, inventory }
    }

    fn with(self, file: &str, text: &str) -> Self {
        let file = self.root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
        self
    }

    fn with_port(self, device: &str, number: u8, state: &str) -> Self {
        let port = format!("infiniband/{device}/ports/{number}");
        self.with(&format!("{port}/state"), state).with(&format!("{port}/link_layer"), "Ethernet\n")
    }

    fn with_gid(self, device: &str, index: u32, gid: &str, kind: &str) -> Self {
        let port = format!("infiniband/{device}/ports/1");
        self.with(&format!("{port}/gids/{index}"), gid)
            .with(&format!("{port}/gid_attrs/types/{index}"), kind)
            .with(&format!("{port}/gid_attrs/ndevs/{index}"), "eth7\n")
            .with("net/eth7/ifindex", "7\n")
    }

    fn problem(&self, device: Option<&str>, index: u32) -> GidProblem {
        match self.inventory.gid(device, index) {
            Err(TransportError::Gid { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn roce() -> Machine {
    Machine::new()
        .with_port("rxe0", 1, "4: ACTIVE\n")
        .with_gid("rxe0", 0, "fe80:0000:0000:0000:0211:22ff:fe33:4455\n", "RoCE v2\n")
        .with_gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a00:0001\n", "RoCE v2\n")
        .with_gid("rxe0", 2, "0000:0000:0000:0000:0000:ffff:0a00:0001\n", "IB/RoCE v1\n")
        .with_gid("rxe0", 3, "0000:0000:0000:0000:0000:0000:0000:0000\n", "RoCE v2\n")
}

#[test]
fn a_gid_stands_for_an_address() {
    let machine = roce();
    let gid = machine.inventory.gid(None, 1).expect("an entry");
    assert_eq!(gid.device, "rxe0");
    assert_eq!(gid.addr(5), "10.0.0.1:5".parse().expect("an address"));
    let link_local = machine.inventory.gid(Some("rxe0"), 0).expect("an entry");
    assert_eq!(link_local.addr(5), "[fe80::211:22ff:fe33:4455%7]:5".parse().expect("an address"));
}

#[test]
fn a_gid_and_an_address_chosen_together_must_agree() {
    let gid = roce().inventory.gid(None, 1).expect("an entry");
    gid.must_stand_for([10, 0, 0, 1].into()).expect("the same");
    let text = gid.must_stand_for([10, 0, 0, 2].into()).expect_err("another").to_string();
    for part in ["GID index 1", "rxe0", "10.0.0.1", "10.0.0.2"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_gid_index_that_cannot_be_used_says_why_and_what_can_be() {
    let machine = roce();
    assert_eq!(machine.problem(None, 9), GidProblem::OutOfRange { entries: 4, used: "0, 1, 2".to_owned() });
    assert_eq!(machine.problem(None, 3), GidProblem::Empty { used: "0, 1, 2".to_owned() });
    assert_eq!(machine.problem(None, 2), GidProblem::NotVersion2);
    let known = "rxe0".to_owned();
    assert_eq!(machine.problem(Some("rxe1"), 0), GidProblem::NoSuchDevice { known });
    let machine = roce().with_port("rxe0", 2, "4: ACTIVE\n");
    assert_eq!(machine.problem(None, 1), GidProblem::SeveralPorts { ports: 2 });
    let machine = roce().with_port("rxe1", 1, "4: ACTIVE\n");
    assert_eq!(machine.problem(None, 1), GidProblem::WhichDevice);
    let machine = roce().with("infiniband/rxe0/ports/1/link_layer", "InfiniBand\n");
    assert_eq!(machine.problem(None, 1), GidProblem::NotRoce);
    let nothing = Machine::new().inventory.gid(None, 0);
    assert!(matches!(nothing, Err(TransportError::NoDevice)), "{nothing:?}");
}

#[test]
fn a_port_is_to_blame_only_if_no_other_could_serve() {
    let blamed =
        |machine: &Machine, device| machine.inventory.all_down(device).map(|error| error.to_string());
    let machine = Machine::new();
    assert_eq!(blamed(&machine, None), None);
    let machine = machine.with_port("rxe0", 1, "1: DOWN\n");
    let text = blamed(&machine, None).expect("the only port is down");
    assert!(text.contains("port 1 of RDMA device rxe0 is DOWN"), "{text}");
    let machine = machine.with_port("rxe1", 1, "4: ACTIVE\n");
    assert_eq!(blamed(&machine, None), None);
    assert_eq!(blamed(&machine, Some("rxe0")), Some(text));
    assert_eq!(blamed(&machine, Some("rxe1")), None);
    assert_eq!(blamed(&machine, Some("rxe9")), None);
}
