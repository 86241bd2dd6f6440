//! Writer of the PostgreSQL protocol's backend messages.

use bytes::{BufMut, BytesMut};
use harrier_error::SqlError;
use harrier_session_api::session::TransactionState;

use super::types::PgType;

/// A buffer of backend messages.
#[derive(Debug, Default)]
pub(crate) struct Reply(pub(crate) BytesMut);

/// A column of a row description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) pg_type: PgType,
    /// 0: text, 1: binary.
    pub(crate) format: i16,
    pub(crate) origin: Origin,
}

/// The oid and column number of a column's table; zeros if it has none. Not part of a column's identity: a
/// recreated table has another oid.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    pub(crate) table: u32,
    pub(crate) column: i16,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl Reply {
    /// Writes a message: its kind, its length, and the output of `body`.
    pub(crate) fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        self.0.put_u8(kind);
        let at = self.0.len();
        self.0.put_i32(0);
        body(&mut self.0);
        let length = (self.0.len() - at) as i32;
        self.0[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn empty_message(&mut self, kind: u8) {
        self.message(kind, |_| {});
    }

    pub(crate) fn authentication(&mut self, code: i32, data: &[u8]) {
        self.message(b'R', |out| {
            out.put_i32(code);
            out.put_slice(data);
        });
    }

    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            text(out, name);
            text(out, value);
        });
    }

    pub(crate) fn key(&mut self, process: i32, secret: i32) {
        self.message(b'K', |out| {
            out.put_i32(process);
            out.put_i32(secret);
        });
    }

    /// Reports that the client's minor version or protocol options are not supported.
    pub(crate) fn negotiate(&mut self, unknown: &[&str]) {
        self.message(b'v', |out| {
            out.put_i32(0);
            out.put_i32(unknown.len() as i32);
            unknown.iter().for_each(|name| text(out, name));
        });
    }

    pub(crate) fn ready(&mut self, state: TransactionState) {
        let state = match state {
            TransactionState::Idle => b'I',
            TransactionState::Open => b'T',
            TransactionState::Failed => b'E',
        };
        self.message(b'Z', |out| out.put_u8(state));
    }

    pub(crate) fn complete(&mut self, tag: &str) {
        self.message(b'C', |out| text(out, tag));
    }

    pub(crate) fn empty_query(&mut self) {
        self.empty_message(b'I');
    }

    pub(crate) fn parse_complete(&mut self) {
        self.empty_message(b'1');
    }

    pub(crate) fn bind_complete(&mut self) {
        self.empty_message(b'2');
    }

    pub(crate) fn close_complete(&mut self) {
        self.empty_message(b'3');
    }

    pub(crate) fn no_data(&mut self) {
        self.empty_message(b'n');
    }

    pub(crate) fn portal_suspended(&mut self) {
        self.empty_message(b's');
    }

    pub(crate) fn parameters(&mut self, types: &[PgType]) {
        self.message(b't', |out| {
            out.put_i16(types.len() as i16);
            types.iter().for_each(|pg_type| out.put_u32(pg_type.oid));
        });
    }

    pub(crate) fn columns(&mut self, columns: &[Column]) {
        self.message(b'T', |out| {
            out.put_i16(columns.len() as i16);
            for column in columns {
                text(out, &column.name);
                out.put_u32(column.origin.table);
                out.put_i16(column.origin.column);
                out.put_u32(column.pg_type.oid);
                out.put_i16(column.pg_type.bytes);
                out.put_i32(column.pg_type.modifier);
                out.put_i16(column.format);
            }
        });
    }

    pub(crate) fn copy_in(&mut self, columns: usize, is_binary: bool) {
        self.copy(b'G', columns, is_binary);
    }

    pub(crate) fn copy_out(&mut self, columns: usize, is_binary: bool) {
        self.copy(b'H', columns, is_binary);
    }

    fn copy(&mut self, kind: u8, columns: usize, is_binary: bool) {
        self.message(kind, |out| {
            out.put_u8(is_binary.into());
            out.put_i16(columns as i16);
            (0..columns).for_each(|_| out.put_i16(is_binary.into()));
        });
    }

    pub(crate) fn copy_data(&mut self, data: &[u8]) {
        self.message(b'd', |out| out.put_slice(data));
    }

    pub(crate) fn copy_done(&mut self) {
        self.empty_message(b'c');
    }

    pub(crate) fn failure(&mut self, failure: &SqlError) {
        let severity = if failure.is_fatal { "FATAL" } else { "ERROR" };
        self.report(b'E', severity, failure);
    }

    pub(crate) fn notice(&mut self, severity: &str, failure: &SqlError) {
        self.report(b'N', severity, failure);
    }

    fn report(&mut self, kind: u8, severity: &str, failure: &SqlError) {
        self.message(kind, |out| {
            let position = failure.position.map(|position| position.to_string());
            let fields = [
                (b'S', Some(severity)),
                (b'V', Some(severity)),
                (b'C', Some(failure.sqlstate.as_str())),
                (b'M', Some(failure.message.as_str())),
                (b'D', failure.detail.as_deref()),
                (b'H', failure.hint.as_deref()),
                (b'P', position.as_deref()),
                (b'W', failure.context.as_deref()),
                (b'R', crate::backend::routine(failure)),
            ];
            for (field, value) in fields {
                if let Some(value) = value {
                    out.put_u8(field);
                    text(out, value);
                }
            }
            out.put_u8(0);
        });
    }
}

/// Writes a NUL-terminated string. A NUL inside would end it too early.
fn text(out: &mut BytesMut, value: &str) {
    match value.contains('\0') {
        true => out.put_slice(value.replace('\0', " ").as_bytes()),
        false => out.put_slice(value.as_bytes()),
    }
    out.put_u8(0);
}
