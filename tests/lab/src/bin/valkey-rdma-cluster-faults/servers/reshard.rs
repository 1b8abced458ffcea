//! Slots that move one by one, as an operator moves them: `valkey-cli --cluster reshard`.

use std::process::Stdio;

use super::Servers;

impl Servers {
    /// Moves slots from one shard to another. Returns how often the operator had to begin anew.
    ///
    /// A step of valkey-cli for a slot, CLUSTER SETSLOT, gives the replicas of its node 2 s to confirm it; no setting changes that.
    /// A replica on a busy emulated processor may be later. Then the step fails with NOREPLICAS, and valkey-cli ends with the slot
    /// half moved.
    pub(crate) async fn reshard(&self, from: usize, to: usize, slots: usize) -> Result<usize, String> {
        let (source, _) = self.shard(from).await?;
        let (target, _) = self.shard(to).await?;
        let source_id = self.text(source, &["CLUSTER", "MYID"]).await?;
        let target_id = self.text(target, &["CLUSTER", "MYID"]).await?;
        let (address, source_id, target_id) = (self.address(source), source_id.trim(), target_id.trim());
        let end = self.slots_of(target_id).await? + slots;
        for runs in 0..=MOST_RUNS {
            let left = end.saturating_sub(self.slots_of(target_id).await?);
            if left == 0 {
                return Ok(runs.saturating_sub(1));
            }
            let count = left.to_string();
            let mut words =
                vec!["--cluster", "reshard", &address, "--cluster-yes", "--cluster-pipeline", "100"];
            words.extend(["--cluster-from", source_id, "--cluster-to", target_id, "--cluster-slots", &count]);
            let said = self.cli(&words).await?;
            if said.contains(LATE_REPLICA) || said.contains(HALF_MOVED) {
                let fixed = self.cli(&["--cluster", "fix", &address, "--cluster-yes"]).await?;
                let settled = self.settled().await;
                settled.map_err(|error| format!("{error}; valkey-cli --cluster fix: {}", end_of(&fixed)))?;
            } else if self.slots_of(target_id).await? != end {
                return Err(format!(
                    "valkey-cli --cluster reshard did not move {left} slots: {}",
                    end_of(&said)
                ));
            }
        }
        Err(format!(
            "{slots} slots did not move: {LATE_REPLICA} ended valkey-cli --cluster reshard {MOST_RUNS} times"
        ))
    }

    /// Runs valkey-cli. Returns what it printed.
    async fn cli(&self, words: &[&str]) -> Result<String, String> {
        let mut command = tokio::process::Command::new(self.setup.valkey.join("valkey-cli"));
        if let Some((authority, _)) = &self.tls {
            command.arg("--tls").arg("--cacert").arg(authority.ca());
        }
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.map_err(|error| format!("cannot start valkey-cli: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    /// How many slots a node has.
    async fn slots_of(&self, id: &str) -> Result<usize, String> {
        let ranges = self.ask(0, &["CLUSTER", "SLOTS"]).await?;
        let mut count = 0;
        for range in ranges.as_slice().unwrap_or_default() {
            let Some([first, last, primary, ..]) = range.as_slice() else { continue };
            let owner = primary.as_slice().and_then(|primary| primary.get(2)?.as_str());
            if owner == Some(id) {
                count += last.as_int().unwrap_or_default() - first.as_int().unwrap_or_default() + 1;
            }
        }
        usize::try_from(count).map_err(|_| "CLUSTER SLOTS makes no sense".to_owned())
    }
}

/// The last lines of an output.
fn end_of(output: &str) -> String {
    let mut lines: Vec<_> = output.lines().rev().take(3).collect();
    lines.reverse();
    lines.join(" / ")
}

/// The error of a step whose replicas did not confirm it in time.
const LATE_REPLICA: &str = "NOREPLICAS";
/// What valkey-cli says where a slot is half moved: repairing it had a late replica too, or the nodes do not agree yet.
const HALF_MOVED: &str = "Please fix your cluster problems";
/// An operator who has begun this often looks for another way.
const MOST_RUNS: usize = 20;
