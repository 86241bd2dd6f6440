//! Access control lists: expanded to rows (`aclexplode`), and their defaults (`acldefault`).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayBuilder, AsArray, BooleanBuilder, Int32Builder, ListArray, StringBuilder, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::catalog::{Catalog, LETTERS, role_item};
use crate::functions::call::{Call, Value, int, text};
use crate::source::Role;
use crate::types::catalog_field;

/// The columns of `aclexplode`.
pub(crate) const ACL_COLUMNS: [&str; 4] = ["grantor", "grantee", "privilege_type", "is_grantable"];

/// `acldefault(kind, owner)`: the default privileges of PUBLIC and the owner on an object of a kind.
pub(super) fn default(call: &Call<'_>, values: &[Value]) -> Result<Value> {
    let (everybody, owner) = match text(&values[0]) {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "L" => ("", "rw"),
        "n" => ("", "UC"),
        "p" => ("", "sA"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        other => return plan_err!("unrecognized object type abbreviation: {other}"),
    };
    let role = int(&values[1]);
    let name = call.catalog.role_name(&call.roles, role).unwrap_or_else(|| role.to_string());
    let name = role_item(&name);
    let items =
        [("", everybody), (name.as_str(), owner)].into_iter().filter(|(_, letters)| !letters.is_empty());
    Ok(Value::Texts(items.map(|(grantee, letters)| format!("{grantee}={letters}/{name}")).collect()))
}

/// `aclexplode`: expands each list of items to a list of structs.
pub(super) struct AclExplode {
    catalog: Arc<Catalog>,
    /// An empty or NULL list gives one row of NULLs, as in an outer join.
    is_outer: bool,
    signature: Signature,
}

impl AclExplode {
    pub(super) fn new(catalog: &Arc<Catalog>, is_outer: bool) -> Self {
        let signature = Signature::new(TypeSignature::UserDefined, Volatility::Stable);
        Self { catalog: Arc::clone(catalog), is_outer, signature }
    }

    fn fields() -> Fields {
        Fields::from(vec![
            catalog_field(ACL_COLUMNS[0], "oid", true),
            catalog_field(ACL_COLUMNS[1], "oid", true),
            Arc::new(Field::new(ACL_COLUMNS[2], DataType::Utf8, true)),
            Arc::new(Field::new(ACL_COLUMNS[3], DataType::Boolean, true)),
        ])
    }
}

impl fmt::Debug for AclExplode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AclExplode")
    }
}

impl PartialEq for AclExplode {
    fn eq(&self, other: &Self) -> bool {
        self.is_outer == other.is_outer && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for AclExplode {}

impl Hash for AclExplode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for AclExplode {
    fn name(&self) -> &str {
        if self.is_outer { "aclexplode_or_null" } else { "aclexplode" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let texts = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        match given {
            [DataType::List(_) | DataType::LargeList(_) | DataType::Null] => Ok(vec![texts]),
            [other] => plan_err!("function aclexplode({other}) does not exist"),
            _ => plan_err!("function aclexplode with {} arguments does not exist", given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Struct(Self::fields()), true))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = arguments.args[0].to_array(arguments.number_rows)?;
        let lists = given.as_list::<i32>();
        let roles = self.catalog.source.roles()?;
        let (mut grantors, mut grantees) = (Int32Builder::new(), Int32Builder::new());
        let (mut privileges, mut options) = (StringBuilder::new(), BooleanBuilder::new());
        let mut lengths = Vec::with_capacity(lists.len());
        for row in 0..lists.len() {
            let before = grantors.len();
            if lists.is_valid(row) {
                let items = cast(&lists.value(row), &DataType::Utf8)?;
                for item in items.as_string::<i32>().iter().flatten() {
                    let item = Item::parse(item, |name| self.role(&roles, name))?;
                    for (privilege, option) in item.privileges {
                        grantors.append_value(item.grantor);
                        grantees.append_value(item.grantee);
                        privileges.append_value(privilege);
                        options.append_value(option);
                    }
                }
            }
            if self.is_outer && grantors.len() == before {
                grantors.append_null();
                grantees.append_null();
                privileges.append_null();
                options.append_null();
            }
            lengths.push(grantors.len() - before);
        }
        let rows = StructArray::try_new(
            Self::fields(),
            vec![
                Arc::new(grantors.finish()),
                Arc::new(grantees.finish()),
                Arc::new(privileges.finish()),
                Arc::new(options.finish()),
            ],
            None,
        )?;
        let item = Arc::new(Field::new_list_field(DataType::Struct(Self::fields()), true));
        let valid = NullBuffer::from_iter((0..lists.len()).map(|row| self.is_outer || lists.is_valid(row)));
        let list =
            ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(rows), Some(valid))?;
        Ok(ColumnarValue::Array(Arc::new(list)))
    }
}

impl AclExplode {
    /// PostgreSQL's own objects name the owner in the server that the data was taken from.
    fn role(&self, roles: &[Role], name: &str) -> i32 {
        match name {
            "" => 0,
            "postgres" if roles.iter().all(|role| role.name != name) => crate::catalog::OWNER_OID,
            name => self.catalog.role_oid(roles, name),
        }
    }
}

/// A parsed item of a list.
struct Item {
    grantor: i32,
    grantee: i32,
    privileges: Vec<(&'static str, bool)>,
}

impl Item {
    fn parse(item: &str, role: impl Fn(&str) -> i32) -> Result<Self> {
        let Some((grantee, rest)) = name(item) else { return exec_err!("invalid aclitem: \"{item}\"") };
        let Some((letters, grantor)) = rest.strip_prefix('=').and_then(|rest| rest.split_once('/')) else {
            return exec_err!("invalid aclitem: \"{item}\"");
        };
        let grantor = name(grantor).map(|(name, _)| role(&name)).unwrap_or_default();
        let mut privileges = vec![];
        for (word, letter) in LETTERS {
            if let Some(at) = letters.find(letter) {
                privileges.push((word, letters[at + letter.len_utf8()..].starts_with('*')));
            }
        }
        Ok(Self { grantor, grantee: role(&grantee), privileges })
    }
}

/// The name at the start of a text, and the rest.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(['=', '/']).unwrap_or(text.len());
        return Some((text[..end].to_string(), &text[end..]));
    };
    let mut name = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' if letters.next_if(|(_, next)| *next == '"').is_some() => name.push('"'),
            '"' => return Some((name, &quoted[at + 1..])),
            other => name.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_items_are_parsed() {
        let role = |name: &str| name.len() as i32;
        let item = Item::parse("ann=r*aT/postgres", role).unwrap();
        assert_eq!((item.grantee, item.grantor), (3, 8));
        assert_eq!(item.privileges, [("INSERT", false), ("SELECT", true), ("TEMPORARY", false)]);
        let item = Item::parse("=U/\"a\"\"/b\"", role).unwrap();
        assert_eq!((item.grantee, item.grantor), (0, 4));
        assert!(Item::parse("ann", role).is_err());
    }
}
