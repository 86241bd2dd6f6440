//! The value of a scalar subquery, after its join with the outer rows; fails for more than one row.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, make_array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `harrier_only`: of structs of a value and its group's row count, the value; NULL for NULL.
///
/// Errors: the count is more than 1 (21000).
pub fn only() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Only { signature: Signature::any(1, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Only {
    signature: Signature,
}

impl ScalarUDFImpl for Only {
    fn name(&self) -> &str {
        "harrier_only"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Struct(fields)] if fields.len() == 2 => Ok(fields[0].data_type().clone()),
            _ => plan_err!("harrier_only does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [rows] = arguments.args.as_slice() else { return internal_err!("harrier_only has one argument") };
        value(&rows.to_array(arguments.number_rows)?).map(ColumnarValue::Array)
    }
}

fn value(rows: &ArrayRef) -> Result<ArrayRef> {
    let rows = rows.as_struct();
    let counts = rows.column(1).as_primitive::<Int64Type>();
    let is_several = |row: usize| rows.is_valid(row) && counts.is_valid(row) && counts.value(row) > 1;
    if (0..rows.len()).any(is_several) {
        // The message identifies the SQLSTATE on any error path.
        return exec_err!("more than one row returned by a subquery used as an expression");
    }
    let values = rows.column(0);
    let nulls = NullBuffer::union(rows.nulls(), values.logical_nulls().as_ref());
    let typed = matches!(values.data_type(), DataType::Null | DataType::Dictionary(..) | DataType::Union(..));
    match rows.null_count() == 0 || typed {
        true => Ok(Arc::clone(values)),
        false => Ok(make_array(values.to_data().into_builder().nulls(nulls).build()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringArray, StructArray};
    use datafusion::arrow::datatypes::{Field, Fields};

    use harrier_error::SqlState;

    #[test]
    fn scalar_subqueries_with_several_rows_fail() {
        let rows = |values: Vec<Option<&str>>, counts: Vec<i64>, valid: Vec<bool>| -> ArrayRef {
            let fields = Fields::from(vec![
                Field::new("value", DataType::Utf8, true),
                Field::new("rows", DataType::Int64, true),
            ]);
            let columns: Vec<ArrayRef> =
                vec![Arc::new(StringArray::from(values)), Arc::new(Int64Array::from(counts))];
            Arc::new(StructArray::new(fields, columns, Some(NullBuffer::from(valid))))
        };
        let found = value(&rows(vec![Some("a"), None, Some("b")], vec![1, 1, 7], vec![true, true, false]));
        let expected: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, None]));
        assert_eq!(&found.unwrap(), &expected);
        let error = value(&rows(vec![Some("a")], vec![2], vec![true])).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::CARDINALITY_VIOLATION);
    }
}
