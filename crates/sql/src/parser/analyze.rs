//! Options of `ANALYZE (…)`, and its tables after the first, which the parser does not know.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

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

/// What is taken out of an ANALYZE.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnalyzeClauses {
    pub sample: SampleSize,
    /// The tables after the first, with the columns that are analyzed; none stand for all.
    pub others: Vec<(ObjectName, Vec<Ident>)>,
}

/// Takes the options of an ANALYZE, and its tables after the first.
///
/// Errors: unknown or duplicate option, or the list of tables is malformed (42601), invalid fraction (22023).
pub fn take(tokens: &mut Tokens<'_>) -> Result<AnalyzeClauses> {
    if !tokens.is(0, "analyze") {
        return Ok(AnalyzeClauses::default());
    }
    let sample = take_sample(tokens)?;
    Ok(AnalyzeClauses { sample, others: take_others(tokens)? })
}

fn take_others(tokens: &mut Tokens<'_>) -> Result<Vec<(ObjectName, Vec<Ident>)>> {
    let mut at = tokens.after_name(1);
    if tokens.is_token(at, &Token::LParen) {
        at = tokens.after_parentheses(at).unwrap_or(at);
    }
    if !tokens.is_token(at, &Token::Comma) {
        return Ok(vec![]);
    }
    let mut words = StatementWords(tokens.part(at..tokens.len()).parser(NESTING_MAX));
    let mut others = vec![];
    while words.0.consume_token(&Token::Comma) {
        others.push(words.table_with_columns()?);
    }
    words.end()?;
    tokens.remove(at..tokens.len());
    Ok(others)
}

fn take_sample(tokens: &mut Tokens<'_>) -> Result<SampleSize> {
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
            let size = take(&mut tokens).unwrap().sample;
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
    fn tables_after_the_first_are_cut_out() {
        let of = |text: &str| {
            let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
            let taken = take(&mut tokens)?;
            let others = taken.others.iter().map(|(name, columns)| format!("{name}{}", columns.len()));
            let left = tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            Ok::<_, datafusion::error::DataFusionError>((left, others.collect::<Vec<_>>().join(" ")))
        };
        let check = |text: &str, left: &str, others: &str| {
            assert_eq!(of(text).unwrap(), (left.to_string(), others.to_string()), "{text}");
        };
        check("ANALYZE t, s.u;", "ANALYZE t", "s.u0");
        check("ANALYZE (FULL) s.t (a, b), u (c, d), \"V\"", "ANALYZE s . t ( a , b )", "u2 \"V\"0");
        check("ANALYZE t", "ANALYZE t", "");
        check("ANALYZE", "ANALYZE", "");
        for text in ["ANALYZE t,", "ANALYZE t, u v", "ANALYZE t, u ()", "ANALYZE t, (a)"] {
            assert_eq!(harrier_sqlstate::of(&of(text).unwrap_err()).as_str(), "42601", "{text}");
        }
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
