//! What a process may take: pinned memory and descriptors.

use valkey_rdma_transport::Config;

use super::privileges::Privileges;
use super::{Container, Root, Wishes, bytes};
use crate::report::{Finding, Section};

/// Descriptors of one connection over kernel verbs.
const DESCRIPTORS: u64 = 2;
/// Windows and send buffer of a client's connections for blocking calls and subscribers (`Config::side_buffers` of the client).
const SIDE_BUFFERS: u32 = 65_536;
/// Descriptors that a program has anyway.
const OWN_DESCRIPTORS: u64 = 32;

pub(super) fn section(root: &Root, wishes: Wishes, container: Container) -> Section {
    let limits = root.read("/proc/self/limits").unwrap_or_default();
    let mut section = Section::new("limits");
    if let Some(limit) = Limit::named(&limits, "Max locked memory") {
        section.push(memlock(limit, wishes, &Privileges::of(root), container));
    }
    if let Some(limit) = Limit::named(&limits, "Max open files") {
        section.push(open_files(limit, wishes));
    }
    section
}

/// A limit of this process. `None` is unlimited.
struct Limit {
    soft: Option<u64>,
    hard: Option<u64>,
}

impl Limit {
    /// From a line such as `Max locked memory         65536                65536                bytes`.
    fn named(limits: &str, name: &str) -> Option<Self> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let mut values = line.split_whitespace().map(|value| value.parse().ok());
        Some(Self { soft: values.next()?, hard: values.next()? })
    }
}

fn memlock(limit: Limit, wishes: Wishes, privileges: &Privileges, container: Container) -> Finding {
    let one = Config::default().pinned_bytes();
    let need = one * u64::from(wishes.connections);
    let Some(soft) = limit.soft else { return Finding::ok("memlock", "unlimited") };
    let wanted = match wishes.connections {
        1 => format!("1 connection pins {}", bytes(need)),
        count => format!("{count} connections pin {}", bytes(need)),
    };
    if soft >= need {
        return Finding::ok("memlock", format!("{}; {wanted}", bytes(soft)));
    }
    let finding = if privileges.ipc_lock {
        let value =
            format!("{}, which this process may exceed (CAP_IPC_LOCK); others cannot: {wanted}", bytes(soft));
        Finding::note("memlock", value)
    } else if soft < one {
        Finding::problem("memlock", format!("{}: one connection pins {}", bytes(soft), bytes(one)))
    } else {
        let small = (soft - one) / Config::default().buffers_at_most(SIDE_BUFFERS).pinned_bytes();
        let fit = format!("{} connections, or 1 and {small} for blocking calls and subscribers", soft / one);
        let value = format!("{}: enough for {fit}; {wanted}", bytes(soft));
        Finding::warning("memlock", value)
    };
    if container.is_one() {
        return finding.remedy(container.start());
    }
    let shell = match limit.hard {
        None => "this shell: `ulimit -l unlimited`",
        Some(_) => "this shell: `ulimit -l unlimited`, as root, then start the program from it",
    };
    finding
        .remedy(shell)
        .remedy("a service: `LimitMEMLOCK=infinity` under [Service] of its unit (`systemctl edit NAME`)")
        .remedy("all logins: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf, then log in again")
}

fn open_files(limit: Limit, wishes: Wishes) -> Finding {
    let need = DESCRIPTORS * u64::from(wishes.connections) + OWN_DESCRIPTORS;
    match limit.soft {
        None => Finding::ok("open files", "unlimited"),
        Some(soft) if soft >= need => {
            Finding::ok("open files", format!("{soft}; {} connections take some {need}", wishes.connections))
        }
        Some(soft) => {
            let value = format!("{soft}: {} connections take some {need}, two each", wishes.connections);
            Finding::warning("open files", value)
                .remedy(format!("this shell: `ulimit -n {need}`"))
                .remedy(format!("a service: `LimitNOFILE={need}` under [Service] of its unit"))
        }
    }
}
