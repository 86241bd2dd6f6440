//! Names in object stores (`s3://bucket/key`, `hdfs://host/path`), in which no character needs escaping, and
//! patterns of such names.
//!
//! DataFusion expects a URL, in which `?` and `#` would end the key and `%` begins an escape, and supports
//! glob patterns of local paths only (apache/datafusion#7393). Patterns within one folder are left to
//! DataFusion, with one listing; others are expanded to file names here.

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::TryStreamExt;
use glob::Pattern;
use harrier_error::{SqlError, SqlState};
use harrier_sql::file_names::has_wildcard;
use harrier_sqlstate::IntoDataFusionError;
use url::Url;

use crate::external::file_names::{FileKind, about_file, matches, no_match, object_store, parse_url};
use crate::object_stores::data_files::{FOLDER_MARKER, is_hidden, list_all};
use crate::object_stores::options::{self, TableOptions};

/// Whether a name is an object store's.
pub(crate) fn is_in_store(name: &str) -> bool {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("s3" | "s3a" | "hdfs"))
}

/// Converts a store's name to a URL; other names stay as they are.
pub(crate) fn as_url(name: &str) -> String {
    match is_in_store(name) {
        true => {
            let (place, key) = name.split_at(key_start(name));
            format!("{place}{}", escape(key))
        }
        false => name.to_string(),
    }
}

/// Byte offset of the key, at its slash.
fn key_start(name: &str) -> usize {
    let authority = name.find("://").map_or(0, |at| at + 3);
    name[authority..].find('/').map_or(name.len(), |at| authority + at)
}

/// Escapes characters of a key that are special in a URL, or would be dropped from it.
fn escape(key: &str) -> String {
    let mut url = String::with_capacity(key.len());
    for sign in key.chars() {
        match sign {
            '%' | '?' | '#' => url.push_str(&format!("%{:02X}", u32::from(sign))),
            sign if sign.is_ascii_control() => url.push_str(&format!("%{:02X}", u32::from(sign))),
            sign => url.push(sign),
        }
    }
    url
}

/// Splits a pattern into the folder above its first wildcard, ending in `/`, and the rest.
fn base_and_pattern(name: &str) -> (&str, &str) {
    let key = key_start(name);
    let wildcard = name[key..].find(['*', '?', '[']).map_or(name.len(), |at| key + at);
    let slash = name[..wildcard].rfind('/').map_or(wildcard, |at| at + 1);
    name.split_at(slash.max(key))
}

/// Resolves a pattern in a store: a pattern within one folder stays a pattern, others become a list of files.
///
/// Errors: invalid pattern (22023); no file matches (58P01), which for a pattern within one folder is
/// reported on reading.
pub(crate) async fn resolve_pattern(
    state: &SessionState,
    name: &str,
    options: &TableOptions,
) -> Result<Vec<ListingTableUrl>> {
    let (base, pattern) = base_and_pattern(name);
    let is_one = !pattern.contains('/') && pattern != "**" && !is_hidden(pattern, false);
    if !is_one || !pattern.contains('*') || !pattern.contains('.') {
        let found = expand(state, name, options).await?;
        let place = |location| parse_url(&options::location_with_options(state, location, options)?);
        return found.into_iter().map(place).collect();
    }
    let invalid = |error: &dyn std::fmt::Display| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid pattern \"{name}\": {error}"))
    };
    let folder = options::location_with_options(state, as_url(base), options)?;
    let folder = Url::parse(&folder).map_err(|error| invalid(&error)).map_err(harrier_sqlstate::external)?;
    let pattern =
        Pattern::new(pattern).map_err(|error| invalid(&error)).map_err(harrier_sqlstate::external)?;
    Ok(vec![ListingTableUrl::try_new(folder, Some(pattern))?])
}

/// The URLs of files that match a pattern in a store, sorted, without store options.
///
/// Errors: no match (58P01); the store's errors.
pub(crate) async fn expand(state: &SessionState, name: &str, options: &TableOptions) -> Result<Vec<String>> {
    let (base, pattern) = base_and_pattern(name);
    let folder = options::location_with_options(state, as_url(base), options)?;
    let url = parse_url(&folder)?;
    let store = object_store(state, &url)?;
    let mut parts: Vec<&str> = pattern.split('/').collect();
    parts.dedup_by(|one, before| *one == "**" && one == before);
    if parts.last() == Some(&"**") {
        parts.push("*");
    }
    let listed = match parts.iter().any(|part| is_hidden(part, false)) {
        // A pattern that begins with `.` or `_` includes hidden files.
        true => list_all(store.as_ref(), url.prefix()).try_collect().await,
        false => list(store.as_ref(), url.prefix(), parts.len() > 1).await,
    };
    let listed = listed.map_err(|error| about_file(error.into(), base))?;
    let place = &name[..key_start(name)];
    // An object of exactly this name takes precedence, as on a disk.
    if let Some(object) = listed.iter().find(|one| below(one.location.as_ref(), url.prefix()) == pattern) {
        return Ok(vec![format!("{place}/{}", escape(object.location.as_ref()))]);
    }
    let mut keys: Vec<String> = listed
        .into_iter()
        .filter(|object| object.size > 0 || has_extension(&object.location))
        .map(|object| object.location.to_string())
        .filter(|key| is_match(&parts, below(key, url.prefix())))
        .collect();
    // Next to data files, files of other kinds are ignored.
    if keys.iter().any(|key| FileKind::of(key).is_some()) {
        keys.retain(|key| FileKind::of(key).is_some());
    }
    if keys.is_empty() {
        return Err(no_match(name).into_datafusion());
    }
    keys.sort();
    Ok(keys.iter().map(|key| format!("{place}/{}", escape(key))).collect())
}

