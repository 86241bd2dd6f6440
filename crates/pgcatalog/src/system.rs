//! The system catalogs of a new PostgreSQL 15 database: the relations with their columns, and the rows about
//! PostgreSQL itself. Loaded from `data/system.tsv`, each relation's rows on first use.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::arrow::array::{ArrayRef, BooleanArray, ListArray, RecordBatch, StringArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::Result;

use crate::types::catalog_field;

const DATA: &str = include_str!("../data/system.tsv");

/// The oids of the built-in namespaces.
pub(crate) const PG_CATALOG: i32 = 11;

/// The system relations, in file order.
pub(crate) static SYSTEM: LazyLock<System> = LazyLock::new(System::read);

pub(crate) struct System {
    pub(crate) relations: Vec<SystemRelation>,
    /// The oid of `information_schema`.
    pub(crate) information: Option<i32>,
    by_name: HashMap<(i32, &'static str), usize>,
    by_oid: HashMap<i32, usize>,
}

/// A system relation.
pub(crate) struct SystemRelation {
    pub(crate) name: &'static str,
    pub(crate) oid: i32,
    /// As in `pg_class`: `r`, `v`, or `f` for the function `pg_get_keywords`.
    pub(crate) kind: &'static str,
    pub(crate) namespace: i32,
    pub(crate) description: Option<&'static str>,
    pub(crate) columns: Vec<SystemColumn>,
    pub(crate) schema: SchemaRef,
    lines: Vec<&'static str>,
    rows: OnceLock<RecordBatch>,
}

pub(crate) struct SystemColumn {
    pub(crate) name: &'static str,
    pub(crate) type_name: &'static str,
    pub(crate) not_null: bool,
    pub(crate) description: Option<&'static str>,
}

impl System {
    fn read() -> Self {
        let mut relations: Vec<SystemRelation> = vec![];
        for line in DATA.lines() {
            let fields = line.split('\t').map(|field| (field != "\\N").then_some(field)).collect::<Vec<_>>();
            let field = |place: usize| fields.get(place).copied().flatten();
            if let Some(name) = line.strip_prefix('@').and_then(|_| field(0)) {
                relations.push(SystemRelation {
                    name: &name[1..],
                    oid: field(1).and_then(|oid| oid.parse().ok()).unwrap_or_default(),
                    kind: field(2).unwrap_or("r"),
                    namespace: field(3).and_then(|oid| oid.parse().ok()).unwrap_or_default(),
                    description: field(4),
                    columns: vec![],
                    schema: Arc::new(Schema::empty()),
                    lines: vec![],
                    rows: OnceLock::new(),
                });
                continue;
            }
            let Some(relation) = relations.last_mut() else { continue };
            match line.strip_prefix('#').and_then(|_| field(0)) {
                Some(name) => relation.columns.push(SystemColumn {
                    name: &name[1..],
                    type_name: field(1).unwrap_or("text"),
                    not_null: field(2) == Some("t"),
                    description: field(3),
                }),
                None => relation.lines.push(line),
            }
        }
        for relation in &mut relations {
            let fields = relation
                .columns
                .iter()
                .map(|column| catalog_field(column.name, column.type_name, !column.not_null))
                .collect::<Vec<_>>();
            relation.schema = Arc::new(Schema::new(fields));
        }
        let keys = relations.iter().enumerate();
        let by_name =
            keys.clone().map(|(place, relation)| ((relation.namespace, relation.name), place)).collect();
        let by_oid = keys.map(|(place, relation)| (relation.oid, place)).collect();
        let information = relations.iter().map(|relation| relation.namespace).find(|oid| *oid != PG_CATALOG);
        Self { relations, information, by_name, by_oid }
    }

    pub(crate) fn find(&self, namespace: i32, name: &str) -> Option<&SystemRelation> {
        self.relations.get(*self.by_name.get(&(namespace, name))?)
    }

    pub(crate) fn get(&self, oid: i32) -> Option<&SystemRelation> {
        self.relations.get(*self.by_oid.get(&oid)?)
    }

    /// A relation of `pg_catalog`. All their names begin with `pg_`.
    pub(crate) fn catalog(&self, name: &str) -> Option<&SystemRelation> {
        self.find(PG_CATALOG, name)
    }

