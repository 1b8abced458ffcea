//! The specification and the tests know each other: every clause has a test, every cited clause exists.
//!
//! A test cites a clause at the end of its name: `..._w5` cites W-5.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use valkey_rdma_conformance::{client, server};

const AREAS: &str = "MHWICFDKXL";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Ids such as `W-5`, defined as `**W-5**` at the start of a line.
fn clauses() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("spec/protocol.md")).expect("the specification is there");
    let ids = text.lines().filter_map(|line| line.strip_prefix("**")?.split_once("**").map(|(id, _)| id));
    ids.filter(|id| is_id(id)).map(str::to_owned).collect()
}

fn is_id(text: &str) -> bool {
    let Some((area, number)) = text.split_once('-') else { return false };
    area.len() == 1
        && AREAS.contains(area)
        && !number.is_empty()
        && number.bytes().all(|b| b.is_ascii_digit())
}

/// Every `fn` behind a test attribute, with the clause its name cites.
fn citations() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let mut sources = Vec::new();
    for member in [
        "valkey-rdma-proto",
        "valkey-rdma-transport",
        "valkey-rdma-client",
        "valkey-rdma-server",
        "valkey-rdma-mock",
        "tests",
    ] {
        collect_sources(&workspace().join(member), &mut sources);
    }
    for source in sources {
        let text = fs::read_to_string(&source).expect("a source file");
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[") && line.contains("test") && !line.contains("cfg");
            let name = line
                .trim_start_matches("async ")
                .strip_prefix("fn ")
                .and_then(|rest| rest.split(['(', '<']).next());
            let Some(name) = name else { continue };
            if std::mem::take(&mut is_test)
                && let Some(id) = cited(name)
            {
                found.entry(id).or_default().push(name.to_owned());
            }
        }
    }
    found
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

/// `..._w5` cites W-5.
fn cited(name: &str) -> Option<String> {
    let (area, number) = name.rsplit_once('_')?.1.split_at_checked(1)?;
    let id = format!("{}-{number}", area.to_ascii_uppercase());
    is_id(&id).then_some(id)
}

#[test]
fn every_clause_has_a_test() {
    let citations = citations();
    let untested: Vec<_> = clauses().into_iter().filter(|id| !citations.contains_key(id)).collect();
    assert!(untested.is_empty(), "clauses without a test that cites them: {untested:?}");
}

#[test]
fn every_cited_clause_exists() {
    let clauses = clauses();
    assert!(clauses.len() > 30, "found only {} clauses: has the page's form changed?", clauses.len());
    let unknown: Vec<_> = citations().into_iter().filter(|(id, _)| !clauses.contains(id)).collect();
    assert!(unknown.is_empty(), "tests that cite clauses which do not exist: {unknown:?}");
}

/// The table at the end of spec/README.md: `| M-1 to M-3, X-1 | client | server |`.
#[test]
fn every_clause_has_a_role_and_no_clause_has_two() {
    let text = fs::read_to_string(workspace().join("spec/README.md")).expect("the specification is there");
    let table = text.split_once("## Who must keep which clause").expect("a table of roles").1;
    let mut roles = Vec::new();
    for row in table.lines().filter_map(|line| line.strip_prefix("| ")) {
        for part in row.split(" | ").next().unwrap_or_default().split(", ") {
            let (first, last) = part.split_once(" to ").unwrap_or((part, part));
            if let (true, Some((area, from)), Some((_, to))) =
                (is_id(first), first.split_once('-'), last.split_once('-'))
            {
                let number = |text: &str| text.parse::<u32>().expect("digits");
                roles.extend((number(from)..=number(to)).map(|number| format!("{area}-{number}")));
            }
        }
    }
    roles.sort();
    let mut clauses: Vec<_> = clauses().into_iter().collect();
    clauses.sort();
    assert_eq!(roles, clauses);
}

#[test]
fn every_conformance_case_has_a_unique_name_and_cites_a_clause_that_exists() {
    let clauses = clauses();
    let server: Vec<_> = server::cases().map(|case| (case.id, case.clause)).collect();
    let client: Vec<_> = client::CASES.iter().map(|case| (case.id, case.clause)).collect();
    for cases in [server, client] {
        let ids: BTreeSet<_> = cases.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), cases.len(), "two cases have the same name: {cases:?}");
        let unknown: Vec<_> = cases.iter().filter(|(_, clause)| !clauses.contains(*clause)).collect();
        assert!(unknown.is_empty(), "cases that cite clauses which do not exist: {unknown:?}");
    }
}

#[test]
fn the_page_of_the_conformance_suite_names_the_clauses_without_a_case() {
    let page = fs::read_to_string(workspace().join("spec/conformance.md")).expect("the page is there");
    let words: Vec<_> = page.split_whitespace().collect();
    let page = words.join(" ");
    let (_, list) = page.split_once("no conformance case: ").expect("a list of clauses without a case");
    let list = list.split_once('.').expect("the list ends with a full stop").0;
    let named: BTreeSet<_> = list.split(", ").map(str::to_owned).collect();
    let server = server::cases().map(|case| case.clause);
    let covered: BTreeSet<_> = server.chain(client::CASES.iter().map(|case| case.clause)).collect();
    // Every client case checks C-3.
    let without = clauses().into_iter().filter(|id| !covered.contains(id.as_str()) && id != "C-3");
    assert_eq!(
        named,
        without.collect(),
        "left: what spec/conformance.md names; right: the clauses without a case"
    );
}
