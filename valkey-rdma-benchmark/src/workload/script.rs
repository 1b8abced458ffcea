//! What a request consists of: one command, a sequence of commands, or one of several by chance.

use std::str::FromStr;

use super::defaults::FCALL_LIBRARY;
use super::{DefaultTest, Expect, Keys, Template, TestOptions, below, mix, tests_from_list};

/// The commands of a test.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// The title in the results.
    pub(crate) title: String,
    steps: Vec<Step>,
    order: Order,
    /// The commands that write what this test reads, with the same keys; without them nothing has to be written.
    pub(crate) writer: Option<Template>,
}

/// One command and its right reply.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// What is sent.
    pub(crate) template: Template,
    /// What must come back.
    pub(crate) expect: Expect,
    title: String,
}

#[derive(Debug, Clone)]
enum Order {
    /// A request is all steps, one after the other.
    All,
    /// A request is one step, by chance: the sums of the weights up to and including each.
    Chance(Vec<u64>),
}

impl Step {
    /// A command and its reply, titled with the command's name.
    pub(crate) fn new(template: Template, expect: Expect) -> Step {
        let title = template.name().to_owned();
        Step { template, expect, title }
    }

    /// The title in the results of a mix.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The command of a request in a few words.
    pub(crate) fn describe(&self, keys: &Keys, values: &super::Values, request: u64) -> String {
        if self.template.is_inline() {
            return self.template.name().to_owned();
        }
        let mut text = self.template.name().to_owned();
        if let Some(first) = self.template.first_argument(keys, values, request) {
            text.push(' ');
            text.push_str(&first[..first.len().min(40)].escape_ascii().to_string());
        }
        text
    }
}

/// Why the user's commands were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ScriptError {
    #[error("an empty command before or after a ';'")]
    Empty,
    #[error("{0} repeats a command, but no command follows")]
    NoCommand(String),
    #[error("a command cannot be repeated {0} times; expected 1 to {MOST_STEPS}")]
    Repeat(String),
    #[error("a sequence of more than {MOST_STEPS} commands")]
    TooLong,
}

/// The longest sequence of commands.
const MOST_STEPS: usize = 100_000;

impl Script {
    /// One command per request.
    pub(crate) fn single(title: impl Into<String>, step: Step, writer: Option<Template>) -> Script {
        Script { title: title.into(), steps: vec![step], order: Order::All, writer }
    }

    /// Commands as on valkey-benchmark's command line: separated by `;`, each with the number of its repetitions before
    /// it if that is not 1.
    pub(crate) fn from_words(words: &[Vec<u8>], random: bool) -> Result<Script, ScriptError> {
        let mut steps = Vec::new();
        for command in words.split(|word| word == b";") {
            let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
            let first = command.first().ok_or(ScriptError::Empty)?;
            let (times, command) = match first.iter().all(u8::is_ascii_digit) && !first.is_empty() {
                true if command.len() == 1 => return Err(ScriptError::NoCommand(text(first))),
                true => {
                    let times = text(first).parse().ok().filter(|times| (1..=MOST_STEPS).contains(times));
                    (times.ok_or_else(|| ScriptError::Repeat(text(first)))?, &command[1..])
                }
                false => (1, command),
            };
            if steps.len() + times > MOST_STEPS {
                return Err(ScriptError::TooLong);
            }
            let step = Step::new(Template::new(command, random), Expect::Anything);
            steps.extend(std::iter::repeat_n(step, times));
        }
        let title: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        Ok(Script { title: title.join(" "), steps, order: Order::All, writer: None })
    }

    /// Commands by chance, each as often as its weight says.
    pub(crate) fn mixed(
        title: impl Into<String>,
        steps: Vec<(Step, u32)>,
        writer: Option<Template>,
    ) -> Script {
        let mut sum = 0;
        let sums = steps.iter().map(|(_, weight)| {
            sum += u64::from(*weight);
            sum
        });
        let order = Order::Chance(sums.collect());
        Script {
            title: title.into(),
            steps: steps.into_iter().map(|(step, _)| step).collect(),
            order,
            writer,
        }
    }

    /// The steps that make up request `number`, by their places in [`steps`](Self::steps).
    pub(crate) fn request(&self, number: u64) -> std::ops::Range<usize> {
        match &self.order {
            Order::All => 0..self.steps.len(),
            Order::Chance(sums) => {
                let place = below(mix(number ^ 0x0c0f_fee5), sums.last().copied().unwrap_or(1));
                let step = sums.partition_point(|&sum| sum <= place);
                step..step + 1
            }
        }
    }

    /// All steps.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether requests differ, so that each command deserves a row of its own.
    pub(crate) fn is_mixed(&self) -> bool {
        matches!(self.order, Order::Chance(_))
    }

    /// How many commands have a row of their own; 0 for none.
    pub(crate) fn parts(&self) -> usize {
        if self.is_mixed() { self.steps.len() } else { 0 }
    }

