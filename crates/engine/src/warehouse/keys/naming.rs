//! Generated names of constraints and indexes, as PostgreSQL makes them.

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Generates `table_columns_label`, with a number after the label if the name is in use. Parts are truncated
/// to fit the maximum length.
pub(crate) fn generate_name(
    table: &str,
    columns: &str,
    label: &str,
    is_used: impl Fn(&str) -> bool,
) -> String {
    let mut name = join_parts(table, columns, label);
    let mut number = 1;
    while is_used(&name) {
        name = join_parts(table, columns, &format!("{label}{number}"));
        number += 1;
    }
    name
}

/// Joins column names for use in a generated name.
pub(crate) fn columns<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push('_');
        }
        text += name;
        if text.len() > NAME_BYTES_MAX {
            break;
        }
    }
    truncate(&text, NAME_BYTES_MAX).to_string()
}

fn join_parts(table: &str, columns: &str, label: &str) -> String {
    let separators = if columns.is_empty() { 1 } else { 2 };
    let room = NAME_BYTES_MAX.saturating_sub(label.len() + separators);
    let (mut of_table, mut of_columns) = (table.len(), columns.len());
    while of_table + of_columns > room {
        if of_table > of_columns {
            of_table -= 1;
        } else {
            of_columns -= 1;
        }
    }
    let table = truncate(table, of_table);
    match columns.is_empty() {
        true => format!("{table}_{label}"),
        false => format!("{table}_{}_{label}", truncate(columns, of_columns)),
    }
}

/// Truncates `text` to at most `bytes` bytes at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_postgresql() {
        assert_eq!(generate_name("t", "", "pkey", |_| false), "t_pkey");
        assert_eq!(generate_name("t", "a_b", "key", |name| name == "t_a_b_key"), "t_a_b_key1");
        assert_eq!(generate_name(&"t".repeat(70), "", "pkey", |_| false), format!("{}_pkey", "t".repeat(58)));
        assert_eq!(
            generate_name(&"t".repeat(40), &"c".repeat(40), "fkey", |_| false),
            format!("{}_{}_fkey", "t".repeat(29), "c".repeat(28))
        );
        assert_eq!(generate_name(&"ä".repeat(40), "", "idx", |_| false), format!("{}_idx", "ä".repeat(29)));
        assert_eq!(columns(["a", "b"].into_iter()), "a_b");
    }
}
