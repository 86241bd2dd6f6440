//! Pairs of equivalent statements (metamorphic testing), for tests without another engine.
//!
//! | way | a statement | the same |
//! |---|---|---|
//! | partitioned condition (TLP) | a query | its rows where a condition is true, where it is false, and where it is NULL |
//! | equivalent expressions (EET) | values and a condition | `CASE WHEN p THEN e ELSE e END`, `w AND (p OR NOT p OR p IS NULL)`, … |
//! | constants (CODDTest) | a query with an uncorrelated subquery | its value in place of the subquery |
//! | joins (JoinEquiv) | a join | one of another kind, with sides swapped, or decomposed |
//!
//! Sources: Rigger and Su, Finding Bugs in Database Systems via Query Partitioning, OOPSLA 2020; Jiang and
//! Su, Detecting Logic Bugs in Database Engines via Equivalent Expression Transformation, OSDI 2024; Zhang
//! and Rigger, Constant Optimization Driven Database System Testing, SIGMOD 2025.

use super::Statement;
use super::choices::Choices;
use super::maker::Maker;
use super::queries::with_names;
use super::scope::{Kind, Scope, name_of};

/// Placeholder of the subquery's value in [`Rewrite::rewritten`].
const VALUE: &str = "{value}";

/// Two equivalent statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The rewrite applied.
    pub way: &'static str,
    pub plain: Statement,
    /// A scalar query whose value the second statement needs, and the name of its type.
    pub subquery: Option<(String, &'static str)>,
    rewritten: Statement,
}

impl Rewrite {
    /// The pair of a seed; stable as long as the generator is not changed.
    pub fn new(seed: u64) -> Self {
        Self::made_from(&mut Choices::of_seed(seed))
    }

    fn made_from(choices: &mut Choices) -> Self {
        let mut maker = Maker::new(choices);
        match maker.choices.choose(4) {
            0 => partition_pair(&mut maker),
            1 => equivalent(&mut maker),
            2 => constant(&mut maker),
            _ => join_pair(&mut maker),
        }
    }

    /// The second statement; `value` is that of the subquery, if there is one.
    pub fn rewritten(&self, value: Option<&str>) -> Statement {
        let Some((_, kind)) = &self.subquery else { return self.rewritten.clone() };
        let constant = match value {
            Some(value) => format!("CAST('{}' AS {kind})", value.replace('\'', "''")),
            None => format!("CAST(NULL AS {kind})"),
        };
        Statement { sql: self.rewritten.sql.replace(VALUE, &constant), ..self.rewritten.clone() }
    }

    fn of(way: &'static str, plain: String, rewritten: String) -> Self {
        let statement = |sql| Statement { sql, check: None, is_ordered: false };
        Self { way, plain: statement(plain), subquery: None, rewritten: statement(rewritten) }
    }
}

/// The smallest pair found for the choices of `seed` for which `differs` holds.
pub fn shrink_rewrite(seed: u64, mut differs: impl FnMut(&Rewrite) -> bool) -> Rewrite {
    let mut choices = Choices::of_seed(seed);
    Rewrite::made_from(&mut choices);
    let made_from = |numbers: &[u32]| Rewrite::made_from(&mut Choices::of_numbers(numbers.to_vec()));
    let numbers = choices.into_numbers();
    made_from(&super::choices::shrink(numbers, super::SHRINK_RUNS_MAX, |numbers| {
        differs(&made_from(numbers))
    }))
}

fn kinds(maker: &mut Maker) -> Vec<Kind> {
    (0..1 + maker.choices.choose(3)).map(|_| maker.kind()).collect()
}

fn items(maker: &mut Maker, scope: &Scope) -> Vec<(Kind, String)> {
    let kinds = kinds(maker);
    kinds.into_iter().map(|kind| (kind, maker.expr(kind, 2, scope))).collect()
}

