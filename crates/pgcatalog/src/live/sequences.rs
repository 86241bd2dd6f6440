//! Rows about sequences and the columns that own them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch};
use datafusion::error::Result;

use super::stored_types::type_oid;
use crate::catalog::Index;
use crate::live::view::{Columns, View};
use crate::source::{Column, Object, Relation, Schema, Sequence, oid};

/// The letters of all privileges on a sequence.
pub(super) const SEQUENCE_PRIVILEGES: &str = "rwU";

impl Index {
    /// The sequences whose schema exists, each with its relation and schema.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (&Sequence, &Relation, &Schema)> {
        self.contents.sequences.iter().filter_map(|sequence| {
            let relation = self.user_relation(oid(sequence.relation))?;
            let schema = self.contents.schemas.iter().find(|schema| schema.id == relation.schema)?;
            Some((sequence, relation, schema))
        })
    }

    /// The sequence of an identity column, and whether it is GENERATED ALWAYS.
    pub(crate) fn identity(&self, relation: &Relation, column: &Column) -> Option<(&Sequence, bool)> {
        self.contents.sequences.iter().find_map(|sequence| {
            let owner = sequence.owner.as_ref()?;
            let is_it = owner.relation == relation.id && owner.column == *column.field.name();
            is_it.then_some((sequence, owner.identity?))
        })
    }

    /// The sequence owned by a column.
    pub(crate) fn sequence_of(&self, relation: i64, column: &str) -> Option<(&Relation, &Schema)> {
        self.sequences().find_map(|(sequence, found, schema)| {
            let owner = sequence.owner.as_ref()?;
            (owner.relation == relation && owner.column == column).then_some((found, schema))
        })
    }

    /// A sequence, with the relation and position of its owning column, and the dependency type.
    pub(super) fn column_sequences(&self) -> impl Iterator<Item = (i32, i32, i32, &'static str)> {
        self.contents.sequences.iter().filter_map(|sequence| {
            let owner = sequence.owner.as_ref()?;
            let relation = self.user_relation(oid(owner.relation))?;
            let column = relation.columns.iter().position(|column| *column.field.name() == owner.column)?;
            let kind = if owner.identity.is_some() { "i" } else { "a" };
            Some((oid(sequence.relation), oid(owner.relation), column as i32 + 1, kind))
        })
    }
}

impl View<'_> {
    pub(super) fn pg_sequence(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let found: Vec<&Sequence> = index.sequences().map(|(sequence, ..)| sequence).collect();
        let columns = Columns::default()
            .numbers("seqrelid", found.iter().map(|sequence| oid(sequence.relation)))
            .numbers("seqtypid", found.iter().map(|sequence| type_oid(sequence.type_name)))
            .big("seqstart", found.iter().map(|sequence| Some(sequence.start)))
            .big("seqincrement", found.iter().map(|sequence| Some(sequence.increment)))
            .big("seqmax", found.iter().map(|sequence| Some(sequence.max)))
            .big("seqmin", found.iter().map(|sequence| Some(sequence.min)))
            .big("seqcache", found.iter().map(|sequence| Some(sequence.cache)))
            .bools("seqcycle", found.iter().map(|sequence| sequence.cycles));
        self.batch(found.len(), columns)
    }

    pub(super) fn pg_sequences(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let found: Vec<_> = index.sequences().collect();
        let last = |sequence: &Sequence, relation: &Relation| {
            let may = self.may(&Object::Relation(relation.id), &["USAGE", "SELECT"]);
            sequence.last.filter(|_| may)
        };
        let columns = Columns::default()
            .texts("schemaname", found.iter().map(|(.., schema)| &schema.name))
            .texts("sequencename", found.iter().map(|(_, relation, _)| &relation.name))
            .texts("sequenceowner", found.iter().map(|(_, relation, _)| &relation.owner))
            .numbers("data_type", found.iter().map(|(sequence, ..)| type_oid(sequence.type_name)))
            .big("start_value", found.iter().map(|(sequence, ..)| Some(sequence.start)))
            .big("min_value", found.iter().map(|(sequence, ..)| Some(sequence.min)))
            .big("max_value", found.iter().map(|(sequence, ..)| Some(sequence.max)))
            .big("increment_by", found.iter().map(|(sequence, ..)| Some(sequence.increment)))
            .bools("cycle", found.iter().map(|(sequence, ..)| sequence.cycles))
            .big("cache_size", found.iter().map(|(sequence, ..)| Some(sequence.cache)))
            .big("last_value", found.iter().map(|(sequence, relation, _)| last(sequence, relation)));
        self.batch(found.len(), columns)
    }

    /// `information_schema.sequences`, without those of identity columns.
    pub(super) fn sequences(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let is_told = |sequence: &Sequence, relation: &Relation| {
            sequence.owner.as_ref().is_none_or(|owner| owner.identity.is_none())
                && self.may(&Object::Relation(relation.id), &["SELECT", "UPDATE", "USAGE"])
        };
        let found: Vec<_> =
            index.sequences().filter(|(sequence, relation, _)| is_told(sequence, relation)).collect();
        let rows = found.len();
        let kind = |sequence: &Sequence| match sequence.type_name {
            "int2" => ("smallint", 16),
            "int4" => ("integer", 32),
            _ => ("bigint", 64),
        };
        let mut columns = Columns::default()
            .all("sequence_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("sequence_schema", found.iter().map(|(.., schema)| &schema.name))
            .texts("sequence_name", found.iter().map(|(_, relation, _)| &relation.name))
            .texts("data_type", found.iter().map(|(sequence, ..)| kind(sequence).0))
            .texts("start_value", found.iter().map(|(sequence, ..)| sequence.start.to_string()))
            .texts("minimum_value", found.iter().map(|(sequence, ..)| sequence.min.to_string()))
            .texts("maximum_value", found.iter().map(|(sequence, ..)| sequence.max.to_string()))
            .texts("increment", found.iter().map(|(sequence, ..)| sequence.increment.to_string()))
            .texts(
                "cycle_option",
                found.iter().map(|(sequence, ..)| super::information::yes(sequence.cycles)),
            );
        let bits = found.iter().map(|(sequence, ..)| kind(sequence).1).collect::<Vec<i32>>();
        columns.0.push(("numeric_precision", Arc::new(Int32Array::from(bits)) as ArrayRef));
        columns = columns.all("numeric_precision_radix", 2i32, rows)?.all("numeric_scale", 0i32, rows)?;
        self.batch(rows, columns)
    }
}
