//! `customer.id` in a subquery whose own tables have a column `customer`: the column of the table outside.
//!
//! DataFusion looks for a column of the name in the subquery first, and for a field `id` in it. SQL looks for
//! a table of the name, outside as well, before it takes a name for a column's.
//!
//! ```text
//! SELECT … FROM customer WHERE EXISTS (SELECT 1 FROM orders WHERE orders.customer = customer.id)
//! get_field(orders.customer, 'id')  ─►  outer_ref(customer.id)
//! ```
//! The type of the column is not known here: [`OuterReferenceTypes`] finds it, or says that there is none.
//!
//! `OuterQualifierPlanner` can go when compound identifiers are looked for as columns outside before they are
//! taken for fields of a column that has none; no issue found.
//!
//! [`OuterReferenceTypes`]: crate::analyzer::outer_reference_types::OuterReferenceTypes

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};

/// In the metadata of a column outside whose type is not known yet.
const UNRESOLVED: &str = "harrier.unresolved";

/// Takes a name before a column's for that of a table outside, where a column of that name has no fields.
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

/// Whether a column outside has not been found.
pub(crate) fn is_unresolved(field: &Field) -> bool {
    field.metadata().contains_key(UNRESOLVED)
}
