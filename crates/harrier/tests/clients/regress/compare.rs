//! Comparison of a statement's outcomes on two servers.

use super::psql::Outcome;

/// Difference between Harrier's outcome and PostgreSQL's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `rows`, `names`, `order`, `lost`, or Harrier's SQLSTATE and PostgreSQL's, with `ok` for success.
    pub kind: String,
    /// Harrier's message, if it failed.
    pub message: String,
    /// PostgreSQL's message, if it failed.
    pub expected: String,
}

/// Compares rows, column names and tag, or SQLSTATEs; `None` if they are equal. The order of rows must agree
/// as far as ORDER BY defines it.
pub fn difference(statement: &str, harrier: &Outcome, postgres: &Outcome) -> Option<Difference> {
    let plain = |kind: &str| {
        Some(Difference { kind: kind.to_string(), message: String::new(), expected: String::new() })
    };
    match (harrier, postgres) {
        (Outcome::Lost, _) | (_, Outcome::Lost) => plain("lost"),
        (Outcome::Failed { sqlstate, message }, Outcome::Failed { sqlstate: oracle, message: expected }) => {
            (sqlstate != oracle).then(|| Difference {
                kind: format!("{sqlstate} {oracle}"),
                message: message.clone(),
                expected: expected.clone(),
            })
        }
        (Outcome::Failed { sqlstate, message }, Outcome::Done(_)) => Some(Difference {
            kind: format!("{sqlstate} ok"),
            message: message.clone(),
            expected: String::new(),
        }),
        (Outcome::Done(_), Outcome::Failed { sqlstate, message }) => Some(Difference {
            kind: format!("ok {sqlstate}"),
            message: String::new(),
            expected: message.clone(),
        }),
        (Outcome::Done(actual), Outcome::Done(oracle)) => match same_records(statement, actual, oracle) {
            Same::Yes => None,
            Same::No(kind) => plain(kind),
        },
    }
}

enum Same {
    Yes,
    No(&'static str),
}

fn same_records(statement: &str, actual: &[Vec<String>], oracle: &[Vec<String>]) -> Same {
    if actual == oracle {
        return Same::Yes;
    }
    let (Some((found_names, actual)), Some((wanted_names, oracle))) =
        (actual.split_first(), oracle.split_first())
    else {
        return Same::No("rows");
    };
    let sorted = |rows: &[Vec<String>]| {
        let mut rows = rows.to_vec();
        rows.sort();
        rows
    };
    if sorted(actual) != sorted(oracle) {
        return Same::No("rows");
    }
    if found_names != wanted_names {
        return Same::No("names");
    }
    let Some(keys) = order(statement) else {
        return Same::Yes;
    };
    let columns: Option<Vec<usize>> = keys.iter().map(|key| column(key, wanted_names)).collect();
    let by_keys = |rows: &[Vec<String>], columns: &[usize]| -> Vec<Vec<String>> {
        let pick = |row: &Vec<String>| columns.iter().filter_map(|at| row.get(*at).cloned()).collect();
        rows.iter().map(pick).collect()
    };
    match columns {
        Some(columns) if by_keys(actual, &columns) == by_keys(oracle, &columns) => Same::Yes,
        _ => Same::No("order"),
    }
}

/// Keys of the outermost ORDER BY; `None` without one.
fn order(statement: &str) -> Option<Vec<String>> {
    let lines = statement.lines().map(|line| line.split_once("--").map_or(line, |(before, _)| before));
    let text = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    let words = outer_words(text.trim_end().trim_end_matches(';'));
    let at = words.iter().rposition(|word| word == "order")?;
    if words.get(at + 1).map(String::as_str) != Some("by") {
        return None;
    }
    let mut keys = vec![String::new()];
    for word in &words[at + 2..] {
        match word.as_str() {
            "limit" | "offset" | "fetch" | "for" => break,
            "," => keys.push(String::new()),
            "asc" | "desc" | "nulls" | "first" | "last" => {}
            word => keys.last_mut()?.push_str(word),
        }
    }
    Some(keys)
}

/// Tokens outside of parentheses and quotes; what is inside becomes one token that matches no name.
fn outer_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut depth = 0_usize;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.push('?');
            }
            None => match c {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    word.push('?');
                }
                _ if depth > 0 => {}
                c if c.is_alphanumeric() || c == '_' || c == '.' => word.push(c),
                c => {
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    if !c.is_whitespace() {
                        words.push(c.to_string());
                    }
                }
            },
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn column(key: &str, names: &[String]) -> Option<usize> {
    if let Ok(number) = key.parse::<usize>() {
        return (1..=names.len()).contains(&number).then(|| number - 1);
    }
    let name = key.rsplit('.').next()?;
    let mut matches = names.iter().enumerate().filter(|(_, column)| column.as_str() == name);
    match (matches.next(), matches.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Outcome {
        Outcome::Done(text.split(' ').map(|row| row.split(',').map(str::to_string).collect()).collect())
    }

    #[test]
    fn row_order_is_compared_by_order_by_keys() {
        let check = |statement: &str, actual: &str, oracle: &str, expected: Option<&str>| {
            let actual =
                difference(statement, &rows(actual), &rows(oracle)).map(|difference| difference.kind);
            assert_eq!(actual.as_deref(), expected, "{statement}");
        };
        check("select a, b from t", "a,b 1,2 3,4", "a,b 3,4 1,2", None);
        check("select a, b from t", "a,b 1,2 3,4", "a,b 3,4 1,3", Some("rows"));
        check("select a, b from t", "a,c 1,2 3,4", "a,b 1,2 3,4", Some("names"));
        check("select a, b from t order by 1;", "a,b 1,2 3,4", "a,b 3,4 1,2", Some("order"));
        check("select a, b from t order by t.a desc limit 2", "a,b 1,2 1,4", "a,b 1,4 1,2", None);
        check("select a, b from t order by a + b", "a,b 1,2 1,4", "a,b 1,4 1,2", Some("order"));
        check("select a, (select 1 order by 1) b from t", "a,b 1,2 1,4", "a,b 1,4 1,2", None);
        check("select a, b, sum(a) over (order by b) from t", "a,b 1,2 1,4", "a,b 1,4 1,2", None);
    }

    #[test]
    fn failures_are_compared_by_sqlstate() {
        let failed = |sqlstate: &str| Outcome::Failed { sqlstate: sqlstate.into(), message: "m".into() };
        let kind =
            |actual: &Outcome, oracle: &Outcome| difference("", actual, oracle).map(|actual| actual.kind);
        assert_eq!(kind(&failed("22012"), &failed("22012")), None);
        assert_eq!(kind(&failed("XX000"), &failed("22012")).as_deref(), Some("XX000 22012"));
        assert_eq!(kind(&rows("a 1"), &failed("22012")).as_deref(), Some("ok 22012"));
        assert_eq!(kind(&Outcome::Lost, &failed("22012")).as_deref(), Some("lost"));
    }
}