    /// A relation of `information_schema`.
    pub(crate) fn information(&self, name: &str) -> Option<&SystemRelation> {
        self.find(self.information?, name)
    }
}

impl SystemRelation {
    /// Whether it is always empty here, because there are no objects of its kind.
    pub(crate) fn is_always_empty(&self) -> bool {
        const LIVE: [&str; 15] = [
            "pg_attrdef",
            "pg_attribute",
            "pg_auth_members",
            "pg_authid",
            "pg_class",
            "pg_constraint",
            "pg_database",
            "pg_db_role_setting",
            "pg_depend",
            "pg_extension",
            "pg_index",
            "pg_init_privs",
            "pg_rewrite",
            "pg_sequence",
            "pg_shdescription",
        ];
        self.namespace == PG_CATALOG
            && self.kind == "r"
            && self.lines.is_empty()
            && !LIVE.contains(&self.name)
    }

    /// The rows in the file; most relations have none.
    pub(crate) fn rows(&self) -> Result<&RecordBatch> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows);
        }
        let rows = self.parse()?;
        Ok(self.rows.get_or_init(|| rows))
    }

    fn parse(&self) -> Result<RecordBatch> {
        let mut texts: Vec<Vec<Option<String>>> =
            vec![Vec::with_capacity(self.lines.len()); self.columns.len()];
        for line in &self.lines {
            let mut fields = line.split('\t');
            for column in &mut texts {
                column.push(fields.next().and_then(unescape));
            }
        }
        let arrays = texts
            .into_iter()
            .zip(self.schema.fields())
            .map(|(column, field)| array(column, field.data_type()))
            .collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}

/// Unescapes a value of COPY's text format.
fn unescape(field: &str) -> Option<String> {
    if field == "\\N" {
        return None;
    }
    let mut text = String::with_capacity(field.len());
    let mut letters = field.chars();
    while let Some(letter) = letters.next() {
        text.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('v') => '\u{b}',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    Some(text)
}

/// Parses values of a type.
fn array(texts: Vec<Option<String>>, data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::List(item) => {
            let mut items = vec![];
            let mut lengths = vec![];
            let mut valid = vec![];
            for text in &texts {
                let before = items.len();
                if let Some(text) = text {
                    items.extend(elements(text));
                }
                lengths.push(items.len() - before);
                valid.push(text.is_some());
            }
            let values = array(items, item.data_type())?;
            let nulls = Some(NullBuffer::from(valid));
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
        }
        DataType::Boolean => {
            Ok(Arc::new(texts.iter().map(|text| text.as_ref().map(|t| t == "t")).collect::<BooleanArray>()))
        }
        _ => cast(&StringArray::from(texts), data_type),
    }
}

/// The elements of an array literal (`{a,"b c"}`) or a vector (`1 2`).
pub(crate) fn elements(text: &str) -> Vec<Option<String>> {
    let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
        return text.split_whitespace().map(|element| Some(element.to_string())).collect();
    };
    let (mut found, mut current, mut quoted, mut was_quoted) = (vec![], String::new(), false, false);
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => current.extend(letters.next()),
            '"' => (quoted, was_quoted) = (!quoted, true),
            // Blanks around elements are ignored.
            blank if blank.is_whitespace() && !quoted && (was_quoted || current.is_empty()) => {}
            ',' if !quoted => {
                found.push(finish(&mut current, was_quoted));
                was_quoted = false;
            }
            other => current.push(other),
        }
    }
    if !inner.trim().is_empty() {
        found.push(finish(&mut current, was_quoted));
    }
    found
}

fn finish(current: &mut String, quoted: bool) -> Option<String> {
    let mut element = std::mem::take(current);
    if !quoted {
        element.truncate(element.trim_end().len());
    }
    (quoted || !element.eq_ignore_ascii_case("null")).then_some(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relation_can_be_read() {
        for relation in &SYSTEM.relations {
            let rows = relation.rows().unwrap_or_else(|error| panic!("{}: {error}", relation.name));
            assert_eq!(rows.num_rows(), relation.lines.len(), "{}", relation.name);
        }
        assert!(SYSTEM.catalog("pg_proc").unwrap().rows().unwrap().num_rows() > 3000);
    }

    #[test]
    fn arrays_are_read_as_postgresql_writes_them() {
        let texts = |text| elements(text).into_iter().map(|e| e.unwrap_or("-".into())).collect::<Vec<_>>();
        assert_eq!(texts("{a,\"b, \\\"c\",NULL}"), ["a", "b, \"c", "-"]);
        assert_eq!(texts("{ a b , \" c\" ,\"null\", null }"), ["a b", " c", "null", "-"]);
        assert_eq!(texts("23 25"), ["23", "25"]);
        assert!(texts("{ }").is_empty());
        assert!(texts("{}").is_empty() && texts("").is_empty());
    }
}
