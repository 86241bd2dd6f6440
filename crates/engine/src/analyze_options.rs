//! What `ANALYZE (…)` says about how to look at tables, which the parser does not know: it is cut out of the
//! text, with blanks in its place, so that positions in errors stay right.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::warehouse::Words;

/// How much of a table ANALYZE looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Looks {
    /// At all of it, unless it is large.
    #[default]
    AsItIs,
    AtAll,
    /// At about a share of it, between 0 and 1.
    At(f64),
}

/// The text to be parsed, and what was cut out of it.
///
/// Errors: an option that ANALYZE has not, or has twice (42601), or a share that is none (22023).
pub(crate) fn cut(text: &str) -> Result<(String, Looks)> {
    const ANALYZE: &str = "analyze";
    let begins =
        text.trim_start().get(..ANALYZE.len()).is_some_and(|word| word.eq_ignore_ascii_case(ANALYZE));
    let Some(words) = begins.then(|| Words::of(text)).flatten() else {
        return Ok((text.to_string(), Looks::default()));
    };
    if words.is_at(1, "verbose") {
        return Ok((blanked(text, words.bytes(1..2)), Looks::default()));
    }
    let end = words.after_parentheses(1).filter(|_| words.token(1) == Some(&Token::LParen));
    let Some(end) = end.filter(|_| words.is_at(0, ANALYZE)) else {
        return Ok((text.to_string(), Looks::default()));
    };
    let options: Vec<&Token> = (2..end - 1).filter_map(|at| words.token(at)).collect();
    let looks = looks(&options)?;
    Ok((blanked(text, words.bytes(1..end)), looks))
}

fn looks(options: &[&Token]) -> Result<Looks> {
    let mut looks = None;
    for option in options.split(|token| **token == Token::Comma) {
        let Some((Token::Word(name), value)) = option.split_first() else {
            return Err(wrong("ANALYZE (…) takes names of options".to_string()));
        };
        let asked = match name.value.to_ascii_lowercase().as_str() {
            "full" => is_on("full", value)?.then_some(Looks::AtAll),
            "sample" => Some(share(value)?),
            own @ ("verbose" | "skip_locked") => {
                is_on(own, value)?;
                None
            }
            "buffer_usage_limit" => None,
            other => return Err(wrong(format!("unrecognized ANALYZE option \"{other}\""))),
        };
        if looks.is_some() && asked.is_some() {
            return Err(wrong("conflicting or redundant options".to_string()));
        }
        looks = looks.or(asked);
    }
    Ok(looks.unwrap_or_default())
}

fn is_on(name: &str, value: &[&Token]) -> Result<bool> {
    let text = match value {
        [] => return Ok(true),
        [one] => one.to_string().trim_matches('\'').to_ascii_lowercase(),
        _ => String::new(),
    };
    match text.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(wrong(format!("{name} requires a Boolean value"))),
    }
}

/// A number of hundredths as a share.
fn share(value: &[&Token]) -> Result<Looks> {
    let text: String = value.iter().map(ToString::to_string).collect();
    let Ok(percent) = text.parse::<f64>() else {
        return Err(wrong("sample requires a numeric value".to_string()));
    };
    match percent {
        100.0 => Ok(Looks::AtAll),
        _ if percent > 0.0 && percent < 100.0 => Ok(Looks::At(percent / 100.0)),
        _ => {
            let message = format!("a sample of {text} percent: it has to be greater than 0 and at most 100");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
        }
    }
}

fn wrong(message: String) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

fn blanked(text: &str, bytes: std::ops::Range<usize>) -> String {
    let blanks: String = text[bytes.clone()].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
    format!("{}{blanks}{}", &text[..bytes.start], &text[bytes.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_cut_out() {
        let of = |text: &str| cut(text).unwrap();
        assert_eq!(of("ANALYZE t (a)"), ("ANALYZE t (a)".to_string(), Looks::AsItIs));
        assert_eq!(of("ANALYZE (FULL) t"), ("ANALYZE        t".to_string(), Looks::AtAll));
        assert_eq!(of("analyze ( sample 12.5 ) t").1, Looks::At(0.125));
        assert_eq!(of("ANALYZE (SAMPLE 100)").1, Looks::AtAll);
        assert_eq!(of("ANALYZE (FULL off, VERBOSE, SKIP_LOCKED true) t").1, Looks::AsItIs);
        assert_eq!(of("ANALYZE (BUFFER_USAGE_LIMIT '1 MB', SAMPLE 1) t").1, Looks::At(0.01));
        assert_eq!(of("ANALYZE VERBOSE t").0, "ANALYZE         t");
        assert_eq!(of("SELECT 1").0, "SELECT 1");
    }

    #[test]
    fn nonsense_is_refused() {
        let cases = [
            ("ANALYZE (SAMPLE 0) t", "22023"),
            ("ANALYZE (SAMPLE -5) t", "22023"),
            ("ANALYZE (SAMPLE 101) t", "22023"),
            ("ANALYZE (SAMPLE) t", "42601"),
            ("ANALYZE (SAMPLE many) t", "42601"),
            ("ANALYZE (FULL maybe) t", "42601"),
            ("ANALYZE (FULL, SAMPLE 10) t", "42601"),
            ("ANALYZE (NOSUCH) t", "42601"),
            ("ANALYZE () t", "42601"),
        ];
        for (text, code) in cases {
            assert_eq!(harrier_sqlstate::of(&cut(text).unwrap_err()).to_string(), code, "{text}");
        }
    }
}
