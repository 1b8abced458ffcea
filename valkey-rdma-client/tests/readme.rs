//! The README's table links tests. They exist, by these names, in these files.

use std::path::Path;

#[test]
fn every_test_that_the_readme_links_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("a README");
    let mut links = 0;
    for link in readme.split("[`").skip(1) {
        let Some((name, rest)) = link.split_once("`](") else { continue };
        let Some((path, _)) = rest.split_once(')') else { continue };
        let source = std::fs::read_to_string(root.join(path));
        let source = source.unwrap_or_else(|error| panic!("{path}: {error}"));
        if path.contains("tests") && !path.ends_with(name) && !name.contains('/') {
            assert!(source.contains(&format!("fn {name}(")), "{path} has no test {name}");
            links += 1;
        }
    }
    assert!(links > 30, "{links} links");
}
