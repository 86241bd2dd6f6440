//! Parser of sequence statements, whose options may come in any order.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::SqlState;
use harrier_sqlstate::error;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

/// A statement about sequences or identity columns.
#[derive(Debug, Clone)]
pub enum SequenceStatement {
    Create { name: ObjectName, if_not_exists: bool, options: SequenceOptions },
    Alter { name: ObjectName, if_exists: bool, options: SequenceOptions },
    Rename { name: ObjectName, if_exists: bool, to: String },
    Drop { names: Vec<ObjectName>, if_exists: bool, cascade: bool },
    AlterIdentity { table: ObjectName, if_exists: bool, column: String, change: IdentityChange },
}

/// Options of a sequence; `None`: not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    pub kind: Option<SequenceType>,
    pub increment: Option<i64>,
    /// Inner `None`: NO MINVALUE.
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    pub cache: Option<i64>,
    pub cycles: Option<bool>,
    /// Inner `None`: OWNED BY NONE.
    pub owned_by: Option<Option<ObjectName>>,
    /// Inner `None`: at its start value.
    pub restart: Option<Option<i64>>,
    /// SEQUENCE NAME of an identity column.
    pub name: Option<ObjectName>,
}

/// Whether an identity column accepts explicit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityKind {
    Always,
    ByDefault,
}

impl IdentityKind {
    /// As the `GENERATED` clause names it, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::ByDefault => "by default",
        }
    }
}

/// A change of an identity column by ALTER COLUMN.
#[derive(Debug, Clone)]
pub enum IdentityChange {
    Add(IdentityKind, SequenceOptions),
    Drop { if_exists: bool },
    Set(Option<IdentityKind>, SequenceOptions),
}

/// A serial or identity column of CREATE TABLE or ADD COLUMN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedColumn {
    pub column: String,
    /// `None`: a serial column.
    pub identity: Option<IdentityKind>,
    pub options: SequenceOptions,
}

/// The OVERRIDING clause of an INSERT, for identity columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// Explicit values are written.
    SystemValue,
    /// Explicit values are ignored.
    UserValue,
}

/// The integer type of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceType {
    SmallInt,
    Integer,
    BigInt,
}

/// Parses a sequence statement; `None` for others, which their words distinguish.
///
/// Errors: it is malformed (42601).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<SequenceStatement>> {
    const WORDS: [&str; 4] = ["sequence", "identity", "generated", "restart"];
    let may_be_one = tokens.is_one_of(0, &["create", "alter", "drop"])
        && (1..tokens.len()).any(|at| tokens.is_one_of(at, &WORDS));
    if !may_be_one {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let Some(statement) = statement(&mut words)? else {
        return Ok(None);
    };
    match words.0.peek_token().token {
        Token::EOF | Token::SemiColon => Ok(Some(statement)),
        _ => Err(words.syntax_error()),
    }
}

/// Parses sequence options.
///
/// Errors: unknown or duplicate option (42601).
pub fn options_of(tokens: &Tokens<'_>) -> Result<SequenceOptions> {
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let options = options(&mut words)?;
    match words.0.peek_token().token {
        Token::EOF => Ok(options),
        _ => Err(words.syntax_error()),
    }
}

