//! The known name that a misspelt one most likely means.

/// The known name nearest to `given`, if one is near enough to be meant.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given: Vec<char> = given.chars().take(64).flat_map(char::to_lowercase).collect();
    // A third of the letters may differ: enough for a slip, too little to guess.
    let far = given.len() / 3 + 1;
    known
        .into_iter()
        .map(|name| (distance(&given, &name.to_lowercase().chars().collect::<Vec<_>>()), name))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters to insert, drop or replace to come from one to the other
/// (Wagner and Fischer, 1974), a swap of neighbours counting as one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && *x == b[j - 1] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_strangers_are_not() {
        let known = ["participants", "regions", "deadline", "owner"];
        assert_eq!(nearest("particpants", known), Some("participants"));
        assert_eq!(nearest("region", known), Some("regions"));
        assert_eq!(nearest("daedline", known), Some("deadline"));
        assert_eq!(nearest("Owner", known), Some("owner"));
        assert_eq!(nearest("timeout", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
