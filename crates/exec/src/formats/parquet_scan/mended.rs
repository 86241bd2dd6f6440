//! Footers that the library does not take, as it would take them. Each is one that other readers read.
//!
//! | what is written | what it is for | by whom |
//! |---|---|---|
//! | a field of another type than the format gives it | a field that is not known | Dremio's own fields |
//! | a converted type that is not known | none; 24 is a column of NULLs | Arrow before 0.17 |
//! | a decimal without a scale | one of whole numbers, as the format says | |
//! | a dictionary at byte 0 | none | Dremio |
//! | a map that is repeated itself | a list of structures: an element of a list of two levels | parquet-avro, Thrift |
//! | a group of no columns | nothing: it has no values, and the column that it is or was in is NULL | parquet-go |

use super::thrift::{Element, Kind, Struct, Value};

/// Ids of the fields of the format's structures, those that are looked at here.
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

/// How deep types are within each other, at most.
const DEPTH_MAX: usize = 100;

const CONVERTED_MAP: i64 = 1;
/// Of what is repeated in a map, where it says nothing.
const CONVERTED_MAP_ENTRY: i64 = 2;
const CONVERTED_DECIMAL: i64 = 5;
/// The last one that the format knows.
const CONVERTED_INTERVAL: i64 = 21;
/// What Arrow's C++ library wrote for a column of NULLs before there was a logical type for it.
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

/// A footer that the library takes; `None`: there is nothing to mend.
pub(super) fn mended(footer: &[u8]) -> Option<Vec<u8>> {
    let (mut file, _) = Struct::read(footer)?;
    let written = file.clone();
    keep_known(&mut file, FILE);
    for kind in file.structs_mut(field::FILE_SCHEMA) {
        keep_known(kind, SCHEMA);
        mend_kind(kind);
    }
    let kinds: Vec<Struct> = file.structs_mut(field::FILE_SCHEMA).map(|kind| kind.clone()).collect();
    if let Some(Value::List(_, _, elements)) = file.get_mut(field::FILE_SCHEMA) {
        let mut kinds = kinds.into_iter();
        let mut kept = Vec::new();
        // What is none is for the library to tell.
        if with_columns(&mut kinds, true, &mut kept, 0).is_some() && kinds.len() == 0 {
            *elements = kept.into_iter().map(Value::Struct).collect();
        }
    }
    for group in file.structs_mut(field::FILE_GROUPS) {
        keep_known(group, GROUP);
        for chunk in group.structs_mut(field::GROUP_COLUMNS) {
            keep_known(chunk, CHUNK);
            let Some(Value::Struct(column)) = chunk.get_mut(field::CHUNK_COLUMN) else { continue };
            keep_known(column, COLUMN);
            if column.number(field::COLUMN_DICTIONARY) == Some(0) {
                column.remove(field::COLUMN_DICTIONARY);
            }
            if let Some(Value::Struct(statistics)) = column.get_mut(field::COLUMN_STATISTICS) {
                keep_known(statistics, STATISTICS);
            }
        }
    }
    (file != written).then(|| file.written())
}

/// Takes away what has an id that the format knows and another type than that.
fn keep_known(of: &mut Struct, known: &[(i16, Kind)]) {
    of.0.retain(|(id, value)| {
        let kind = known.iter().find(|(known, _)| known == id).map(|(_, kind)| *kind);
        kind.is_none_or(|kind| value.is(kind))
    });
}

/// Keeps the next type, and those in it, but for groups that have no columns. Returns whether it is kept;
/// `None`: there are fewer types than are told.
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

fn mend_kind(kind: &mut Struct) {
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

    fn mended_kind(fields: Vec<(i16, i32)>) -> Struct {
        let mut changed = kind(fields);
        mend_kind(&mut changed);
        changed
    }

    #[test]
    fn types_are_what_their_writers_meant() {
        let decimal = mended_kind(vec![(1, 2), (field::KIND_CONVERTED, 5), (8, 9)]);
        assert_eq!(decimal, kind(vec![(1, 2), (field::KIND_CONVERTED, 5), (field::KIND_SCALE, 0), (8, 9)]));
        let nulls = mended_kind(vec![(1, 1), (field::KIND_CONVERTED, 24)]);
        assert_eq!(nulls.number(field::KIND_CONVERTED), None);
        assert!(nulls.get(field::KIND_LOGICAL).is_some());
        assert_eq!(mended_kind(vec![(1, 1), (field::KIND_CONVERTED, 99)]), kind(vec![(1, 1)]));
        let repeated = vec![(field::KIND_REPETITION, 2), (field::KIND_CONVERTED, 1)];
        assert_eq!(mended_kind(repeated), kind(vec![(field::KIND_REPETITION, 2)]));
        for well in [
            vec![(1, 1), (field::KIND_CONVERTED, 21)],
            vec![(field::KIND_REPETITION, 1), (field::KIND_CONVERTED, 1)],
        ] {
            assert_eq!(mended_kind(well.clone()), kind(well));
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
    fn fields_of_other_types_are_not_known() {
        let mut group = Struct(vec![(2, Value::Int(6, 4)), (4, Value::Int(6, 67)), (99, Value::i32(1))]);
        keep_known(&mut group, GROUP);
        assert_eq!(group, Struct(vec![(2, Value::Int(6, 4)), (99, Value::i32(1))]));
        // What needs no mending is left as it is.
        assert_eq!(mended(&Struct(vec![(1, Value::i32(2)), (3, Value::Int(6, 5))]).written()), None);
        assert_eq!(mended(b"no footer"), None);
    }
}
