//! Layout of rows as text: format, delimiter, quotes, NULL.

use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_sql::parser::copy::{CopyFormat, CopyOptions, Header};
use harrier_sqlstate::IntoDataFusionError;

/// Layout of rows as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Whether it is CSV; otherwise PostgreSQL's text format.
    pub csv: bool,
    pub delimiter: u8,
    pub quote: u8,
    pub escape: u8,
    /// The text of NULL.
    pub null: String,
    pub header: Header,
    /// Style of intervals in output; input accepts all styles.
    pub intervals: IntervalStyle,
    /// Field order of ambiguous dates in input.
    pub dates: DateOrder,
    /// `t` and `f`, as in PostgreSQL; otherwise `true` and `false`, from which readers of files infer the
    /// type.
    pub short_booleans: bool,
}

/// The layout of a COPY's options; `header`: the default.
pub(crate) fn layout(options: &CopyOptions, format: CopyFormat, header: Header) -> Result<Layout> {
    let csv = match format {
        CopyFormat::Csv => true,
        CopyFormat::Text => false,
        other => {
            let message = format!("rows in format {} are only read from files", other.name());
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
    };
    let only_csv = [("quote", options.quote.is_some()), ("escape", options.escape.is_some())];
    if let Some((name, _)) = only_csv.iter().find(|(_, given)| *given && !csv) {
        let message = format!("COPY {name} requires CSV mode");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let quote = options.quote.unwrap_or(b'"');
    Ok(Layout {
        csv,
        delimiter: options.delimiter.unwrap_or(if csv { b',' } else { b'\t' }),
        quote,
        escape: options.escape.unwrap_or(quote),
        null: options.null.clone().unwrap_or_else(|| if csv { String::new() } else { "\\N".to_string() }),
        header: options.header.unwrap_or(if csv { header } else { Header::Absent }),
        intervals: IntervalStyle::default(),
        dates: DateOrder::default(),
        short_booleans: false,
    })
}
