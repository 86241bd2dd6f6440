//! Reference page of SQLSTATEs, with the cause and the remedy of each.

use harrier_error::SqlState;

use super::page::{Page, code};

/// Titles of the classes, from PostgreSQL's appendix.
const CLASSES: &[(&str, &str)] = &[
    ("08", "Connection exception"),
    ("0A", "Feature not supported"),
    ("0L", "Invalid grantor"),
    ("21", "Cardinality violation"),
    ("22", "Data exception"),
    ("23", "Integrity constraint violation"),
    ("25", "Invalid transaction state"),
    ("26", "Invalid statement name"),
    ("28", "Invalid authorization"),
    ("2B", "Dependent objects"),
    ("34", "Invalid cursor name"),
    ("3B", "Savepoint exception"),
    ("3D", "Invalid catalog name"),
    ("3F", "Invalid schema name"),
    ("40", "Transaction rollback"),
    ("42", "Syntax error or access rule violation"),
    ("53", "Insufficient resources"),
    ("54", "Program limit exceeded"),
    ("55", "Object not in prerequisite state"),
    ("57", "Operator intervention"),
    ("58", "System error"),
    ("F0", "Configuration file error"),
    ("XX", "Internal error"),
];

/// Errors after which an unchanged statement may be retried.
const TO_RETRY: [SqlState; 10] = [
    SqlState::SERIALIZATION_FAILURE,
    SqlState::DEADLOCK_DETECTED,
    SqlState::COMPLETION_UNKNOWN,
    SqlState::LOCK_NOT_AVAILABLE,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::CONNECTION_NOT_ESTABLISHED,
    SqlState::CONNECTION_FAILURE,
    SqlState::TOO_MANY_CONNECTIONS,
    SqlState::ADMIN_SHUTDOWN,
];

/// Errors: a code whose class has no title.
pub(super) fn page() -> Result<String, String> {
    let mut page = Page::new(
        "SQLSTATEs",
        "This page lists every SQLSTATE that an error of Harrier can have, with its usual cause and what to do.",
    );
    page.paragraph(
        "The codes are PostgreSQL's, so drivers know them, and so are the names of the conditions. [Exit statuses and signals](statuses.md) \
         tells how errors look and what a command's status is.",
    );
    page.heading(2, "Run these again");
    page.paragraph("A program may run a transaction again that has failed with one of these, after what the remedy says.");
    let retried = SqlState::EXPLAINED.iter().filter(|explained| TO_RETRY.contains(&explained.state));
    page.table(["SQLSTATE", "name", "cause", "remedy"], retried.map(row).collect());
    let mut classes: Vec<&str> =
        SqlState::EXPLAINED.iter().map(|explained| &explained.state.as_str()[..2]).collect();
    classes.dedup();
    for class in classes {
        let title = CLASSES.iter().find(|(known, _)| *known == class);
        let (_, title) = title.ok_or_else(|| format!("class {class} of SQLSTATEs has no title"))?;
        page.heading(2, &format!("Class {class}: {}", title.to_lowercase()));
        let own = SqlState::EXPLAINED.iter().filter(|explained| explained.state.class() == class);
        page.table(["SQLSTATE", "name", "cause", "remedy"], own.map(row).collect());
    }
    page.paragraph(
        "Primary keys and unique constraints are not enforced, so there is no 23505 from your tables: two equal keys \
         are no error.",
    );
    Ok(page.finish())
}

fn row(explained: &harrier_error::Explained) -> [String; 4] {
    [
        code(explained.state.as_str()),
        explained.name.to_lowercase().replace('_', " "),
        explained.cause.to_string(),
        explained.remedy.to_string(),
    ]
}
