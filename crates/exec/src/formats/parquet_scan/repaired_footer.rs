//! Repair of footers that the library rejects and other readers accept.
//!
//! | found | replaced by | written by |
//! |---|---|---|
//! | a field with a wrong wire type | dropped, like an unknown field | Dremio's own fields |
//! | an unknown converted type | none; 24 is a column of NULLs | Arrow before 0.17 |
//! | a decimal without a scale | scale 0, as the format says | |
//! | a dictionary at byte 0 | none | Dremio |
//! | a repeated map | a list of structs: an element of a two-level list | parquet-avro, Thrift |
//! | a group without columns | dropped without values; the column that it is or was in is NULL | parquet-go |

use super::thrift::{Element, Kind, Struct, Value};

/// Field ids of the format's structs, as far as they are used here.
mod field {
    pub(super) const FILE_SCHEMA: i16 = 2;
    pub(super) const FILE_GROUPS: i16 = 4;
    pub(super) const GROUP_COLUMNS: i16 = 1;
    pub(super) const CHUNK_COLUMN: i16 = 3;
    pub(super) const COLUMN_DICTIONARY: i16 = 11;
    pub(super) const COLUMN_STATISTICS: i16 = 12;
    pub(super) const KIND_PHYSICAL: i16 = 1;
    pub(super) const KIND_REPETITION: i16 = 3;
    pub(super) const KIND_CHILDREN: i16 = 5;
    pub(super) const KIND_CONVERTED: i16 = 6;
    pub(super) const KIND_SCALE: i16 = 7;
    pub(super) const KIND_LOGICAL: i16 = 10;
    pub(super) const LOGICAL_UNKNOWN: i16 = 11;
}

/// The deepest nesting of types.
const DEPTH_MAX: usize = 100;

const CONVERTED_MAP: i64 = 1;
/// The repeated group of a map, if not declared.
const CONVERTED_MAP_ENTRY: i64 = 2;
const CONVERTED_DECIMAL: i64 = 5;
/// The last one that the format defines.
const CONVERTED_INTERVAL: i64 = 21;
/// Arrow C++'s type of a column of NULLs before there was a logical type for it.
const CONVERTED_NULL: i64 = 24;
const REPEATED: i64 = 2;

const FILE: &[(i16, Kind)] = &[
    (1, Kind::I32),
    (field::FILE_SCHEMA, Kind::ListOf(Element::Struct)),
    (3, Kind::I64),
    (field::FILE_GROUPS, Kind::ListOf(Element::Struct)),
    (5, Kind::ListOf(Element::Struct)),
    (6, Kind::Binary),
    (7, Kind::ListOf(Element::Struct)),
    (8, Kind::Struct),
    (9, Kind::Binary),
];

const SCHEMA: &[(i16, Kind)] = &[
    (field::KIND_PHYSICAL, Kind::I32),
    (2, Kind::I32),
    (field::KIND_REPETITION, Kind::I32),
    (4, Kind::Binary),
    (field::KIND_CHILDREN, Kind::I32),
    (field::KIND_CONVERTED, Kind::I32),
    (field::KIND_SCALE, Kind::I32),
    (8, Kind::I32),
    (9, Kind::I32),
    (field::KIND_LOGICAL, Kind::Struct),
];

const GROUP: &[(i16, Kind)] = &[
    (field::GROUP_COLUMNS, Kind::ListOf(Element::Struct)),
    (2, Kind::I64),
    (3, Kind::I64),
    (4, Kind::ListOf(Element::Struct)),
    (5, Kind::I64),
    (6, Kind::I64),
    (7, Kind::I16),
];

const CHUNK: &[(i16, Kind)] = &[
    (1, Kind::Binary),
    (2, Kind::I64),
    (field::CHUNK_COLUMN, Kind::Struct),
    (4, Kind::I64),
    (5, Kind::I32),
    (6, Kind::I64),
    (7, Kind::I32),
    (8, Kind::Struct),
    (9, Kind::Binary),
];

