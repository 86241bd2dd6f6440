//! A sequence as a relation of one row: `SELECT last_value, is_called FROM s`.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;
use harrier_catalog::access::{Object, Privilege};
use harrier_catalog::sequences::{Sequence, get};

use crate::warehouse::explain;
use crate::warehouse::snapshot::StatementSnapshot;

/// The sequence's row with its current value.
///
/// Errors: no privilege to read it (42501).
pub(crate) async fn table_of(
    snapshot: &StatementSnapshot,
    sequence: &Sequence,
) -> Result<Arc<dyn TableProvider>> {
    if let Some(state) = &snapshot.state {
        snapshot.viewer.check(Object::Sequence(sequence.id), Privilege::Select, state)?;
    }
    let committed = match &snapshot.catalog {
        Some(catalog) if !snapshot.values.contains_key(&sequence.id) => {
            catalog.sequence_values().await.map_err(explain)?.get(&sequence.id).copied()
        }
        _ => None,
    };
    let own = snapshot.values.get(&sequence.id).map(get);
    let value = own.or(committed).unwrap_or_else(|| sequence.start_value());
    let schema = Arc::new(Schema::new(vec![
        Field::new("last_value", DataType::Int64, false),
        Field::new("log_cnt", DataType::Int64, false),
        Field::new("is_called", DataType::Boolean, false),
    ]));
    let row = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(Int64Array::from(vec![value.last])),
            Arc::new(Int64Array::from(vec![0])),
            Arc::new(BooleanArray::from(vec![value.is_called])),
        ],
    )?;
    // A view, so that nothing can be written to it.
    let rows =
        provider_as_source(Arc::new(MemTable::try_new(schema, vec![vec![row]])?) as Arc<dyn TableProvider>);
    let plan = LogicalPlanBuilder::scan(sequence.name.as_str(), rows, None)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
