//! Rows about column defaults and their dependencies.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;

use super::keys::Dependency;
use crate::catalog::{Index, split_name};
use crate::live::view::{Columns, PG_CLASS, View};
use crate::source::{Relation, oid};

const PG_ATTRDEF: i32 = 2604;

/// A default with its own number: relation, column number, and text.
type Default<'i> = (i32, &'i Relation, i16, &'i str);

/// All defaults, in the same order for all system relations.
fn defaults(index: &Index) -> impl Iterator<Item = Default<'_>> {
    let all = index.user_relations().flat_map(|(relation, _)| {
        relation
            .columns
            .iter()
            .zip(1i16..)
            .filter_map(move |(column, number)| Some((relation, number, column.default.as_deref()?)))
    });
    all.zip(1..).map(|((relation, number, text), own)| (own, relation, number, text))
}

/// Dependencies of defaults on their columns, and on the sequences of `nextval`, for dump order.
pub(super) fn dependencies(index: &Index) -> Vec<Dependency> {
    let mut found = vec![];
    for (own, relation, number, text) in defaults(index) {
        found.push((PG_ATTRDEF, own, 0, PG_CLASS, oid(relation.id), i32::from(number), "a"));
        if let Some(sequence) = nextval_sequence(index, text) {
            found.push((PG_ATTRDEF, own, 0, PG_CLASS, sequence, 0, "n"));
        }
    }
    found
}

/// The sequence in `nextval('s'::regclass)`.
fn nextval_sequence(index: &Index, text: &str) -> Option<i32> {
    let name = text.strip_prefix("nextval('")?.strip_suffix("'::regclass)")?.replace("''", "'");
    let name = split_name(&name)?;
    let found = index.sequences().find(|(_, relation, schema)| match name.as_slice() {
        [name] => *name == relation.name && schema.is_public,
        [in_schema, name] => *name == relation.name && schema.is_called(in_schema),
        _ => false,
    });
    found.map(|(_, relation, _)| oid(relation.id))
}

impl View<'_> {
    pub(super) fn pg_attrdef(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let found: Vec<Default<'_>> = defaults(&index).collect();
        let columns = Columns::default()
            .numbers("oid", found.iter().map(|(own, ..)| *own))
            .numbers("adrelid", found.iter().map(|(_, relation, ..)| oid(relation.id)))
            .small("adnum", found.iter().map(|(_, _, number, _)| *number))
            .texts("adbin", found.iter().map(|(.., text)| text));
        self.batch(found.len(), columns)
    }
}
