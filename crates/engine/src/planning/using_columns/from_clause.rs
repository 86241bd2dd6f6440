//! FROM clauses: the output columns of their joins, and join conditions in place of USING and NATURAL.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, ObjectName, TableFactor, TableWithJoins, Value,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::ast_builder::binary;
use harrier_sql::ast_builder::function_call;
use harrier_sql::identifier;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::using_columns::column::{Column, Meaning};
use crate::planning::using_columns::marks::{Marks, is_mark};
use crate::planning::using_columns::resolution::{meanings, substitute};
use crate::types::names;

/// Walks through a FROM clause from left to right.
pub(super) struct Walk<'w> {
    /// Columns of the relations ahead.
    pub relations: std::slice::Iter<'w, Vec<Column>>,
    /// The columns of all relations are known: rewrite everything.
    pub is_all: bool,
    /// Meanings of names in the outer query.
    pub outer: &'w [Meaning],
    pub marks: &'w mut Marks,
}

impl Walk<'_> {
    /// The columns of an item; `None` if those of one of its relations are not known. `seen`: columns to its
    /// left.
    ///
    /// Errors: a column of USING does not exist (42703) or is ambiguous (42701, 42702).
    pub(super) fn item(&mut self, item: &mut TableWithJoins, seen: &[Column]) -> Result<Option<Vec<Column>>> {
        let Some(mut left) = self.factor(&mut item.relation, seen)? else { return Ok(None) };
        for join in &mut item.joins {
            let before = [seen, left.as_slice()].concat();
            let Some(right) = self.factor(&mut join.relation, &before)? else { return Ok(None) };
            left = self.join(&mut join.join_operator, left, right)?;
        }
        Ok(Some(left))
    }

    fn factor(&mut self, factor: &mut TableFactor, seen: &[Column]) -> Result<Option<Vec<Column>>> {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor
            && alias.as_ref().is_none_or(is_mark)
        {
            return self.item(table_with_joins, seen);
        }
        let known = self.relations.next();
        if known.is_none() || self.is_all {
            match factor {
                // An aliased join has a scope of its own.
                TableFactor::NestedJoin { .. } => {}
                TableFactor::Derived { lateral: false, .. } => substitute(factor, self.outer, self.marks),
                _ => substitute(factor, &meanings(seen, self.outer), self.marks),
            }
        }
        Ok(known.cloned())
    }

    fn join(
        &mut self,
        operator: &mut JoinOperator,
        left: Vec<Column>,
        right: Vec<Column>,
    ) -> Result<Vec<Column>> {
        let Some((preserved, constraint)) = preserved_side(operator) else {
            return Ok(PreservedSide::Either.columns(vec![], left, right));
        };
        let names = match constraint {
            JoinConstraint::Using(names) => names.iter().map(single_part).collect::<Result<Vec<_>>>()?,
            JoinConstraint::Natural => {
                let is_common = |name: &str| right.iter().any(|column| column.name == name);
                let common = left.iter().map(|column| &column.name).filter(|name| is_common(name));
                let mut names: Vec<String> = vec![];
                for name in common {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
                names
            }
            JoinConstraint::On(condition) => {
                if self.is_all {
                    let both = [left.as_slice(), right.as_slice()].concat();
                    substitute(condition, &meanings(&both, self.outer), self.marks);
                }
                return Ok(preserved.columns(vec![], left, right));
            }
            JoinConstraint::None => return Ok(preserved.columns(vec![], left, right)),
        };
        let mut joined: Vec<Column> = Vec::with_capacity(names.len());
        let mut condition: Option<Expr> = None;
        for name in &names {
            if joined.iter().any(|column| column.name == *name) {
                let message = format!("column name \"{name}\" appears more than once in USING clause");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into_datafusion());
            }
            let (of_left, of_right) =
                (unique_column(&left, name, "left")?, unique_column(&right, name, "right")?);
            let equal = binary(of_left.value.clone(), BinaryOperator::Eq, of_right.value.clone());
            condition = Some(match condition {
                Some(others) => binary(others, BinaryOperator::And, equal),
                None => equal,
            });
            joined.push(preserved.merged_column(of_left, of_right));
        }
        if self.is_all {
            match condition {
                Some(condition) => *constraint = JoinConstraint::On(condition),
                None if preserved == PreservedSide::Either => {
                    *operator = JoinOperator::CrossJoin(JoinConstraint::None)
                }
                None => *constraint = JoinConstraint::On(Expr::value(Value::Boolean(true))),
            }
        }
        Ok(preserved.columns(joined, left, right))
    }
}

