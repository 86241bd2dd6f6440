//! The manifest of a backup: its files with lengths and checksums, its snapshot and its warehouse. It
//! contains no secrets.

use harrier_error::SqlState;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The format version of manifests and of the target's layout.
pub(crate) const FORMAT: u32 = 1;

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Path of the catalog's copy below the target; of all others below the files folder, equal to the path
    /// below the warehouse's data folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// One backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format version; 1.
    pub format: u32,
    /// Its id: the time and the snapshot; later backups have later ids.
    pub id: String,
    /// The version of Harrier that made it.
    pub harrier: String,
    /// The layout version of the catalog.
    pub layout: i64,
    /// The identity of the warehouse.
    pub warehouse: String,
    /// Its former identities.
    pub former: Vec<String>,
    /// The catalog's location.
    pub place: String,
    /// Its newest snapshot. Older snapshots that had not expired are included.
    pub snapshot: i64,
    /// When that was committed, UTC.
    pub snapshot_time: String,
    /// When the backup was made, UTC, by the clock of the machine that made it.
    pub time: String,
    /// The copy of the catalog.
    pub catalog: Stored,
    /// Data and delete files.
    pub files: Vec<Stored>,
    /// SHA-256 of the manifest with this field empty.
    #[serde(default)]
    sha256: String,
}

/// The fields read first, from a file that may be of a later format.
#[derive(Deserialize)]
struct Format {
    format: u32,
    #[serde(default)]
    harrier: String,
}

/// The parameters of a manifest.
pub(crate) struct Parts {
    pub id: String,
    pub identity: harrier_catalog::Identity,
    pub layout: i64,
    pub snapshot: i64,
    pub snapshot_time: String,
    pub time: String,
    pub catalog: Stored,
    pub files: Vec<Stored>,
}

impl Manifest {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, identity, layout, snapshot, snapshot_time, time, catalog, mut files } = parts;
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let mut manifest = Self {
            format: FORMAT,
            id,
            harrier: harrier_catalog::PROGRAM.to_string(),
            layout,
            warehouse: identity.id,
            former: identity.former,
            place: identity.place,
            snapshot,
            snapshot_time,
            time,
            catalog,
            files,
            sha256: String::new(),
        };
        manifest.sha256 = manifest.own_sha256();
        manifest
    }

    fn own_sha256(&self) -> String {
        let blank = Self { sha256: String::new(), ..self.clone() };
        hex(&Sha256::digest(serde_json::to_vec(&blank).unwrap_or_default()))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// `place`: the file, for errors.
    ///
    /// Errors: it is of a later format (0A000), or damaged.
    pub(crate) fn parse(bytes: &[u8], place: &str) -> Result<Self> {
        if let Ok(found) = serde_json::from_slice(bytes) {
            check_format(&found, place)?;
        }
        let read = serde_json::from_slice::<Self>(bytes);
        let manifest = read.map_err(|error| Error::damage(place, format!("is no manifest ({error})")))?;
        if manifest.sha256 != manifest.own_sha256() {
            return Err(Error::damage(place, "does not have the checksum that it names"));
        }
        Ok(manifest)
    }

    /// Total bytes of its files, without the catalog.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

fn check_format(found: &Format, place: &str) -> Result<()> {
    let Format { format, harrier } = found;
    if *format <= FORMAT {
        return Ok(());
    }
    let by = if harrier.is_empty() {
        "a later version of Harrier".to_string()
    } else {
        format!("Harrier {harrier}")
    };
    let message = format!(
        "\"{place}\" was written by {by}, in format {format} of backups; this is Harrier {}, which knows format {FORMAT}",
        harrier_catalog::PROGRAM
    );
    Err(Error::refusal(SqlState::FEATURE_NOT_SUPPORTED, message))
}

/// The warehouse that owns the backups of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    format: u32,
    harrier: String,
    /// The identity of the warehouse.
    pub warehouse: String,
}

impl Owner {
    pub fn new(warehouse: &str) -> Self {
        let harrier = harrier_catalog::PROGRAM.to_string();
        Self { format: FORMAT, harrier, warehouse: warehouse.to_string() }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Errors: as of [`Manifest::parse`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self> {
        if let Ok(found) = serde_json::from_slice(bytes) {
            check_format(&found, place)?;
        }
        serde_json::from_slice(bytes)
            .map_err(|error| Error::damage(place, format!("does not say whose backups these are ({error})")))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use harrier_catalog::{Identity, Place};

    use super::*;

    fn manifest() -> Manifest {
        let place = Place { name: "host:/a".to_string(), file: String::new(), folder: None };
        let stored = |name: &str| Stored { name: name.to_string(), bytes: 5, sha256: "0".repeat(64) };
        Manifest::new(Parts {
            id: "20261128-093603-123-7".to_string(),
            identity: Identity::new(&place),
            layout: 1,
            snapshot: 7,
            snapshot_time: "2026-11-28 09:36:03.1+00".to_string(),
            time: "2026-11-28 09:36:03.2+00".to_string(),
            catalog: stored("catalogs/x"),
            files: vec![stored("b"), stored("a")],
        })
    }

    #[test]
    fn manifests_round_trip_and_reject_corruption() {
        let manifest = manifest();
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::parse(&bytes, "m").unwrap(), manifest);
        for end in 0..bytes.len() - 2 {
            assert!(matches!(Manifest::parse(&bytes[..end], "m"), Err(Error::Damaged { .. })), "{end}");
        }
        // Every flipped byte is detected, unless the value stays the same.
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            match Manifest::parse(&flipped, "m") {
                Err(Error::Damaged { .. })
                | Err(Error::Refused { state: SqlState::FEATURE_NOT_SUPPORTED, .. }) => {}
                read => assert_eq!(read.unwrap(), manifest, "{at}"),
            }
        }
    }

    #[test]
    fn later_formats_are_refused() {
        let later = br#"{"format": 2, "harrier": "9.8.7", "something": "else"}"#;
        for error in [Manifest::parse(later, "m").unwrap_err(), Owner::parse(later, "m").unwrap_err()] {
            assert!(
                matches!(error, Error::Refused { state: SqlState::FEATURE_NOT_SUPPORTED, .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains("Harrier 9.8.7"), "{error}");
        }
        assert!(matches!(Owner::parse(b"{", "m"), Err(Error::Damaged { .. })));
        let owner = Owner::new("x");
        assert_eq!(Owner::parse(&owner.to_bytes(), "m").unwrap(), owner);
    }
}
