//! What others wrote, for a person's terminal. Notes, reasons and outputs are
//! anything that anybody sent, and a terminal obeys what it is sent: whatever
//! is no mark on the screen is shown as an escape, such as `\u{1b}`. Programs
//! are given it as it is, in JSON.

/// One line of a text, with no other character than such as can be seen.
pub(crate) fn visible_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same over several lines, whose breaks stay.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, |letter| letter == '\n')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut seen = String::with_capacity(text.len());
    for letter in text.chars() {
        match stays(letter) || !(letter.is_control() || turns(letter)) {
            true => seen.push(letter),
            false => seen.extend(letter.escape_default()),
        }
    }
    seen
}

/// Whether it changes the direction of what follows, so that a line reads
/// otherwise than it is.
fn turns(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor_or_hides() {
        let given = "a\u{1b}[2J\r\n\tb\u{7f}\u{9b}5m\u{202e}c\0";
        assert_eq!(visible_line(given), r"a\u{1b}[2J\r\n\tb\u{7f}\u{9b}5m\u{202e}c\u{0}");
        assert_eq!(visible("a\r\nb"), "a\\r\nb");
        assert_eq!(visible(&visible(given)), visible(given));
        let plain = "✔ ap-süd/17 → “fertig” 日本 🙂 \\u{1b}";
        assert_eq!(visible_line(plain), plain);
    }
}
