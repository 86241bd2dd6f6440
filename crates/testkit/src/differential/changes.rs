//! Statements that change a table, and the query that reads it afterwards.

use super::Statement;
use super::choices::Choices;
use super::expressions::Maker;
use super::scope::{Column, Kind, Scope};

/// The table that is changed, with its columns but the first, which identifies a row.
const COLUMNS: [(&str, Kind); 7] = [
    ("k", Kind::Int),
    ("n", Kind::Numeric),
    ("s", Kind::Text),
    ("d", Kind::Date),
    ("f", Kind::Bool),
    ("r", Kind::Real),
    ("x", Kind::Double),
];

/// An INSERT, UPDATE, DELETE or MERGE.
pub(super) fn statement(choices: &mut Choices) -> Statement {
    let mut maker = Maker::new(choices);
    let sql = match maker.choices.choose(5) {
        0 => delete(&mut maker),
        1 | 2 => update(&mut maker),
        3 => insert(&mut maker),
        _ => merge(&mut maker),
    };
    let check = "SELECT id, k, n, s, d, f, r, x FROM a".to_owned();
    Statement { sql, check: Some(check), is_ordered: false }
}

/// The table's columns under a name.
fn scope(name: &str) -> Scope {
    let id = Column::new(format!("{name}.id"), Kind::Int);
    let columns = COLUMNS.iter().map(|(column, kind)| Column::new(format!("{name}.{column}"), *kind));
    Scope { columns: std::iter::once(id).chain(columns).collect(), outer: vec![] }
}

fn delete(maker: &mut Maker) -> String {
    format!("DELETE FROM a WHERE {}", maker.condition(2, &scope("a")))
}

fn update(maker: &mut Maker) -> String {
    let condition = match maker.choices.happens(2, 3) {
        true => format!(" WHERE {}", maker.condition(2, &scope("a"))),
        false => String::new(),
    };
    format!("UPDATE a SET {}{condition}", assignments(maker, &scope("a")))
}

/// One or two columns, each set once.
fn assignments(maker: &mut Maker, scope: &Scope) -> String {
    let first = maker.choices.choose(COLUMNS.len());
    let second = (first + 1) % COLUMNS.len();
    let columns = [COLUMNS[first], COLUMNS[second]];
    let one =
        |maker: &mut Maker, (name, kind): (&str, Kind)| format!("{name} = {}", stored(maker, kind, scope));
    match maker.choices.choose(3) {
        0 => one(maker, columns[0]),
        1 => format!("{}, {}", one(maker, columns[0]), one(maker, columns[1])),
        _ => {
            let [(first, _), (second, _)] = columns;
            let values =
                format!("{}, {}", stored(maker, columns[0].1, scope), stored(maker, columns[1].1, scope));
            format!("({first}, {second}) = ({values})")
        }
    }
}

/// A value that the column can hold.
fn stored(maker: &mut Maker, kind: Kind, scope: &Scope) -> String {
    maker.narrower_expr(kind, 2, scope)
}

fn insert(maker: &mut Maker) -> String {
    let kinds: Vec<Kind> = std::iter::once(Kind::Int).chain(COLUMNS.iter().map(|(_, kind)| *kind)).collect();
    let query = maker.query(&kinds, 2, &Scope::default());
    format!("INSERT INTO a (id, k, n, s, d, f, r, x) {query}")
}

/// Into the rows of a table of which each matches one row at most.
fn merge(maker: &mut Maker) -> String {
    let mut both = scope("a");
    let source = [("id", Kind::Int), ("k", Kind::Int), ("s", Kind::Text)]
        .map(|(name, kind)| Column::new(format!("m.{name}"), kind));
    both.columns.extend(source.clone());
    let alone = Scope { columns: source.to_vec(), outer: vec![] };
    let filter = match maker.choices.happens(1, 2) {
        true => format!(
            " WHERE {}",
            maker.condition(
                1,
                &Scope {
                    columns: vec![
                        Column::new("c.id".to_owned(), Kind::Int),
                        Column::new("c.k".to_owned(), Kind::Int),
                        Column::new("c.s".to_owned(), Kind::Text),
                    ],
                    outer: vec![],
                }
            )
        ),
        false => String::new(),
    };
    let and = |maker: &mut Maker, scope: &Scope| match maker.choices.happens(1, 2) {
        true => format!(" AND {}", maker.condition(0, scope)),
        false => String::new(),
    };
    let mut clauses = String::new();
    if maker.choices.happens(1, 2) {
        let when = and(maker, &both);
        clauses += &format!(" WHEN MATCHED{when} THEN DELETE");
    }
    let when = and(maker, &both);
    clauses += &format!(" WHEN MATCHED{when} THEN UPDATE SET {}", assignments(maker, &both));
    if maker.choices.happens(1, 2) {
        let when = and(maker, &alone);
        let (k, s) = (maker.expr(Kind::Int, 1, &alone), maker.expr(Kind::Text, 1, &alone));
        clauses += &format!(" WHEN NOT MATCHED{when} THEN INSERT (id, k, s) VALUES (m.id, {k}, {s})");
    }
    format!("MERGE INTO a USING (SELECT id, k, s FROM c{filter}) AS m ON a.id = m.id + 2{clauses}")
}
