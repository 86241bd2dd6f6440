//! Correction of wrong page headers.

use bytes::Bytes;

use super::thrift::{Struct, Value};

/// Field ids of a page header.
const PAGE_KIND: i16 = 1;
const COMPRESSED_BYTES: i16 = 3;
const SECOND_VERSION: i16 = 8;
const IS_COMPRESSED: i16 = 7;

const DICTIONARY: i64 = 2;

/// The length of a dictionary page header at the start of a column; `None`: there is no dictionary.
pub(super) fn dictionary_head_bytes(column: &[u8]) -> Option<i64> {
    let (head, rest) = Struct::read(column)?;
    let is_dictionary = head.number(PAGE_KIND) == Some(DICTIONARY);
    i64::try_from(column.len() - rest).ok().filter(|_| is_dictionary)
}

/// Sets the compression flag of all v2 data pages of a column.
pub(super) fn set_compressed_flags(column: Bytes) -> Bytes {
    let mut changed: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some((mut head, rest)) = column.get(at..).and_then(Struct::read) {
        let head_bytes = column.len() - at - rest;
        if let Some(Value::Struct(page)) = head.get_mut(SECOND_VERSION)
            && let Some(flag @ Value::Bool(false)) = page.get_mut(IS_COMPRESSED)
        {
            *flag = Value::Bool(true);
            let head = head.serialize();
            // The flag is in the byte with the field's type.
            if head.len() == head_bytes {
                changed.get_or_insert_with(|| column.to_vec())[at..at + head_bytes].copy_from_slice(&head);
            }
        }
        let Some(body) = head.number(COMPRESSED_BYTES).and_then(|bytes| usize::try_from(bytes).ok()) else {
            break;
        };
        let Some(next) = at.checked_add(head_bytes).and_then(|at| at.checked_add(body)) else { break };
        at = next;
    }
    changed.map_or(column, Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(version: i16, flag: Option<bool>) -> Vec<u8> {
        let mut inner = Struct(vec![(1, Value::i32(3))]);
        if let Some(flag) = flag {
            inner.set(IS_COMPRESSED, Value::Bool(flag));
        }
        let head = Struct(vec![
            (1, Value::i32(3)),
            (2, Value::i32(9)),
            (COMPRESSED_BYTES, Value::i32(4)),
            (version, Value::Struct(inner)),
        ]);
        [head.serialize(), b"body".to_vec()].concat()
    }

    #[test]
    fn compression_flag_is_set_on_every_page() {
        let column = |flag: Option<bool>| {
            let pages = [page(7, None), page(SECOND_VERSION, flag), page(SECOND_VERSION, Some(true))];
            Bytes::from([pages.concat(), page(SECOND_VERSION, flag)].concat())
        };
        assert_eq!(set_compressed_flags(column(Some(false))), column(Some(true)));
        for well in [column(Some(true)), column(None), Bytes::from_static(b"no pages"), Bytes::new()] {
            assert_eq!(set_compressed_flags(well.clone()), well);
        }
    }
}
