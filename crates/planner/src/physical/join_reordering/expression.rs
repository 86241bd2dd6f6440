//! Expressions over the columns of relations, wherever these are in the output of a join.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column as PhysicalColumn, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NotExpr,
};

use crate::join_order::{Column, RelationSet};

/// An expression whose column `i` is `columns[i]`.
#[derive(Debug, Clone)]
pub struct RelationExpression {
    pub expression: Arc<dyn PhysicalExpr>,
    pub columns: Vec<Column>,
}

impl RelationExpression {
    /// `expression` over the output of an operator, whose columns are `output`.
    ///
    /// Errors: a column is not there.
    pub fn new(expression: &Arc<dyn PhysicalExpr>, output: &[Column]) -> Result<Self> {
        let mut columns = Vec::new();
        let mut is_known = true;
        let expression = map_columns(expression, |column| {
            let Some(source) = output.get(column.index()) else {
                is_known = false;
                return column.index();
            };
            columns.iter().position(|known| known == source).unwrap_or_else(|| {
                columns.push(*source);
                columns.len() - 1
            })
        })?;
        if !is_known {
            return internal_err!("{expression} reads a column that its input does not have");
        }
        Ok(Self { expression, columns })
    }

    pub fn relations(&self) -> RelationSet {
        self.columns.iter().map(|column| column.relation).collect()
    }

    /// The column, if it is one.
    pub fn column(&self) -> Option<Column> {
        let column = self.expression.downcast_ref::<PhysicalColumn>()?;
        self.columns.get(column.index()).copied()
    }

    /// The expression over an operator's output, whose columns are `output`; `None`: a column is not there.
    pub fn over(&self, output: &[Column], schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let place = |column: &Column| output.iter().position(|known| known == column);
        let places: Option<Vec<usize>> = self.columns.iter().map(place).collect();
        let moved = |places: Vec<usize>| {
            replace_columns(&self.expression, |column| {
                let place = places[column.index()];
                // Joins look columns up by name, too.
                PhysicalColumn::new(schema.field(place).name(), place)
            })
        };
        places.map(moved).transpose()
    }
}

/// Replaces the indices of columns.
pub fn map_columns(
    expression: &Arc<dyn PhysicalExpr>,
    mut index: impl FnMut(&PhysicalColumn) -> usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    replace_columns(expression, |column| PhysicalColumn::new(column.name(), index(column)))
}

fn replace_columns(
    expression: &Arc<dyn PhysicalExpr>,
    mut replacement: impl FnMut(&PhysicalColumn) -> PhysicalColumn,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expression)
        .transform_up(|part| {
            let Some(column) = part.downcast_ref::<PhysicalColumn>() else {
                return Ok(Transformed::no(part));
            };
            Ok(Transformed::yes(Arc::new(replacement(column)) as Arc<dyn PhysicalExpr>))
        })
        .data()
}

/// Whether an expression has a value for every row, the same each time. It may be evaluated for other rows,
/// and more of them.
pub fn is_total(expression: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> bool {
    let is_known = if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        is_comparison(*binary.op())
    } else if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        cast.expr().data_type(schema).is_ok_and(|from| widens(&from, cast.cast_type()))
    } else {
        expression.is::<PhysicalColumn>()
            || expression.is::<Literal>()
            || expression.is::<InListExpr>()
            || expression.is::<LikeExpr>()
            || expression.is::<IsNullExpr>()
            || expression.is::<IsNotNullExpr>()
            || expression.is::<NotExpr>()
    };
    is_known && expression.children().into_iter().all(|child| is_total(child, schema))
}

fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
            | Operator::And
            | Operator::Or
    )
}

/// Whether every value of one type is one of the other.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bytes = |kind: &DataType| kind.primitive_width().unwrap_or_default();
    from == to
        || from.is_string() && to.is_string()
        || from.is_signed_integer() && to.is_signed_integer() && bytes(from) <= bytes(to)
        || from.is_integer() && to.is_floating()
        || from.is_floating() && to.is_floating() && bytes(from) <= bytes(to)
}