fn statement(words: &mut StatementWords<'_>) -> Result<Option<SequenceStatement>> {
    if words.take("create") {
        let is_temporary = words.take_any(&["temp", "temporary"]);
        let _ = words.take("unlogged");
        if !words.take("sequence") {
            return Ok(None);
        }
        if is_temporary {
            return Err(error(SqlState::FEATURE_NOT_SUPPORTED, "temporary sequences are not supported"));
        }
        let if_not_exists = words.take_all(&["if", "not", "exists"]);
        let name = words.object()?;
        let options = options(words)?;
        return match options.restart.is_some() || options.name.is_some() {
            true => {
                Err(error(SqlState::SYNTAX_ERROR, "RESTART and SEQUENCE NAME are not for CREATE SEQUENCE"))
            }
            false => Ok(Some(SequenceStatement::Create { name, if_not_exists, options })),
        };
    }
    if words.take_all(&["drop", "sequence"]) {
        let if_exists = words.take_all(&["if", "exists"]);
        let mut names = vec![words.object()?];
        while words.0.consume_token(&Token::Comma) {
            names.push(words.object()?);
        }
        let cascade = words.take("cascade");
        let _ = !cascade && words.take("restrict");
        return Ok(Some(SequenceStatement::Drop { names, if_exists, cascade }));
    }
    if words.take_all(&["alter", "sequence"]) {
        let if_exists = words.take_all(&["if", "exists"]);
        let name = words.object()?;
        if words.take_all(&["rename", "to"]) {
            let to = words.name()?;
            return Ok(Some(SequenceStatement::Rename { name, if_exists, to }));
        }
        if words.take_all(&["set", "schema"]) {
            return Err(error(
                SqlState::FEATURE_NOT_SUPPORTED,
                "ALTER SEQUENCE … SET SCHEMA is not supported",
            ));
        }
        let options = options(words)?;
        return match options == SequenceOptions::default() {
            true => Err(words.syntax_error()),
            false => Ok(Some(SequenceStatement::Alter { name, if_exists, options })),
        };
    }
    if words.take_all(&["alter", "table"]) {
        return alter_table(words);
    }
    Ok(None)
}

/// Parses `ALTER TABLE t ALTER COLUMN c …`, if it is one change of the column's identity.
fn alter_table(words: &mut StatementWords<'_>) -> Result<Option<SequenceStatement>> {
    let if_exists = words.take_all(&["if", "exists"]);
    let _ = words.take("only");
    let Ok(table) = words.object() else { return Ok(None) };
    if !words.take("alter") {
        return Ok(None);
    }
    let _ = words.take("column");
    let Ok(column) = words.name() else { return Ok(None) };
    let change = if words.take_all(&["drop", "identity"]) {
        IdentityChange::Drop { if_exists: words.take_all(&["if", "exists"]) }
    } else if words.take_all(&["add", "generated"]) {
        let identity = identity_kind(words)?;
        words.expect("as")?;
        words.expect("identity")?;
        let options = match words.0.consume_token(&Token::LParen) {
            true => {
                let options = options(words)?;
                words.0.expect_token(&Token::RParen)?;
                options
            }
            false => SequenceOptions::default(),
        };
        IdentityChange::Add(identity, options)
    } else {
        let (mut identity, mut all) = (None, SequenceOptions::default());
        loop {
            if words.is("restart") {
                one_option(words, &mut all)?;
            } else if words.is("set") && words.is_at(1, "generated") {
                let _ = words.take_all(&["set", "generated"]);
                identity = Some(identity_kind(words)?);
            } else if words.is("set") && OPTIONS.iter().any(|option| words.is_at(1, option)) {
                let _ = words.take("set");
                one_option(words, &mut all)?;
            } else {
                break;
            }
        }
        if identity.is_none() && all == SequenceOptions::default() {
            return Ok(None);
        }
        IdentityChange::Set(identity, all)
    };
    if words.0.peek_token().token == Token::Comma {
        let message = "ALTER TABLE changes the identity of a column and nothing else in one statement";
        return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(Some(SequenceStatement::AlterIdentity { table, if_exists, column, change }))
}

fn identity_kind(words: &mut StatementWords<'_>) -> Result<IdentityKind> {
    if words.take("always") {
        return Ok(IdentityKind::Always);
    }
    words.expect("by")?;
    words.expect("default")?;
    Ok(IdentityKind::ByDefault)
}

/// First keywords of options.
const OPTIONS: [&str; 11] = [
    "as",
    "increment",
    "minvalue",
    "maxvalue",
    "no",
    "start",
    "cache",
    "cycle",
    "owned",
    "restart",
    "sequence",
];

fn options(words: &mut StatementWords<'_>) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    while OPTIONS.iter().any(|option| words.is(option)) {
        one_option(words, &mut options)?;
    }
    Ok(options)
}

