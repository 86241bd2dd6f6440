//! `EXPLAIN (…)` with the options that PostgreSQL's clients write, as DataFusion's parser takes them: a
//! format has another name, and options about what only PostgreSQL measures are left out, as is VERBOSE with
//! a format.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Tokens, word};

/// What they ask for is not there, and nothing is wrong without it.
const IGNORED: [&str; 6] = ["BUFFERS", "WAL", "SETTINGS", "GENERIC_PLAN", "MEMORY", "SERIALIZE"];

/// How a plan is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As Harrier does.
    #[default]
    Text,
    Json,
    Xml,
    Yaml,
}

impl Format {
    fn named(token: &Token) -> Option<Self> {
        let formats = [("text", Self::Text), ("json", Self::Json), ("xml", Self::Xml), ("yaml", Self::Yaml)];
        let name = match token {
            Token::Word(word) => &word.value,
            Token::SingleQuotedString(text) => text,
            _ => return None,
        };
        formats.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }
}

/// What an EXPLAIN asks for beside the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplainOptions {
    pub format: Format,
    pub is_verbose: bool,
}

/// One option, as it is written.
type Written = Vec<Token>;

/// Writes what the parser knows for the options of an EXPLAIN. Returns what they ask for.
pub fn rewrite(tokens: &mut Tokens<'_>) -> ExplainOptions {
    let Some((options, end)) = options_of(tokens) else { return ExplainOptions::default() };
    let is_run = options.iter().any(|option| is_on(option, "ANALYZE"));
    let format = format(&options).unwrap_or_default();
    let asked = ExplainOptions { format, is_verbose: options.iter().any(|option| is_on(option, "VERBOSE")) };
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
    match kept.is_empty() {
        // Without parentheses.
        true => tokens.remove(1..end),
        false => tokens.replace(2..end - 1, kept.join(&Token::Comma)),
    }
    asked
}

/// The options in parentheses behind EXPLAIN, and the token behind these.
fn options_of(tokens: &Tokens<'_>) -> Option<(Vec<Written>, usize)> {
    if !tokens.is(0, "explain") || !tokens.is_token(1, &Token::LParen) {
        return None;
    }
    let close = (2..tokens.len()).find(|at| tokens.is_token(*at, &Token::RParen))?;
    let options: Vec<Token> = (2..close).filter_map(|at| tokens.token(at).cloned()).collect();
    // A query in parentheses has no such options.
    if options.is_empty() || options.contains(&Token::LParen) {
        return None;
    }
    Some((options.split(|token| *token == Token::Comma).map(<[_]>::to_vec).collect(), close + 1))
}

fn format(options: &[Written]) -> Option<Format> {
    options.iter().find_map(|option| match option.as_slice() {
        [name, format] if is(name, "FORMAT") => Format::named(format),
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

/// All that is told as one text is JSON to the parser. What has run is told so in JSON alone.
fn with_format(mut option: Written, is_run: bool) -> Written {
    if let [name, format] = option.as_mut_slice()
        && is(name, "FORMAT")
        && let Some(known) = Format::named(format)
        && (known == Format::Json || !is_run)
    {
        *format = word("pgjson");
    }
    option
}

#[cfg(test)]
mod tests {
    use super::super::testing::changed;
    use super::*;
    use crate::dialect::SqlDialect;

    fn of(text: &str) -> String {
        changed(text, |tokens| {
            rewrite(tokens);
        })
    }

    fn asked(text: &str) -> (Format, bool) {
        let ExplainOptions { format, is_verbose } = rewrite(&mut Tokens::of(text, &SqlDialect).unwrap());
        (format, is_verbose)
    }

    #[test]
    fn options_of_postgres_become_those_of_the_parser() {
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
            assert_eq!(of(text), changed(text, |_| ()), "{text}");
        }
        // A query, of which nothing is an option.
        assert_eq!(of("EXPLAIN (SELECT 1)"), "EXPLAIN ( SELECT 1 )");
    }
}
