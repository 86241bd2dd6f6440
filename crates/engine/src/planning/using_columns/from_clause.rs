//! What is in FROM: the columns that come out of its joins, and the conditions that say what USING and
//! NATURAL do.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, ObjectName, TableFactor, TableWithJoins, Value,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::ast_builder::function_call;
use harrier_sql::identifier;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::using_columns::column::{Column, Meaning};
use crate::planning::using_columns::marks::{Marks, is_mark};
use crate::planning::using_columns::resolution::{meanings, put};
use crate::types::names;

/// Goes through what is in FROM, from the left to the right.
pub(super) struct Walk<'w> {
    /// Columns of the relations that are still to come.
    pub relations: std::slice::Iter<'w, Vec<Column>>,
    /// There are columns for all relations: now everything is written anew.
    pub is_all: bool,
    /// What names mean around the query.
    pub around: &'w [Meaning],
    pub marks: &'w mut Marks,
}

impl Walk<'_> {
    /// The columns of an item; `None` if those of a relation in it are not known. `seen`: what is on the left
    /// of it.
    ///
    /// Errors: a column of USING is not there (42703), or there twice (42701, 42702).
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
                // Its names are its own.
                TableFactor::NestedJoin { .. } => {}
                TableFactor::Derived { lateral: false, .. } => put(factor, self.around, self.marks),
                _ => put(factor, &meanings(seen, self.around), self.marks),
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
        let Some((kept, constraint)) = kept(operator) else {
            return Ok(Kept::Either.columns(vec![], left, right));
        };
        let names = match constraint {
            JoinConstraint::Using(names) => names.iter().map(only_part).collect::<Result<Vec<_>>>()?,
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
                    put(condition, &meanings(&both, self.around), self.marks);
                }
                return Ok(kept.columns(vec![], left, right));
            }
            JoinConstraint::None => return Ok(kept.columns(vec![], left, right)),
        };
        let mut joined: Vec<Column> = Vec::with_capacity(names.len());
        let mut condition: Option<Expr> = None;
        for name in &names {
            if joined.iter().any(|column| column.name == *name) {
                let message = format!("column name \"{name}\" appears more than once in USING clause");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into_datafusion());
            }
            let (of_left, of_right) = (only(&left, name, "left")?, only(&right, name, "right")?);
            let equal = binary(of_left.value.clone(), BinaryOperator::Eq, of_right.value.clone());
            condition = Some(match condition {
                Some(others) => binary(others, BinaryOperator::And, equal),
                None => equal,
            });
            joined.push(kept.joined(of_left, of_right));
        }
        if self.is_all {
            match condition {
                Some(condition) => *constraint = JoinConstraint::On(condition),
                None if kept == Kept::Either => *operator = JoinOperator::CrossJoin(JoinConstraint::None),
                None => *constraint = JoinConstraint::On(Expr::value(Value::Boolean(true))),
            }
        }
        Ok(kept.columns(joined, left, right))
    }
}

/// The relations in FROM, in their order.
pub(super) fn relations(table: &TableWithJoins) -> Vec<&TableFactor> {
    let factors = std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation));
    factors
        .flat_map(|factor| match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => relations(table_with_joins),
            relation => vec![relation],
        })
        .collect()
}

/// Whether relations are joined by names of columns.
pub(super) fn merges(table: &mut TableWithJoins) -> bool {
    let by_name = |operator: &mut JoinOperator| {
        kept(operator).is_some_and(|(_, constraint)| {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        })
    };
    merges_in(&mut table.relation)
        || table
            .joins
            .iter_mut()
            .any(|join| by_name(&mut join.join_operator) || merges_in(&mut join.relation))
}

/// The same of what is in parentheses, if it has no name of its own.
pub(super) fn merges_in(factor: &mut TableFactor) -> bool {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => merges(table_with_joins),
        _ => false,
    }
}

/// The sides whose rows all have the joined columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Of an inner join, both.
    Either,
    Left,
    Right,
    /// Of a full join, neither: a row has those of the side that it is of.
    Both,
    /// The columns of the other side are not seen.
    LeftAlone,
    RightAlone,
}

fn kept(operator: &mut JoinOperator) -> Option<(Kept, &mut JoinConstraint)> {
    Some(match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint) => (Kept::Either, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (Kept::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (Kept::Right, constraint),
        JoinOperator::FullOuter(constraint) => (Kept::Both, constraint),
        JoinOperator::LeftSemi(constraint) | JoinOperator::LeftAnti(constraint) => {
            (Kept::LeftAlone, constraint)
        }
        JoinOperator::RightSemi(constraint) | JoinOperator::RightAnti(constraint) => {
            (Kept::RightAlone, constraint)
        }
        _ => return None,
    })
}

impl Kept {
    /// One column of two: a relation's own where that has the value in all rows, so that it may be grouped by
    /// either name. Otherwise it has the type that both have in common, like PostgreSQL's.
    fn joined(self, left: &Column, right: &Column) -> Column {
        let own = |column: &Column| Column { name: left.name.clone(), is_joined: true, ..column.clone() };
        let plain = |data_type: &DataType| names::plain_type(data_type.clone());
        let data_type = match plain(&left.data_type) == plain(&right.data_type) {
            true => left.data_type.clone(),
            false => comparison_coercion(&left.data_type, &right.data_type)
                .unwrap_or_else(|| left.data_type.clone()),
        };
        let has_type = |column: &Column| plain(&column.data_type) == plain(&data_type);
        match self {
            Kept::Left | Kept::LeftAlone => own(left),
            Kept::Right | Kept::RightAlone => own(right),
            Kept::Either if has_type(left) => own(left),
            Kept::Either if has_type(right) => own(right),
            Kept::Either | Kept::Both => {
                let value = coalesced(left.value.clone(), right.value.clone());
                Column { name: left.name.clone(), value, is_joined: true, data_type }
            }
        }
    }

    /// What comes out of a join: `joined` first, then what is left of the left side, then of the right one.
    fn columns(self, joined: Vec<Column>, left: Vec<Column>, right: Vec<Column>) -> Vec<Column> {
        match self {
            Kept::LeftAlone => return left,
            Kept::RightAlone => return right,
            _ => {}
        }
        let is_joined = |column: &Column| joined.iter().any(|other| other.name == column.name);
        let others: Vec<Column> = left.into_iter().chain(right).filter(|column| !is_joined(column)).collect();
        joined.into_iter().chain(others).collect()
    }
}

/// The one column of this name.
fn only<'c>(columns: &'c [Column], name: &str, side: &str) -> Result<&'c Column> {
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

fn only_part(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [part] if part.as_ident().is_some() => Ok(part.as_ident().map(identifier::plain).unwrap_or_default()),
        _ => {
            let message = format!("USING takes names of columns, which {name} is not");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion())
        }
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn coalesced(left: Expr, right: Expr) -> Expr {
    Expr::Function(function_call("coalesce", vec![left, right]))
}