fn one_option(words: &mut StatementWords<'_>, options: &mut SequenceOptions) -> Result<()> {
    if words.take("as") {
        set_once(&mut options.kind, kind(words)?)
    } else if words.take("increment") {
        let _ = words.take("by");
        set_once(&mut options.increment, number(words)?)
    } else if words.take("minvalue") {
        set_once(&mut options.min, Some(number(words)?))
    } else if words.take("maxvalue") {
        set_once(&mut options.max, Some(number(words)?))
    } else if words.take_all(&["no", "minvalue"]) {
        set_once(&mut options.min, None)
    } else if words.take_all(&["no", "maxvalue"]) {
        set_once(&mut options.max, None)
    } else if words.take_all(&["no", "cycle"]) {
        set_once(&mut options.cycles, false)
    } else if words.take("cycle") {
        set_once(&mut options.cycles, true)
    } else if words.take("start") {
        let _ = words.take("with");
        set_once(&mut options.start, number(words)?)
    } else if words.take("cache") {
        set_once(&mut options.cache, number(words)?)
    } else if words.take_all(&["owned", "by"]) {
        let owner = if words.take("none") { None } else { Some(words.object()?) };
        set_once(&mut options.owned_by, owner)
    } else if words.take("restart") {
        let has_number = words.take("with")
            || matches!(words.0.peek_token().token, Token::Number(..) | Token::Minus | Token::Plus);
        set_once(&mut options.restart, if has_number { Some(number(words)?) } else { None })
    } else if words.take_all(&["sequence", "name"]) {
        set_once(&mut options.name, words.object()?)
    } else {
        Err(words.syntax_error())
    }
}

fn set_once<T>(option: &mut Option<T>, value: T) -> Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(error(SqlState::SYNTAX_ERROR, "conflicting or redundant options")),
    }
}

fn number(words: &mut StatementWords<'_>) -> Result<i64> {
    let is_negative = words.0.consume_token(&Token::Minus);
    let _ = !is_negative && words.0.consume_token(&Token::Plus);
    let Token::Number(digits, _) = words.0.peek_token().token else {
        return Err(words.syntax_error());
    };
    let text = format!("{}{digits}", if is_negative { "-" } else { "" });
    let Ok(number) = text.parse::<i64>() else {
        let message = format!("value \"{text}\" is out of range for type bigint");
        return Err(error(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    };
    words.0.next_token();
    Ok(number)
}

fn kind(words: &mut StatementWords<'_>) -> Result<SequenceType> {
    const NAMES: [(&str, SequenceType); 7] = [
        ("smallint", SequenceType::SmallInt),
        ("int2", SequenceType::SmallInt),
        ("integer", SequenceType::Integer),
        ("int", SequenceType::Integer),
        ("int4", SequenceType::Integer),
        ("bigint", SequenceType::BigInt),
        ("int8", SequenceType::BigInt),
    ];
    let named = NAMES.iter().find(|(name, _)| words.take(name)).map(|(_, kind)| *kind);
    named.ok_or_else(|| -> DataFusionError {
        error(SqlState::INVALID_PARAMETER_VALUE, "sequence type must be smallint, integer, or bigint")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn options_of(text: &str) -> Result<SequenceOptions> {
        super::options_of(&Tokens::of(text, &SqlDialect).unwrap())
    }

    fn parse(text: &str) -> Result<Option<SequenceStatement>> {
        super::parse(&Tokens::of(text, &SqlDialect).unwrap())
    }

    #[test]
    fn sequence_options_have_any_order_without_duplicates() {
        let options =
            options_of("cache 3 START WITH -5 no cycle minvalue -9223372036854775808 INCREMENT -2").unwrap();
        assert_eq!((options.cache, options.start, options.cycles), (Some(3), Some(-5), Some(false)));
        assert_eq!((options.min, options.increment), (Some(Some(i64::MIN)), Some(-2)));
        assert!(options_of("CACHE 3 CACHE 4").is_err() && options_of("START x").is_err());
    }

    #[test]
    fn other_statements_are_unchanged() {
        for text in [
            "SELECT 'create sequence'",
            "CREATE TABLE sequence (a INT)",
            "ALTER TABLE t ALTER COLUMN generated SET NOT NULL",
            "ALTER TABLE t ADD COLUMN a INT GENERATED ALWAYS AS IDENTITY",
            "ALTER TABLE t ALTER a SET DEFAULT 'restart'",
        ] {
            assert!(parse(text).unwrap().is_none(), "{text}");
        }
        assert!(parse("-- one\nCREATE SEQUENCE s").unwrap().is_some());
        assert!(parse("CREATE SEQUENCE s BY").is_err());
    }
}
