//! The text of a script, and what it parses to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::{Fault, TABLE};
use super::script::{Rule, Script, When};

/// Which faults must happen, and when. Clones share the count of faults that happened.
///
/// The text is that of the [module](super).
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) rules: Vec<Rule>,
    seed: u64,
    connections: Arc<AtomicU64>,
    happened: Arc<AtomicU64>,
}

/// Why a text is not a valid script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is nothing in it.
    #[error("empty fault: name one, such as `register-late=500@2`")]
    Empty,
    /// No fault has this name.
    #[error("unknown fault `{name}`{}", .similar.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// One that begins alike.
        similar: Option<&'static str>,
    },
    /// The fault has a value, and the text has a wrong one.
    #[error("`{name}` needs {value}, a number from {from} to {to}, not `{given}`")]
    Value {
        /// The fault.
        name: &'static str,
        /// The text behind the `=`.
        given: String,
        /// What its value is.
        value: &'static str,
        /// Smallest value.
        from: u32,
        /// Largest value.
        to: u32,
    },
    /// The fault has a value, and the text has none.
    #[error("`{name}` needs a value, {value} from {from} to {to}: `{name}={from}`")]
    MissingValue {
        /// The fault.
        name: &'static str,
        /// What its value is.
        value: &'static str,
        /// Smallest value.
        from: u32,
        /// Largest value.
        to: u32,
    },
    /// The fault has no value, and the text has one.
    #[error("`{name}` takes no value")]
    NoValue {
        /// The fault.
        name: &'static str,
    },
    /// The text behind the `@` is not a valid position.
    #[error("invalid position `@{when}`: use `@3`, `@3..` or `@1/50`, counted from 1")]
    When {
        /// The text behind the `@`.
        when: String,
    },
    /// The seed is not a number, or it is given twice.
    #[error("invalid `seed={seed}`: give one number from 0 to 18446744073709551615")]
    Seed {
        /// The text.
        seed: String,
    },
}

impl Faults {
    /// What chance starts from: given in the text, or drawn when it was read.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many faults have happened, over all connections. Only faults that a peer can notice count: `register-length` with the true
    /// length does not.
    pub fn happened(&self) -> u64 {
        self.happened.load(Ordering::Relaxed)
    }

    pub(super) fn script(&self) -> Script {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        Script::new(&self.rules, self.seed.wrapping_add(connection), self.happened.clone())
    }
}

impl FromStr for Faults {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut rules = Vec::new();
        let mut seed = None;
        for part in text.split(',').map(str::trim) {
            match part.strip_prefix("seed=") {
                Some(number) => match (number.parse(), seed) {
                    (Ok(number), None) => seed = Some(number),
                    _ => return Err(SpecError::Seed { seed: number.to_owned() }),
                },
                None => rules.push(rule(part)?),
            }
        }
        if rules.is_empty() {
            return Err(SpecError::Empty);
        }
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        Ok(Self { rules, seed, connections: Arc::default(), happened: Arc::default() })
    }
}

/// The script's text, with its seed: what repeats it.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            write!(f, "{rule},")?;
        }
        write!(f, "seed={}", self.seed)
    }
}

fn rule(text: &str) -> Result<Rule, SpecError> {
    let (what, when) = match text.split_once('@') {
        Some((what, when)) => (what, self::when(when)?),
        None => (text, When::From(1)),
    };
    let (name, value) = match what.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (what, None),
    };
    if name.is_empty() {
        return Err(SpecError::Empty);
    }
    let Some(entry) = TABLE.iter().find(|entry| entry.name == name) else {
        let word = name.split('-').next().unwrap_or(name);
        let similar = TABLE.iter().map(|entry| entry.name).find(|known| known.starts_with(word));
        return Err(SpecError::Unknown { name: name.to_owned(), similar });
    };
    let value = match (&entry.value, value) {
        (None, None) => 0,
        (None, Some(_)) => return Err(SpecError::NoValue { name: entry.name }),
        (Some((value, range)), text) => {
            let (name, from, to) = (entry.name, *range.start(), *range.end());
            let text = text.ok_or(SpecError::MissingValue { name, value, from, to })?;
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| SpecError::Value { name, given: text.to_owned(), value, from, to })?
        }
    };
    Ok(Rule { fault: entry.fault, value, when })
}

