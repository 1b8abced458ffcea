//! The JSON file of a run: what `./dev bench` keeps by date, and what a later run is compared with.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::Environment;
use crate::matrix::Row;
use crate::ratio::Ratio;
use crate::sample::{Figure, Sample, Samples};

/// A file for the results, made before anything is measured.
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
}

impl JsonFile {
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(
        &mut self,
        environment: &Environment,
        results: &[(&Row, Samples)],
    ) -> Result<(), String> {
        #[derive(Serialize)]
        struct Record<'a> {
            environment: &'a Environment,
            rows: Vec<RowRecord>,
        }
        let rows = results.iter().map(|(row, samples)| RowRecord::new(row, samples)).collect();
        serde_json::to_writer_pretty(&mut self.file, &Record { environment, rows })
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(self.file))
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

/// An earlier run.
#[derive(Debug, Deserialize)]
pub(crate) struct Earlier {
    rows: Vec<RowRecord>,
}

impl Earlier {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{} is not the JSON of a run: {error}", path.display()))
    }

    /// What the ratio of a row's first contender to another one was then, if both took part.
    pub(crate) fn ratio(&self, row: &Row, against: usize, figure: Figure) -> Option<Ratio> {
        let then = self.rows.iter().find(|then| then.name == row.name)?;
        let of = |contender: usize| {
            let name = row.contenders[contender].to_string();
            then.contenders.iter().find(|then| then.name == name)
        };
        Some(Ratio::between(&of(0)?.samples, &of(against)?.samples, figure))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct RowRecord {
    name: String,
    requests: u64,
    value_len: u32,
    contenders: Vec<ContenderRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ContenderRecord {
    name: String,
    samples: Vec<Sample>,
}

impl RowRecord {
    fn new(row: &Row, samples: &Samples) -> Self {
        let contenders = row.contenders.iter().zip(samples);
        let contenders = contenders.map(|(contender, samples)| ContenderRecord {
            name: contender.to_string(),
            samples: samples.clone(),
        });
        Self {
            name: row.name.clone(),
            requests: row.requests,
            value_len: row.value_len,
            contenders: contenders.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::rows;
    use crate::place::Place;

    #[test]
    fn an_earlier_run_is_found_by_the_names_of_row_and_contenders() {
        let row = &rows(Place::Lab)[0];
        let sample = |rate| Sample { rate, p50: None, p99: None, client_cpu: Some(1.0), server_cpu: None };
        let samples: Samples =
            row.contenders.iter().zip([8.0, 4.0, 2.0, 1.0]).map(|(_, rate)| vec![sample(rate)]).collect();
        let text = serde_json::to_string(&RowRecord::new(row, &samples)).expect("serialises");
        let earlier: Earlier = serde_json::from_str(&format!("{{\"rows\": [{text}]}}")).expect("parses");
        let then = earlier.ratio(row, 2, Figure::Rate).expect("was there");
        assert_eq!(then.median(), Some(4.0));
        assert!(earlier.ratio(&rows(Place::Lab)[1], 1, Figure::Rate).is_none());
    }

    #[test]
    fn a_file_that_is_no_record_is_refused_with_its_name() {
        let failure = Earlier::read(Path::new("Cargo.toml")).expect_err("no JSON");
        assert!(failure.starts_with("Cargo.toml is not the JSON of a run: "), "{failure}");
    }
}
