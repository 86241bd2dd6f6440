//! Where a file is: a local path, or `scheme://authority/` and a key, both as they are, without escapes.

use std::path::PathBuf;

use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::path::Path;
use url::Url;

/// The local path that `location` is, if it is one.
pub fn local(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        None => Some(PathBuf::from(location)),
        Some(("file", _)) => Url::parse(location).ok()?.to_file_path().ok(),
        Some(_) => None,
    }
}

/// The object store that `location` is in, and its path there.
pub fn locate(location: &str) -> Result<(ObjectStoreUrl, Path)> {
    let bad = |error: &dyn std::fmt::Display| {
        exec_datafusion_err!("\"{location}\" is no place for a file: {error}")
    };
    if let Some(local) = local(location) {
        let absolute = without_dots(&std::path::absolute(&local).map_err(|error| bad(&error))?);
        let text = absolute.to_str().ok_or_else(|| bad(&"not UTF-8"))?;
        let path = Path::parse(text.trim_start_matches('/')).map_err(|error| bad(&error))?;
        return Ok((ObjectStoreUrl::local_filesystem(), path));
    }
    let key = location.find("://").map_or(0, |at| at + 3);
    let slash = location[key..].find('/').map_or(location.len(), |at| key + at);
    let store = ObjectStoreUrl::parse(&location[..slash])?;
    let path = Path::parse(location[slash..].trim_matches('/')).map_err(|error| bad(&error))?;
    Ok((store, path))
}

/// The same path without `..`, which object stores do not know.
fn without_dots(path: &std::path::Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_stay_as_they_are() {
        for (location, store, path) in [
            ("/data/k=a%20b/x.parquet", "file:///", "data/k=a%20b/x.parquet"),
            ("/data/t/", "file:///", "data/t"),
            ("s3://bucket/k=a%2Fb/x", "s3://bucket/", "k=a%2Fb/x"),
            ("s3://bucket", "s3://bucket/", ""),
            ("hdfs://host:9000/a b", "hdfs://host:9000/", "a b"),
        ] {
            let (found, at) = locate(location).unwrap();
            assert_eq!((found.as_str(), at.as_ref()), (store, path));
        }
        assert_eq!(locate("/data/../x").unwrap().1.as_ref(), "x");
        assert!(locate("s3://bucket/a//b").is_err());
    }
}
