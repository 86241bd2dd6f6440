//! Case-insensitive column matching, for files of Hive and Spark.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};

/// DataFusion's matching of a table's columns to a file's, falling back to a case-insensitive match.
#[derive(Debug)]
pub(super) struct CaseInsensitiveNames;

impl PhysicalExprAdapterFactory for CaseInsensitiveNames {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        match rename_columns(&table, &file) {
            None => DefaultPhysicalExprAdapterFactory.create(table, file),
            Some(renamed) => {
                let inner = DefaultPhysicalExprAdapterFactory.create(table, renamed)?;
                Ok(Arc::new(RenamingAdapter { inner, file }))
            }
        }
    }
}

/// The file's columns renamed to the table's spelling; `None` if nothing changes.
fn rename_columns(table: &Schema, file: &Schema) -> Option<SchemaRef> {
    let mut fields = file.fields().to_vec();
    let mut is_changed = false;
    for wanted in table.fields() {
        if fields.iter().any(|own| own.name() == wanted.name()) {
            continue;
        }
        let is_meant = |name: &String| {
            name.eq_ignore_ascii_case(wanted.name())
                && table.fields().iter().all(|other| other.name() != name)
        };
        if let Some(own) = fields.iter_mut().find(|own| is_meant(own.name())) {
            *own = Arc::new(own.as_ref().clone().with_name(wanted.name()));
            is_changed = true;
        }
    }
    is_changed.then(|| Arc::new(Schema::new_with_metadata(fields, file.metadata().clone())))
}

#[derive(Debug)]
struct RenamingAdapter {
    inner: Arc<dyn PhysicalExprAdapter>,
    file: SchemaRef,
}

impl PhysicalExprAdapter for RenamingAdapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let rewritten = self.inner.rewrite(expr)?;
        let by_own_name = |expr: Arc<dyn PhysicalExpr>| {
            let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
            let own = self.file.fields().get(column.index());
            Ok(match own.filter(|own| own.name() != column.name()) {
                Some(own) => Transformed::yes(Arc::new(Column::new(own.name(), column.index())) as _),
                None => Transformed::no(expr),
            })
        };
        rewritten.transform(by_own_name).data()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn columns_match_case_insensitively() {
        let schema = |names: &[&str]| {
            Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect::<Vec<_>>())
        };
        for (table, file, expected) in [
            (vec!["foo", "bar"], vec!["Foo", "BAR"], Some(vec!["foo", "bar"])),
            (vec!["foo"], vec!["FOO", "foo"], None),
            (vec!["foo", "Foo"], vec!["FOO", "Foo"], Some(vec!["foo", "Foo"])),
            (vec!["a", "b"], vec!["b", "a"], None),
            (vec!["a", "x"], vec!["A"], Some(vec!["a"])),
        ] {
            let found = rename_columns(&schema(&table), &schema(&file));
            let names = found.map(|found| found.fields().iter().map(|own| own.name().clone()).collect());
            let expected: Option<Vec<String>> =
                expected.map(|names| names.into_iter().map(str::to_string).collect());
            assert_eq!(names, expected, "{table:?} in {file:?}");
        }
    }
}
