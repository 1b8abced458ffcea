//! Columns of the load tool's CSV.

/// The cells of column `name`, one for each row. All cells are quoted; none contains a quote.
///
/// # Errors
/// A text with the CSV, if there is no such column.
pub fn csv_column(csv: &str, name: &str) -> Result<Vec<String>, String> {
    let mut rows = csv.lines().map(|line| line.trim_matches('"').split("\",\""));
    let place = rows.next().and_then(|mut head| head.position(|cell| cell == name));
    let place = place.ok_or_else(|| format!("no column {name:?} in {csv:?}"))?;
    Ok(rows.map(|mut row| row.nth(place).unwrap_or_default().to_owned()).collect())
}
