//! Names of constraints and indexes that were not given any, as PostgreSQL makes them.

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// `table_columns_label`, with a number behind the label where others have the name; parts are cut short so
/// that it is no longer than a name may be.
pub(crate) fn chosen(table: &str, columns: &str, label: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = joined(table, columns, label);
    let mut number = 1;
    while is_taken(&name) {
        name = joined(table, columns, &format!("{label}{number}"));
        number += 1;
    }
    name
}

/// The names of columns as they stand in a name.
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
    cut(&text, NAME_BYTES_MAX).to_string()
}

fn joined(table: &str, columns: &str, label: &str) -> String {
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
    let table = cut(table, of_table);
    match columns.is_empty() {
        true => format!("{table}_{label}"),
        false => format!("{table}_{}_{label}", cut(columns, of_columns)),
    }
}

/// The beginning of `text` that has no more bytes, and no part of a character.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_postgresql() {
        assert_eq!(chosen("t", "", "pkey", |_| false), "t_pkey");
        assert_eq!(chosen("t", "a_b", "key", |name| name == "t_a_b_key"), "t_a_b_key1");
        assert_eq!(chosen(&"t".repeat(70), "", "pkey", |_| false), format!("{}_pkey", "t".repeat(58)));
        assert_eq!(
            chosen(&"t".repeat(40), &"c".repeat(40), "fkey", |_| false),
            format!("{}_{}_fkey", "t".repeat(29), "c".repeat(28))
        );
        assert_eq!(chosen(&"ä".repeat(40), "", "idx", |_| false), format!("{}_idx", "ä".repeat(29)));
        assert_eq!(columns(["a", "b"].into_iter()), "a_b");
    }
}