    /// The library of functions that has to be loaded first, if any.
    pub(crate) fn library(&self) -> Option<&'static str> {
        self.steps
            .iter()
            .any(|step| step.template.name() == "FCALL" && step.expect == Expect::Nil)
            .then_some(FCALL_LIBRARY)
    }

    /// Whether this writes exactly what `template` writes.
    pub(crate) fn is_of(&self, template: &Template) -> bool {
        matches!(&self.steps[..], [only] if only.template == *template)
    }

    /// Commands per request.
    pub(crate) fn commands_per_request(&self) -> usize {
        if self.is_mixed() { 1 } else { self.steps.len() }
    }
}

/// `--ratio`: which default tests are mixed, and how often each comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mix {
    parts: Vec<(DefaultTest, u32)>,
    text: String,
}

/// A mix that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid mix; expected SETS:GETS as in 1:10, or tests with weights as in set:1,get:10,incr:2"
)]
pub(crate) struct MixError(String);

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Mix, MixError> {
        let bad = || MixError(text.to_owned());
        let weight = |text: &str| text.parse::<u32>().ok().filter(|weight| *weight <= 1_000_000);
        let named = |name: &str, weight: u32| match tests_from_list(name).as_deref() {
            Ok([test]) => Ok((*test, weight)),
            _ => Err(bad()),
        };
        let parts = match text.split_once(':') {
            Some((sets, gets)) if weight(sets).is_some() && weight(gets).is_some() => {
                let [sets, gets] = [sets, gets].map(|part| weight(part).unwrap_or_default());
                vec![named("set", sets)?, named("get", gets)?]
            }
            _ => text
                .split(',')
                .map(|part| {
                    let (name, times) = part.split_once(':').ok_or_else(bad)?;
                    named(name, weight(times).ok_or_else(bad)?)
                })
                .collect::<Result<_, _>>()?,
        };
        let parts: Vec<_> = parts.into_iter().filter(|(_, weight)| *weight > 0).collect();
        if parts.is_empty() {
            return Err(bad());
        }
        Ok(Mix { parts, text: text.to_owned() })
    }
}

impl Mix {
    /// The tests that it consists of.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &DefaultTest> {
        self.parts.iter().map(|(test, _)| test)
    }

    /// Whether one of its commands is sent as a line, not as an array.
    pub(crate) fn has_inline(&self) -> bool {
        self.parts.iter().any(|(test, _)| DefaultTest::without_inline(&[*test]).is_empty())
    }

    /// What it sends and expects.
    pub(crate) fn script(&self, keys: &Keys, options: &TestOptions) -> Script {
        let mut writer = None;
        let steps = self.parts.iter().map(|(test, weight)| {
            let mut script = test.script(keys, options);
            let mut step = script.steps.swap_remove(0);
            step.title = script.title;
            // The one with the most keys writes those of the others too.
            let keys = |template: &Option<Template>| template.as_ref().map_or(0, |t| t.slots().len() + 1);
            if keys(&script.writer) > keys(&writer) {
                writer = script.writer;
            }
            (step, *weight)
        });
        let steps: Vec<_> = steps.collect();
        Script::mixed(format!("MIX {}", self.text), steps, writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_sequence_repeats_its_commands() {
        let script = Script::from_words(
            &words("multi ; set key:__rand_int__ __data__ ; 2 incr counter ; exec"),
            false,
        );
        let script = script.unwrap();
        let names: Vec<_> = script.steps().iter().map(Step::title).collect();
        assert_eq!(names, ["MULTI", "SET", "INCR", "INCR", "EXEC"]);
        assert_eq!((script.request(7), script.commands_per_request()), (0..5, 5));
    }

    #[test]
    fn an_invalid_sequence_is_refused() {
        for (line, error) in [
            ("set a b ;", ScriptError::Empty),
            ("; get a", ScriptError::Empty),
            ("3", ScriptError::NoCommand("3".to_owned())),
            ("0 get a", ScriptError::Repeat("0".to_owned())),
            ("99999 get a ; 2 get a", ScriptError::TooLong),
        ] {
            let line: Vec<_> = line.split(' ').filter(|word| !word.is_empty()).collect();
            assert_eq!(Script::from_words(&words(&line.join(" ")), false).unwrap_err(), error);
        }
    }

    #[test]
    fn a_mix_comes_in_its_ratio() {
        let mix: Mix = "1:3".parse().unwrap();
        let script = mix.script(&Keys::SINGLE, &TestOptions::default());
        let gets = (0..40_000).filter(|&number| script.request(number).start == 1).count();
        assert!((29_500..30_500).contains(&gets), "{gets}");
        assert!(script.writer.is_some(), "what is read has to be written first");
        for text in ["", "0:0", "1", "a:b", "set", "set:1,nothing:2", "ping:1"] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
        assert!("incr:2,ping_mbulk:1".parse::<Mix>().is_ok());
    }
}
