//! The output of encoders: a value, and its length before it.

use bytes::{BufMut, BytesMut};
use harrier_error::SqlError;

/// Encodes one non-NULL value of a column.
///
/// Errors: the value has no such form. The caller truncates the partial output.
pub(super) type ValueEncoder<'a> = Box<dyn FnMut(usize, &mut BytesMut) -> Result<(), Box<SqlError>> + 'a>;

/// Writes the output of `encode` after its length.
pub(super) fn with_length(
    out: &mut BytesMut,
    encode: impl FnOnce(&mut BytesMut) -> Result<(), Box<SqlError>>,
) -> Result<(), Box<SqlError>> {
    let at = out.len();
    out.put_i32(0);
    encode(out)?;
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
