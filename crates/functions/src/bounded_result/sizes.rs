//! Sizes of array values in bytes, and element counts of lists, per row.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use datafusion::arrow::datatypes::DataType;

/// Maximum overhead of an element in addition to its bytes: a view.
pub(crate) const ELEMENT_BYTES: u64 = 16;

/// Bytes of each row; a NULL value counts as much as its slot.
pub(crate) fn bytes_of(array: &dyn Array) -> Vec<u64> {
    let lengths = |length: &dyn Fn(usize) -> u64| -> Vec<u64> {
        (0..array.len()).map(|row| if array.is_null(row) { 0 } else { length(row) }).collect()
    };
    let of_offsets = |offsets: &[i32]| lengths(&|row| span(offsets, row));
    let of_large_offsets = |offsets: &[i64]| lengths(&|row| span(offsets, row));
    // The length is in the lower half of a view.
    let of_views = |views: &[u128]| lengths(&|row| u64::from(views[row] as u32));
    match array.data_type() {
        DataType::Utf8 => of_offsets(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => of_large_offsets(array.as_string::<i64>().value_offsets()),
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::Binary => of_offsets(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => of_large_offsets(array.as_binary::<i64>().value_offsets()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        kind => match (kind.primitive_width(), kind) {
            (Some(width), _) => vec![width as u64; array.len()],
            (None, DataType::FixedSizeBinary(width)) => vec![*width as u64; array.len()],
            (None, DataType::Null | DataType::Boolean) => vec![1; array.len()],
            (None, DataType::Struct(_)) => {
                let mut all = vec![0_u64; array.len()];
                for column in array.as_struct().columns() {
                    for (all, bytes) in all.iter_mut().zip(bytes_of(column.as_ref())) {
                        *all = all.saturating_add(bytes).saturating_add(ELEMENT_BYTES);
                    }
                }
                all
            }
            (None, _) => match Lists::of(array) {
                Some(lists) => lists.sums(&bytes_of(lists.elements.as_ref()), ELEMENT_BYTES),
                // Unknown layout: each row may be the whole array.
                None => vec![array.get_array_memory_size() as u64; array.len()],
            },
        },
    }
}

/// Elements of the list in each row, including nested lists at any depth.
pub(crate) fn nodes_of(array: &dyn Array) -> Vec<u64> {
    match Lists::of(array) {
        Some(lists) => lists.sums(&nodes_of(lists.elements.as_ref()), 1),
        None => vec![0; array.len()],
    }
}

/// Elements of the list in each row; 0 if it is not a list.
pub(crate) fn items_of(array: &dyn Array) -> Vec<u64> {
    match Lists::of(array) {
        Some(lists) => lists.sums(&vec![1; lists.elements.len()], 0),
        None => vec![0; array.len()],
    }
}

fn span<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> u64 {
    (offsets[row + 1] - offsets[row]).as_usize() as u64
}

/// An array of lists or maps, with the range of each.
struct Lists<'a> {
    elements: &'a ArrayRef,
    spans: Vec<(usize, usize)>,
}

impl<'a> Lists<'a> {
    fn of(array: &'a dyn Array) -> Option<Self> {
        fn spans<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<(usize, usize)> {
            offsets.windows(2).map(|at| (at[0].as_usize(), at[1].as_usize())).collect()
        }
        let (elements, spans) = match array.data_type() {
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                (lists.values(), spans(lists.value_offsets()))
            }
            DataType::LargeList(_) => {
                let lists = array.as_list::<i64>();
                (lists.values(), spans(lists.value_offsets()))
            }
            DataType::FixedSizeList(_, width) => {
                let width = usize::try_from(*width).unwrap_or(0);
                let lists = array.as_fixed_size_list();
                (lists.values(), (0..array.len()).map(|row| (row * width, (row + 1) * width)).collect())
            }
            _ => return None,
        };
        Some(Self { elements, spans })
    }

    /// For each list, the sum of its elements' sizes, plus `each` per element.
    fn sums(&self, of_elements: &[u64], each: u64) -> Vec<u64> {
        let mut before = Vec::with_capacity(of_elements.len() + 1);
        let mut sum = 0_u64;
        before.push(sum);
        for element in of_elements {
            sum = sum.saturating_add(*element).saturating_add(each);
            before.push(sum);
        }
        self.spans.iter().map(|(from, to)| before[*to] - before[*from]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    #[test]
    fn texts_take_their_bytes() {
        let texts = [Some("ab"), None, Some(""), Some("a text that is longer than a view")];
        assert_eq!(bytes_of(&StringArray::from(texts.to_vec())), [2, 0, 0, 33]);
        assert_eq!(bytes_of(&StringArray::from(texts.to_vec()).slice(1, 3)), [0, 0, 33]);
        assert_eq!(bytes_of(&StringViewArray::from(texts.to_vec())), [2, 0, 0, 33]);
        assert_eq!(bytes_of(&Int64Array::from(vec![Some(1), None])), [8, 8]);
    }

    #[test]
    fn lists_take_those_of_their_elements() {
        let lists = [Some(vec![Some(1), Some(2)]), None, Some(vec![]), Some(vec![None])];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        assert_eq!(bytes_of(&lists), [48, 0, 0, 24]);
        assert_eq!(items_of(&lists), [2, 0, 0, 1]);
        assert_eq!(nodes_of(&lists.slice(2, 2)), [0, 1]);
    }
}
