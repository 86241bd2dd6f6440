//! File names: the format they imply, and their form as URLs, patterns and in messages.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectStore;
use harrier_error::{SqlError, SqlState};
use harrier_sql::file_names::{EXTENSIONS, is_compression};
use harrier_sqlstate::IntoDataFusionError;
use url::Url;

/// The kind of a file, by its name.
#[derive(Clone)]
pub(crate) struct FileKind {
    pub format: &'static str,
    pub(crate) options: &'static [(&'static str, &'static str)],
    pub compression: Option<String>,
    /// The common ending of all files of the same table.
    pub suffix: String,
}

impl FileKind {
    /// `None` for unknown extensions.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let (rest, last) = name.rsplit_once('.').filter(|(rest, _)| !rest.is_empty())?;
        let (extension, compression) =
            if is_compression(last) { (rest.rsplit_once('.')?.1, Some(last)) } else { (last, None) };
        let (_, format, options) =
            EXTENSIONS.iter().find(|(known, ..)| extension.eq_ignore_ascii_case(known))?;
        let suffix = match compression {
            Some(compression) => format!(".{extension}.{compression}"),
            None => format!(".{extension}"),
        };
        Some(Self { format, options, compression: compression.map(str::to_lowercase), suffix })
    }

    /// Whether files of both kinds may belong to one table. The compression of text files may differ, since
    /// each file's name gives it.
    pub(crate) fn is_same_table(&self, other: &Self) -> bool {
        let is_text = matches!(self.format, "csv" | "json");
        self.format == other.format
            && self.options == other.options
            && (is_text || self.compression == other.compression)
    }

    pub(crate) fn format(&self, state: &SessionState) -> Result<Arc<dyn FileFormat>> {
        let mut options: HashMap<String, String> =
            self.options.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        if let Some(compression) = &self.compression {
            options.insert("format.compression".to_string(), compression.clone());
        }
        state
            .get_file_format_factory(self.format)
            .ok_or_else(|| DataFusionError::Internal(format!("no reader for format {}", self.format)))?
            .create(state, &options)
    }
}

/// A file's name for messages: relative to the working directory, and without a leading `./`.
pub(crate) fn relative_name(name: &str) -> String {
    let path = Path::new(name);
    let short = std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok());
    let short = short.unwrap_or(path);
    let short = short.strip_prefix(".").unwrap_or(short).display().to_string();
    if name.ends_with('/') && !short.ends_with('/') { short + "/" } else { short }
}

/// Wraps an error of opening `name` so that it names the file.
pub(crate) fn about_file(error: DataFusionError, name: &str) -> DataFusionError {
    let sqlstate = harrier_sqlstate::of(&error);
    let cause = crate::error::sql_error(error);
    let detail = match (&cause.detail, cause.message.as_str()) {
        (Some(detail), "invalid Parquet data") => detail.clone(),
        (_, message) => message.to_string(),
    };
    match sqlstate {
        SqlState::UNDEFINED_FILE => missing(name),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            let error =
                SqlError::new(sqlstate, format!("permission denied for file \"{}\"", relative_name(name)));
            match cause.detail {
                Some(detail) => error.with_detail(detail),
                None => error,
            }
        }
        SqlState::DATA_CORRUPTED => SqlError::new(
            sqlstate,
            format!("file \"{}\" is damaged or not of the format its name says", relative_name(name)),
        )
        .with_detail(detail),
        _ => SqlError::new(sqlstate, format!("could not read file \"{}\"", relative_name(name)))
            .with_detail(detail),
    }
    .into_datafusion()
}

/// Returns the store of `url`.
///
/// Errors: no store of this kind (0A000), or invalid options (22023).
pub(crate) fn object_store(state: &SessionState, url: &ListingTableUrl) -> Result<Arc<dyn ObjectStore>> {
    state.runtime_env().object_store(url)
}

pub(crate) fn missing(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_FILE, format!("file \"{}\" does not exist", relative_name(name)))
}

pub(crate) fn no_match(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_FILE, format!("no files match \"{}\"", relative_name(name)))
}

/// Errors: it is no location (22023), or that of something that is read once, such as a pipe (42809).
pub(crate) fn parse_url(location: &str) -> Result<ListingTableUrl> {
    let url = ListingTableUrl::parse(location).map_err(|error| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid file name \"{location}\""))
            .with_detail(error.strip_backtrace())
            .into_datafusion()
    })?;
    let place = Url::parse(url.as_str()).ok().filter(|place| place.scheme() == "file");
    match place.and_then(|place| place.to_file_path().ok()) {
        Some(path) if url.get_glob().is_none() && is_device(&path) => {
            let message = format!("\"{}\" is no file, but a pipe or a device", path.display());
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                .with_hint("COPY … FROM STDIN and psql's \\copy read what comes once")
                .into_datafusion())
        }
        _ => Ok(url),
    }
}

/// Whether a path is that of a pipe, a terminal or another device, whose bytes come once and have no number;
/// so do those of standard input, output and errors, even where these are files.
pub(crate) fn is_device(path: &Path) -> bool {
    let of_process = |folder: &Path| folder.starts_with("/proc") && folder.ends_with("fd");
    let is_standard = ["/dev/stdin", "/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name))
        || path.parent().is_some_and(|folder| folder == Path::new("/dev/fd") || of_process(folder));
    is_standard || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A path as a URL, so that wildcard characters stand for themselves.
pub(crate) fn file_url(path: &Path) -> Result<String> {
    let invalid = || {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid file name \"{}\"", path.display()))
    };
    let absolute = std::path::absolute(path).map_err(|_| invalid()).map_err(harrier_sqlstate::external)?;
    let url =
        if absolute.is_dir() { Url::from_directory_path(&absolute) } else { Url::from_file_path(&absolute) };
    Ok(url.map_err(|()| invalid()).map_err(harrier_sqlstate::external)?.into())
}

/// Whether `name` matches a pattern of `*`, `?` and `[…]` (with ranges; `!` negates).
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
        [b'?', rest @ ..] => {
            // One character, which may be several bytes.
            let length =
                name.iter().skip(1).position(|byte| byte & 0xc0 != 0x80).map_or(name.len(), |at| at + 1);
            !name.is_empty() && matches(rest, &name[length..])
        }
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().skip(1).position(|byte| *byte == b']') else {
                return name.first() == Some(&b'[') && matches(rest, &name[1..]);
            };
            let (class, after) = (&rest[..=end], &rest[end + 2..]);
            let Some((&byte, tail)) = name.split_first() else {
                return false;
            };
            let (negated, class) = match class {
                [b'!', class @ ..] if !class.is_empty() => (true, class),
                class => (false, class),
            };
            in_class(class, byte) != negated && matches(after, tail)
        }
        [byte, rest @ ..] => name.first() == Some(byte) && matches(rest, &name[1..]),
    }
}

pub(crate) fn in_class(class: &[u8], byte: u8) -> bool {
    match class {
        [] => false,
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || in_class(rest, byte),
        [one, rest @ ..] => *one == byte || in_class(rest, byte),
    }
}
