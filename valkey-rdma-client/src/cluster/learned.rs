//! [`Learned`]: the description of a command from the server's own reply to COMMAND INFO.

use valkey_rdma_resp::Value;

use super::discovery::field;
use crate::command::table::{Access, Begin, Description, Find, KeyRule, KeySpec, Request, Response, Word};

/// A command as a server describes it.
pub(crate) struct Learned {
    name: String,
    access: Access,
    specs: Vec<KeySpec>,
    request: Request,
    response: Response,
    subcommands: Vec<Learned>,
}

impl Learned {
    /// Reads one entry of the reply to COMMAND INFO. Returns `None` if the server does not know the command either, or
    /// sends something else.
    ///
    /// Shape: name, arity, flags, first key, last key, step, ACL categories, tips, key specifications, subcommands.
    ///
    /// Source: valkey.io/commands/command.
    pub(crate) fn read(entry: &Value) -> Option<Self> {
        let fields = entry.as_slice()?;
        let name = fields.first()?.as_str()?;
        // A subcommand is called CONFIG|SET.
        let name = name.rsplit('|').next().unwrap_or(name).to_ascii_uppercase();
        let flags: Vec<_> = words(fields.get(2)).collect();
        let access = match (flags.contains(&"readonly"), flags.contains(&"write")) {
            (true, _) => Access::Read,
            (false, true) => Access::Write,
            (false, false) => Access::Neither,
        };
        let mut specs: Vec<_> =
            fields.get(8).and_then(Value::as_slice).into_iter().flatten().filter_map(key_spec).collect();
        if specs.is_empty() {
            // Servers before 7.0, and modules without specifications.
            specs.extend(legacy(fields));
        }
        let tip = |prefix: &str| words(fields.get(7)).find_map(|tip| tip.strip_prefix(prefix));
        let subcommands = fields.get(9).and_then(Value::as_slice).into_iter().flatten();
        Some(Self {
            name,
            access,
            specs,
            request: request(tip("request_policy:")),
            response: response(tip("response_policy:")),
            subcommands: subcommands.filter_map(Self::read).collect(),
        })
    }

    /// The description of the command, or of this subcommand if it has it.
    pub(crate) fn describe(&self, subcommand: Option<&[u8]>) -> Description<'_> {
        let is_it =
            |known: &&Self| subcommand.is_some_and(|name| known.name.as_bytes().eq_ignore_ascii_case(name));
        let found = self.subcommands.iter().find(is_it).unwrap_or(self);
        Description {
            name: &found.name,
            access: found.access,
            keys: KeyRule::Specs(&found.specs),
            request: found.request,
            response: found.response,
            subcommands: &[],
        }
    }
}

fn words(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_slice).into_iter().flatten().filter_map(Value::as_str)
}

fn request(tip: Option<&str>) -> Request {
    match tip {
        Some("all_nodes") => Request::AllNodes,
        Some("all_shards") => Request::AllShards,
        Some("multi_shard") => Request::MultiShard,
        Some("special") => Request::Special,
        _ => Request::Default,
    }
}

fn response(tip: Option<&str>) -> Response {
    match tip {
        Some("agg_sum") => Response::Sum,
        Some("agg_min") => Response::Min,
        Some("agg_max") => Response::Max,
        Some("agg_logical_and") => Response::And,
        Some("agg_logical_or") => Response::Or,
        Some("all_succeeded") => Response::AllSucceeded,
        Some("one_succeeded") => Response::OneSucceeded,
        Some("special") => Response::Special,
        _ => Response::Default,
    }
}

fn key_spec(spec: &Value) -> Option<KeySpec> {
    let begin = field(spec, "begin_search")?;
    let begin = match (field(begin, "type")?.as_str()?, field(begin, "spec")?) {
        ("index", spec) => Begin::Index(number(spec, "index")?),
        ("keyword", spec) => {
            let word = Word::new(field(spec, "keyword")?.as_str()?)?;
            Begin::Keyword(word, number(spec, "startfrom")?)
        }
        _ => return None,
    };
    let find = field(spec, "find_keys")?;
    let find = match (field(find, "type")?.as_str()?, field(find, "spec")?) {
        ("range", spec) => Find::Range {
            last: isize::try_from(field(spec, "lastkey")?.as_int()?).ok()?,
            step: number(spec, "keystep")?,
            limit: number(spec, "limit")?,
        },
        ("keynum", spec) => Find::Counted {
            count: number(spec, "keynumidx")?,
            first: number(spec, "firstkey")?,
            step: number(spec, "keystep")?,
        },
        _ => return None,
    };
    Some(KeySpec { begin, find })
}

/// First key, last key and step, which commands have had since the beginning.
fn legacy(fields: &[Value]) -> Option<KeySpec> {
    let field = |at: usize| fields.get(at).and_then(Value::as_int);
    let first = usize::try_from(field(3)?).ok().filter(|first| *first > 0)?;
    let last = isize::try_from(field(4)?).ok()?;
    let last = if last < 0 { last } else { last.checked_sub_unsigned(first)? };
    let step = usize::try_from(field(5)?).ok().filter(|step| *step > 0)?;
    Some(KeySpec { begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 } })
}

fn number(map: &Value, name: &str) -> Option<usize> {
    usize::try_from(field(map, name)?.as_int()?).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn text(text: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(text.as_bytes()))
    }

    fn list(items: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(items.into_iter().collect())
    }

    #[test]
    fn a_module_without_specifications_has_its_legacy_positions() {
        let numbers = [-2, 1, 1, 1].map(Value::Int);
        let [arity, first, last, step] = numbers;
        let entry = list([text("json.get"), arity, list([text("readonly")]), first, last, step]);
        let learned = Learned::read(&entry).expect("a description");
        let described = learned.describe(None);
        assert_eq!((described.name, described.access), ("JSON.GET", Access::Read));
        let KeyRule::Specs(specs) = described.keys else { panic!("specs") };
        assert!(matches!(specs[0].begin, Begin::Index(1)));
        assert!(matches!(specs[0].find, Find::Range { last: 0, step: 1, limit: 0 }));
    }

    #[test]
    fn what_is_no_description_is_none() {
        for nonsense in [Value::Nil, Value::Int(3), list([]), list([Value::Int(1)])] {
            assert!(Learned::read(&nonsense).is_none(), "{nonsense:?}");
        }
        let empty = Learned::read(&list([text("x")])).expect("a name is enough");
        assert!(empty.specs.is_empty());
    }
}
