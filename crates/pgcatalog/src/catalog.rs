//! Catalog lookups between a [`Source`] and the relations and functions: oids and names.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::error::Result;
use parking_lot::Mutex;

use crate::keys;
use crate::source::{Contents, Grant, Relation, Role, Schema, Source, oid};
use crate::system::{PG_CATALOG, SYSTEM, SystemRelation};

/// The oid of PostgreSQL's bootstrap role, which is the owner of the database here.
pub(crate) const OWNER_OID: i32 = 10;
/// The oid of the database.
pub(crate) const DATABASE_OID: i32 = 5;

/// A source with an index of its last contents.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) source: Arc<dyn Source>,
    last: Mutex<Option<Arc<Index>>>,
}

/// Contents by oid and name.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) contents: Arc<Contents>,
    relations: HashMap<i32, usize>,
    /// Indexes, by the position of their table and their own.
    indexes: HashMap<i32, (usize, usize)>,
    schemas: HashMap<i32, usize>,
    /// Schemas by the source's ids.
    by_id: HashMap<i64, usize>,
    /// Relations by schema oid and name.
    names: HashMap<(i32, String), i32>,
}

/// A user or system relation.
pub(crate) enum Found<'a> {
    User(&'a Relation, &'a Schema),
    System(&'static SystemRelation),
}

impl Catalog {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source, last: Mutex::new(None) }
    }

    pub(crate) fn index(&self) -> Result<Arc<Index>> {
        let contents = self.source.contents()?;
        let mut last = self.last.lock();
        if let Some(index) = last.as_ref().filter(|index| Arc::ptr_eq(&index.contents, &contents)) {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(Index::new(contents));
        *last = Some(Arc::clone(&index));
        Ok(index)
    }

    pub(crate) fn role_oid(&self, roles: &[Role], name: &str) -> i32 {
        if name == self.source.owner() {
            return OWNER_OID;
        }
        roles.iter().find(|role| role.name == name).map_or(0, |role| oid(role.id))
    }

    pub(crate) fn role_name(&self, roles: &[Role], role: i32) -> Option<String> {
        if role == OWNER_OID {
            return Some(self.source.owner());
        }
        roles.iter().find(|known| oid(known.id) == role).map(|known| known.name.clone())
    }

    pub(crate) fn is_superuser(&self, name: &str) -> bool {
        self.source.roles().is_ok_and(|roles| roles.iter().any(|role| role.name == name && role.superuser))
    }

    /// Whether a role is another one, or a direct or indirect member of it.
    pub(crate) fn has_role(&self, roles: &[Role], name: &str, other: &str) -> bool {
        let mut seen = vec![name];
        let mut next = 0;
        while let Some(current) = seen.get(next).copied() {
            next += 1;
            let Some(role) = roles.iter().find(|role| role.name == current) else { continue };
            if current == other || (current == name && role.superuser) {
                return true;
            }
            for (group, _) in &role.member_of {
                if !seen.contains(&group.as_str()) {
                    seen.push(group);
                }
            }
        }
        false
    }

    /// The search path for unqualified names: `pg_catalog` first, unless the path names it.
    pub(crate) fn path(&self) -> Vec<String> {
        let path = self.source.search_path();
        match path.iter().any(|name| name == "pg_catalog") {
            true => path,
            false => std::iter::once("pg_catalog".to_string()).chain(path).collect(),
        }
    }

    /// Whether the unqualified name resolves to this relation.
    pub(crate) fn is_visible(&self, index: &Index, relation: i32) -> Option<bool> {
        let (schema, name) = index.name_of(relation)?;
        let first = self.path().into_iter().find(|schema| index.relation(schema, &name).is_some());
        Some(first.is_some_and(|first| first == schema))
    }

    /// A relation's name as `regclass` output: qualified only if the unqualified name does not resolve to it.
    pub(crate) fn relation_text(&self, index: &Index, relation: i32) -> String {
        match (index.name_of(relation), self.is_visible(index, relation)) {
            (Some((_, name)), Some(true)) => quote_identifier(&name),
            (Some((schema, name)), _) => format!("{}.{}", quote_identifier(&schema), quote_identifier(&name)),
            (None, _) if relation == 0 => "-".to_string(),
            (None, _) => relation.to_string(),
        }
    }

    /// The oid of a relation by its SQL name.
    pub(crate) fn relation_by_text(&self, index: &Index, text: &str) -> Option<i32> {
        match split_name(text)?.as_slice() {
            [name] => self.path().iter().find_map(|schema| index.relation(schema, name)),
            [schema, name] => index.relation(schema, name),
            [database, schema, name] if *database == self.source.database() => index.relation(schema, name),
            _ => None,
        }
    }
}

