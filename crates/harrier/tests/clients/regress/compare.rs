//! Whether a statement came to the same with two servers.

use super::psql::Outcome;

/// How Harrier's outcome differs from PostgreSQL's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// In a word or two: `rows`, `names`, `order`, `lost`, or Harrier's SQLSTATE and PostgreSQL's, `ok` being
    /// none.
    pub kind: String,
    /// Harrier's, where it failed.
    pub message: String,
    /// PostgreSQL's, where it failed.
    pub expected: String,
}

/// `None` if they are the same: rows, names of columns and tag, or SQLSTATE. Rows have to come in the same
/// order where ORDER BY says so, as far as it does.
pub fn difference(statement: &str, harrier: &Outcome, postgres: &Outcome) -> Option<Difference> {
    let plain = |kind: &str| {
        Some(Difference { kind: kind.to_string(), message: String::new(), expected: String::new() })
    };
    match (harrier, postgres) {
        (Outcome::Lost, _) | (_, Outcome::Lost) => plain("lost"),
        (Outcome::Failed { sqlstate, message }, Outcome::Failed { sqlstate: wanted, message: expected }) => {
            (sqlstate != wanted).then(|| Difference {
                kind: format!("{sqlstate} {wanted}"),
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
        (Outcome::Done(found), Outcome::Done(wanted)) => match same_records(statement, found, wanted) {
            Same::Yes => None,
            Same::No(kind) => plain(kind),
        },
    }
}

enum Same {
    Yes,
    No(&'static str),
}

fn same_records(statement: &str, found: &[Vec<String>], wanted: &[Vec<String>]) -> Same {
    if found == wanted {
        return Same::Yes;
    }
    let (Some((found_names, found)), Some((wanted_names, wanted))) =
        (found.split_first(), wanted.split_first())
    else {
        return Same::No("rows");
    };
    let sorted = |rows: &[Vec<String>]| {
        let mut rows = rows.to_vec();
        rows.sort();
        rows
    };
    if sorted(found) != sorted(wanted) {
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
        Some(columns) if by_keys(found, &columns) == by_keys(wanted, &columns) => Same::Yes,
        _ => Same::No("order"),
    }
}

/// The keys of the ORDER BY of the whole statement; `None` if it has none.
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

/// Words and signs outside of parentheses and quotes; what is inside is one word that no name is like.
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
    let mut found = names.iter().enumerate().filter(|(_, column)| column.as_str() == name);
    match (found.next(), found.next()) {
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
    fn rows_are_in_order_where_the_statement_says_so() {
        let check = |statement: &str, found: &str, wanted: &str, expected: Option<&str>| {
            let found = difference(statement, &rows(found), &rows(wanted)).map(|difference| difference.kind);
            assert_eq!(found.as_deref(), expected, "{statement}");
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
    fn failures_are_compared_by_code() {
        let failed = |sqlstate: &str| Outcome::Failed { sqlstate: sqlstate.into(), message: "m".into() };
        let kind = |found: &Outcome, wanted: &Outcome| difference("", found, wanted).map(|found| found.kind);
        assert_eq!(kind(&failed("22012"), &failed("22012")), None);
        assert_eq!(kind(&failed("XX000"), &failed("22012")).as_deref(), Some("XX000 22012"));
        assert_eq!(kind(&rows("a 1"), &failed("22012")).as_deref(), Some("ok 22012"));
        assert_eq!(kind(&Outcome::Lost, &failed("22012")).as_deref(), Some("lost"));
    }
}
