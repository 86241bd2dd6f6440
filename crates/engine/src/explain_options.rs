//! `EXPLAIN (…)` with the options that PostgreSQL's clients write, as DataFusion's parser takes them: a
//! format has another name, and options about what only PostgreSQL measures are left out, as is VERBOSE with
//! a format, which is looked up here again when the plan is told ([`asked`]).

use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// What they ask for is not there, and nothing is wrong without it.
const IGNORED: [&str; 6] = ["BUFFERS", "WAL", "SETTINGS", "GENERIC_PLAN", "MEMORY", "SERIALIZE"];

/// How a plan is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// As Harrier does.
    #[default]
    Text,
    Json,
    Xml,
    Yaml,
}

impl Format {
    fn named(token: &TokenWithSpan) -> Option<Self> {
        let formats = [("text", Self::Text), ("json", Self::Json), ("xml", Self::Xml), ("yaml", Self::Yaml)];
        let name = match &token.token {
            Token::Word(word) => &word.value,
            Token::SingleQuotedString(text) => text,
            _ => return None,
        };
        formats.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }
}

/// The format that a statement asks for, and whether it wants to be told more.
pub(crate) fn asked(text: &str) -> (Format, bool) {
    let Some(Options { options, .. }) = Options::of(text, &PostgreSqlDialect {}) else {
        return Default::default();
    };
    (format(&options).unwrap_or_default(), options.iter().any(|option| is_on(option, "VERBOSE")))
}

/// One option, as it is written.
type Written = Vec<TokenWithSpan>;

fn format(options: &[Written]) -> Option<Format> {
    options.iter().find_map(|option| match option.as_slice() {
        [name, format] if is(name, "FORMAT") => Format::named(format),
        _ => None,
    })
}

fn is_on(option: &[TokenWithSpan], name: &str) -> bool {
    match option {
        [found] => is(found, name),
        [found, value] if is(found, name) => {
            let said = value.token.to_string();
            ["true", "on", "1"].iter().any(|word| said.trim_matches('\'').eq_ignore_ascii_case(word))
        }
        _ => false,
    }
}

/// The parts of a statement with options.
struct Options {
    /// `EXPLAIN (`.
    begin: Vec<TokenWithSpan>,
    options: Vec<Written>,
    close: TokenWithSpan,
    rest: Vec<TokenWithSpan>,
}

/// The tokens to parse instead of `text`, if it is such a statement.
pub(crate) fn tokens(text: &str, dialect: &dyn Dialect) -> Option<Vec<TokenWithSpan>> {
    let Options { begin: mut tokens, options, close, rest } = Options::of(text, dialect)?;
    let is_run = options.iter().any(|option| is_on(option, "ANALYZE"));
    let format = format(&options).unwrap_or_default();
    let is_left_out = |option: &Written| {
        let is_one = |name: &str| option.first().is_some_and(|token| is(token, name));
        IGNORED.iter().any(|name| is_one(name))
            || is_one("FORMAT")
                && format == Format::Text
                && self::format(std::slice::from_ref(option)).is_some()
            || is_one("VERBOSE") && format != Format::Text
    };
    let kept: Vec<Written> = options
        .into_iter()
        .filter(|option| !is_left_out(option))
        .map(|option| with_format(option, is_run))
        .collect();
    if kept.is_empty() {
        // Without parentheses.
        tokens.pop();
    } else {
        let comma = TokenWithSpan { token: Token::Comma, span: close.span };
        tokens.extend(kept.join(&comma));
        tokens.push(close);
    }
    tokens.extend(rest);
    Some(tokens)
}

impl Options {
    fn of(text: &str, dialect: &dyn Dialect) -> Option<Self> {
        const EXPLAIN: &str = "explain";
        let begins =
            text.trim_start().get(..EXPLAIN.len()).is_some_and(|word| word.eq_ignore_ascii_case(EXPLAIN));
        if !begins {
            return None;
        }
        let mut tokens = Tokenizer::new(dialect, text).tokenize_with_location().ok()?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        if tokens.get(1)?.token != Token::LParen {
            return None;
        }
        let end = tokens.iter().position(|token| token.token == Token::RParen)?;
        let rest = tokens.split_off(end + 1);
        let close = tokens.pop()?;
        let options = tokens.split_off(2);
        // A query in parentheses has no such options.
        if options.iter().any(|token| token.token == Token::LParen) {
            return None;
        }
        let options = options.split(|token| token.token == Token::Comma).map(<[_]>::to_vec).collect();
        Some(Self { begin: tokens, options, close, rest })
    }
}

fn is(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

/// All that is told as one text is JSON to the parser. What has run is told so in JSON alone.
fn with_format(mut option: Written, is_run: bool) -> Written {
    if let [name, format] = option.as_mut_slice()
        && is(name, "FORMAT")
        && let Some(known) = Format::named(format)
        && (known == Format::Json || !is_run)
    {
        format.token = Token::make_word("pgjson", None);
    }
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Option<String> {
        let tokens = tokens(text, &PostgreSqlDialect {})?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_of_postgres_become_those_of_the_parser() {
        let of = |text: &str| written(text).unwrap_or_default();
        assert_eq!(of("EXPLAIN (FORMAT JSON) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(
            of("explain (analyze, buffers true, format text) select (1)"),
            "explain ( analyze ) select ( 1 )"
        );
        assert_eq!(of(" EXPLAIN (BUFFERS, WAL) SELECT 1"), "EXPLAIN SELECT 1");
        assert_eq!(of("EXPLAIN (FORMAT xml) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(of("EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(of("EXPLAIN (VERBOSE on, FORMAT TEXT) SELECT 1"), "EXPLAIN ( VERBOSE on ) SELECT 1");
        assert_eq!(of("EXPLAIN (ANALYZE, FORMAT xml) SELECT 1"), "EXPLAIN ( ANALYZE , FORMAT xml ) SELECT 1");
        assert_eq!(of("EXPLAIN (FORMAT tree) SELECT 1"), "EXPLAIN ( FORMAT tree ) SELECT 1");
        assert_eq!(asked("EXPLAIN (VERBOSE, FORMAT yaml) SELECT 1"), (Format::Yaml, true));
        assert_eq!(asked("explain (verbose off, format 'json') select 1"), (Format::Json, false));
        assert_eq!(asked("EXPLAIN SELECT 1"), (Format::Text, false));
    }

    #[test]
    fn others_are_left_alone() {
        for text in ["SELECT 1", "EXPLAIN SELECT (1)", "EXPLAIN (SELECT (1))", "explained", "EXPLAIN (", "é"]
        {
            assert_eq!(written(text), None, "{text}");
        }
        // A query, of which nothing is an option.
        assert_eq!(written("EXPLAIN (SELECT 1)").as_deref(), Some("EXPLAIN ( SELECT 1 )"));
    }
}
