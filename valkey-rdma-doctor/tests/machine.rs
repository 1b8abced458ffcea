//! What the doctor says of whole machines. Each is a folder of files in the form of `tests/machines/NAME.tree`, a line a
//! file; what it has to say is in `NAME.txt`, to the letter. `VALKEY_RDMA_RECORD=1` writes those anew, to be read and judged.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use valkey_rdma_doctor::machine::{
    HostProbe, Probes, Root, Route, Trial, Tried, Wishes, addresses_to_try, conclusion, examine,
};
use valkey_rdma_doctor::{Report, Style, Verdict};

fn fixture(name: &str, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.{kind}"))
}

/// Makes the files of `NAME.tree` and of those it includes. Lines are `include NAME`, `PATH = TEXT` (with `\n` for a
/// line's end), or `PATH -> TARGET`.
fn plant(folder: &Path, name: &str) {
    let text = fs::read_to_string(fixture(name, "tree")).expect("a tree");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(other) = line.strip_prefix("include ") {
            plant(folder, other);
            continue;
        }
        let link = line.split_once(" -> ");
        let (path, content) =
            link.or_else(|| line.split_once(" = ")).expect("`PATH = TEXT` or `PATH -> TARGET`");
        let path = folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        // A later line wins.
        let _ = fs::remove_file(&path);
        match link {
            Some(_) => symlink(content, &path).expect("a link"),
            None => fs::write(&path, content.replace("\\n", "\n")).expect("a file"),
        }
    }
}

/// Judges the machine `name` with what was tried on it, and compares with the text that is expected.
fn examined(name: &str, probes: &Probes) -> Report {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machine-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    plant(&folder, name);
    let report = examine(&Root::at(&folder), probes, Wishes::default());
    let text = format!("{}{}\n", report.text(Style::Plain), conclusion(&report));
    if std::env::var_os("VALKEY_RDMA_RECORD").is_some() {
        fs::write(fixture(name, "txt"), &text).expect("written");
    }
    let expected = fs::read_to_string(fixture(name, "txt")).expect("an expectation");
    assert!(text == expected, "{name} reads now:\n{text}");
    report
}

/// The addresses at which devices of the machine `name` are tried, whose interfaces have the addresses in `known`.
fn tried(name: &str, known: &[(String, IpAddr)]) -> Vec<IpAddr> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("try-{name}"));
    plant(&folder, name);
    addresses_to_try(&Root::at(&folder), known)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn trial(address: &str, device: &str, mtu: u32) -> Trial {
    let tried = Tried { device: device.into(), mtu: Some(mtu), took: Duration::from_micros(2100) };
    Trial { address: ip(address), outcome: Ok(tried) }
}

/// The problems, by their ids.
fn problems(report: &Report) -> Vec<&str> {
    let all = report.findings().filter(|finding| finding.verdict == Verdict::Problem);
    all.map(|finding| finding.id.as_str()).collect()
}

#[test]
fn without_a_device_the_commands_for_soft_roce_are_given() {
    let report = examined("no-device", &Probes::default());
    assert_eq!(problems(&report), ["modules", "devices", "memlock"]);
}

#[test]
fn without_libraries_the_packages_are_named() {
    let why = "libibverbs.so.1: cannot open shared object file: No such file or directory";
    let probes = Probes { load_error: Some(why.into()), ..Probes::default() };
    let report = examined("no-libraries", &probes);
    assert_eq!(problems(&report), ["libibverbs", "librdmacm"]);
}

#[test]
fn soft_roce_works() {
    let probes = Probes {
        interfaces: vec![
            ("lo".into(), ip("127.0.0.1")),
            ("d0".into(), ip("10.0.0.1")),
            ("d0".into(), ip("fd00::1")),
        ],
        trials: vec![trial("10.0.0.1", "rxe0", 1024)],
        ..Probes::default()
    };
    assert!(examined("rxe", &probes).works());
}

#[test]
fn an_adapter_with_a_lower_mtu_than_its_interface_is_a_warning_and_its_idle_port_too() {
    let probes = Probes {
        interfaces: vec![("eth2".into(), ip("192.168.10.7"))],
        trials: vec![trial("192.168.10.7", "mlx5_0", 1024)],
        host: Some(HostProbe {
            name: "store".into(),
            took: Duration::from_micros(300),
            routes: Ok(vec![
                Route { to: ip("192.168.10.9"), from: Ok(ip("192.168.10.7")) },
                Route { to: ip("10.1.1.1"), from: Ok(ip("10.1.1.7")) },
                Route { to: ip("fd01::1"), from: Err("Network is unreachable (os error 101)".into()) },
            ]),
        }),
        ..Probes::default()
    };
    assert!(examined("mlx5-mtu", &probes).works());
}

#[test]
fn an_iwarp_adapter_is_not_supported_and_the_way_to_roce_is_given() {
    let probes = Probes { interfaces: vec![("ens1f0".into(), ip("10.0.0.1"))], ..Probes::default() };
    assert_eq!(problems(&examined("iwarp", &probes)), ["transport"]);
}

#[test]
fn a_memlock_of_64_kib_is_a_problem_with_three_remedies() {
    let refused = "cannot register 3179008 bytes of memory (memlock limit: 65536 bytes)".to_owned();
    let probes = Probes {
        interfaces: vec![("d0".into(), ip("10.0.0.1"))],
        trials: vec![Trial { address: ip("10.0.0.1"), outcome: Err(refused) }],
        ..Probes::default()
    };
    assert_eq!(problems(&examined("memlock", &probes)), ["trial", "memlock"]);
}

