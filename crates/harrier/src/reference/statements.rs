//! Reference page of statements, with examples that are run.

use harrier_engine::Session;

use super::page::Page;
use super::scratch;
use crate::statements::{Group, STATEMENTS, Statement};

/// Runs the examples in the order of the page.
///
/// Errors: an example fails, or ends with another tag.
pub(super) async fn page(session: &Session) -> Result<String, String> {
    let mut page = Page::new(
        "Statements",
        "This page lists every statement of SQL with its syntax and an example, which builds on the examples before it.",
    );
    page.paragraph(
        "The syntax is in PostgreSQL's notation: what is in brackets may be left out, a bar divides what you choose from, \
         braces hold a choice together, and `[, ...]` repeats what is before it. The shell shows the same: `\\h CREATE TABLE`. \
         [Functions](functions.md) and [types](types.md) have their own pages, and [Limits](limits.md) tells what differs \
         from PostgreSQL.",
    );
    let of = |group: Group| STATEMENTS.iter().filter(move |statement| statement.group == group);
    let rows = Group::ALL.map(|group| {
        let links = of(group).map(|statement| {
            let anchor = statement.name.to_lowercase().replace(' ', "-");
            format!("[{}](#{anchor})", statement.name)
        });
        [group.title().to_string(), links.collect::<Vec<_>>().join(", ")]
    });
    page.table(["about", "statements"], rows.into());
    let mut wrong = Vec::new();
    for group in Group::ALL {
        page.heading(2, group.title());
        for statement in of(group) {
            statement_section(&mut page, session, statement, &mut wrong).await;
        }
    }
    if wrong.is_empty() { Ok(page.finish()) } else { Err(wrong.join("\n")) }
}

async fn statement_section(
    page: &mut Page,
    session: &Session,
    statement: &Statement,
    wrong: &mut Vec<String>,
) {
    page.heading(3, statement.name);
    page.paragraph(&format!("{}.", statement.about));
    page.code("text", statement.syntax);
    let sql: Vec<String> = statement.examples.iter().map(|(sql, _)| format!("{};", wrap(sql))).collect();
    page.code("postgres", &sql.join("\n"));
    if statement.group == Group::Server {
        // A test of the server runs these examples.
        return;
    }
    for (sql, expected) in statement.examples {
        match scratch::run(session, sql).await {
            Ok(answer) => {
                let tag = answer.tag.trim_end_matches(|char: char| char.is_ascii_digit() || char == ' ');
                if tag != *expected {
                    wrong.push(format!("{sql}: it ends with {tag}, not with {expected}"));
                }
            }
            Err(message) => wrong.push(message),
        }
    }
}

/// Wraps a statement to the width of the page.
fn wrap(sql: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for word in sql.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => {
                let indent = if lines.is_empty() { "" } else { "  " };
                lines.push(format!("{indent}{word}"));
            }
        }
    }
    lines.join("\n")
}
