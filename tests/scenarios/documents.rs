//! The Rust code in the README and in docs/ compiles, and its tests pass. The build script writes it as modules.
#![allow(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "code for readers, in pieces"
)]

include!(concat!(env!("OUT_DIR"), "/documents.rs"));

/// What docs/operations.md says one connection pins.
#[test]
fn the_table_of_pinned_memory_is_right() {
    let text = include_str!("../../docs/operations.md");
    let memlock = 8 << 20;
    for window in [1_048_576, 65_536, 16_777_216] {
        let config = valkey_rdma_transport::Config::default().rx_size(window);
        let pinned = config.pinned_bytes();
        let fit = match memlock / pinned {
            0 => "none".to_owned(),
            count => format!("{count} connections"),
        };
        let first = grouped(config.pinned_bytes_at_first());
        let fifty = (50 * pinned) as f64 / f64::from(1 << 20);
        let row = format!("| {first} bytes | {} bytes | {fit} | {fifty:.0} MiB |", grouped(pinned));
        assert!(text.contains(&row), "docs/operations.md lacks: {row}");
    }
    let side = valkey_rdma_transport::Config::default().buffers_at_most(65_536).pinned_bytes();
    let sentence = format!("each pins {} bytes", grouped(side));
    assert!(text.contains(&sentence), "docs/operations.md lacks: {sentence}");
}

/// A number with a space between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| std::str::from_utf8(group).unwrap()).collect::<Vec<_>>().join(" ")
}
