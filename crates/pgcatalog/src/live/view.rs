//! What rows of relations are made with: the view of one relation, and columns of a batch.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::catalog::Catalog;
use crate::source::Object;
use crate::system::{SYSTEM, SystemRelation};

/// The oid of `pg_class`, the class of relations in comments and dependencies.
pub(crate) const PG_CLASS: i32 = 1259;

pub(super) struct View<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) relation: &'a SystemRelation,
}

/// Some columns of a batch; the others have defaults.
#[derive(Default)]
pub(super) struct Columns(pub(super) Vec<(&'static str, ArrayRef)>);

impl Columns {
    pub(super) fn texts<T: AsRef<str>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let values: StringArray = values.into_iter().map(|value| Some(value.as_ref().to_string())).collect();
        self.0.push((name, Arc::new(values)));
        self
    }

    pub(super) fn maybe_texts<T: AsRef<str>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<T>>,
    ) -> Self {
        let values: StringArray = values.into_iter().collect();
        self.0.push((name, Arc::new(values)));
        self
    }

    pub(super) fn numbers(mut self, name: &'static str, values: impl IntoIterator<Item = i32>) -> Self {
        self.0.push((name, Arc::new(Int32Array::from_iter_values(values))));
        self
    }

    pub(super) fn small(mut self, name: &'static str, values: impl IntoIterator<Item = i16>) -> Self {
        self.0.push((name, Arc::new(Int16Array::from_iter_values(values))));
        self
    }

    pub(super) fn big(mut self, name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        self.0.push((name, Arc::new(values.into_iter().collect::<Int64Array>())));
        self
    }

    pub(super) fn bools(mut self, name: &'static str, values: impl IntoIterator<Item = bool>) -> Self {
        self.0.push((name, Arc::new(values.into_iter().map(Some).collect::<BooleanArray>())));
        self
    }

    pub(super) fn floats(mut self, name: &'static str, values: impl IntoIterator<Item = f32>) -> Self {
        self.0.push((name, Arc::new(Float32Array::from_iter_values(values))));
        self
    }

    pub(super) fn times(mut self, name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        let values: TimestampMicrosecondArray = values.into_iter().collect();
        self.0.push((name, Arc::new(values.with_timezone("+00:00"))));
        self
    }

    pub(super) fn lists(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<Vec<String>>>,
    ) -> Self {
        let mut list = ListBuilder::new(StringBuilder::new());
        for value in values {
            match value {
                Some(texts) => list.append_value(texts.into_iter().map(Some)),
                None => list.append_null(),
            }
        }
        self.0.push((name, Arc::new(list.finish())));
        self
    }

    /// Adds a column with one value repeated for all `rows`.
    pub(super) fn all(
        mut self,
        name: &'static str,
        value: impl Into<ScalarValue>,
        rows: usize,
    ) -> Result<Self> {
        self.0.push((name, value.into().to_array_of_size(rows)?));
        Ok(self)
    }
}

impl View<'_> {
    /// A batch with all columns of the relation.
    pub(super) fn batch(&self, rows: usize, columns: Columns) -> Result<RecordBatch> {
        let known: HashMap<_, _> = columns.0.into_iter().collect();
        let arrays =
            self.relation.columns.iter().zip(self.relation.schema.fields()).map(|(column, field)| {
                let Some(array) = known.get(column.name) else {
                    return if column.not_null {
                        default_value(column.type_name, field.data_type())?.to_array_of_size(rows)
                    } else {
                        Ok(new_null_array(field.data_type(), rows))
                    };
                };
                match array.data_type() == field.data_type() {
                    true => Ok(Arc::clone(array)),
                    false => Ok(cast(array, field.data_type())?),
                }
            });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.relation.schema), arrays, &options)?)
    }

    /// The built-in rows followed by these.
    pub(super) fn with_system(&self, own: RecordBatch) -> Result<RecordBatch> {
        Ok(concat_batches(&self.relation.schema, [self.relation.rows()?, &own])?)
    }

    pub(super) fn may(&self, object: &Object<'_>, privileges: &[&str]) -> bool {
        let user = self.catalog.source.user();
        privileges.iter().any(|privilege| self.catalog.source.may(&user, object, privilege))
    }
}

pub(super) struct Attribute<'a> {
    pub(super) relation: i32,
    pub(super) name: &'a str,
    pub(super) type_oid: i32,
    pub(super) modifier: i32,
    pub(super) number: i16,
    pub(super) not_null: bool,
    pub(super) default: bool,
    pub(super) identity: &'static str,
    pub(super) acl: Option<Vec<String>>,
}

/// The relations in `pg_class`.
pub(super) fn system_relations() -> impl Iterator<Item = &'static SystemRelation> {
    SYSTEM.relations.iter().filter(|relation| relation.kind != "f")
}

fn default_value(type_name: &str, data_type: &DataType) -> Result<ScalarValue> {
    Ok(match data_type {
        DataType::Utf8 => ScalarValue::from(if type_name == "xid" { "0" } else { "" }),
        other => ScalarValue::new_default(other)?,
    })
}