/// The relations in FROM, in order.
pub(super) fn relations(table: &TableWithJoins) -> Vec<&TableFactor> {
    let factors = std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation));
    factors
        .flat_map(|factor| match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => relations(table_with_joins),
            relation => vec![relation],
        })
        .collect()
}

/// Whether the clause has a join by column names.
pub(super) fn has_using(table: &mut TableWithJoins) -> bool {
    let by_name = |operator: &mut JoinOperator| {
        preserved_side(operator).is_some_and(|(_, constraint)| {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        })
    };
    has_using_in(&mut table.relation)
        || table
            .joins
            .iter_mut()
            .any(|join| by_name(&mut join.join_operator) || has_using_in(&mut join.relation))
}

/// The same for a parenthesized join without an alias.
pub(super) fn has_using_in(factor: &mut TableFactor) -> bool {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => has_using(table_with_joins),
        _ => false,
    }
}

/// The sides of a join that have the joined columns in every row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreservedSide {
    /// Inner join: both.
    Either,
    Left,
    Right,
    /// Full join: neither; a row has the value of the side it comes from.
    Both,
    /// Semi and anti joins: the columns of the other side are not visible.
    LeftAlone,
    RightAlone,
}

fn preserved_side(operator: &mut JoinOperator) -> Option<(PreservedSide, &mut JoinConstraint)> {
    Some(match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint) => (PreservedSide::Either, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            (PreservedSide::Left, constraint)
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (PreservedSide::Right, constraint)
        }
        JoinOperator::FullOuter(constraint) => (PreservedSide::Both, constraint),
        JoinOperator::LeftSemi(constraint) | JoinOperator::LeftAnti(constraint) => {
            (PreservedSide::LeftAlone, constraint)
        }
        JoinOperator::RightSemi(constraint) | JoinOperator::RightAnti(constraint) => {
            (PreservedSide::RightAlone, constraint)
        }
        _ => return None,
    })
}

impl PreservedSide {
    /// Merges two columns: into a relation's own column where that has the value in all rows, so that GROUP
    /// BY works with either name. Otherwise the result has the common type, as in PostgreSQL.
    fn merged_column(self, left: &Column, right: &Column) -> Column {
        let own = |column: &Column| Column { name: left.name.clone(), is_joined: true, ..column.clone() };
        let plain = |data_type: &DataType| names::plain_type(data_type.clone());
        let data_type = match plain(&left.data_type) == plain(&right.data_type) {
            true => left.data_type.clone(),
            false => comparison_coercion(&left.data_type, &right.data_type)
                .unwrap_or_else(|| left.data_type.clone()),
        };
        let has_type = |column: &Column| plain(&column.data_type) == plain(&data_type);
        match self {
            PreservedSide::Left | PreservedSide::LeftAlone => own(left),
            PreservedSide::Right | PreservedSide::RightAlone => own(right),
            PreservedSide::Either if has_type(left) => own(left),
            PreservedSide::Either if has_type(right) => own(right),
            PreservedSide::Either | PreservedSide::Both => {
                let value = coalesce(left.value.clone(), right.value.clone());
                Column { name: left.name.clone(), value, is_joined: true, data_type }
            }
        }
    }

    /// Output columns of a join: the joined ones first, then the rest of the left side, then of the right.
    fn columns(self, joined: Vec<Column>, left: Vec<Column>, right: Vec<Column>) -> Vec<Column> {
        match self {
            PreservedSide::LeftAlone => return left,
            PreservedSide::RightAlone => return right,
            _ => {}
        }
        let is_joined = |column: &Column| joined.iter().any(|other| other.name == column.name);
        let others: Vec<Column> = left.into_iter().chain(right).filter(|column| !is_joined(column)).collect();
        joined.into_iter().chain(others).collect()
    }
}

/// The only column of this name.
fn unique_column<'c>(columns: &'c [Column], name: &str, side: &str) -> Result<&'c Column> {
    let mut found = columns.iter().filter(|column| column.name == name);
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (None, _) => {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion())
        }
        (Some(_), Some(_)) => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).into_datafusion())
        }
    }
}

fn single_part(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [part] if part.as_ident().is_some() => Ok(part.as_ident().map(identifier::plain).unwrap_or_default()),
        _ => {
            let message = format!("USING takes names of columns, which {name} is not");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion())
        }
    }
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    Expr::Function(function_call("coalesce", vec![left, right]))
}
