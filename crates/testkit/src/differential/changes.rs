//! Statements that change a table, and the query that reads it afterwards.

use super::Statement;
use super::choices::Choices;
use super::maker::Maker;
use super::scope::{Column, Kind, Scope};

/// Columns of the changed table, except the first, which identifies a row.
const COLUMNS: [(&str, Kind); 9] = [
    ("k", Kind::Int),
    ("n", Kind::Numeric),
    ("s", Kind::Text),
    ("d", Kind::Date),
    ("f", Kind::Bool),
    ("r", Kind::Real),
    ("x", Kind::Double),
    ("i", Kind::Interval),
    ("y", Kind::Bytes),
];

/// The columns of `c` under the name `m`; each of its rows matches at most one row of the table.
const SOURCE: [(&str, Kind); 3] = [("m.id", Kind::Int), ("m.k", Kind::Int), ("m.s", Kind::Text)];

/// An INSERT, UPDATE, DELETE or MERGE.
pub(super) fn statement(choices: &mut Choices) -> Statement {
    let mut maker = Maker::new(choices);
    let sql = match maker.choices.choose(7) {
        0 => delete(&mut maker),
        1 | 2 => update(&mut maker),
        3 => insert(&mut maker),
        4 => delete_using(&mut maker),
        5 => update_from(&mut maker),
        _ => merge(&mut maker),
    };
    let check = "SELECT id, k, n, s, d, f, r, x, i, y FROM a".to_owned();
    Statement { sql, check: Some(check), is_ordered: false }
}

/// The table's columns under a name.
fn scope(name: &str) -> Scope {
    let id = Column::new(format!("{name}.id"), Kind::Int);
    let columns = COLUMNS.iter().map(|(column, kind)| Column::new(format!("{name}.{column}"), *kind));
    Scope { columns: std::iter::once(id).chain(columns).collect(), outer: vec![] }
}

fn delete(maker: &mut Maker) -> String {
    let condition = maker.condition(2, &scope("a"));
    let returning = returning(maker, &scope("a"));
    format!("DELETE FROM a WHERE {condition}{returning}")
}

/// DELETE USING, whose rows may match several of the other table.
fn delete_using(maker: &mut Maker) -> String {
    let both = with_source(scope("a"));
    let condition = maker.condition(1, &both);
    let (meet, shown) = match maker.choices.happens(1, 2) {
        true => ("a.k = m.k", scope("a")),
        false => ("a.id = m.id + 2", both),
    };
    let returning = returning(maker, &shown);
    format!("DELETE FROM a USING c AS m WHERE {meet} AND {condition}{returning}")
}

/// UPDATE FROM, with one matching row of the other table per row.
fn update_from(maker: &mut Maker) -> String {
    let both = with_source(scope("a"));
    let assignments = assignments(maker, &both);
    let condition = match maker.choices.happens(1, 2) {
        true => format!(" AND {}", maker.condition(1, &both)),
        false => String::new(),
    };
    let returning = returning(maker, &both);
    format!("UPDATE a SET {assignments} FROM c AS m WHERE a.id = m.id + 2{condition}{returning}")
}

/// Adds the columns of the other table to the scope.
fn with_source(mut scope: Scope) -> Scope {
    scope.columns.extend(SOURCE.map(|(name, kind)| Column::new(name.to_owned(), kind)));
    scope
}

/// A RETURNING clause, or none.
fn returning(maker: &mut Maker, scope: &Scope) -> String {
    match maker.choices.choose(6) {
        0 | 1 => String::new(),
        2 => " RETURNING *".to_owned(),
        3 => " RETURNING a.*, a.id AS id2".to_owned(),
        _ => {
            let kinds = [maker.kind(), maker.kind()];
            let items = kinds.map(|kind| maker.expr(kind, 1, scope));
            format!(" RETURNING {}", items.join(", "))
        }
    }
}

fn update(maker: &mut Maker) -> String {
    let condition = match maker.choices.happens(2, 3) {
        true => format!(" WHERE {}", maker.condition(2, &scope("a"))),
        false => String::new(),
    };
    let assignments = assignments(maker, &scope("a"));
    let returning = returning(maker, &scope("a"));
    format!("UPDATE a SET {assignments}{condition}{returning}")
}

/// One or two columns, each set once.
fn assignments(maker: &mut Maker, scope: &Scope) -> String {
    let first = maker.choices.choose(COLUMNS.len());
    let second = (first + 1) % COLUMNS.len();
    let columns = [COLUMNS[first], COLUMNS[second]];
    let one = |maker: &mut Maker, (name, kind): (&str, Kind)| {
        format!("{name} = {}", column_value(maker, kind, scope))
    };
    match maker.choices.choose(3) {
        0 => one(maker, columns[0]),
        1 => format!("{}, {}", one(maker, columns[0]), one(maker, columns[1])),
        _ => {
            let [(first, _), (second, _)] = columns;
            let values = format!(
                "{}, {}",
                column_value(maker, columns[0].1, scope),
                column_value(maker, columns[1].1, scope)
            );
            format!("({first}, {second}) = ({values})")
        }
    }
}

/// A value that the column can hold.
fn column_value(maker: &mut Maker, kind: Kind, scope: &Scope) -> String {
    match kind {
        // Tables contain no negative intervals.
        Kind::Interval => match maker.choices.happens(1, 2) {
            true => "a.i".to_owned(),
            false => maker.choices.one_of(&["INTERVAL '1 day'", "INTERVAL '01:02:03'", "NULL"]).to_owned(),
        },
        _ => maker.narrower_expr(kind, 2, scope),
    }
}

fn insert(maker: &mut Maker) -> String {
    // Intervals are excluded: computed ones may be negative, and tables contain none of those.
    let columns = COLUMNS.iter().filter(|(_, kind)| *kind != Kind::Interval);
    let kinds: Vec<Kind> = std::iter::once(Kind::Int).chain(columns.map(|(_, kind)| *kind)).collect();
    let query = maker.query(&kinds, 2, &Scope::default());
    let returning = returning(maker, &scope("a"));
    format!("INSERT INTO a (id, k, n, s, d, f, r, x, y) {query}{returning}")
}

/// A MERGE in which each source row matches at most one row.
fn merge(maker: &mut Maker) -> String {
    let both = with_source(scope("a"));
    let alone = with_source(Scope::default());
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
