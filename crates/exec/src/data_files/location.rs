//! File locations: a local path, or `scheme://authority/` and a key, both without escapes.

use std::path::PathBuf;

use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::path::Path;
use url::Url;

/// The local path of `location`, if it is one.
pub fn local(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        None => Some(PathBuf::from(location)),
        Some(("file", _)) => Url::parse(location).ok()?.to_file_path().ok(),
        Some(_) => None,
    }
}

/// The object store of `location`, and the path in it.
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

/// A folder of many files, resolving their paths as [`locate`] does.
pub struct Folder {
    /// Ends in `/`. `None`: paths below it need the full resolution.
    location: Option<String>,
    path: Path,
}

impl Folder {
    /// Errors: as for [`locate`].
    pub fn try_new(location: &str) -> Result<Self> {
        let (_, path) = locate(location)?;
        // The URL of a local file may contain escapes.
        let is_plain = location.ends_with('/') && !location.starts_with("file:");
        Ok(Self { location: is_plain.then(|| location.to_string()), path })
    }

    /// The path of a file in its object store, in this folder or not.
    pub fn path_of(&self, location: &str) -> Result<Path> {
        let below = self.location.as_ref().and_then(|folder| location.strip_prefix(folder.as_str()));
        match below {
            Some(below) if below.split('/').all(|part| !matches!(part, "" | "." | "..")) => {
                Path::parse(format!("{}/{below}", self.path))
                    .map_err(|error| exec_datafusion_err!("\"{location}\" is no place for a file: {error}"))
            }
            _ => Ok(locate(location)?.1),
        }
    }
}

/// Resolves `..`, which object stores do not know.
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
    fn special_characters_are_preserved() {
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

    #[test]
    fn folder_files_have_the_locations_of_single_files() {
        for folder in [
            "/data/t/",
            "/data/../t/",
            "/",
            "s3://bucket/a%20b/",
            "s3://bucket/",
            "file:///data/a%20b/",
            "/data/t",
        ] {
            let of_folder = Folder::try_new(folder).unwrap();
            for file in ["x.parquet", "k=a%20b/x.parquet", "../x", "./x", "a/../x"] {
                let location = format!("{folder}{file}");
                let (found, alone) = (of_folder.path_of(&location), locate(&location));
                match (found, alone) {
                    (Ok(found), Ok((_, alone))) => assert_eq!(found, alone, "{location}"),
                    (Err(_), Err(_)) => {}
                    (found, alone) => panic!("{location}: {found:?}, {alone:?}"),
                }
            }
            assert_eq!(of_folder.path_of("/elsewhere/x").unwrap(), locate("/elsewhere/x").unwrap().1);
        }
        assert!(Folder::try_new("/data/").unwrap().path_of("/data/a//b").is_ok());
        assert!(Folder::try_new("s3://bucket/").unwrap().path_of("s3://bucket/a//b").is_err());
    }
}
