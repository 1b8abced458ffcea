use std::time::Duration;

use super::*;

fn record(id: &'static str, verdict: Verdict) -> Record {
    let evidence = vec!["0.001 c1 -> Register <&>".to_owned()];
    let (stimulus, expected) = ("this", "that");
    Record {
        id,
        clause: "W-2",
        stimulus,
        expected,
        verdict,
        evidence,
        elapsed: Duration::from_millis(20),
        known: None,
    }
}

fn records() -> Vec<Record> {
    vec![
        record("good", Verdict::Passed),
        record("bad", Verdict::Failed("an \"immediate\" of 3 < 4".to_owned())),
        record("skipped-one", Verdict::NotRun("only with --hostile".to_owned())),
        record("skipped-two", Verdict::NotRun("only with --hostile".to_owned())),
    ]
}

#[test]
fn the_summary_counts_and_says_each_reason_once() {
    assert_eq!(summary(&records()), "1 passed, 1 failed, 2 not run (only with --hostile)");
    assert!(!all_well(&records()));
    assert!(any_ran(&records()[1..]) && !any_ran(&records()[2..]));
    let mut good = records();
    good.remove(1);
    assert!(all_well(&good));
}

#[test]
fn a_failure_shows_what_was_expected_what_was_found_and_the_evidence() {
    let table = Table::new([("good", "W-2"), ("skipped-one", "W-2")]);
    let line = table.line(&records()[1]);
    for part in
        ["failed", "bad", "clause    W-2: ", "stimulus  this", "expected  that", "3 < 4", "c1 -> Register"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(table.line(&records()[0]), "passed   good         W-2     0.02 s");
}

#[test]
fn a_known_failure_fails_no_run() {
    let known = crate::Known::read("bad the reason", &["good", "bad"]).expect("valid");
    let records: Vec<Record> = records().iter().map(|record| known.mark(record)).collect();
    assert!(all_well(&records));
    assert_eq!(summary(&records), "1 passed, 0 failed, 1 known to fail, 2 not run (only with --hostile)");
    let line = Table::new([("good", "W-2")]).line(&records[1]);
    assert!(
        line.starts_with("known  ") && line.contains("the reason") && !line.contains("c1 -> Register"),
        "{line}"
    );
    let json = json("x", &records);
    assert_eq!(
        (&json["failed"], &json["known"], &json["cases"][1]["known"]),
        (&0.into(), &1.into(), &"the reason".into())
    );
    let xml = junit("x", &records);
    assert!(xml.contains("failures=\"0\" skipped=\"3\"") && xml.contains("known: the reason"), "{xml}");
    assert_eq!(crate::Known::read("good why", &["good"]).expect("valid").passed(&records), ["good"]);
}

#[test]
fn json_has_every_case_with_its_verdict_and_evidence() {
    let json = json("emulated://127.0.0.1:1", &records());
    assert_eq!(json["failed"], 1);
    assert_eq!(json["cases"][1]["verdict"], "failed");
    assert_eq!(
        (&json["cases"][1]["level"], &json["cases"][1]["basis"]),
        (&"MUST".into(), &"practice".into())
    );
    assert_eq!(json["cases"][1]["evidence"][0], "0.001 c1 -> Register <&>");
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(4));
}

#[test]
fn junit_is_escaped_and_counts_failures_and_skips() {
    let xml = junit("a<b", &records());
    assert!(xml.contains("name=\"a&lt;b\" tests=\"4\" failures=\"1\" skipped=\"2\""), "{xml}");
    assert!(
        xml.contains(
            "message=\"an &quot;immediate&quot; of 3 &lt; 4\">0.001 c1 -&gt; Register &lt;&amp;&gt;"
        )
    );
}