impl Index {
    fn new(contents: Arc<Contents>) -> Self {
        let schemas =
            contents.schemas.iter().enumerate().map(|(place, schema)| (schema.oid(), place)).collect();
        let relations = contents
            .relations
            .iter()
            .enumerate()
            .map(|(place, relation)| (oid(relation.id), place))
            .collect();
        let by_id: HashMap<i64, usize> =
            contents.schemas.iter().enumerate().map(|(place, schema)| (schema.id, place)).collect();
        let name = |relation: &Relation, name: &str, id: i64| {
            let schema = contents.schemas[*by_id.get(&relation.schema)?].oid();
            Some(((schema, name.to_string()), oid(id)))
        };
        let all = contents.relations.iter();
        let indexes = all.clone().enumerate().flat_map(|(place, relation)| {
            let own = relation.keys.indexes.iter().enumerate();
            own.map(move |(own, index)| (oid(index.id), (place, own)))
        });
        let indexes = indexes.collect();
        let of_indexes = all.clone().flat_map(|relation| {
            relation.keys.indexes.iter().map(move |index| (relation, index.name.as_str(), index.id))
        });
        let names = of_indexes.chain(all.map(|relation| (relation, relation.name.as_str(), relation.id)));
        let names = names.filter_map(|(relation, own, id)| name(relation, own, id)).collect();
        Self { relations, indexes, schemas, names, by_id, contents }
    }

    pub(crate) fn get(&self, relation: i32) -> Option<Found<'_>> {
        if let Some(system) = SYSTEM.get(relation).filter(|system| system.kind != "f") {
            return Some(Found::System(system));
        }
        let relation = self.contents.relations.get(*self.relations.get(&relation)?)?;
        Some(Found::User(relation, self.schema_of(relation)?))
    }

    /// An index with its table.
    pub(crate) fn index(&self, index: i32) -> Option<(&Relation, &Schema, &keys::Index)> {
        let (place, own) = self.indexes.get(&index)?;
        let relation = self.contents.relations.get(*place)?;
        Some((relation, self.schema_of(relation)?, relation.keys.indexes.get(*own)?))
    }

    /// A constraint with its table.
    pub(crate) fn constraint(&self, constraint: i32) -> Option<(&Relation, &keys::Constraint)> {
        self.contents.relations.iter().find_map(|relation| {
            let own = relation.keys.constraints.iter().find(|own| oid(own.id) == constraint)?;
            Some((relation, own))
        })
    }

    pub(crate) fn user_relation(&self, relation: i32) -> Option<&Relation> {
        match self.get(relation)? {
            Found::User(relation, _) => Some(relation),
            Found::System(_) => None,
        }
    }

    pub(crate) fn schema(&self, schema: i32) -> Option<&Schema> {
        self.contents.schemas.get(*self.schemas.get(&schema)?)
    }

    fn schema_of(&self, relation: &Relation) -> Option<&Schema> {
        self.contents.schemas.get(*self.by_id.get(&relation.schema)?)
    }

    /// The relations whose schema exists, each with it.
    pub(crate) fn user_relations(&self) -> impl Iterator<Item = (&Relation, &Schema)> {
        self.contents.relations.iter().filter_map(|relation| Some((relation, self.schema_of(relation)?)))
    }

    pub(crate) fn schema_name(&self, schema: i32) -> Option<String> {
        let system = system_schemas().find(|known| known.0 == schema).map(|known| known.1.to_string());
        system.or_else(|| self.schema(schema).map(|schema| schema.name.clone()))
    }

    pub(crate) fn schema_oid(&self, name: &str) -> Option<i32> {
        let system = system_schemas().find(|known| known.1 == name).map(|known| known.0);
        let named = |is: &dyn Fn(&Schema) -> bool| self.contents.schemas.iter().find(|schema| is(schema));
        system.or_else(|| {
            let schema =
                named(&|schema| schema.name == name).or_else(|| named(&|schema| schema.is_called(name)));
            schema.map(Schema::oid)
        })
    }

    /// The oid of a relation by schema and name.
    pub(crate) fn relation(&self, schema: &str, name: &str) -> Option<i32> {
        if let Some((namespace, _)) = system_schemas().find(|known| known.1 == schema) {
            return SYSTEM.find(namespace, name).map(|relation| relation.oid);
        }
        self.names.get(&(self.schema_oid(schema)?, name.to_string())).copied()
    }

    /// The schema and name of a relation.
    pub(crate) fn name_of(&self, relation: i32) -> Option<(String, String)> {
        if let Some((_, schema, index)) = self.index(relation) {
            return Some((schema.name.clone(), index.name.clone()));
        }
        match self.get(relation)? {
            Found::User(relation, schema) => Some((schema.name.clone(), relation.name.clone())),
            Found::System(system) => Some((self.schema_name(system.namespace)?, system.name.to_string())),
        }
    }
}

