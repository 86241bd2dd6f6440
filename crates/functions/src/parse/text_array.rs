//! Conversion of text arrays to typed arrays, for bounds, defaults and histograms of the catalog.

use datafusion::arrow::array::{Array, ArrayRef, StringArray, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;

use super::interval;
use crate::datetime::infinity::with_far;

/// Texts as values of `kind`. Invalid texts become NULL, which means unknown; so do all texts of bytes and of
/// nested types.
///
/// Errors: the type has no text form.
pub fn parse_array(texts: &StringArray, kind: &DataType) -> Result<ArrayRef> {
    match kind {
        DataType::Binary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            Ok(new_null_array(kind, texts.len()))
        }
        _ if kind.is_nested() => Ok(new_null_array(kind, texts.len())),
        // Arrow parses the units of `1 year 2 months 04:05:06`, but not its time.
        DataType::Interval(_) => {
            let plain = |text: &str| interval::normal(text).unwrap_or_else(|| text.to_string());
            let texts: StringArray = texts.iter().map(|text| text.map(plain)).collect();
            Ok(cast(&texts, kind)?)
        }
        _ => with_far(cast(texts, kind)?, texts),
    }
}
