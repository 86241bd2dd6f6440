//! Converts `date_format` patterns of Spark and Hive, which are Java's, to `to_char` templates. DataFusion's
//! own `date_format` takes strftime patterns with percent signs.
//!
//! ```text
//! yyyy-MM-dd'T'HH:mm:ss.SSS  ──►  YYYY-MM-DD"T"HH24:MI:SS.FF3
//! ```
//! Source: Spark SQL Reference, "Datetime Patterns for Formatting and Parsing".

/// Converts a pattern; `None` for a letter that is invalid or that `to_char` does not support.
pub(super) fn to_char_of(pattern: &str) -> Option<String> {
    let mut written = String::with_capacity(2 * pattern.len());
    let mut signs = pattern.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' => quote(&mut written, &mut signs)?,
            letter if letter.is_ascii_alphabetic() => {
                let mut count = 1;
                while signs.next_if_eq(&letter).is_some() {
                    count += 1;
                }
                written += field(letter, count)?;
            }
            // Letters form template patterns; spaces and punctuation stand for themselves.
            '"' => written += "\\\"",
            other => written.push(other),
        }
    }
    Some(written)
}

/// A quoted literal, in which two single quotes are one; `''` alone is a quote.
fn quote(written: &mut String, signs: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<()> {
    if signs.next_if_eq(&'\'').is_some() {
        written.push('\'');
        return Some(());
    }
    written.push('"');
    loop {
        match signs.next()? {
            '\'' if signs.next_if_eq(&'\'').is_some() => written.push('\''),
            '\'' => break,
            sign @ ('"' | '\\') => written.extend(['\\', sign]),
            sign => written.push(sign),
        }
    }
    written.push('"');
    Some(())
}

/// The template for `count` repetitions of a letter.
fn field(letter: char, count: usize) -> Option<&'static str> {
    Some(match (letter, count) {
        ('y' | 'u', 2) => "YY",
        ('y' | 'u', 1) => "FMYYYY",
        ('y' | 'u', 4) => "YYYY",
        ('M' | 'L', 1) => "FMMM",
        ('M' | 'L', 2) => "MM",
        ('M' | 'L', 3) => "Mon",
        ('M' | 'L', 4) => "FMMonth",
        ('d', 1) => "FMDD",
        ('d', 2) => "DD",
        ('D', 1) => "FMDDD",
        ('D', 3) => "DDD",
        ('E', 1..=3) => "Dy",
        ('E', 4) => "FMDay",
        ('a', 1) => "AM",
        ('H', 1) => "FMHH24",
        ('H', 2) => "HH24",
        ('h', 1) => "FMHH12",
        ('h', 2) => "HH12",
        ('m', 1) => "FMMI",
        ('m', 2) => "MI",
        ('s', 1) => "FMSS",
        ('s', 2) => "SS",
        ('S', 1) => "FF1",
        ('S', 2) => "FF2",
        ('S', 3) => "FF3",
        ('S', 4) => "FF4",
        ('S', 5) => "FF5",
        ('S', 6) => "FF6",
        ('Q' | 'q', 1) => "Q",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_date_patterns_become_templates() {
        let of = |pattern| to_char_of(pattern).unwrap_or_default();
        assert_eq!(of("yyyy-MM-dd'T'HH:mm:ss.SSS"), "YYYY-MM-DD\"T\"HH24:MI:SS.FF3");
        assert_eq!(of("EEEE, d MMM yy"), "FMDay, FMDD Mon YY");
        assert_eq!(of("h 'o''clock' a ''"), "FMHH12 \"o'clock\" AM '");
        assert_eq!(to_char_of("yyyy 'open"), None);
        assert_eq!(to_char_of("VV"), None);
    }
}
