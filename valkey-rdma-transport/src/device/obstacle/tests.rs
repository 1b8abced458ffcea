//! On made-up folders, which are removed at the end.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Machine(PathBuf);

impl Machine {
    /// With two devices, their files and all modules.
    fn complete() -> Self {
        Self::without_devices()
            .with("sys/class/infiniband/mlx5_0/node_type", "1: CA")
            .with("sys/class/infiniband/mlx5_1/node_type", "1: CA")
            .with("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n")
            .with("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_1\n")
            .with("dev/infiniband/uverbs0", "")
            .with("dev/infiniband/uverbs1", "")
    }

    fn without_devices() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("valkey-rdma-obstacle-{}-{number}", std::process::id()));
        Self(root)
            .with("sys/module/ib_uverbs/initstate", "live")
            .with("sys/module/rdma_ucm/initstate", "live")
            .with("dev/infiniband/rdma_cm", "")
    }

    fn with(self, file: &str, text: &str) -> Self {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
        self
    }

    fn without(self, path: &str) -> Self {
        let path = self.0.join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
        self
    }

    fn found(&self, device: Option<&str>) -> Option<String> {
        Obstacle::of(&self.0, device).map(|obstacle| obstacle.to_string())
    }

    /// As [`found`](Self::found), where the system refuses to open `file`.
    fn found_without_permission(&self, file: &str, device: Option<&str>) -> Option<Obstacle> {
        Obstacle::search(&self.0, device, &|path| match path.ends_with(file) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => open(path),
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_machine_whose_devices_can_be_opened_has_no_obstacle() {
    assert_eq!(Machine::complete().found(None), None);
    assert_eq!(Machine::without_devices().found(None), None);
}

#[test]
fn a_container_without_device_files_is_advised_to_pass_them_in() {
    let machine = Machine::complete().without("dev/infiniband");
    assert_eq!(machine.found(None).as_deref(), Some("/dev/infiniband/rdma_cm is missing"));
    let obstacle = Obstacle::of(&machine.0, None).expect("an obstacle");
    assert!(obstacle.remedy().contains("docker run --device=/dev/infiniband"), "{}", obstacle.remedy());
}

#[test]
fn the_file_of_the_device_that_is_asked_for_must_be_there() {
    let machine = Machine::complete().without("dev/infiniband/uverbs1");
    assert_eq!(machine.found(None), None, "the other device serves");
    assert_eq!(machine.found(Some("mlx5_0")), None);
    assert_eq!(machine.found(Some("mlx5_1")).as_deref(), Some("/dev/infiniband/uverbs1 is missing"));
    assert_eq!(machine.found(Some("mlx5_9")), None, "another error names the devices that there are");
}

#[test]
fn files_that_this_user_may_not_open_are_named() {
    let machine = Machine::complete();
    for file in ["dev/infiniband/rdma_cm", "dev/infiniband/uverbs0"] {
        let obstacle = machine.found_without_permission(file, Some("mlx5_0")).expect("an obstacle");
        let (text, remedy) = (obstacle.to_string(), obstacle.remedy());
        assert!(text.starts_with(&format!("this user may not open /{file}: ")), "{text}");
        assert!(remedy.contains("chmod 0666"), "{remedy}");
    }
    assert!(machine.found_without_permission("dev/infiniband/uverbs0", None).is_none(), "the other serves");
}

#[test]
fn a_module_that_is_not_loaded_comes_before_its_missing_file() {
    let machine = Machine::complete().without("sys/module/rdma_ucm").without("dev/infiniband/rdma_cm");
    assert_eq!(machine.found(None).as_deref(), Some("not loaded: rdma_ucm"));
    assert!(Obstacle::of(&machine.0, None).expect("an obstacle").remedy().contains("`modprobe -a rdma_ucm`"));
    let built_in = machine.with("sys/class/misc/rdma_cm/dev", "10:56").with("dev/infiniband/rdma_cm", "");
    assert_eq!(built_in.found(None), None);
}
