//! Sample source of the catalogs: a few tables, the same as in the PostgreSQL that the expected rows are
//! from, with ids that yield the same oids.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use harrier_pgcatalog::{
    Activity, Check, Column, Constraint, ConstraintKind, Contents, ForeignKey, Grant, Index, IndexItem,
    Indexed, Keys, Kind, Object, Relation, Role, Schema, Setting, Source,
};

#[derive(Debug)]
pub struct SampleSchema {
    contents: Arc<Contents>,
}

fn column(name: &str, data_type: DataType) -> Column {
    Column {
        field: Arc::new(Field::new(name, data_type, true)),
        default: None,
        comment: None,
        grants: vec![],
        statistics: None,
    }
}

fn non_null_column(name: &str, data_type: DataType) -> Column {
    Column { field: Arc::new(Field::new(name, data_type, false)), ..column(name, DataType::Null) }
}

fn relation(id: i64, schema: i64, name: &str, columns: Vec<Column>) -> Relation {
    Relation {
        id,
        schema,
        name: name.to_string(),
        kind: Kind::Table,
        owner: "harrier".to_string(),
        comment: None,
        columns,
        keys: Keys::default(),
        rows: None,
        bytes: Some(0),
        definition: None,
        reads: vec![],
        grants: vec![],
    }
}

fn schema(id: i64, name: &str, comment: Option<&str>) -> Schema {
    let owner = "harrier".to_string();
    let comment = comment.map(str::to_string);
    Schema { id, name: name.to_string(), other_name: None, is_public: false, owner, comment, grants: vec![] }
}

impl SampleSchema {
    pub fn new() -> Self {
        let text = || DataType::Utf8View;
        let timestamp = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let decimal = || DataType::Decimal128(12, 2);
        let mut price = column("price", decimal());
        price.default = Some("0".to_string());
        price.comment = Some("in euros".to_string());
        let mut paid = non_null_column("paid", DataType::Boolean);
        paid.default = Some("false".to_string());
        let tags = DataType::List(Arc::new(Field::new_list_field(text(), true)));
        let mut orders = relation(
            6,
            4,
            "orders",
            vec![
                non_null_column("id", DataType::Int64),
                column("customer", DataType::Int32),
                price,
                column("note", text()),
                column("placed", timestamp(None)),
                column("day", DataType::Date32),
                paid,
                column("tags", tags),
            ],
        );
        orders.comment = Some("what was ordered".to_string());
        let mut mixed =
            relation(13, 4, "Mixed Case", vec![column("a", DataType::Int32), column("B c", text())]);
        let mut measures = relation(
            18,
            4,
            "measures",
            vec![
                column("small", DataType::Int16),
                column("real4", DataType::Float32),
                column("real8", DataType::Float64),
                column("raw", DataType::Binary),
                column("at", timestamp(Some("UTC"))),
                column("t", DataType::Time64(TimeUnit::Microsecond)),
                column("span", DataType::Interval(IntervalUnit::MonthDayNano)),
                column("plain", decimal()),
                column("doc", DataType::Struct(vec![Field::new("x", DataType::Int32, true)].into())),
            ],
        );
        for relation in [&mut orders, &mut mixed, &mut measures] {
            relation.bytes = Some(8192);
        }
        let mut view =
            relation(23, 4, "big_orders", vec![column("id", DataType::Int64), column("price", decimal())]);
        view.kind = Kind::View;
        view.reads = vec![6];
        view.definition = Some(
            "SELECT orders.id,\n    orders.price\n   FROM orders\n  WHERE orders.price > 100::numeric"
                .to_string(),
        );
        let mut region =
            relation(27, 5, "region", vec![non_null_column("id", DataType::Int32), column("name", text())]);
        region.grants = vec![Grant {
            role: Some("readers".to_string()),
            grantor: "harrier".to_string(),
            privileges: vec![("SELECT".to_string(), false)],
        }];
        let contents = Contents {
            schemas: vec![schema(4, "main", None), schema(5, "sales", Some("who sells"))],
            relations: vec![orders, mixed, measures, view, region],
            sequences: vec![],
        };
        Self { contents: Arc::new(contents) }
    }
}