fn texts(items: &[(Kind, String)]) -> Vec<String> {
    items.iter().map(|(_, item)| item.clone()).collect()
}

fn partition_pair(maker: &mut Maker) -> Rewrite {
    let (from, scope, _) = maker.from(2, &Scope::default());
    let list = with_names(&texts(&items(maker, &scope)));
    let base = maker.condition(1, &scope);
    let part = maker.condition(2, &scope);
    let query = |condition: String| format!("SELECT {list} FROM {from} WHERE {condition}");
    let parts = [part.clone(), format!("NOT {part}"), format!("{part} IS NULL")];
    match maker.choices.choose(3) {
        // Parts combined by UNION ALL.
        0 => {
            let parts = parts.map(|part| query(format!("({base}) AND ({part})")));
            Rewrite::of("partitioned condition", query(base), parts.join(" UNION ALL "))
        }
        // Parts counted.
        1 => {
            let plain = format!("SELECT count(*) FROM {from} WHERE {base}");
            let counts =
                parts.map(|part| format!("SELECT count(*) AS c1 FROM {from} WHERE ({base}) AND ({part})"));
            let sum = format!("SELECT sum(c1) FROM ({}) AS z", counts.join(" UNION ALL "));
            Rewrite::of("partitioned count", plain, sum)
        }
        // Parts combined by UNION.
        _ => {
            let plain = query(base.clone()).replacen("SELECT", "SELECT DISTINCT", 1);
            let parts = parts.map(|part| query(format!("({base}) AND ({part})")));
            Rewrite::of("partitioned distinct", plain, parts.join(" UNION "))
        }
    }
}

fn equivalent(maker: &mut Maker) -> Rewrite {
    let (from, scope, _) = maker.from(2, &Scope::default());
    let plain_items = items(maker, &scope);
    let filter = maker.condition(2, &scope);
    let plain = format!("SELECT {} FROM {from} WHERE {filter}", with_names(&texts(&plain_items)));
    let changed: Vec<String> = plain_items
        .iter()
        .map(|(kind, item)| {
            let (kind, part) = (*kind, maker.condition(1, &scope));
            match maker.choices.choose(5) {
                0 => item.clone(),
                1 => format!("CASE WHEN {part} THEN {item} ELSE {item} END"),
                2 => format!("coalesce({item}, CAST(NULL AS {}))", name_of(kind)),
                3 => format!("(SELECT {item})"),
                _ => format!("CASE WHEN ({part}) IS NULL AND NOT ({part}) IS NULL THEN NULL ELSE {item} END"),
            }
        })
        .collect();
    let part = maker.condition(1, &scope);
    let filter = match maker.choices.choose(5) {
        0 => format!("({filter}) AND (({part}) OR NOT ({part}) OR ({part}) IS NULL)"),
        1 => format!("CASE WHEN {part} THEN {filter} ELSE {filter} END"),
        2 => format!("NOT (NOT ({filter}))"),
        3 => format!("({filter}) OR (({part}) AND NOT ({part}))"),
        _ => format!("({filter}) IS TRUE"),
    };
    Rewrite::of(
        "equivalent expressions",
        plain,
        format!("SELECT {} FROM {from} WHERE {filter}", with_names(&changed)),
    )
}

fn constant(maker: &mut Maker) -> Rewrite {
    let (from, scope, _) = maker.from(2, &Scope::default());
    let kind = maker.kind();
    let subquery = maker.one_aggregate(kind, &Scope::default());
    let list = with_names(&texts(&items(maker, &scope)));
    let beside = maker.expr(kind, 1, &scope);
    let filter = maker.condition(1, &scope);
    let query = |value: &str| match kind {
        Kind::Bool => {
            format!("SELECT {list}, {value} AS v FROM {from} WHERE ({filter}) OR ({beside} = {value})")
        }
        _ => format!("SELECT {list}, {value} AS v FROM {from} WHERE ({filter}) OR ({beside} >= {value})"),
    };
    let mut pair = Rewrite::of("constant", query(&format!("({subquery})")), query(VALUE));
    pair.subquery = Some((subquery, name_of(kind)));
    pair
}

