//! Compares key positions with what a real server says: COMMAND GETKEYS.

use std::collections::BTreeMap;

use valkey_rdma_resp::Value;

use super::description::{Description, Find, KeyRule};
use super::generated::COMMANDS;
use super::{find, for_each_key};
use crate::client::Client;
use crate::command::Command;

/// Invocations of each command.
const INVOCATIONS: usize = 200;

/// Arguments that mean something somewhere.
const WORDS: [&str; 27] = [
    "a",
    "b",
    "{c}d",
    "e f",
    "",
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "01",
    "+1",
    "STREAMS",
    "STORE",
    "storedist",
    "KEYS",
    "LIMIT",
    "BY",
    "GET",
    "COUNT",
    "BLOCK",
    "AUTH",
    "AUTH2",
    "GROUP",
    "WEIGHTS",
    "COPY",
];

/// Random arguments, often with a number of keys that fits.
fn invocation(words: &[&str], description: &Description<'_>, random: &mut fastrand::Rng) -> Vec<String> {
    let mut line: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for _ in 0..random.usize(1..12) {
        line.push(WORDS[random.usize(..WORDS.len())].to_owned());
    }
    if let KeyRule::Specs(specs) = description.keys {
        for spec in specs {
            if let (super::description::Begin::Index(at), Find::Counted { count, .. }) =
                (spec.begin, spec.find)
                && random.u8(..4) > 0
                && let Some(number) = line.get_mut(at + count)
            {
                *number = random.usize(..5).to_string();
            }
        }
    }
    line
}

#[tokio::test]
#[ignore = "needs a real server: VALKEY_RDMA_TEST_SERVER"]
async fn every_command_has_its_keys_where_the_server_says() {
    let url = std::env::var("VALKEY_RDMA_TEST_SERVER").expect("VALKEY_RDMA_TEST_SERVER is a URL");
    let client = Client::connect(url.as_str()).await.expect("connected");
    let mut random = fastrand::Rng::with_seed(23);
    let mut named: Vec<(Vec<&str>, &Description<'_>)> = Vec::new();
    for command in &COMMANDS {
        named.push((vec![command.name], command));
        named.extend(command.subcommands.iter().map(|sub| (vec![command.name, sub.name], sub)));
    }
    let mut compared = 0;
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let mut commands = 0;
    for (words, description) in named {
        let has_keys = !matches!(description.keys, KeyRule::Specs([]));
        let lines: Vec<_> = (0..INVOCATIONS).map(|_| invocation(&words, description, &mut random)).collect();
        let mut pipeline = client.pipeline();
        for line in &lines {
            pipeline.push(Command::from_args(
                ["COMMAND", "GETKEYS"].into_iter().chain(line.iter().map(String::as_str)),
            ));
        }
        let before = compared;
        for (line, reply) in lines.iter().zip(pipeline.send().await.expect("replies")) {
            let keys = match reply {
                Ok(keys) => keys,
                Err(error) => {
                    // Wrong arguments, or none that could be keys.
                    let message = error.server().expect("an error reply").message.clone();
                    *refused.entry(message).or_default() += 1;
                    continue;
                }
            };
            let mut expected: Vec<_> = keys
                .as_slice()
                .into_iter()
                .flatten()
                .filter_map(Value::as_bytes)
                .map(<[u8]>::to_vec)
                .collect();
            let command = Command::from_args(line);
            let mut found = Vec::new();
            let description = find(&command).expect("known");
            for_each_key(&command, description.keys, &mut |_, key| {
                found.push(key.to_vec());
                true
            });
            // The server lists destinations first or last.
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{line:?}");
            compared += 1;
        }
        if compared > before {
            commands += 1;
            assert!(has_keys, "{words:?} has keys");
        }
    }
    println!("{commands} commands, {compared} invocations with the same keys; not comparable: {refused:?}");
    assert!(commands > 150 && compared > 10_000, "{commands} commands, {compared} invocations");
}