const COLUMN: &[(i16, Kind)] = &[
    (1, Kind::I32),
    (2, Kind::ListOf(Element::I32)),
    (3, Kind::ListOf(Element::Binary)),
    (4, Kind::I32),
    (5, Kind::I64),
    (6, Kind::I64),
    (7, Kind::I64),
    (8, Kind::ListOf(Element::Struct)),
    (9, Kind::I64),
    (10, Kind::I64),
    (field::COLUMN_DICTIONARY, Kind::I64),
    (field::COLUMN_STATISTICS, Kind::Struct),
    (13, Kind::ListOf(Element::Struct)),
    (14, Kind::I64),
    (15, Kind::I32),
    (16, Kind::Struct),
    (17, Kind::Struct),
];

const STATISTICS: &[(i16, Kind)] = &[
    (1, Kind::Binary),
    (2, Kind::Binary),
    (3, Kind::I64),
    (4, Kind::I64),
    (5, Kind::Binary),
    (6, Kind::Binary),
    (7, Kind::Bool),
    (8, Kind::Bool),
];

/// Repairs a footer; `None`: there is nothing to repair.
pub(super) fn repair(footer: &[u8]) -> Option<Vec<u8>> {
    let (mut file, _) = Struct::read(footer)?;
    let written = file.clone();
    drop_mistyped_fields(&mut file, FILE);
    for kind in file.structs_mut(field::FILE_SCHEMA) {
        drop_mistyped_fields(kind, SCHEMA);
        repair_kind(kind);
    }
    let kinds: Vec<Struct> = file.structs_mut(field::FILE_SCHEMA).map(|kind| kind.clone()).collect();
    if let Some(Value::List(_, _, elements)) = file.get_mut(field::FILE_SCHEMA) {
        let mut kinds = kinds.into_iter();
        let mut kept = Vec::new();
        // Leave invalid footers to the library's error.
        if with_columns(&mut kinds, true, &mut kept, 0).is_some() && kinds.len() == 0 {
            *elements = kept.into_iter().map(Value::Struct).collect();
        }
    }
    for group in file.structs_mut(field::FILE_GROUPS) {
        drop_mistyped_fields(group, GROUP);
        for chunk in group.structs_mut(field::GROUP_COLUMNS) {
            drop_mistyped_fields(chunk, CHUNK);
            let Some(Value::Struct(column)) = chunk.get_mut(field::CHUNK_COLUMN) else { continue };
            drop_mistyped_fields(column, COLUMN);
            if column.number(field::COLUMN_DICTIONARY) == Some(0) {
                column.remove(field::COLUMN_DICTIONARY);
            }
            if let Some(Value::Struct(statistics)) = column.get_mut(field::COLUMN_STATISTICS) {
                drop_mistyped_fields(statistics, STATISTICS);
            }
        }
    }
    (file != written).then(|| file.serialize())
}

/// Drops fields with a known id and a wrong wire type.
fn drop_mistyped_fields(of: &mut Struct, known: &[(i16, Kind)]) {
    of.0.retain(|(id, value)| {
        let kind = known.iter().find(|(known, _)| known == id).map(|(_, kind)| *kind);
        kind.is_none_or(|kind| value.is(kind))
    });
}

/// Copies the next type and its children, dropping groups without columns. Returns whether it is kept;
/// `None`: there are fewer types than declared.
fn with_columns(
    kinds: &mut impl Iterator<Item = Struct>,
    is_root: bool,
    kept: &mut Vec<Struct>,
    depth: usize,
) -> Option<bool> {
    let mut kind = kinds.next().filter(|_| depth < DEPTH_MAX)?;
    if kind.get(field::KIND_PHYSICAL).is_some() {
        kept.push(kind);
        return Some(true);
    }
    let children = kind.number(field::KIND_CHILDREN).unwrap_or(0);
    let mut inner = Vec::new();
    let mut count = 0;
    for _ in 0..children {
        count += i32::from(with_columns(kinds, false, &mut inner, depth + 1)?);
    }
    if count == 0 && !is_root {
        return Some(false);
    }
    kind.set(field::KIND_CHILDREN, Value::i32(count));
    kept.push(kind);
    kept.append(&mut inner);
    Some(true)
}