/// The same with keys: `region` has a primary key, referenced by `orders`, with a unique constraint and an
/// index of an expression.
pub fn with_keys() -> SampleSchema {
    let mut contents = Contents::clone(&SampleSchema::new().contents);
    let column =
        |at| IndexItem { what: Indexed::Column(at), class: None, is_descending: false, nulls_first: false };
    let index = |id, name: &str, items| Index {
        id,
        name: name.to_string(),
        is_unique: true,
        is_primary: false,
        is_deferrable: false,
        nulls_not_distinct: false,
        method: "btree".to_string(),
        items,
        included: vec![],
        predicate: None,
    };
    let constraint = |id, name: &str, columns, kind| Constraint {
        id,
        name: name.to_string(),
        columns,
        is_deferrable: false,
        is_deferred: false,
        kind,
    };
    for relation in &mut contents.relations {
        match relation.name.as_str() {
            "region" => {
                let own = index(101, "region_pkey", vec![column(0)]);
                relation.keys.indexes = vec![Index { is_primary: true, ..own }];
                relation.keys.constraints =
                    vec![constraint(101, "region_pkey", vec![0], ConstraintKind::Primary)];
            }
            "orders" => {
                let foreign = ForeignKey {
                    relation: 27,
                    columns: vec![0],
                    index: 101,
                    on_update: 'a',
                    on_delete: 'c',
                    is_full: false,
                };
                let check = Check { condition: "id > 0 OR lower(note) <> ''".to_string(), is_valid: true };
                let lower = Indexed::Expression("lower(note)".to_string());
                let lower = IndexItem { what: lower, is_descending: true, nulls_first: true, ..column(0) };
                relation.keys.indexes = vec![
                    index(102, "orders_note_id_key", vec![column(3), column(0)]),
                    Index { is_unique: false, ..index(103, "orders_lower_day_idx", vec![lower, column(5)]) },
                ];
                relation.keys.constraints = vec![
                    constraint(102, "orders_note_id_key", vec![3, 0], ConstraintKind::Unique),
                    constraint(104, "orders_customer_fkey", vec![1], ConstraintKind::Foreign(foreign)),
                    constraint(105, "orders_check", vec![0, 3], ConstraintKind::Check(check)),
                ];
            }
            _ => {}
        }
    }
    SampleSchema { contents: Arc::new(contents) }
}

impl Source for SampleSchema {
    fn contents(&self) -> Result<Arc<Contents>> {
        Ok(Arc::clone(&self.contents))
    }

    fn roles(&self) -> Result<Vec<Role>> {
        let owner = Role {
            name: self.owner(),
            login: true,
            superuser: true,
            inherit: true,
            create_role: true,
            create_database: true,
            ..Role::default()
        };
        let analyst = Role {
            id: 1,
            name: "analyst".to_string(),
            login: true,
            inherit: true,
            member_of: vec![("readers".to_string(), false)],
            settings: vec![
                ("TimeZone".to_string(), "Europe/Paris".to_string()),
                ("work_mem".to_string(), "64MB".to_string()),
            ],
            ..Role::default()
        };
        let readers = Role { id: 2, name: "readers".to_string(), inherit: true, ..Role::default() };
        Ok(vec![owner, analyst, readers])
    }

    fn database(&self) -> String {
        "warehouse".to_string()
    }

    fn owner(&self) -> String {
        "harrier".to_string()
    }

    fn user(&self) -> String {
        "harrier".to_string()
    }

    fn search_path(&self) -> Vec<String> {
        vec!["main".to_string()]
    }

    fn backend_pid(&self) -> i32 {
        4711
    }

    fn version(&self) -> String {
        "PostgreSQL 15.0 (Harrier)".to_string()
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |name: &str, value: &str, unit: Option<&str>| Setting {
            name: name.to_string(),
            value: value.to_string(),
            unit: unit.map(str::to_string),
            kind: "string".to_string(),
            context: "user".to_string(),
            default: Some(value.to_string()),
            ..Setting::default()
        };
        vec![
            setting("work_mem", "4096", Some("kB")),
            setting("default_table_access_method", "heap", None),
            setting("max_index_keys", "32", None),
            setting("max_connections", "100", None),
            setting("default_transaction_isolation", "read committed", None),
        ]
    }

    fn set(&self, name: &str, value: &str, _: bool) -> Result<String> {
        match name {
            "search_path" | "application_name" => Ok(value.to_string()),
            _ => Err(DataFusionError::Plan(format!("unrecognized configuration parameter \"{name}\""))),
        }
    }

    fn activity(&self) -> Vec<Activity> {
        vec![Activity {
            pid: 4711,
            user: self.user(),
            application: "test".to_string(),
            state: "active".to_string(),
            query: "SELECT 1".to_string(),
            ..Activity::default()
        }]
    }

    fn may(&self, role: &str, object: &Object<'_>, privilege: &str) -> bool {
        if role == "harrier" || *object == Object::System {
            return true;
        }
        let granted: HashMap<i64, &str> = HashMap::from([(27, "SELECT")]);
        match object {
            Object::Relation(id) | Object::Column(id, _) => granted.get(id) == Some(&privilege),
            Object::Database => privilege == "CONNECT",
            _ => false,
        }
    }

    fn signal(&self, pid: i32, _: bool) -> Result<bool> {
        Ok(pid == 4711)
    }

    fn transaction_id(&self) -> i64 {
        7
    }

    fn client_address(&self) -> Option<(String, u16)> {
        Some(("127.0.0.1".to_string(), 40000))
    }

    fn server_address(&self) -> Option<(String, u16)> {
        Some(("127.0.0.1".to_string(), 5433))
    }

    fn start_time(&self) -> i64 {
        1_700_000_000_000_000
    }
}