/// Lists a folder and its partition folders; with `deep`, all folders below it.
async fn list(
    store: &dyn ObjectStore,
    folder: &Path,
    deep: bool,
) -> datafusion::object_store::Result<Vec<ObjectMeta>> {
    if deep {
        return store.list(Some(folder)).try_collect().await;
    }
    let found = store.list_with_delimiter(Some(folder)).await?;
    let mut objects = found.objects;
    for partition in found.common_prefixes.iter().filter(|folder| is_partition(folder)) {
        objects.extend(store.list(Some(partition)).try_collect::<Vec<_>>().await?);
    }
    Ok(objects)
}

fn is_partition(folder: &Path) -> bool {
    folder.filename().is_some_and(|name| name.contains('='))
}

/// Empty objects without an extension are folder markers.
fn has_extension(location: &Path) -> bool {
    location.extension().is_some()
}

fn below<'a>(key: &'a str, folder: &Path) -> &'a str {
    key.strip_prefix(folder.as_ref()).unwrap_or(key).trim_start_matches('/')
}

/// Whether a key below the pattern's folder matches. Partition folders may be left out of the pattern. Hidden
/// files and folders match only where the pattern begins with the same character.
fn is_match(pattern: &[&str], key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    if key.ends_with(FOLDER_MARKER) {
        return false;
    }
    let Some((file, folders)) = parts.split_last() else { return false };
    let unpartitioned: Vec<&str> =
        folders.iter().filter(|folder| !folder.contains('=')).chain([file]).copied().collect();
    matches_parts(pattern, &parts) || matches_parts(pattern, &unpartitioned)
}

fn matches_parts(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern, parts) {
        ([], []) => true,
        (["**", rest @ ..], _) => {
            let is_below = |parts: &[&str]| !is_hidden(parts[0], parts.len() > 1);
            matches_parts(rest, parts)
                || !parts.is_empty() && is_below(parts) && matches_parts(pattern, &parts[1..])
        }
        ([first, rest @ ..], [part, others @ ..]) => {
            let is_visible =
                !is_hidden(part, !others.is_empty()) || first.as_bytes().first() == part.as_bytes().first();
            is_visible && matches(first.as_bytes(), part.as_bytes()) && matches_parts(rest, others)
        }
        _ => false,
    }
}

/// The URL of a file or folder to be written: wildcard characters stand for themselves.
pub(crate) fn target_url(name: &str) -> String {
    if name.contains("://") || !has_wildcard(name) {
        return as_url(name);
    }
    let absolute = std::path::absolute(name).ok();
    let url = absolute.and_then(|path| match name.ends_with('/') {
        true => Url::from_directory_path(path).ok(),
        false => Url::from_file_path(path).ok(),
    });
    url.map_or_else(|| name.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_in_names_are_escaped() {
        for (name, url) in [
            ("s3://bucket/a#1.parquet", "s3://bucket/a%231.parquet"),
            ("s3://bucket/a?b=c", "s3://bucket/a%3Fb=c"),
            ("hdfs://host:9000/t/ts=10%3A00/x", "hdfs://host:9000/t/ts=10%253A00/x"),
            ("s3://bucket/a b\tc", "s3://bucket/a b%09c"),
            ("s3://bucket", "s3://bucket"),
            ("/data/a#1?%", "/data/a#1?%"),
            ("file:///a%20b", "file:///a%20b"),
        ] {
            assert_eq!(as_url(name), url);
        }
        for name in ["s3://bucket/a#1 %41/?x.parquet", "hdfs://host:9000/ü/k=a%2Fb:c/x[1]*.csv"] {
            let parsed = ListingTableUrl::parse(as_url(name)).unwrap();
            assert_eq!(format!("/{}", parsed.prefix()), name[key_start(name)..]);
        }
    }

    #[test]
    fn a_pattern_is_matched_below_its_folder() {
        for (name, base, pattern) in [
            ("s3://b/raw/*.parquet", "s3://b/raw/", "*.parquet"),
            ("s3://b/*/x/?.csv", "s3://b/", "*/x/?.csv"),
            ("hdfs://h:1/a/b[12]/**", "hdfs://h:1/a/", "b[12]/**"),
        ] {
            assert_eq!(base_and_pattern(name), (base, pattern));
        }
        let is_match = |pattern: &str, key: &str| is_match(&pattern.split('/').collect::<Vec<_>>(), key);
        for (pattern, key) in [
            ("*.parquet", "a.parquet"),
            ("*.parquet", "k=1/a.parquet"),
            ("k=1/*", "k=1/a.parquet"),
            ("*/*.parquet", "2026/c.parquet"),
            ("**/*.parquet", "a.parquet"),
            ("**/*.parquet", "x/y/z/a.parquet"),
            ("**/y/*", "x/y/a.parquet"),
            ("[ab].csv", "b.csv"),
            ("_*.csv", "_b.csv"),
            (".*/*", ".x/b.csv"),
            ("*.csv", "_k=1/b.csv"),
        ] {
            assert!(is_match(pattern, key), "{pattern} {key}");
        }
        for (pattern, key) in [
            ("*.parquet", "2026/c.parquet"),
            ("a*", "archive/x.parquet"),
            ("*/*.parquet", "a.parquet"),
            ("**/*.parquet", "_temporary/0/a.parquet"),
            ("*", "_SUCCESS"),
            ("*", ".a.parquet.crc"),
            ("**/*", "k=2_$folder$"),
            ("?.csv", "ab.csv"),
            ("*.csv", "_b.csv"),
            ("_*.csv", "_x/_b.csv"),
            ("**/*.csv", "a/_b.csv"),
        ] {
            assert!(!is_match(pattern, key), "{pattern} {key}");
        }
    }
}
