//! SQL definitions of keys and indexes.

use datafusion::error::Result;

use crate::functions::call::{Call, Value, int, is_true};
use crate::key_texts::{constraint_definition, qualified_name};
use crate::source::oid;

/// `pg_get_indexdef(index [, column, pretty])`.
pub(super) fn index(call: &Call<'_>, values: &[Value]) -> Result<Value> {
    let Some((relation, schema, index)) = call.index.index(int(&values[0])) else { return Ok(Value::Null) };
    let name = match values.get(2).is_some_and(is_true) {
        true => call.catalog.relation_text(&call.index, oid(relation.id)),
        false => qualified_name(relation, schema),
    };
    let definition = match values.get(1).map_or(0, int) {
        0 => Some(index.definition(relation, &name)),
        number => usize::try_from(number).ok().and_then(|at| index.column_definition(relation, at)),
    };
    // Empty for a missing column.
    Ok(definition.unwrap_or_default().into())
}

/// `pg_get_constraintdef(constraint [, pretty])`.
pub(super) fn constraint(call: &Call<'_>, values: &[Value]) -> Result<Value> {
    let Some((relation, constraint)) = call.index.constraint(int(&values[0])) else {
        return Ok(Value::Null);
    };
    Ok(constraint_definition(call.catalog, &call.index, relation, constraint).into())
}
