//! Writes the `rust` blocks of the README, of docs/ and of some crates' READMEs as modules, which `documents.rs` compiles.
//!
//! A block with functions or types is a module, and its tests run. Any other is the body of an async function that returns a
//! result. `<!-- given: CODE -->` on the line above a block declares what the page leaves out.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = fs::read_dir(root.join("docs"))
        .expect("docs/")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    pages.sort();
    pages.extend(
        ["README.md", "valkey-rdma-client/README.md", "valkey-rdma-transport/README.md"]
            .map(|page| root.join(page)),
    );
    println!("cargo::rerun-if-changed={}", root.join("docs").display());
    let mut modules = String::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        println!("cargo::rerun-if-changed={}", page.display());
        let text = fs::read_to_string(page).expect("a page");
        let name = page.strip_prefix(&root).expect("a page of the project").display().to_string();
        let name = name.replace(|other: char| !other.is_ascii_alphanumeric(), "_").to_lowercase();
        write_blocks(&text, &name, &mut modules);
    }
    let out = Path::new(&env::var_os("OUT_DIR").expect("set by cargo")).join("documents.rs");
    fs::write(out, modules).expect("written");
}

fn write_blocks(text: &str, page: &str, modules: &mut String) {
    let lines: Vec<&str> = text.lines().collect();
    for (number, _) in lines.iter().enumerate().filter(|(_, line)| **line == "```rust") {
        let code: Vec<&str> =
            lines.iter().skip(number + 1).take_while(|line| **line != "```").copied().collect();
        let given = number
            .checked_sub(1)
            .and_then(|above| lines[above].strip_prefix("<!-- given: ")?.strip_suffix(" -->"))
            .unwrap_or_default();
        let items = ["fn ", "async fn ", "impl ", "struct ", "#["];
        let code = match code.iter().any(|line| items.iter().any(|start| line.starts_with(start))) {
            true => format!("{given}\n{}", code.join("\n")),
            false => format!(
                "async fn block() -> Result<(), Box<dyn std::error::Error>> {{\n{}\n{}\nOk(())\n}}",
                given,
                code.join("\n")
            ),
        };
        write!(modules, "mod {page}_line_{} {{\n{code}\n}}\n", number + 1).expect("a String grows");
    }
}