fn join_pair(maker: &mut Maker) -> Rewrite {
    let outer = Scope::default();
    // Sides without joins of their own, so that they can be swapped.
    let (left, left_scope, _) = maker.from(0, &outer);
    let (right, right_scope, _) = maker.from(0, &outer);
    let both =
        Scope { columns: [left_scope.columns.clone(), right_scope.columns.clone()].concat(), outer: vec![] };
    let key = format!("{} = {}", left_scope.columns[0].text, right_scope.columns[0].text);
    let odd = maker.condition(1, &both);
    let on = match maker.choices.choose(3) {
        0 => key,
        1 => format!("{key} AND {odd}"),
        _ => odd,
    };
    let list_items = items(maker, &both);
    let list = with_names(&texts(&list_items));
    let filter = maker.condition(1, &both);
    let query = |from: String, filter: &str| format!("SELECT {list} FROM {from} WHERE {filter}");
    let matched = |side: &str| format!("EXISTS (SELECT 1 FROM {side} WHERE {on})");
    // Unmatched rows: the other side is NULL.
    let alone = |kept: &str, other: &str| {
        let rows = format!("{kept} LEFT JOIN {other} ON false");
        query(rows, &format!("({filter}) AND NOT {}", matched(other)))
    };
    let inner = query(format!("{left} JOIN {right} ON {on}"), &filter);
    match maker.choices.choose(7) {
        0 => Rewrite::of(
            "join as a product",
            inner,
            query(format!("{left} CROSS JOIN {right}"), &format!("({filter}) AND ({on})")),
        ),
        1 => Rewrite::of(
            "join with sides changed",
            inner,
            query(format!("{right} JOIN {left} ON {on}"), &filter),
        ),
        2 => {
            let plain = query(format!("{left} LEFT JOIN {right} ON {on}"), &filter);
            Rewrite::of(
                "left join as a right one",
                plain,
                query(format!("{right} RIGHT JOIN {left} ON {on}"), &filter),
            )
        }
        3 => {
            let plain = query(format!("{left} LEFT JOIN {right} ON {on}"), &filter);
            Rewrite::of("left join taken apart", plain, format!("{inner} UNION ALL {}", alone(&left, &right)))
        }
        4 => {
            let plain = query(format!("{left} FULL JOIN {right} ON {on}"), &filter);
            let parts = [inner, alone(&left, &right), alone(&right, &left)];
            Rewrite::of("full join taken apart", plain, parts.join(" UNION ALL "))
        }
        5 => {
            let list = with_names(&[left_scope.columns[0].text.clone()]);
            let plain = format!("SELECT {list} FROM {left} WHERE {}", matched(&right));
            let row =
                format!("{left} CROSS JOIN LATERAL (SELECT 1 AS one FROM {right} WHERE {on} LIMIT 1) AS l");
            Rewrite::of("semijoin by LATERAL", plain, format!("SELECT {list} FROM {row}"))
        }
        _ => {
            let list = with_names(&[left_scope.columns[0].text.clone()]);
            let plain = format!("SELECT {list} FROM {left} WHERE NOT {}", matched(&right));
            let count = format!("(SELECT count(*) FROM {right} WHERE {on}) = 0");
            Rewrite::of("antijoin by count", plain, format!("SELECT {list} FROM {left} WHERE {count}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_pair() {
        for seed in 0..200 {
            let pair = Rewrite::new(seed);
            assert_eq!(pair, Rewrite::new(seed));
            assert_eq!(pair.subquery.is_some(), pair.rewritten.sql.contains(VALUE));
            assert!(!pair.rewritten(Some("it's")).sql.contains(VALUE));
        }
    }
}
