//! Parser of cursor statements: DECLARE, FETCH, MOVE and CLOSE. Cursors belong to a client connection, and
//! its protocol handler runs these.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::cursor::{Count, CursorKind, CursorStatement, Step};
use harrier_session_api::statement::StatementPart;
use harrier_sqlstate::IntoDataFusionError;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::{StatementWords, syntax_error_near};

/// First keywords of these statements.
pub(super) const FIRST: [&str; 4] = ["declare", "fetch", "move", "close"];

/// Parses a cursor statement; `None` for other statements.
///
/// Errors: it is malformed (42601), or has both SCROLL and NO SCROLL (42P11).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<CursorStatement>> {
    if tokens.is(0, "declare") {
        return declare(tokens).map(Some);
    }
    if !tokens.is_one_of(0, &FIRST) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let statement = match () {
        () if words.take("close") => match words.take("all") {
            true => CursorStatement::Close(None),
            false => CursorStatement::Close(Some(words.name()?)),
        },
        () => {
            let is_move = words.take("move");
            if !is_move {
                words.expect("fetch")?;
            }
            let step = step(&mut words)?;
            let _ = words.take_any(&["from", "in"]);
            CursorStatement::Fetch { name: words.name()?, step, is_move }
        }
    };
    words.end()?;
    Ok(Some(statement))
}

fn declare(tokens: &Tokens<'_>) -> Result<CursorStatement> {
    let unexpected = |at: usize| syntax_error_near(tokens.token(at).unwrap_or(&Token::EOF));
    let name = tokens.name(1).ok_or_else(|| unexpected(1))?;
    let (mut kind, mut goes_forward) = (CursorKind::default(), false);
    let mut at = 2;
    while !tokens.is(at, "cursor") {
        match () {
            () if tokens.is(at, "binary") => kind.is_binary = true,
            () if tokens.is(at, "scroll") => kind.is_scrollable = true,
            () if tokens.are(at, &["no", "scroll"]) => {
                goes_forward = true;
                at += 1;
            }
            () if tokens.is_one_of(at, &["insensitive", "asensitive"]) => {}
            () if tokens.is(at, "no") => return Err(unexpected(at + 1)),
            () => return Err(unexpected(at)),
        }
        at += 1;
    }
    at += 1;
    while !tokens.is(at, "for") {
        if !tokens.is_one_of(at, &["with", "without"]) {
            return Err(unexpected(at));
        }
        if !tokens.is(at + 1, "hold") {
            return Err(unexpected(at + 1));
        }
        kind.is_held = tokens.is(at, "with");
        at += 2;
    }
    if kind.is_scrollable && goes_forward {
        let message = "cannot specify both SCROLL and NO SCROLL";
        return Err(SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message).into_datafusion());
    }
    let query = at + 1;
    let end = (query..tokens.len()).rev().find(|at| !tokens.is_token(*at, &Token::SemiColon));
    let Some(last) = end.filter(|_| !tokens.is_one_of(query, &FIRST)) else { return Err(unexpected(query)) };
    let bytes = tokens.bytes(query..last + 1);
    let query = StatementPart {
        text: tokens.source(query..last + 1).to_string(),
        offset: tokens.text()[..bytes.start].chars().count(),
    };
    Ok(CursorStatement::Declare { name, query, kind })
}

/// Moves `rows` forward, or backward if negative.
fn by_rows(rows: i64) -> Step {
    let count = Count::Rows(rows.unsigned_abs());
    if rows < 0 { Step::Backward(count) } else { Step::Forward(count) }
}

fn backward(step: Step) -> Step {
    match step {
        // Re-fetches the current row in either direction.
        Step::Forward(Count::Rows(0)) => step,
        Step::Forward(count) => Step::Backward(count),
        Step::Backward(count) => Step::Forward(count),
        other => other,
    }
}

fn step(words: &mut StatementWords<'_>) -> Result<Step> {
    let one = Step::Forward(Count::Rows(1));
    Ok(match () {
        () if words.take("next") => one,
        () if words.take("prior") => backward(one),
        () if words.take("first") => Step::Absolute(1),
        () if words.take("last") => Step::Absolute(-1),
        () if words.take("all") => Step::Forward(Count::All),
        () if words.take("absolute") => {
            Step::Absolute(signed_integer(words)?.ok_or_else(|| words.syntax_error())?)
        }
        () if words.take("relative") => {
            Step::Relative(signed_integer(words)?.ok_or_else(|| words.syntax_error())?)
        }
        () if words.take("backward") => backward(count(words)?.unwrap_or(one)),
        () if words.take("forward") => count(words)?.unwrap_or(one),
        () => signed_integer(words)?.map_or(one, by_rows),
    })
}

fn count(words: &mut StatementWords<'_>) -> Result<Option<Step>> {
    match words.take("all") {
        true => Ok(Some(Step::Forward(Count::All))),
        false => Ok(signed_integer(words)?.map(by_rows)),
    }
}

