//! PostgreSQL's text and CSV formats of COPY: rows read, rows written, and the file format that writes them.

pub(crate) mod encode;
pub(crate) mod layout;
pub(crate) mod list_reader;
pub(crate) mod lists;
pub(crate) mod row_reader;
pub(crate) mod text_format;