#[test]
fn a_container_without_device_files_is_given_the_flags_that_it_lacks() {
    assert_eq!(problems(&examined("container", &Probes::default())), ["device files", "interface"]);
}

#[test]
fn a_container_without_its_usual_files_is_known_by_its_environment_or_by_systemd() {
    for (file, text, kind) in [
        ("proc/self/environ", "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.96.0.1\0", "Kubernetes"),
        ("run/systemd/container", "podman\n", "Podman"),
        ("run/systemd/container", "systemd-nspawn\n", "Other"),
    ] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machine-signs-of-{kind}"));
        plant(&folder, "no-device");
        let file = folder.join(file);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
        let report = examine(&Root::at(&folder), &Probes::default(), Wishes::default());
        let found = report.findings().find(|finding| finding.id == "container").expect("the finding");
        assert_eq!(found.value, format!("this is one ({kind}): it sees what it was given of the host"));
    }
}

#[test]
fn infiniband_without_a_subnet_manager_is_a_problem() {
    let probes = Probes { interfaces: vec![("ib0".into(), ip("10.9.0.1"))], ..Probes::default() };
    assert_eq!(problems(&examined("infiniband", &probes)), ["port 1"]);
}

#[test]
fn a_second_port_without_a_cable_keeps_nothing_from_working() {
    let probes = Probes {
        interfaces: vec![("ib0".into(), ip("10.9.0.1"))],
        trials: vec![trial("10.9.0.1", "mlx4_0", 2048)],
        ..Probes::default()
    };
    assert_eq!(problems(&examined("two-ports", &probes)), [] as [&str; 0]);
}

#[test]
fn a_pod_works_with_the_adapter_that_it_was_given() {
    let refused = "`rdma_bind_addr` failed: Cannot assign requested address (os error 99)".to_owned();
    let probes = Probes {
        interfaces: vec![("net1".into(), ip("10.1.0.5"))],
        trials: vec![
            trial("10.1.0.5", "mlx5_0", 4096),
            Trial { address: ip("10.2.0.5"), outcome: Err(refused) },
        ],
        ..Probes::default()
    };
    assert_eq!(problems(&examined("pod-with-one-of-two", &probes)), [] as [&str; 0]);
}

/// The first entry of the adapter's GID table is the host's.
#[test]
fn a_pod_tries_a_shared_adapter_at_its_own_address() {
    let name = "pod-on-a-shared-adapter";
    let interfaces = vec![("net1".to_owned(), ip("10.1.0.5"))];
    assert_eq!(tried(name, &interfaces), [ip("10.1.0.5")]);
    let trials = vec![trial("10.1.0.5", "mlx5_0", 4096)];
    let probes = Probes { interfaces, trials, ..Probes::default() };
    assert_eq!(problems(&examined(name, &probes)), [] as [&str; 0]);
}

#[test]
fn a_device_is_tried_at_the_port_that_has_a_cable() {
    let name = "two-ports-first-down";
    let interfaces = vec![("ib0".to_owned(), ip("10.9.0.1")), ("ib1".to_owned(), ip("10.9.1.1"))];
    assert_eq!(tried(name, &interfaces), [ip("10.9.1.1")]);
    let trials = vec![trial("10.9.1.1", "mlx4_0", 2048)];
    let probes = Probes { interfaces, trials, ..Probes::default() };
    assert_eq!(problems(&examined(name, &probes)), [] as [&str; 0]);

    // With RoCE, the port of an address is known.
    let interfaces = [("eth0".to_owned(), ip("10.5.0.1")), ("eth1".to_owned(), ip("10.5.1.1"))];
    assert_eq!(tried("roce-first-port-down", &interfaces), [ip("10.5.1.1")]);
}

#[test]
fn the_device_file_of_the_adapter_in_use_is_needed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine-without-its-file");
    let _ = fs::remove_dir_all(&folder);
    plant(&folder, "pod-with-one-of-two");
    fs::remove_file(folder.join("dev/infiniband/uverbs0")).expect("removed");
    let probes = Probes { interfaces: vec![("net1".into(), ip("10.1.0.5"))], ..Probes::default() };
    let report = examine(&Root::at(&folder), &probes, Wishes::default());
    assert_eq!(problems(&report), ["device files"]);
}

#[test]
fn only_usable_devices_are_tried_and_at_an_address_that_others_can_reach() {
    let known = [("d0".to_owned(), ip("fe80::1")), ("d0".to_owned(), ip("10.0.0.1"))];
    for (name, expected) in [("rxe", vec![ip("10.0.0.1")]), ("iwarp", vec![]), ("no-device", vec![])] {
        assert_eq!(tried(name, &known), expected, "{name}");
    }
}

#[test]
fn a_host_that_does_not_resolve_is_a_problem() {
    let probes = Probes {
        interfaces: vec![("d0".into(), ip("10.0.0.1"))],
        host: Some(HostProbe {
            name: "nowhere".into(),
            took: Duration::ZERO,
            routes: Err("Name or service not known".into()),
        }),
        ..Probes::default()
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-host");
    plant(&folder, "rxe");
    let report = examine(&Root::at(&folder), &probes, Wishes::default());
    assert_eq!(problems(&report), ["name"]);
}
