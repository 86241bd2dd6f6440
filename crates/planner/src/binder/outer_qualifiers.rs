//! Resolves `customer.id` to the outer table `customer` in a subquery whose own tables have a column
//! `customer`.
//!
//! DataFusion first looks for a column `customer` in the subquery, and for a field `id` in it. SQL looks for
//! a table of that name first, including outer queries.
//!
//! ```text
//! SELECT … FROM customer WHERE EXISTS (SELECT 1 FROM orders WHERE orders.customer = customer.id)
//! get_field(orders.customer, 'id')  ─►  outer_ref(customer.id)
//! ```
//! The column's type is not known here: [`OuterReferenceTypes`] resolves it, or reports that it does not
//! exist.
//!
//! `OuterQualifierPlanner` can go when compound identifiers are resolved as outer columns before they are
//! taken for fields of a column without fields; no issue found.
//!
//! [`OuterReferenceTypes`]: crate::analyzer::outer_reference_types::OuterReferenceTypes

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};

/// The metadata key of outer references whose type is not yet resolved.
const UNRESOLVED: &str = "harrier.unresolved";

/// Interprets a qualifier as an outer table where the column of that name has no fields.
#[derive(Debug)]
pub struct OuterQualifierPlanner;

impl ExprPlanner for OuterQualifierPlanner {
    fn plan_compound_identifier(
        &self,
        field: &Field,
        _: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let [name] = nested_names else { return Ok(PlannerResult::Original(vec![])) };
        if field.data_type().is_nested() || *field.data_type() == DataType::Null {
            return Ok(PlannerResult::Original(vec![]));
        }
        let metadata = HashMap::from([(UNRESOLVED.to_owned(), String::new())]);
        let column = Column::new(Some(TableReference::bare(field.name().as_str())), name);
        let unknown = Field::new(name, DataType::Null, true).with_metadata(metadata);
        Ok(PlannerResult::Planned(Expr::OuterReferenceColumn(Arc::new(unknown), column)))
    }
}

/// Whether an outer reference is unresolved.
pub(crate) fn is_unresolved(field: &Field) -> bool {
    field.metadata().contains_key(UNRESOLVED)
}
