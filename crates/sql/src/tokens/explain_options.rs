//! `EXPLAIN (…)` with the options that PostgreSQL's clients send: renames the format for DataFusion's parser,
//! and drops options about what only PostgreSQL measures, and VERBOSE beside a format.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Tokens, word};

/// Options accepted without effect.
const IGNORED: [&str; 6] = ["BUFFERS", "WAL", "SETTINGS", "GENERIC_PLAN", "MEMORY", "SERIALIZE"];

/// Output format of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Harrier's own text format.
    #[default]
    Text,
    Json,
    Xml,
    Yaml,
}

impl Format {
    fn from_token(token: &Token) -> Option<Self> {
        let formats = [("text", Self::Text), ("json", Self::Json), ("xml", Self::Xml), ("yaml", Self::Yaml)];
        let name = match token {
            Token::Word(word) => &word.value,
            Token::SingleQuotedString(text) => text,
            _ => return None,
        };
        formats.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }
}

/// EXPLAIN options that the parser does not keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplainOptions {
    pub format: Format,
    pub is_verbose: bool,
}

/// The tokens of one option.
type OptionTokens = Vec<Token>;

/// Rewrites the options of an EXPLAIN for the parser. Returns the requested ones.
pub fn rewrite(tokens: &mut Tokens<'_>) -> ExplainOptions {
    let Some((options, end)) = options_of(tokens) else { return ExplainOptions::default() };
    let format = format(&options).unwrap_or_default();
    let requested =
        ExplainOptions { format, is_verbose: options.iter().any(|option| is_on(option, "VERBOSE")) };
    let is_left_out = |option: &OptionTokens| {
        let is_one = |name: &str| option.first().is_some_and(|token| is(token, name));
        IGNORED.iter().any(|name| is_one(name))
            || is_one("FORMAT")
                && format == Format::Text
                && self::format(std::slice::from_ref(option)).is_some()
            || is_one("VERBOSE") && format != Format::Text
    };
    let kept: Vec<OptionTokens> =
        options.into_iter().filter(|option| !is_left_out(option)).map(with_format).collect();
    match kept.is_empty() {
        // Drops the parentheses, too.
        true => tokens.remove(1..end),
        false => tokens.replace(2..end - 1, kept.join(&Token::Comma)),
    }
    requested
}

/// The parenthesized options after EXPLAIN, and the index after them.
fn options_of(tokens: &Tokens<'_>) -> Option<(Vec<OptionTokens>, usize)> {
    if !tokens.is(0, "explain") || !tokens.is_token(1, &Token::LParen) {
        return None;
    }
    let close = (2..tokens.len()).find(|at| tokens.is_token(*at, &Token::RParen))?;
    let options: Vec<Token> = (2..close).filter_map(|at| tokens.token(at).cloned()).collect();
    // It is a parenthesized query instead.
    if options.is_empty() || options.contains(&Token::LParen) {
        return None;
    }
    Some((options.split(|token| *token == Token::Comma).map(<[_]>::to_vec).collect(), close + 1))
}

fn format(options: &[OptionTokens]) -> Option<Format> {
    options.iter().find_map(|option| match option.as_slice() {
        [name, format] if is(name, "FORMAT") => Format::from_token(format),
        _ => None,
    })
}

fn is_on(option: &[Token], name: &str) -> bool {
    match option {
        [found] => is(found, name),
        [found, value] if is(found, name) => {
            let said = value.to_string();
            ["true", "on", "1"].iter().any(|word| said.trim_matches('\'').eq_ignore_ascii_case(word))
        }
        _ => false,
    }
}

fn is(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

/// Maps every format other than text to the parser's `pgjson`.
fn with_format(mut option: OptionTokens) -> OptionTokens {
    if let [name, format] = option.as_mut_slice()
        && is(name, "FORMAT")
        && Format::from_token(format).is_some()
    {
        *format = word("pgjson");
    }
    option
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;
    use crate::dialect::SqlDialect;

    fn of(text: &str) -> String {
        edited_text(text, |tokens| {
            rewrite(tokens);
        })
    }

    fn options(text: &str) -> (Format, bool) {
        let ExplainOptions { format, is_verbose } = rewrite(&mut Tokens::of(text, &SqlDialect).unwrap());
        (format, is_verbose)
    }

    #[test]
    fn explain_options_are_rewritten_for_the_parser() {
        assert_eq!(of("EXPLAIN (FORMAT JSON) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(
            of("explain (analyze, buffers true, format text) select (1)"),
            "explain ( analyze ) select ( 1 )"
        );
        assert_eq!(of(" EXPLAIN (BUFFERS, WAL) SELECT 1"), "EXPLAIN SELECT 1");
        assert_eq!(of("EXPLAIN (FORMAT xml) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(of("EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(of("EXPLAIN (VERBOSE on, FORMAT TEXT) SELECT 1"), "EXPLAIN ( VERBOSE on ) SELECT 1");
        assert_eq!(
            of("EXPLAIN (ANALYZE, FORMAT xml) SELECT 1"),
            "EXPLAIN ( ANALYZE , FORMAT pgjson ) SELECT 1"
        );
        assert_eq!(of("EXPLAIN (FORMAT tree) SELECT 1"), "EXPLAIN ( FORMAT tree ) SELECT 1");
        assert_eq!(options("EXPLAIN (VERBOSE, FORMAT yaml) SELECT 1"), (Format::Yaml, true));
        assert_eq!(options("explain (verbose off, format 'json') select 1"), (Format::Json, false));
        assert_eq!(options("EXPLAIN SELECT 1"), (Format::Text, false));
    }

    #[test]
    fn other_statements_are_unchanged() {
        for text in ["SELECT 1", "EXPLAIN SELECT (1)", "EXPLAIN (SELECT (1))", "explained", "EXPLAIN (", "é"]
        {
            assert_eq!(of(text), edited_text(text, |_| ()), "{text}");
        }
        // A parenthesized query.
        assert_eq!(of("EXPLAIN (SELECT 1)"), "EXPLAIN ( SELECT 1 )");
    }
}
