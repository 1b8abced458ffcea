//! The tests that `-t` selects: valkey-benchmark's, under its names and titles.

use super::{Expect, Keys, Script, Step, Template};

/// One of the default tests.
///
/// Adding one is adding a row to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultTest {
    /// The names that select it, in lower case.
    pub(crate) names: &'static [&'static str],
    /// The title in the results, as valkey-benchmark prints it.
    pub(crate) title: &'static str,
    command: Command,
    expect: Expect,
    /// Whether it reads keys that have to be written before: the command that does, with the same keys.
    written_by: Option<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// Words separated by blanks, with placeholders.
    Words(&'static str),
    /// As a line, not as an array.
    Inline(&'static str),
    /// `ZADD`, whose score is a number only with `-r`.
    Zadd,
    /// A library of functions (`--num-functions`).
    FunctionLoad,
    /// A call of a function (`--num-keys-in-fcall`).
    Fcall,
    /// `MSET` of several keys (`--multi-key`).
    Mset,
    /// `MGET` of several keys.
    Mget,
}

const fn test(
    names: &'static [&'static str],
    title: &'static str,
    words: &'static str,
    expect: Expect,
) -> DefaultTest {
    DefaultTest { names, title, command: Command::Words(words), expect, written_by: None }
}

const OK: Expect = Expect::Status("OK");
/// All of them, in valkey-benchmark's order.
const TESTS: [DefaultTest; 24] = [
    DefaultTest {
        command: Command::Inline("PING"),
        ..test(&["ping_inline", "ping"], "PING_INLINE", "", Expect::Status("PONG"))
    },
    test(&["ping_mbulk", "ping"], "PING_MBULK", "PING", Expect::Status("PONG")),
    test(&["set"], "SET", "SET key:__rand_int__ __data__", OK),
    DefaultTest {
        written_by: Some(Command::Words("SET key:__rand_int__ __data__")),
        ..test(&["get"], "GET", "GET key:__rand_int__", Expect::Value)
    },
    test(&["incr"], "INCR", "INCR counter:__rand_int__", Expect::Integer),
    test(&["lpush"], "LPUSH", "LPUSH mylist __data__", Expect::Integer),
    test(&["rpush"], "RPUSH", "RPUSH mylist __data__", Expect::Integer),
    test(&["lpop"], "LPOP", "LPOP mylist", Expect::StringOrNil),
    test(&["rpop"], "RPOP", "RPOP mylist", Expect::StringOrNil),
    test(&["sadd"], "SADD", "SADD myset element:__rand_int__", Expect::Integer),
    test(&["hset"], "HSET", "HSET myhash element:__rand_int__ __data__", Expect::Integer),
    test(&["spop"], "SPOP", "SPOP myset", Expect::StringOrNil),
    DefaultTest { command: Command::Zadd, ..test(&["zadd"], "ZADD", "", Expect::Integer) },
    test(&["zpopmin"], "ZPOPMIN", "ZPOPMIN myzset", Expect::Array(2)),
    test(
        &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
        "LPUSH (needed to benchmark LRANGE)",
        "LPUSH mylist __data__",
        Expect::Integer,
    ),
    test(
        &["lrange", "lrange_100"],
        "LRANGE_100 (first 100 elements)",
        "LRANGE mylist 0 99",
        Expect::Items(100),
    ),
    test(
        &["lrange", "lrange_300"],
        "LRANGE_300 (first 300 elements)",
        "LRANGE mylist 0 299",
        Expect::Items(300),
    ),
    test(
        &["lrange", "lrange_500"],
        "LRANGE_500 (first 500 elements)",
        "LRANGE mylist 0 499",
        Expect::Items(500),
    ),
    test(
        &["lrange", "lrange_600"],
        "LRANGE_600 (first 600 elements)",
        "LRANGE mylist 0 599",
        Expect::Items(600),
    ),
    DefaultTest { command: Command::Mset, ..test(&["mset"], "MSET", "", OK) },
    DefaultTest {
        command: Command::Mget,
        written_by: Some(Command::Mset),
        ..test(&["mget"], "MGET", "", Expect::Values(0))
    },
    test(&["xadd"], "XADD", "XADD mystream * myfield __data__", Expect::String),
    DefaultTest {
        command: Command::FunctionLoad,
        ..test(&["function_load"], "FUNCTION LOAD", "", Expect::String)
    },
    DefaultTest { command: Command::Fcall, ..test(&["fcall"], "FCALL", "", Expect::Nil) },
];

/// How many of everything the tests send, and how their keys are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestOptions {
    /// What the names of all keys begin with (`--key-prefix`).
    pub(crate) prefix: String,
    /// Functions in the library that `function_load` loads.
    pub(crate) functions: u32,
    /// Keys that `fcall` passes.
    pub(crate) fcall_keys: u32,
    /// Keys of `mset` and `mget`.
    pub(crate) multi_key: u16,
}

impl Default for TestOptions {
    fn default() -> TestOptions {
        TestOptions { prefix: String::new(), functions: 10, fcall_keys: 1, multi_key: 10 }
    }
}

impl DefaultTest {
    /// All tests, in the order in which they run.
    pub(crate) fn all() -> Vec<DefaultTest> {
        TESTS.to_vec()
    }

