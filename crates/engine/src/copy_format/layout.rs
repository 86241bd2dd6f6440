//! How rows are written down: format, delimiter, quotes, NULL.

use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_sql::parser::copy::{CopyFormat, CopyOptions, Header};
use harrier_sqlstate::IntoDataFusionError;

/// How rows are written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// PostgreSQL's text format if not.
    pub csv: bool,
    pub delimiter: u8,
    pub quote: u8,
    pub escape: u8,
    /// The field that is NULL.
    pub null: String,
    pub header: Header,
    /// How intervals are written; all styles are read.
    pub intervals: IntervalStyle,
    /// How days are read whose text does not tell.
    pub dates: DateOrder,
    /// `t` and `f`, as PostgreSQL has them; else `true` and `false`, by which readers of files tell their
    /// type.
    pub short_truths: bool,
}

/// How rows are written down; `header` where the statement does not say.
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
        short_truths: false,
    })
}
