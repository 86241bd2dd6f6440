//! The ownership marker of a data folder: a small file that names its warehouse. Writers to the folder act on
//! it.

use crate::model::identity::Identity;

/// The file's name. Readers of folders ignore names that begin with `_`.
pub const MARKER: &str = "_harrier_warehouse";

const HEADER: &str = "# The data files of one Harrier warehouse: no other one writes or removes files here.";

/// The content of the file [`MARKER`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The identity.
    pub warehouse: String,
    /// The name of its catalog's [`Place`].
    pub place: String,
    pub file: String,
}

impl Marker {
    /// The marker of a warehouse.
    pub fn of(identity: &Identity) -> Self {
        let Identity { id, place, file, .. } = identity;
        Self { warehouse: id.clone(), place: place.clone(), file: file.clone() }
    }

    /// Formats the file's content.
    pub fn text(&self) -> String {
        let Self { warehouse, place, file } = self;
        format!("{HEADER}\nwarehouse = {warehouse}\ncatalog = {place}\nfile = {file}\n")
    }

    /// Parses a file; `None`: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.split_once(" = "));
            values.find(|(name, _)| *name == key).map(|(_, value)| value.to_string())
        };
        Some(Self {
            warehouse: of("warehouse")?,
            place: of("catalog")?,
            file: of("file").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Place;

    #[test]
    fn markers_round_trip() {
        let name = "host:/lake = /catalog.sqlite".to_string();
        let here = Place { name, file: "7-9".to_string(), folder: Some("/lake = ".to_string()) };
        let marker = Marker::of(&Identity::new(&here));
        assert_eq!(Marker::parse(&marker.text()), Some(marker));
        for text in ["", "warehouse = x", "catalog = x\nwarehouse=y"] {
            assert_eq!(Marker::parse(text), None, "{text}");
        }
    }
}
