//! Storage properties of types from `pg_type`, for relations that repeat them.

use std::collections::HashMap;
use std::sync::OnceLock;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Int16Type, Int32Type};

use crate::system::{SYSTEM, SystemRelation};

/// A type's storage properties in `pg_type`.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub name: &'static str,
    pub length: i16,
    pub by_value: bool,
    pub align: &'static str,
    pub storage: &'static str,
    pub collation: i32,
    pub is_array: bool,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            name: "text",
            length: -1,
            by_value: false,
            align: "i",
            storage: "x",
            collation: 0,
            is_array: false,
        }
    }
}

/// By their oids.
pub(super) fn types() -> &'static HashMap<i32, Stored> {
    static TYPES: OnceLock<HashMap<i32, Stored>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let Some(Ok(rows)) = SYSTEM.catalog("pg_type").map(SystemRelation::rows) else {
            return HashMap::new();
        };
        let column = |name: &str| rows.column_by_name(name);
        let (
            Some(oids),
            Some(names),
            Some(lengths),
            Some(by_value),
            Some(align),
            Some(storage),
            Some(collations),
            Some(category),
        ) = (
            column("oid"),
            column("typname"),
            column("typlen"),
            column("typbyval"),
            column("typalign"),
            column("typstorage"),
            column("typcollation"),
            column("typcategory"),
        )
        else {
            return HashMap::new();
        };
        let lengths = lengths.as_primitive::<Int16Type>();
        (0..rows.num_rows())
            .map(|row| {
                let stored = Stored {
                    name: names.as_string::<i32>().value(row),
                    length: lengths.value(row),
                    by_value: by_value.as_boolean().value(row),
                    align: align.as_string::<i32>().value(row),
                    storage: storage.as_string::<i32>().value(row),
                    collation: collations.as_primitive::<Int32Type>().value(row),
                    is_array: category.as_string::<i32>().value(row) == "A"
                        && lengths.value(row) == -1
                        && names.as_string::<i32>().value(row).starts_with('_'),
                };
                (oids.as_primitive::<Int32Type>().value(row), stored)
            })
            .collect()
    })
}

/// The oid of a type by its name in `pg_type`.
pub(super) fn type_oid(name: &str) -> i32 {
    static NAMES: OnceLock<HashMap<&str, i32>> = OnceLock::new();
    let names = NAMES.get_or_init(|| types().iter().map(|(oid, stored)| (stored.name, *oid)).collect());
    names.get(name).copied().unwrap_or_default()
}
