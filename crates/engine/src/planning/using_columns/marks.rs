//! Marks in a statement: FROM clauses with columns not yet known.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    Ident, Join, JoinConstraint, JoinOperator, Select, TableAlias, TableFactor, TableWithJoins,
};

use crate::planning::using_columns::column::Meaning;

/// Prefix of the alias of a marked FROM; its number follows.
pub(crate) const MARK: &str = "\u{1}joined ";

/// The marks of a statement, numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) count: usize,
    /// Meanings of outer names at a marked FROM, as far as they are joined columns.
    pub(crate) outer: HashMap<usize, Vec<Meaning>>,
    /// Relations that could be planned only after outer names in them were replaced, by mark and position.
    pub(crate) replaced: HashSet<(usize, usize)>,
    /// The first ambiguous name found.
    pub(crate) ambiguous: Option<String>,
}

pub(crate) fn unmark(from: &mut Vec<TableWithJoins>) {
    for item in std::mem::take(from) {
        let TableFactor::NestedJoin { table_with_joins, .. } = item.relation else { continue };
        let TableWithJoins { relation, joins } = *table_with_joins;
        for factor in std::iter::once(relation).chain(joins.into_iter().map(|join| join.relation)) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                from.push(*table_with_joins);
            }
        }
    }
}

pub(crate) fn nested_join(table: TableWithJoins, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::NestedJoin { table_with_joins: Box::new(table), alias }
}

pub(crate) fn cross_join(relation: TableFactor) -> Join {
    Join { relation, global: false, join_operator: JoinOperator::CrossJoin(JoinConstraint::None) }
}

pub(crate) fn alias(name: String) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: vec![], at: None }
}

pub(crate) fn is_mark(alias: &TableAlias) -> bool {
    alias.name.value.starts_with(MARK)
}

/// A marked FROM and its number.
pub(crate) fn marked_from(factor: &TableFactor) -> Option<(usize, &TableWithJoins)> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } => {
            let mark = alias.name.value.strip_prefix(MARK)?.parse().ok()?;
            Some((mark, table_with_joins.as_ref()))
        }
        _ => None,
    }
}

pub(crate) fn mark_of(select: &Select) -> Option<usize> {
    select.from.first().and_then(|item| marked_from(&item.relation)).map(|(mark, _)| mark)
}

impl Marks {
    pub(crate) fn mark(&mut self, from: &mut Vec<TableWithJoins>) -> usize {
        self.count += 1;
        let mut items = std::mem::take(from).into_iter().map(|item| nested_join(item, None));
        if let Some(relation) = items.next() {
            let all = TableWithJoins { relation, joins: items.map(cross_join).collect() };
            let relation = nested_join(all, Some(alias(format!("{MARK}{}", self.count))));
            from.push(TableWithJoins { relation, joins: vec![] });
        }
        self.count
    }

    pub(crate) fn mark_select(&mut self, select: &mut Select) {
        for item in &mut select.from {
            self.name_subqueries(&mut item.relation);
            for join in &mut item.joins {
                self.name_subqueries(&mut join.relation);
            }
        }
        self.mark(&mut select.from);
    }

    /// Gives aliases to subqueries in FROM that have none, so that their columns can be qualified.
    pub(crate) fn name_subqueries(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.name_subqueries(&mut table_with_joins.relation);
                for join in &mut table_with_joins.joins {
                    self.name_subqueries(&mut join.relation);
                }
            }
            TableFactor::Derived { alias: name @ None, .. } => {
                self.count += 1;
                *name = Some(alias(format!("unnamed_subquery_{}", self.count)));
            }
            _ => {}
        }
    }
}
