//! [`ServerInfo`]: what a server says of itself.

use std::time::Duration;

use valkey_rdma_client::{Client, Value};
use valkey_rdma_program::printable;

/// The reply to `INFO SECTION`.
#[derive(Debug)]
pub(crate) struct ServerInfo(String);

impl ServerInfo {
    /// How long a server may take to answer.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

    /// Asks for one section. `None` if the server does not answer in time, or refuses.
    pub(crate) async fn ask(client: &Client, section: &str) -> Option<ServerInfo> {
        let reply = tokio::time::timeout(Self::PATIENCE, client.command(["INFO", section])).await.ok()?;
        let text = reply.ok().and_then(Value::into_bytes)?;
        Some(ServerInfo(String::from_utf8_lossy(&text).into_owned()))
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Name and version of the server, from the section `server`.
    pub(crate) fn version(&self) -> Option<String> {
        let of = |name: &str| Some(format!("{name} {}", printable(self.field(&format!("{name}_version"))?)));
        of("valkey").or_else(|| of("redis"))
    }

    /// The CPU time of all threads of the server, from the section `cpu`.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let seconds = |name: &str| self.field(name)?.parse::<f64>().ok();
        let sum = seconds("used_cpu_user")? + seconds("used_cpu_sys")?;
        Duration::try_from_secs_f64(sum).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nio_threads_active:0\r\n";
        let info = ServerInfo(info.to_owned());
        assert_eq!((info.field("io_threads_active"), info.field("io_threads")), (Some("0"), None));
        assert_eq!(info.version().as_deref(), Some("valkey 9.1.2"));
        assert_eq!(ServerInfo("redis_version:6.0\r\n".to_owned()).version().as_deref(), Some("redis 6.0"));
        assert_eq!(info.cpu(), None);
    }

    #[test]
    fn cpu_time_is_that_of_user_and_kernel_without_children() {
        let info = "# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:2.5\r\nused_cpu_sys_children:9.0\r\n";
        assert_eq!(ServerInfo(info.to_owned()).cpu(), Some(Duration::from_millis(3750)));
        for wrong in [
            "used_cpu_sys:1\r\n",
            "used_cpu_sys:-9\r\nused_cpu_user:1\r\n",
            "used_cpu_sys:x\r\nused_cpu_user:1\r\n",
        ] {
            assert_eq!(ServerInfo(wrong.to_owned()).cpu(), None, "{wrong}");
        }
    }
}
