//! Selection of the files of one table in a folder or pattern: all must be of one kind, and none may be
//! skipped silently.

use std::path::Path;

use datafusion::common::DFSchema;
use datafusion::datasource::listing::{ListingTableUrl, PartitionedFile};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::external::file_names::{FileKind, about_file, file_url, object_store, parse_url, relative_name};
use crate::external::store_urls;

/// Lists the files that a URL matches. DataFusion leaves files with `=` in their names out of a pattern.
pub(crate) async fn list_matching(state: &SessionState, url: &ListingTableUrl) -> Result<Vec<ObjectMeta>> {
    let store = object_store(state, url)?;
    let Some(pattern) = url.get_glob() else {
        return url.list_all_files(state, store.as_ref(), "").await?.try_collect().await;
    };
    let folder = ListingTableUrl::try_new(url.get_url().clone(), None)?;
    let below = folder.list_all_files(state, store.as_ref(), "").await?;
    let files: Vec<ObjectMeta> = below.try_collect().await?;
    let is_match = |file: &ObjectMeta| {
        let file_name = file.location.filename().unwrap_or_default();
        pattern.matches(file_name) || url.contains(&file.location, true)
    };
    Ok(files.into_iter().filter(is_match).collect())
}

/// Checks that all files at `urls` are of one kind and returns where to read them: `urls` as they are, or
/// each file by itself where DataFusion would skip some. Also returns the files and their kind.
///
/// Errors: files of several kinds (42809); files of table partitions with several endings (0A000).
pub(crate) async fn files_of_one_kind(
    state: &SessionState,
    name: &str,
    urls: Vec<ListingTableUrl>,
) -> Result<(Vec<ListingTableUrl>, Vec<ObjectMeta>, Option<FileKind>)> {
    let mut files: Vec<(usize, ObjectMeta)> = Vec::new();
    for (at, url) in urls.iter().enumerate() {
        // Beyond the first, URLs without a pattern are files that were just listed.
        if at > 0 && url.get_glob().is_none() && !url.is_collection() {
            let named = PartitionedFile::new("", 0).object_meta;
            files.push((at, ObjectMeta { location: url.prefix().clone(), ..named }));
            continue;
        }
        let found = list_matching(state, url).await.map_err(|error| about_file(error, name))?;
        files.extend(found.into_iter().map(|file| (at, file)));
    }
    let of = |file: &ObjectMeta| FileKind::of(file.location.as_ref());
    let known: Vec<(usize, &ObjectMeta, FileKind)> =
        files.iter().filter_map(|(at, file)| Some((*at, file, of(file)?))).collect();
    let Some((_, file, kind)) = known.first() else {
        return Ok((urls, files.into_iter().map(|(_, file)| file).collect(), None));
    };
    if let Some((_, other, _)) = known.iter().find(|(.., other)| !other.is_same_table(kind)) {
        let own = |file: &ObjectMeta| file.location.filename().unwrap_or_default().to_string();
        let message = format!("\"{}\" has files of several kinds", relative_name(name));
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
            .with_detail(format!("\"{}\" and \"{}\" are not of one table", own(file), own(other)))
            .with_hint(format!("those of one kind have a pattern: '*{}'", kind.suffix))
            .into_datafusion());
    }
    let mut kind = kind.clone();
    let is_left_out = |url: &ListingTableUrl, file: &ObjectMeta, other: &FileKind| {
        other.suffix != kind.suffix || (url.get_glob().is_some() && !url.contains(&file.location, true))
    };
    if !known.iter().any(|(at, file, other)| is_left_out(&urls[*at], file, other)) {
        return Ok((urls, files.into_iter().map(|(_, file)| file).collect(), Some(kind)));
    }
    let mut places = Vec::with_capacity(known.len());
    for (at, file, _) in &known {
        let url = &urls[*at];
        let parts: Vec<&str> = url.strip_prefix(&file.location).map(Iterator::collect).unwrap_or_default();
        let folders = parts.len().saturating_sub(1);
        if parts[..folders].iter().any(|folder| folder.contains('=')) {
            let message =
                format!("files of table partitions in \"{}\" have several endings", relative_name(name));
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(format!("Not all end in \"{}\".", kind.suffix))
                .into_datafusion());
        }
        // Files in folders that are not table partitions are not read.
        if folders == 0 {
            places.push(match url.scheme() {
                "file" => parse_url(&file_url(&Path::new("/").join(file.location.as_ref()))?)?,
                _ => {
                    let place = format!("{}{}", url.object_store().as_str(), file.location);
                    parse_url(&store_urls::as_url(&place))?
                }
            });
        }
    }
    if known.iter().any(|(.., other)| other.compression != kind.compression) {
        // Each file's name gives its own.
        kind.compression = None;
    }
    kind.suffix = String::new();
    Ok((places, files.iter().map(|(_, file)| file.clone()).collect(), Some(kind)))
}

/// Checks that no file of a table's format is skipped: DataFusion reads files with one ending only, but all
/// of a folder where a table has declared columns. Returns the columns of a folder in which all files have
/// another ending of the format, such as `.feather`.
///
/// Errors: a file of the format with another ending (42809).
pub(crate) async fn check_endings(
    state: &SessionState,
    location: &str,
    command: &CreateExternalTable,
) -> Result<Option<DFSchema>> {
    let url = parse_url(location)?;
    let format = command.file_type.to_ascii_lowercase();
    let factory = state.get_file_format_factory(&format);
    let (true, None, Some(factory)) = (url.is_folder(), url.get_glob(), factory) else {
        return Ok(None);
    };
    let created = factory.create(state, &command.options)?;
    let compression = created.compression_type();
    let ending = compression.and_then(|compression| created.get_ext_with_compression(&compression).ok());
    let ending = format!(".{}", ending.unwrap_or(format.clone()));
    let is_read = |file: &ObjectMeta| file.location.as_ref().ends_with(&ending);
    let files = list_matching(state, &url).await?;
    let is_own = |file: &ObjectMeta| {
        FileKind::of(file.location.as_ref()).is_some_and(|kind| kind.format == format)
            && url.contains(&file.location, true)
    };
    match files.iter().find(|file| is_own(file) && !is_read(file)) {
        Some(other) if files.iter().any(is_read) => {
            let name = other.location.filename().unwrap_or_default();
            let message = format!("\"{}\" has files with several endings", relative_name(location));
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                .with_detail(format!("\"{name}\" does not end in \"{ending}\"."))
                .with_hint("With its columns given, a table has all files of its folder.")
                .into_datafusion())
        }
        Some(_) if command.locations.len() == 1 && command.table_partition_cols.is_empty() => {
            // Declared columns would have the others read as well, and a separator is an option of each file.
            let is_plain = |file: &ObjectMeta| {
                is_own(file)
                    && FileKind::of(file.location.as_ref())
                        .is_some_and(|kind| kind.options.is_empty() && kind.compression.is_none())
            };
            if !files.iter().all(is_plain) {
                return Ok(None);
            }
            let store = object_store(state, &url)?;
            let schema = created.infer_schema(state, &store, &files).await?;
            Ok(Some(DFSchema::try_from(schema.as_ref().clone())?))
        }
        _ => Ok(None),
    }
}
