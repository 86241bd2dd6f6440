//! Deduplication of column names, for formats that do not allow duplicates (JSON keys, files), and for files
//! that have them.

use std::collections::HashSet;

use datafusion::arrow::datatypes::{Fields, Schema};

/// Makes repeated column names distinct by a numeric suffix: `a`, `a_1`. `None` if they are distinct.
pub fn distinct_names<'n>(names: impl Iterator<Item = &'n String>) -> Option<Vec<String>> {
    let names: Vec<&String> = names.collect();
    let given: HashSet<&String> = names.iter().copied().collect();
    if given.len() == names.len() {
        return None;
    }
    let mut taken: HashSet<String> = HashSet::with_capacity(names.len());
    let own = names.into_iter().map(|name| {
        let numbered =
            (1_u64..).map(|number| format!("{name}_{number}")).filter(|name| !given.contains(name));
        let mut free = std::iter::once(name.clone()).chain(numbered);
        free.find(|name| taken.insert(name.clone())).unwrap_or_default()
    });
    Some(own.collect())
}

/// Applies [`distinct_names`] to a schema.
pub fn with_distinct_names(schema: Schema) -> Schema {
    let Some(names) = distinct_names(schema.fields().iter().map(|field| field.name())) else {
        return schema;
    };
    let fields = schema.fields().iter().zip(names);
    let fields: Fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_names_are_made_distinct() {
        let own = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            distinct_names(names.iter())
        };
        assert_eq!(own(&["a", "b"]), None);
        assert_eq!(own(&["a", "a", "b", "a"]).unwrap(), ["a", "a_1", "b", "a_2"]);
        assert_eq!(own(&["a", "a", "a_1"]).unwrap(), ["a", "a_2", "a_1"]);
        assert_eq!(own(&["a_1", "a", "a"]).unwrap(), ["a_1", "a", "a_2"]);
        assert_eq!(own(&["?column?", "?column?"]).unwrap(), ["?column?", "?column?_1"]);
        assert_eq!(own(&["", ""]).unwrap(), ["", "_1"]);
        assert_eq!(own(&[]), None);
    }
}
