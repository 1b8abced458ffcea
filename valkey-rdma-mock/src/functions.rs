//! Functions that need no Lua.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::failure::Failure;
use valkey_rdma_server::Reply;

/// Libraries of functions. There is no interpreter: a function may only return an integer, a string, or one of its keys
/// or arguments, which is what `valkey-benchmark` loads.
#[derive(Default)]
pub(super) struct Functions {
    libraries: BTreeMap<String, Library>,
}

struct Library {
    code: Bytes,
    functions: BTreeMap<String, Value>,
}

/// What a function returns.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Integer(i64),
    Text(String),
    /// Counted from 1; without such a key or argument it is nil.
    Key(i64),
    Arg(i64),
}

impl Functions {
    /// `FUNCTION LOAD`: returns the name of the library.
    pub(super) fn load(&mut self, code: &Bytes, replace: bool) -> Result<String, Failure> {
        let text = str::from_utf8(code).map_err(|_| Failure::new("ERR Function library is not UTF-8"))?;
        let (name, functions) = parse(text)?;
        if !replace && self.libraries.contains_key(&name) {
            return Err(format!("ERR Library '{name}' already exists").into());
        }
        for function in functions.keys() {
            let elsewhere = self
                .libraries
                .iter()
                .any(|(library, content)| *library != name && content.functions.contains_key(function));
            if elsewhere {
                return Err(format!("ERR Function {function} already exists").into());
            }
        }
        let library = Library { code: Bytes::copy_from_slice(code), functions };
        self.libraries.insert(name.clone(), library);
        Ok(name)
    }

    pub(super) fn call(&self, name: &[u8], keys: &[Bytes], args: &[Bytes]) -> Result<Reply, Failure> {
        let name = String::from_utf8_lossy(name);
        let function = self.libraries.values().find_map(|library| library.functions.get(&*name));
        let pick = |words: &[Bytes], number: i64| {
            let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            index.and_then(|index| words.get(index)).map_or(Reply::Null, |word| Reply::Bulk(word.clone()))
        };
        Ok(match function.ok_or(Failure::new("ERR Function not found"))? {
            Value::Integer(number) => Reply::Integer(*number),
            Value::Text(text) => Reply::bulk(text.clone()),
            Value::Key(number) => pick(keys, *number),
            Value::Arg(number) => pick(args, *number),
        })
    }

    pub(super) fn delete(&mut self, library: &[u8]) -> bool {
        self.libraries.remove(&*String::from_utf8_lossy(library)).is_some()
    }

    pub(super) fn flush(&mut self) {
        self.libraries.clear();
    }

    /// `FUNCTION LIST`
    pub(super) fn list(&self, with_code: bool) -> Reply {
        let describe = |(name, library): (&String, &Library)| {
            let functions = library.functions.keys().map(|name| {
                Reply::Map(vec![
                    (Reply::bulk("name"), Reply::bulk(name.clone())),
                    (Reply::bulk("description"), Reply::Null),
                    (Reply::bulk("flags"), Reply::Set(vec![])),
                ])
            });
            let mut fields = vec![
                (Reply::bulk("library_name"), Reply::bulk(name.clone())),
                (Reply::bulk("engine"), Reply::bulk("LUA")),
                (Reply::bulk("functions"), Reply::Array(functions.collect())),
            ];
            if with_code {
                fields.push((Reply::bulk("library_code"), Reply::Bulk(library.code.clone())));
            }
            Reply::Map(fields)
        };
        Reply::Array(self.libraries.iter().map(describe).collect())
    }
}

/// Reads `#!lua name=NAME` and then, again and again, `local function f(...) return VALUE end` and
/// `server.register_function('NAME', f)`.
fn parse(text: &str) -> Result<(String, BTreeMap<String, Value>), Failure> {
    let (header, body) = text.split_once('\n').unwrap_or((text, ""));
    let Some(header) = header.strip_prefix("#!") else {
        return Err(Failure::new("ERR Missing library metadata"));
    };
    let mut words = header.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Engine '{engine}' not found").into());
    }
    let name = words.find_map(|word| word.strip_prefix("name="));
    let name = name.ok_or(Failure::new("ERR Library name was not given"))?.to_owned();

    let mut bodies = BTreeMap::new();
    let mut functions = BTreeMap::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        if let Some(definition) = rest.strip_prefix("local function ") {
            let (signature, after) = definition.split_once(')').ok_or_else(too_hard)?;
            let (function, _) = signature.split_once('(').ok_or_else(too_hard)?;
            let returned = after.trim_start().strip_prefix("return ").ok_or_else(too_hard)?;
            let (value, after) = returned.split_once('\n').ok_or_else(too_hard)?;
            bodies.insert(function.trim().to_owned(), parse_value(value.trim()).ok_or_else(too_hard)?);
            rest = after.trim_start().strip_prefix("end").ok_or_else(too_hard)?.trim_start();
        } else if let Some(call) = ["server", "redis"]
            .iter()
            .find_map(|api| rest.strip_prefix(api)?.strip_prefix(".register_function("))
        {
            let (args, after) = call.split_once(')').ok_or_else(too_hard)?;
            let (name, function) = args.split_once(',').ok_or_else(too_hard)?;
            let value = bodies.get(function.trim()).ok_or_else(too_hard)?;
            functions.insert(unquoted(name.trim()).ok_or_else(too_hard)?.to_owned(), value.clone());
            rest = after.trim_start();
        } else {
            return Err(too_hard());
        }
    }
    if functions.is_empty() {
        return Err(Failure::new("ERR No functions registered"));
    }
    Ok((name, functions))
}

fn parse_value(text: &str) -> Option<Value> {
    let index = |name: &str| text.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    if let Some(number) = index("keys") {
        return Some(Value::Key(number));
    }
    if let Some(number) = index("args") {
        return Some(Value::Arg(number));
    }
    if let Ok(number) = text.parse() {
        return Some(Value::Integer(number));
    }
    unquoted(text).map(|text| Value::Text(text.to_owned()))
}

fn unquoted(text: &str) -> Option<&str> {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).filter(|inner| !inner.contains(['\\', '\'', '"']))
}

fn too_hard() -> Failure {
    Failure::new(
        "ERR this mock has no Lua: its functions may only return an integer, a string, keys[n] or args[n]",
    )
}
