//! Rows in columns.

use super::visible::visible_line;

/// Left-aligned columns under their titles, two spaces apart.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(titles.map(str::to_owned)).chain(rows).collect();
    aligned(&rows, "")
}

/// The same without titles, each line behind `indent`.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]], indent: &str) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| visible_line(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        // A column that is empty in every row takes no room.
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{indent}{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["etl/map".to_owned(), "✔".to_owned()], ["é".to_owned(), "x".to_owned()]];
        assert_eq!(table(["NAME", "B"], rows), "NAME     B\netl/map  ✔\né        x\n");
        assert_eq!(table(["NAME", "B"], []), "NAME  B\n");
    }

    #[test]
    fn a_cell_is_one_line_whatever_is_in_it() {
        let rows = [["a\nfake  row".to_owned(), "\u{1b}[31m".to_owned()], ["b".to_owned(), "y".to_owned()]];
        let expected = "NAME          B\na\\nfake  row  \\u{1b}[31m\nb             y\n";
        assert_eq!(table(["NAME", "B"], rows), expected);
    }
}