    /// Those without commands as lines, which the client library cannot send.
    pub(crate) fn without_inline(tests: &[DefaultTest]) -> Vec<DefaultTest> {
        tests.iter().copied().filter(|test| !matches!(test.command, Command::Inline(_))).collect()
    }

    /// Whether there are direct transfers that do the same.
    pub(crate) fn has_transfers(&self) -> bool {
        matches!(self.title, "SET" | "GET")
    }

    /// The flag that only this test and few others have a use for, as the name of its field in `Args`.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        match self.command {
            Command::Mset | Command::Mget => Some("multi_key"),
            Command::FunctionLoad => Some("num_functions"),
            Command::Fcall => Some("num_keys_in_fcall"),
            Command::Words(_) | Command::Inline(_) | Command::Zadd => None,
        }
    }

    /// What it changes on the server.
    pub(crate) fn writes(&self, options: &TestOptions) -> Option<String> {
        self.command.writes(options)
    }

    /// What it sends and expects.
    pub(crate) fn script(&self, keys: &Keys, options: &TestOptions) -> Script {
        let random = keys.len.is_some();
        let template = self.command.template(random, options);
        let writer = self.written_by.map(|writer| writer.template(random, options));
        let (title, expect) = match self.command {
            Command::Mset => (format!("MSET ({} keys)", options.multi_key), self.expect),
            Command::Mget => {
                (format!("MGET ({} keys)", options.multi_key), Expect::Values(options.multi_key.into()))
            }
            _ => (self.title.to_owned(), self.expect),
        };
        Script::single(title, Step::new(template, expect), writer)
    }
}

impl Command {
    fn template(self, random: bool, options: &TestOptions) -> Template {
        let named = |key: &str| format!("{}{key}", options.prefix);
        match self {
            Command::Words(words) => {
                let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
                if let Some(key) = words.get_mut(1) {
                    *key = named(key);
                }
                Template::new(&words, random)
            }
            Command::Inline(line) => Template::inline(line),
            Command::Zadd => {
                let score = if random { "__rand_int__" } else { "0" };
                Template::new(&["ZADD", &named("myzset"), score, "element:__rand_int__"], random)
            }
            Command::FunctionLoad => {
                Template::new(&["FUNCTION", "LOAD", "REPLACE", &library(options.functions)], random)
            }
            Command::Fcall => {
                let count = options.fcall_keys.to_string();
                let mut args = vec!["FCALL".to_owned(), "foo1".to_owned(), count];
                args.extend((1..=options.fcall_keys).map(|number| named(&format!("key{number}"))));
                Template::new(&args, random)
            }
            Command::Mset => {
                let key = named("key:__rand_int__");
                let pairs = [key.as_str(), "__data__"].repeat(options.multi_key.into());
                Template::new(&[&["MSET"], pairs.as_slice()].concat(), random)
            }
            Command::Mget => {
                let key = named("key:__rand_int__");
                let keys = [key.as_str()].repeat(options.multi_key.into());
                Template::new(&[&["MGET"], keys.as_slice()].concat(), random)
            }
        }
    }

    /// What it changes on the server: the name of its keys, with `*` for their numbers.
    fn writes(self, options: &TestOptions) -> Option<String> {
        let key = match self {
            Command::Words(words) => {
                let (name, arguments) = words.split_once(' ')?;
                let key = arguments.split(' ').next().filter(|_| !matches!(name, "GET" | "LRANGE"))?;
                key.replace("__rand_int__", "*")
            }
            Command::Zadd => "myzset".to_owned(),
            Command::Mset => "key:*".to_owned(),
            Command::FunctionLoad | Command::Fcall => {
                return Some("the function library benchlib".to_owned());
            }
            Command::Inline(_) | Command::Mget => return None,
        };
        Some(format!("{}{key}", options.prefix))
    }
}

/// The library of the `FCALL` test. Valkey knows both names of its interface, `server` and `redis`; Redis the second.
pub(crate) const FCALL_LIBRARY: &str = "#!lua name=benchlib\nlocal function foo1(keys, args)\nreturn keys[0]\nend\n\
    redis.register_function('foo1', foo1)\n";

fn library(functions: u32) -> String {
    let mut code = "#!lua name=benchlib\n".to_owned();
    for number in (1..=functions).rev() {
        code.push_str(&format!(
            "local function foo{number}()\nreturn 0\nend\nredis.register_function('foo{number}', foo{number})\n"
        ));
    }
    code
}

/// Why a list of tests was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TestsError {
    #[error("unknown test {unknown:?}; expected some of {}", known().join(", "))]
    Unknown { unknown: String },
}

fn known() -> Vec<&'static str> {
    let mut names: Vec<_> = TESTS.iter().flat_map(|test| test.names).copied().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The tests that a list of names selects, each once, in the order in which they run.
pub(crate) fn tests_from_list(list: &str) -> Result<Vec<DefaultTest>, TestsError> {
    let names: Vec<String> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    for name in &names {
        if !TESTS.iter().any(|test| test.names.contains(&name.as_str())) {
            return Err(TestsError::Unknown { unknown: name.clone() });
        }
    }
    let selected =
        |test: &&DefaultTest| test.names.iter().any(|name| names.iter().any(|wanted| wanted == name));
    Ok(TESTS.iter().filter(selected).copied().collect())
}
