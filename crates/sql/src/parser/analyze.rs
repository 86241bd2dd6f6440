//! Options of `ANALYZE (…)`, which the parser does not know.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::tokens::Tokens;

/// The sample size of ANALYZE.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum SampleSize {
    /// The whole table, unless it is large.
    #[default]
    Default,
    Full,
    /// About this fraction of it, between 0 and 1.
    Share(f64),
}

/// Takes the options of an ANALYZE.
///
/// Errors: unknown or duplicate option (42601), invalid fraction (22023).
pub fn take(tokens: &mut Tokens<'_>) -> Result<SampleSize> {
    if !tokens.is(0, "analyze") {
        return Ok(SampleSize::default());
    }
    if tokens.is(1, "verbose") {
        tokens.remove(1..2);
        return Ok(SampleSize::default());
    }
    let end = tokens.after_parentheses(1).filter(|_| tokens.is_token(1, &Token::LParen));
    let Some(end) = end else { return Ok(SampleSize::default()) };
    let options: Vec<&Token> = (2..end - 1).filter_map(|at| tokens.token(at)).collect();
    let size = sample_size(&options)?;
    tokens.remove(1..end);
    Ok(size)
}

fn sample_size(options: &[&Token]) -> Result<SampleSize> {
    let mut size = None;
    for option in options.split(|token| **token == Token::Comma) {
        let Some((Token::Word(name), value)) = option.split_first() else {
            return Err(option_error("ANALYZE (…) takes names of options".to_string()));
        };
        let asked = match name.value.to_ascii_lowercase().as_str() {
            "full" => is_on("full", value)?.then_some(SampleSize::Full),
            "sample" => Some(fraction(value)?),
            own @ ("verbose" | "skip_locked") => {
                is_on(own, value)?;
                None
            }
            "buffer_usage_limit" => None,
            other => return Err(option_error(format!("unrecognized ANALYZE option \"{other}\""))),
        };
        if size.is_some() && asked.is_some() {
            return Err(option_error("conflicting or redundant options".to_string()));
        }
        size = size.or(asked);
    }
    Ok(size.unwrap_or_default())
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
        _ => Err(option_error(format!("{name} requires a Boolean value"))),
    }
}

/// Parses a percentage as a fraction.
fn fraction(value: &[&Token]) -> Result<SampleSize> {
    let text: String = value.iter().map(ToString::to_string).collect();
    let Ok(percent) = text.parse::<f64>() else {
        return Err(option_error("sample requires a numeric value".to_string()));
    };
    match percent {
        100.0 => Ok(SampleSize::Full),
        _ if percent > 0.0 && percent < 100.0 => Ok(SampleSize::Share(percent / 100.0)),
        _ => {
            let message = format!("a sample of {text} percent: it has to be greater than 0 and at most 100");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
        }
    }
}

fn option_error(message: String) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn options_are_cut_out() {
        let of = |text: &str| {
            let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
            let size = take(&mut tokens).unwrap();
            (tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), size)
        };
        assert_eq!(of("ANALYZE t (a)"), ("ANALYZE t ( a )".to_string(), SampleSize::Default));
        assert_eq!(of("ANALYZE (FULL) t"), ("ANALYZE t".to_string(), SampleSize::Full));
        assert_eq!(of("analyze ( sample 12.5 ) t").1, SampleSize::Share(0.125));
        assert_eq!(of("ANALYZE (SAMPLE 100)").1, SampleSize::Full);
        assert_eq!(of("ANALYZE (FULL off, VERBOSE, SKIP_LOCKED true) t").1, SampleSize::Default);
        assert_eq!(of("ANALYZE (BUFFER_USAGE_LIMIT '1 MB', SAMPLE 1) t").1, SampleSize::Share(0.01));
        assert_eq!(of("ANALYZE VERBOSE t").0, "ANALYZE t");
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
            assert_eq!(
                harrier_sqlstate::of(&take(&mut Tokens::of(text, &SqlDialect).unwrap()).unwrap_err())
                    .to_string(),
                code,
                "{text}"
            );
        }
    }
}