/// Oids and names of the built-in namespaces.
pub(crate) fn system_schemas() -> impl Iterator<Item = (i32, &'static str)> {
    [(PG_CATALOG, "pg_catalog"), (99, "pg_toast")]
        .into_iter()
        .chain(SYSTEM.information.map(|oid| (oid, "information_schema")))
}

/// The letters of privileges in an access control list.
pub(crate) const LETTERS: [(&str, char); 14] = [
    ("INSERT", 'a'),
    ("SELECT", 'r'),
    ("UPDATE", 'w'),
    ("DELETE", 'd'),
    ("TRUNCATE", 'D'),
    ("REFERENCES", 'x'),
    ("TRIGGER", 't'),
    ("EXECUTE", 'X'),
    ("USAGE", 'U'),
    ("CREATE", 'C'),
    ("TEMPORARY", 'T'),
    ("CONNECT", 'c'),
    ("SET", 's'),
    ("ALTER SYSTEM", 'A'),
];

/// A role's name in an item of an access control list.
pub(crate) fn role_item(name: &str) -> String {
    match name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Grants as the items of an access control list, the owner's implicit privileges first; `None` without
/// grants.
pub(crate) fn access_list(owner: &str, everything: &str, grants: &[Grant]) -> Option<Vec<String>> {
    if grants.is_empty() {
        return None;
    }
    let own = (!everything.is_empty()).then(|| format!("{0}={everything}/{0}", role_item(owner)));
    let granted = grants.iter().map(|grant| {
        let letters = LETTERS.iter().filter_map(|(word, letter)| {
            let (_, option) = grant.privileges.iter().find(|(privilege, _)| privilege == word)?;
            Some(format!("{letter}{}", if *option { "*" } else { "" }))
        });
        let grantee = grant.role.as_deref().map(role_item).unwrap_or_default();
        format!("{grantee}={}/{}", letters.collect::<String>(), role_item(&grant.grantor))
    });
    Some(own.into_iter().chain(granted).collect())
}

/// The letters of all privileges on a table.
pub(crate) const TABLE_PRIVILEGES: &str = "arwdDxt";

/// Quotes an SQL identifier where necessary. Reserved words (`select`, `user`, …) are quoted, as in
/// PostgreSQL.
pub(crate) fn quote_identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match plain && !is_keyword(name) {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn is_keyword(name: &str) -> bool {
    use datafusion::arrow::array::AsArray;
    use std::collections::HashSet;
    use std::sync::LazyLock;
    static KEYWORDS: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let Some(Ok(rows)) = SYSTEM.catalog("pg_get_keywords").map(SystemRelation::rows) else {
            return HashSet::new();
        };
        let (words, categories) = (rows.column(0).as_string::<i32>(), rows.column(1).as_string::<i32>());
        let reserved = words.iter().zip(categories).filter(|(_, category)| *category != Some("U"));
        reserved.filter_map(|(word, _)| word.map(str::to_string)).collect()
    });
    KEYWORDS.contains(name)
}

/// Splits a qualified SQL name: `Orders . "x.y"` is `orders` and `x.y`. `None` if it is not a name.
pub(crate) fn split_name(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![];
    let mut letters = text.trim().chars().peekable();
    let skip_blanks = |letters: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        while letters.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
    };
    loop {
        let mut part = String::new();
        skip_blanks(&mut letters);
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next()? {
                    '"' if letters.next_if_eq(&'"').is_none() => break,
                    letter => part.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| *letter != '.' && *letter != '"') {
                part.extend(letter.to_lowercase());
            }
            // Inner blanks belong to a type's name, such as `double precision`.
            part.truncate(part.trim_ascii_end().len());
        }
        skip_blanks(&mut letters);
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match letters.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_as_in_sql() {
        assert_eq!(split_name("Sales.\"a \"\"b\"").unwrap(), ["sales", "a \"b"]);
        assert_eq!(split_name(" \"public\" . orders ").unwrap(), ["public", "orders"]);
        assert_eq!(split_name("Double Precision").unwrap(), ["double precision"]);
        assert_eq!(split_name("a..b"), None);
        assert_eq!(split_name("\"a"), None);
        assert_eq!(quote_identifier("orders"), "orders");
        assert_eq!(quote_identifier("Mixed Case"), "\"Mixed Case\"");
        assert_eq!(quote_identifier("select"), "\"select\"");
        assert_eq!(quote_identifier("sum"), "sum");
    }

    #[test]
    fn grants_are_written_as_access_lists() {
        let grant = Grant {
            role: Some("readers".into()),
            grantor: "harrier".into(),
            privileges: vec![("SELECT".into(), false), ("INSERT".into(), true)],
        };
        assert_eq!(
            access_list("harrier", TABLE_PRIVILEGES, &[grant]).unwrap(),
            ["harrier=arwdDxt/harrier", "readers=a*r/harrier"]
        );
        assert_eq!(access_list("harrier", TABLE_PRIVILEGES, &[]), None);
    }
}
