//! The page that `--html` writes: what is on it, and that it needs nothing else.

use valkey_rdma_testkit::Folder;

use crate::modes::{mock, right};
use crate::scripted::{tool, tool_at};

/// The figures of a page: for each, the number of lines and the data that the page's script shows.
fn figures(page: &str) -> Vec<(usize, serde_json::Value)> {
    let figures = page.split("<figure class=\"chart\">").skip(1);
    let figures = figures.map(|figure| figure.split("</figure>").next().unwrap());
    figures
        .map(|figure| {
            let data = figure
                .split("application/json\">")
                .nth(1)
                .map_or("null", |rest| rest.split('<').next().unwrap());
            (figure.matches("<polyline").count(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

/// A page that loads nothing, and whose elements are closed.
pub(crate) fn assert_self_contained(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside} is in the page");
    }
    for element in ["figure", "svg", "table", "script", "style", "div", "ul", "g", "text"] {
        let open =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(open, page.matches(&format!("</{element}>")).count(), "{element}");
    }
}

#[test]
fn a_run_becomes_a_page_with_a_line_for_each_test() {
    let (mock, folder) = (mock(), Folder::new("page"));
    let html = folder.file("run.html");
    right(&tool_at(mock.addr, &format!("-t ping_mbulk,set -n 500 -c 2 -q --html {html}")));
    let page = folder.read("run.html");
    assert_self_contained(&page);
    assert!(page.contains("Every reply was right: 1000 checked"), "{page}");
    assert!(page.contains("type and length of each reply"), "{page}");
    let figures = figures(&page);
    assert_eq!(figures.iter().map(|(lines, _)| *lines).collect::<Vec<_>>(), [2, 2, 2]);
    for (_, data) in &figures {
        let names: Vec<_> =
            data["series"].as_array().unwrap().iter().map(|line| line["name"].as_str()).collect();
        assert_eq!(names, [Some("PING_MBULK"), Some("SET")]);
        for line in data["series"].as_array().unwrap() {
            assert!(line["y"].as_array().unwrap().len() <= data["x"].as_array().unwrap().len());
        }
    }
    let shares = figures[2].1["series"][0]["text"].as_array().unwrap().iter();
    let all: f64 = shares.map(|share| share.as_str().unwrap().parse::<f64>().unwrap()).sum();
    assert!((all - 100.0).abs() < 1.0, "the shares of all requests: {all} %");
}

#[test]
fn a_page_of_a_matrix_has_a_bar_for_every_combination() {
    let (mock, folder) = (mock(), Folder::new("page-matrix"));
    let (url, html) = (format!("valkey://{}", mock.addr), folder.file("matrix.html"));
    let flags = ["-t", "ping_mbulk,set", "-n", "50", "-q", "--matrix", "c=1,2 P=1,3", "--html", &html];
    right(&tool(&[&["-u", &url], &flags[..]].concat()));
    let page = folder.read("matrix.html");
    assert_self_contained(&page);
    assert_eq!(page.matches("class=\"bar\"").count(), 8, "{page}");
    assert!(page.contains("c=2 P=3"), "{page}");
}

#[test]
fn a_page_of_a_comparison_has_both_servers_and_ratios() {
    let (one, other, folder) = (mock(), mock(), Folder::new("page-compare"));
    let html = folder.file("compare.html");
    let flags =
        format!("-t ping_mbulk -n 40 -c 2 --rounds 3 --compare valkey://{} --html {html}", other.addr);
    right(&tool_at(one.addr, &flags));
    let page = folder.read("compare.html");
    assert_self_contained(&page);
    assert!(page.contains(&format!("{} beside ", one.addr)), "{page}");
    // A busy machine may answer INFO too late: then the CPU time of the server is not known.
    let dots = page.matches("class=\"dot\"").count();
    assert!([3, 4].contains(&dots), "rate, p99 and CPU of both sides of one test: {dots} in {page}");
    assert!(page.contains("CPU of the client per request, ratio"), "{page}");
    assert!(figures(&page)[..3].iter().all(|(lines, _)| *lines == 2), "{page}");
}

#[test]
fn a_page_of_a_sweep_has_latencies_by_rate() {
    let (mock, folder) = (mock(), Folder::new("page-sweep"));
    let html = folder.file("sweep.html");
    let flags = format!("-t ping_mbulk -c 2 --sweep --duration 0.02 --target-p99 60000 --html {html}");
    tool_at(mock.addr, &flags);
    let page = folder.read("sweep.html");
    assert_self_contained(&page);
    // A busy machine may sustain no rate.
    let judged = page.contains("Highest good rate") || page.contains("No rate was good");
    assert!(page.contains("Latency by rate") && judged, "{page}");
}

#[test]
fn a_page_shows_what_was_wrong_and_markup_as_text() {
    let (mock, folder) = (mock(), Folder::new("page-wrong"));
    let (url, html) = (format!("valkey://{}", mock.addr), folder.file("wrong.html"));
    let output = tool(&["-u", &url, "-n", "3", "-c", "1", "--html", &html, "--", "<b>nothing</b>"]);
    assert_eq!(output.status.code(), Some(1));
    let page = folder.read("wrong.html");
    assert_self_contained(&page);
    assert!(page.contains("3 wrong or missing"), "{page}");
    assert!(page.contains("&lt;b&gt;") && !page.to_lowercase().contains("<b>nothing"), "{page}");
}
