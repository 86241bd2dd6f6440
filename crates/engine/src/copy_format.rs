//! PostgreSQL's text and CSV formats of COPY: reader, encoder, and file format.

pub(crate) mod encode;
pub(crate) mod layout;
pub(crate) mod list_reader;
pub(crate) mod lists;
pub(crate) mod row_reader;
pub(crate) mod text_format;
