//! UUID columns of Parquet files: sixteen bytes in files, texts in plans, as in tables of a warehouse
//! (`functions/src/uuid_text.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::parquet::schema::types::Type;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{PhysicalExprAdapter, PhysicalExprAdapterFactory};
use harrier_functions::json::TYPE_KEY;
use harrier_functions::uuid_text;

use super::names::CaseInsensitiveNames;
use crate::formats::interval_encoding::decode_column;

/// PostgreSQL's name of the type.
const UUID: &str = "uuid";

/// Whether a file's columns may be UUIDs, which its footer tells.
pub(super) fn may_have_uuids(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| *field.data_type() == uuid_text::STORED)
}

/// The columns of a file as plans have them; `footer` is that of the file.
pub(super) fn in_plans(schema: &Schema, footer: &ParquetMetaData) -> Schema {
    let roots = footer.file_metadata().schema_descr().root_schema().get_fields();
    let is_uuid = |name: &str| {
        let root = roots.iter().find(|root| root.name() == name);
        root.is_some_and(|root| root.get_basic_info().logical_type_ref() == Some(&LogicalType::Uuid))
    };
    let fields = schema.fields().iter().map(|field| {
        match *field.data_type() == uuid_text::STORED && is_uuid(field.name()) {
            true => Arc::new(uuid_field(field)),
            false => Arc::clone(field),
        }
    });
    Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone())
}

fn uuid_field(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(TYPE_KEY.to_string(), UUID.to_string());
    field.clone().with_data_type(uuid_text::SHOWN).with_metadata(metadata)
}

/// Whether a column of a table is a UUID.
pub(super) fn is_uuid(field: &Field) -> bool {
    field.data_type().is_string() && field.metadata().get(TYPE_KEY).is_some_and(|name| name == UUID)
}

/// The columns with the names in `uuids` declared as UUIDs, if they are texts.
pub(super) fn declare(schema: Schema, uuids: &HashSet<String>) -> Schema {
    if uuids.is_empty() {
        return schema;
    }
    let fields = schema.fields().iter().map(|field| {
        match uuids.contains(field.name()) && field.data_type().is_string() {
            true => Arc::new(uuid_field(field)),
            false => Arc::clone(field),
        }
    });
    Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone())
}

/// The columns of a table as a file with this footer has them: texts may be bytes there.
pub(super) fn in_file(schema: &SchemaRef, footer: &ParquetMetaData) -> SchemaRef {
    let roots = footer.file_metadata().schema_descr().root_schema().get_fields();
    let is_stored = |field: &Field| {
        let root = roots.iter().find(|root| root.name() == field.name());
        field.data_type().is_string() && root.is_some_and(|root| has_bytes(root))
    };
    if !schema.fields().iter().any(|field| is_stored(field)) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| match is_stored(field) {
        true => Arc::new(field.as_ref().clone().with_data_type(uuid_text::STORED)),
        false => Arc::clone(field),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// Whether a column of a file is read as [`uuid_text::STORED`].
fn has_bytes(column: &Type) -> bool {
    let Type::PrimitiveType { basic_info, physical_type, type_length, .. } = column else { return false };
    *physical_type == PhysicalType::FIXED_LEN_BYTE_ARRAY
        && *type_length == uuid_text::WIDTH
        && basic_info.converted_type() == ConvertedType::NONE
        && matches!(basic_info.logical_type_ref(), None | Some(LogicalType::Uuid))
}

/// Matching of a table's columns to a file's by [`CaseInsensitiveNames`], with UUIDs decoded.
#[derive(Debug)]
pub(super) struct UuidColumns;

impl PhysicalExprAdapterFactory for UuidColumns {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        match with_shown_types(&table, &file) {
            None => CaseInsensitiveNames.create(table, file),
            Some(shown) => {
                let inner = CaseInsensitiveNames.create(table, Arc::clone(&shown))?;
                Ok(Arc::new(DecodingAdapter { inner, shown, file }))
            }
        }
    }
}

/// The file's columns with the types that texts of the table have where they are bytes; `None` if nothing
/// changes.
fn with_shown_types(table: &Schema, file: &Schema) -> Option<SchemaRef> {
    let shown_type = |own: &FieldRef| -> Option<DataType> {
        if *own.data_type() != uuid_text::STORED {
            return None;
        }
        let exact = table.fields().iter().find(|field| field.name() == own.name());
        let any = || table.fields().iter().find(|field| field.name().eq_ignore_ascii_case(own.name()));
        // Tables that say TEXT of such a column get the text, too: no other cast would be one.
        let found = exact.or_else(any).filter(|field| *field.data_type() == uuid_text::SHOWN);
        found.map(|field| field.data_type().clone())
    };
    if file.fields().iter().all(|own| shown_type(own).is_none()) {
        return None;
    }
    let fields = file.fields().iter().map(|own| match shown_type(own) {
        Some(kind) => Arc::new(own.as_ref().clone().with_data_type(kind)),
        None => Arc::clone(own),
    });
    Some(Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), file.metadata().clone())))
}

#[derive(Debug)]
struct DecodingAdapter {
    inner: Arc<dyn PhysicalExprAdapter>,
    shown: SchemaRef,
    file: SchemaRef,
}

impl PhysicalExprAdapter for DecodingAdapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let options = Arc::new(ConfigOptions::default());
        let decoded = |expr: Arc<dyn PhysicalExpr>| {
            let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
            let at = column.index();
            let is_decoded = match (self.shown.fields().get(at), self.file.fields().get(at)) {
                (Some(shown), Some(own)) => shown.data_type() != own.data_type(),
                _ => false,
            };
            match is_decoded {
                true => decode_column(expr, &self.file, &options).map(Transformed::yes),
                false => Ok(Transformed::no(expr)),
            }
        };
        self.inner.rewrite(expr)?.transform(decoded).data()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray, FixedSizeBinaryArray, RecordBatch};

    use super::*;

    #[test]
    fn bytes_of_a_file_are_texts_of_the_table() {
        let file = Arc::new(Schema::new(vec![
            Field::new("raw", uuid_text::STORED, true),
            Field::new("U", uuid_text::STORED, true),
        ]));
        let table = Arc::new(Schema::new(vec![
            uuid_field(&Field::new("u", uuid_text::STORED, true)),
            Field::new("raw", uuid_text::STORED, true),
        ]));
        let adapter = UuidColumns.create(Arc::clone(&table), Arc::clone(&file)).unwrap();
        let bytes = FixedSizeBinaryArray::try_from_iter([[0x0a_u8; 16]].iter()).unwrap();
        let rows = RecordBatch::try_new(file, vec![Arc::new(bytes.clone()), Arc::new(bytes)]).unwrap();
        let read = |name: &str, at: usize| {
            let column = adapter.rewrite(Arc::new(Column::new(name, at))).unwrap();
            column.evaluate(&rows).unwrap().into_array(1).unwrap()
        };
        assert_eq!(read("u", 0).as_string_view().value(0), "0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a");
        assert_eq!(read("raw", 1).data_type(), &uuid_text::STORED);
    }
}