fn repair_kind(kind: &mut Struct) {
    match kind.number(field::KIND_CONVERTED) {
        Some(CONVERTED_NULL) => {
            kind.remove(field::KIND_CONVERTED);
            let unknown = Struct(vec![(field::LOGICAL_UNKNOWN, Value::Struct(Struct::default()))]);
            kind.set(field::KIND_LOGICAL, Value::Struct(unknown));
        }
        Some(other) if !(0..=CONVERTED_INTERVAL).contains(&other) => kind.remove(field::KIND_CONVERTED),
        Some(CONVERTED_DECIMAL) if kind.number(field::KIND_SCALE).is_none() => {
            kind.set(field::KIND_SCALE, Value::i32(0));
        }
        Some(CONVERTED_MAP | CONVERTED_MAP_ENTRY)
            if kind.number(field::KIND_REPETITION) == Some(REPEATED) =>
        {
            kind.remove(field::KIND_CONVERTED);
            kind.remove(field::KIND_LOGICAL);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(fields: Vec<(i16, i32)>) -> Struct {
        Struct(fields.into_iter().map(|(id, value)| (id, Value::i32(value))).collect())
    }

    fn repaired_kind(fields: Vec<(i16, i32)>) -> Struct {
        let mut changed = kind(fields);
        repair_kind(&mut changed);
        changed
    }

    #[test]
    fn writer_types_are_repaired() {
        let decimal = repaired_kind(vec![(1, 2), (field::KIND_CONVERTED, 5), (8, 9)]);
        assert_eq!(decimal, kind(vec![(1, 2), (field::KIND_CONVERTED, 5), (field::KIND_SCALE, 0), (8, 9)]));
        let nulls = repaired_kind(vec![(1, 1), (field::KIND_CONVERTED, 24)]);
        assert_eq!(nulls.number(field::KIND_CONVERTED), None);
        assert!(nulls.get(field::KIND_LOGICAL).is_some());
        assert_eq!(repaired_kind(vec![(1, 1), (field::KIND_CONVERTED, 99)]), kind(vec![(1, 1)]));
        let repeated = vec![(field::KIND_REPETITION, 2), (field::KIND_CONVERTED, 1)];
        assert_eq!(repaired_kind(repeated), kind(vec![(field::KIND_REPETITION, 2)]));
        for well in [
            vec![(1, 1), (field::KIND_CONVERTED, 21)],
            vec![(field::KIND_REPETITION, 1), (field::KIND_CONVERTED, 1)],
        ] {
            assert_eq!(repaired_kind(well.clone()), kind(well));
        }
    }

    #[test]
    fn groups_without_columns_are_left_out() {
        let named = |name: &str, children: Option<i32>| {
            let mut kind = Struct(vec![(4, Value::Binary(name.into()))]);
            match children {
                Some(children) => kind.set(field::KIND_CHILDREN, Value::i32(children)),
                None => kind.set(field::KIND_PHYSICAL, Value::i32(1)),
            }
            kind
        };
        let kept = |kinds: Vec<Struct>| {
            let (mut kinds, mut kept) = (kinds.into_iter(), Vec::new());
            with_columns(&mut kinds, true, &mut kept, 0).map(|_| kept)
        };
        let all = vec![
            named("root", Some(3)),
            named("id", None),
            named("nested", Some(1)),
            named("inner", Some(0)),
            named("group", Some(2)),
            named("other", Some(0)),
            named("leaf", None),
        ];
        let expected =
            vec![named("root", Some(2)), named("id", None), named("group", Some(1)), named("leaf", None)];
        assert_eq!(kept(all.clone()), Some(expected));
        assert_eq!(kept(all[..6].to_vec()), None);
        assert_eq!(kept(vec![named("root", Some(0))]), Some(vec![named("root", Some(0))]));
        assert_eq!(kept(vec![named("deep", Some(1)); 200]), None);
    }

    #[test]
    fn mistyped_fields_are_dropped() {
        let mut group = Struct(vec![(2, Value::Int(6, 4)), (4, Value::Int(6, 67)), (99, Value::i32(1))]);
        drop_mistyped_fields(&mut group, GROUP);
        assert_eq!(group, Struct(vec![(2, Value::Int(6, 4)), (99, Value::i32(1))]));
        // A valid footer is unchanged.
        assert_eq!(repair(&Struct(vec![(1, Value::i32(2)), (3, Value::Int(6, 5))]).serialize()), None);
        assert_eq!(repair(b"no footer"), None);
    }
}
