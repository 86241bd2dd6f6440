//! Write-ahead journal of a statement's actions on folders. Every action is idempotent.

use bytes::Bytes;
use harrier_storage::Staged;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt};
use prost::Message;

use crate::object_store::root::Root;
use crate::object_store::{At, Error, Result};

#[derive(Clone, PartialEq, Message)]
pub struct Journal {
    #[prost(message, repeated, tag = "1")]
    pub actions: Vec<Action>,
    /// The statement.
    #[prost(string, tag = "2")]
    pub id: String,
}

/// The changes of one folder: files are removed, then one is published, perhaps in place of an old one.
#[derive(Clone, PartialEq, Message)]
pub struct Action {
    #[prost(string, tag = "1")]
    pub folder: String,
    #[prost(message, repeated, tag = "2")]
    pub removed: Vec<FileVersion>,
    #[prost(message, optional, tag = "3")]
    pub staged: Option<Staged>,
    /// Its final name.
    #[prost(string, tag = "4")]
    pub name: String,
}

/// A file as it was at commit time: another one of the same name does not match.
#[derive(Clone, PartialEq, Message)]
pub struct FileVersion {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(int64, tag = "3")]
    pub modified_ms: i64,
    #[prost(string, optional, tag = "4")]
    pub e_tag: Option<String>,
}

impl From<&ObjectMeta> for FileVersion {
    fn from(file: &ObjectMeta) -> Self {
        Self {
            path: file.location.to_string(),
            bytes: file.size,
            modified_ms: file.last_modified.timestamp_millis(),
            e_tag: file.e_tag.clone(),
        }
    }
}

impl Journal {
    pub(crate) fn bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// Reads the journal of the holder of a lock, if it exists.
    pub(crate) async fn read(root: &Root, number: u64) -> Result<Option<Self>> {
        let path = root.journal_path(number);
        let bytes = match root.store().get(&path).await {
            Ok(found) => found.bytes().await.at("read", &path)?,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error).at("read", &path),
        };
        Self::decode(bytes).map(Some).map_err(|_| Error::Journal { path: path.to_string() })
    }

    /// Removes the journal of a completed statement.
    pub(crate) async fn remove(root: &Root, number: u64) -> Result<()> {
        let path = root.journal_path(number);
        match root.store().delete(&path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(unfinished_error(&path, error)),
        }
    }
}

pub(crate) fn unfinished_error(path: &Path, error: StoreError) -> Error {
    Error::Unfinished { path: path.to_string(), error }
}