/// Parses a signed integer, if one is next.
fn signed_integer(words: &mut StatementWords<'_>) -> Result<Option<i64>> {
    let is_positive = words.0.consume_token(&Token::Plus);
    let has_sign = is_positive || words.0.peek_token().token == Token::Minus;
    match words.0.peek_token().token {
        Token::Number(..) => {}
        Token::Minus if !is_positive => {}
        _ if has_sign => return Err(words.syntax_error()),
        _ => return Ok(None),
    }
    words.integer().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn check(text: &str, expected: Result<Option<CursorStatement>, &str>) {
        let found = Tokens::of(text, &SqlDialect)
            .and_then(|tokens| parse(&tokens))
            .map_err(|error| harrier_sqlstate::of(&error).as_str().to_string());
        assert_eq!(found, expected.map_err(str::to_string), "{text}");
    }

    #[test]
    fn cursors_are_declared() {
        let forward = CursorKind::default();
        let (held, binary) =
            (CursorKind { is_held: true, ..forward }, CursorKind { is_binary: true, ..forward });
        let scrollable = CursorKind { is_scrollable: true, ..forward };
        for (text, name, query, offset, kind) in [
            ("declare C cursor for select 1", "c", "select 1", 21, forward),
            (
                "DECLARE \"a \"\"b\" NO SCROLL CURSOR WITH HOLD FOR /* ü */ SELECT ';';",
                "a \"b",
                "SELECT ';'",
                55,
                held,
            ),
            ("DECLARE c BINARY INSENSITIVE CURSOR WITHOUT HOLD FOR SELECT 1", "c", "SELECT 1", 53, binary),
            ("DECLARE c SCROLL CURSOR FOR TABLE t", "c", "TABLE t", 28, scrollable),
        ] {
            let query = StatementPart { text: query.to_string(), offset };
            check(text, Ok(Some(CursorStatement::Declare { name: name.to_string(), query, kind })));
        }
        check("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", Err("42P11"));
        for text in [
            "DECLARE c CURSOR FOR",
            "DECLARE c CURSOR FOR ;",
            "DECLARE c CURSOR FOR FETCH d",
            "DECLARE c CURSOR FOR SELECT 'a",
            "DECLARE c NO CURSOR FOR SELECT 1",
            "DECLARE c CURSOR WITH FOR SELECT 1",
            "DECLARE c FOR SELECT 1",
            "DECLARE",
        ] {
            check(text, Err("42601"));
        }
    }

    #[test]
    fn rows_are_fetched() {
        let (forward, backward) = (Step::Forward, Step::Backward);
        for (text, name, step) in [
            ("FETCH c", "c", forward(Count::Rows(1))),
            ("FETCH 10 FROM c;", "c", forward(Count::Rows(10))),
            ("/* x */ fetch forward 5 in \"C\"", "C", forward(Count::Rows(5))),
            ("FETCH ALL FROM next", "next", forward(Count::All)),
            ("FETCH FORWARD ALL c", "c", forward(Count::All)),
            ("FETCH FORWARD FROM c", "c", forward(Count::Rows(1))),
            ("FETCH BACKWARD FROM c", "c", backward(Count::Rows(1))),
            ("FETCH -1 FROM c", "c", backward(Count::Rows(1))),
            ("FETCH BACKWARD -2 c", "c", forward(Count::Rows(2))),
            ("FETCH BACKWARD ALL IN c", "c", backward(Count::All)),
            ("FETCH BACKWARD 0 c", "c", forward(Count::Rows(0))),
            ("FETCH FORWARD -3 c", "c", backward(Count::Rows(3))),
            ("FETCH PRIOR c", "c", backward(Count::Rows(1))),
            ("FETCH first FROM c", "c", Step::Absolute(1)),
            ("FETCH LAST c", "c", Step::Absolute(-1)),
            ("FETCH ABSOLUTE -5 FROM c", "c", Step::Absolute(-5)),
            ("FETCH RELATIVE + 5 FROM c", "c", Step::Relative(5)),
        ] {
            let fetch = |is_move| Ok(Some(CursorStatement::Fetch { name: name.to_string(), step, is_move }));
            check(text, fetch(false));
            check(&text.to_lowercase().replacen("fetch", "MOVE", 1).replace("\"c\"", "\"C\""), fetch(true));
        }
        for text in
            ["FETCH RELATIVE FROM c", "FETCH prior", "FETCH", "FETCH 1 FROM c d", "FETCH + -1 c", "MOVE - c"]
        {
            check(text, Err("42601"));
        }
    }

    #[test]
    fn cursors_are_closed() {
        check("CLOSE ALL", Ok(Some(CursorStatement::Close(None))));
        check("CLOSE \"all\"", Ok(Some(CursorStatement::Close(Some("all".to_string())))));
        check("close C;", Ok(Some(CursorStatement::Close(Some("c".to_string())))));
        check("CLOSE", Err("42601"));
        check("CLOSE a b", Err("42601"));
        check("SELECT 1", Ok(None));
        check("", Ok(None));
    }
}