fn when(text: &str) -> Result<When, SpecError> {
    let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0);
    let when = if let Some(from) = text.strip_suffix("..") {
        number(from).map(When::From)
    } else if let Some(chances) = text.strip_prefix("1/") {
        number(chances).map(When::OneIn)
    } else {
        number(text).map(When::Nth)
    };
    when.ok_or_else(|| SpecError::When { when: text.to_owned() })
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.fault.entry();
        f.write_str(entry.name)?;
        if entry.value.is_some() {
            write!(f, "={}", self.value)?;
        }
        match self.when {
            When::From(1) => Ok(()),
            When::From(first) => write!(f, "@{first}.."),
            When::Nth(number) => write!(f, "@{number}"),
            When::OneIn(chances) => write!(f, "@1/{chances}"),
        }
    }
}

/// The grammar and all names, for people.
pub fn help() -> String {
    let mut text = "SPEC is NAME[=VALUE][@WHEN], several separated by commas, and seed=N if chance is to repeat itself.\n\
         WHEN counts the occasions of one connection: `3` is the third, `3..` that and all later ones, `1/50` each\n\
         with a chance of one in fifty; without it every one.\n\n"
        .to_owned();
    for entry in TABLE {
        let (name, range) = match &entry.value {
            Some((value, range)) => {
                let (from, to) = (range.start(), range.end());
                (format!("{}={value}", entry.name), format!("; {value} from {from} to {to}"))
            }
            None => (entry.name.to_owned(), String::new()),
        };
        text += &format!("  {name:<22}  {:<21}  {}{range}\n", entry.occasion.text(), entry.about);
    }
    text
}

impl Fault {
    /// All there are, in the order of [`help`].
    pub fn all() -> impl Iterator<Item = Fault> {
        TABLE.iter().map(|entry| entry.fault)
    }

    /// Its name in a script.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        text.parse::<Faults>().map(|faults| faults.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_script_reads_back_as_it_was_written() {
        for text in
            ["imm-over@3,seed=7", "register-late=500@2..,opcode=9@1/50,seed=0", "stall=10,refuse@1,seed=1"]
        {
            assert_eq!(parse(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        let error = |text: &str| parse(text).expect_err("is refused");
        assert!(error("").contains("empty fault"));
        assert!(error("seed=3").contains("empty fault"));
        assert!(error("imm-over,,imm-wrap").contains("empty fault"));
        assert!(error("imm-ower").contains("did you mean `imm-over`"));
        assert!(error("register-late").contains("MS from 0 to 86400000"));
        assert!(error("register-late").contains("needs a value"));
        for (name, range, given) in [
            ("imm-split", "PIECES, a number from 1 to 500", "0"),
            ("keepalive-flood", "COUNT, a number from 1 to 500", "2000"),
            ("stall", "MS, a number from 0 to 86400000", "-1"),
            ("message-length", "BYTES, a number from 0 to 64", "4294967296"),
            ("opcode", "OPCODE, a number from 0 to 65535", ""),
        ] {
            let expected = format!("`{name}` needs {range}, not `{given}`");
            assert_eq!(error(&format!("{name}={given}")), expected);
        }
        assert!(error("imm-over=3").contains("takes no value"));
        assert!(error("imm-over@0").contains("invalid position"));
        assert!(error("imm-over@2/3").contains("invalid position"));
        assert!(error("imm-over,seed=x").contains("invalid `seed="));
        assert!(error("imm-over,seed=1,seed=2").contains("invalid `seed="));
    }

    #[test]
    fn every_fault_has_one_name_and_stands_in_the_help() {
        let help = help();
        let names: Vec<_> = Fault::all().map(Fault::name).collect();
        for name in &names {
            assert!(help.contains(name));
            assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name}");
        }
        assert!(help.contains("; COUNT from 1 to 500\n"), "{help}");
    }
}
