//! Catalog queries of real clients, unchanged, compared with PostgreSQL 15's results.
//!
//! A file of `queries/` has the queries of one client: a label, the query, `----`, the names of the columns,
//! and the rows, in any order. Instead of rows it may have their number, or the reason why they are not
//! compared.

mod sample_schema;

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use harrier_pgcatalog::{TYPE_KEY, install, planned_type, rewrite};
use harrier_sql::column_names::column_names;

use sample_schema::SampleSchema;

/// Types of PostgreSQL that DataFusion does not have, planned as in the engine.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        Ok(planned_type(sql_type).map(Into::into))
    }
}

fn session() -> SessionContext {
    session_of(SampleSchema::new())
}

fn session_of(schema: SampleSchema) -> SessionContext {
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_default_catalog_and_schema("warehouse", "main")
        .with_target_partitions(2);
    config.options_mut().sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
    let state = SessionStateBuilder::new_with_default_features().with_config(config);
    let context = SessionContext::new_with_state(state.with_type_planner(Arc::new(Types)).build());
    install(&context, Arc::new(schema)).expect("the catalogs can be installed");
    // Clients query documents about collations and the like; sessions have these functions beside the
    // catalogs.
    let functions =
        harrier_functions::json::functions().chain([harrier_functions::array_or_empty::function()]);
    functions.for_each(|function| context.register_udf(function.as_ref().clone()));
    context
}

/// The column names and the rows of a query, as a client gets them.
async fn run(context: &SessionContext, sql: &str) -> Result<(Vec<String>, Vec<String>)> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)
        .map_err(|error| datafusion::error::DataFusionError::Plan(error.to_string()))?;
    let mut statement = statements.remove(0);
    let original = statement.clone();
    rewrite(&mut statement);
    if std::env::var("SHOW_REWRITTEN").is_ok() {
        println!("{statement}");
    }
    let plan = context.state().statement_to_plan(Statement::Statement(Box::new(statement))).await?;
    let frame = context.execute_logical_plan(plan).await?;
    let planned = frame.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let names = column_names(&original, &planned);
    let mut rows = vec![];
    for batch in frame.collect().await? {
        for row in 0..batch.num_rows() {
            let mut line = String::new();
            for (place, field) in batch.schema().fields().iter().enumerate() {
                let tab = if place == 0 { "" } else { "\t" };
                write!(line, "{tab}{}", text(batch.column(place), field, row)?).expect("a string takes all");
            }
            rows.push(line.replace('\n', "\\n"));
        }
    }
    Ok((names, rows))
}

/// A value in PostgreSQL's text format.
fn text(array: &dyn Array, field: &Field, row: usize) -> Result<String> {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return Ok("\\N".to_string());
    }
    Ok(match array.data_type() {
        DataType::Boolean => if array.as_boolean().value(row) { "t" } else { "f" }.to_string(),
        DataType::List(item) => {
            let items = array.as_list::<i32>().value(row);
            let items =
                (0..items.len()).map(|place| text(&items, item, place)).collect::<Result<Vec<_>>>()?;
            match field.metadata().get(TYPE_KEY).map(String::as_str) {
                Some("oidvector" | "int2vector") => items.join(" "),
                _ => format!("{{{}}}", items.join(",")),
            }
        }
        _ => ArrayFormatter::try_new(array, &FormatOptions::default())?.value(row).to_string(),
    })
}

struct Query {
    label: String,
    sql: String,
    /// The names of the columns, separated by tabs.
    names: String,
    expected: Vec<String>,
}

fn parse_queries(path: &std::path::Path) -> Vec<Query> {
    let file = fs::read_to_string(path).expect("the file can be read");
    let mut queries = vec![];
    for part in file.split("\n\n-- ").skip(1) {
        let (label, rest) = part.split_once('\n').expect("a label has a query");
        let (sql, expected) = rest.split_once("\n----").expect("a query has rows");
        let expected = expected.strip_prefix('\n').unwrap_or(expected);
        let mut lines = expected.lines().map(str::to_string);
        let names = lines.next().expect("the columns have names").trim_start_matches("=> ").to_string();
        queries.push(Query {
            label: label.to_string(),
            sql: sql.to_string(),
            names,
            expected: lines.collect(),
        });
    }
    queries
}

#[tokio::test]
async fn client_queries_match_postgresql() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/queries");
    let mut files =
        fs::read_dir(folder).expect("there are queries").map(|f| f.unwrap().path()).collect::<Vec<_>>();
    files.sort();
    let context = session();
    let only = std::env::var("QUERY").unwrap_or_default();
    let (mut failures, mut count) = (String::new(), 0);
    for file in files {
        let client = file.file_stem().unwrap().to_string_lossy().to_string();
        for query in
            parse_queries(&file).iter().filter(|query| format!("{client} {}", query.label).contains(&only))
        {
            count += 1;
            let failed =
                |problem: String| format!("=== {client} {}\n{}\n{problem}\n", query.label, query.sql);
            match run(&context, &query.sql).await {
                Err(error) => failures += &failed(format!("!!! {error}")),
                Ok((names, mut rows)) => {
                    if names.join("\t") != query.names {
                        failures += &failed(format!("!!! names {names:?}, but expected {:?}", query.names));
                    }
                    let mut expected = query.expected.clone();
                    match expected.first().and_then(|line| line.strip_prefix("-- ")) {
                        Some(number) if number.ends_with(" rows") => {
                            if number != format!("{} rows", rows.len()) {
                                failures +=
                                    &failed(format!("!!! {} rows, but expected {number}", rows.len()));
                            }
                        }
                        // The reason why they are not compared.
                        Some(_) => {}
                        None => {
                            rows.sort();
                            expected.sort();
                            if rows != expected {
                                let (rows, expected) = (rows.join("\n"), expected.join("\n"));
                                failures += &failed(format!("!!! got\n{rows}\n!!! expected\n{expected}"));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(count > 0 || !only.is_empty());
    let failed = failures.matches("=== ").count();
    assert!(failures.is_empty(), "{failures}\n{failed} of {count} failed");
}

/// Clients' queries of keys and indexes, with their expected results, which are PostgreSQL's for valid keys.
#[tokio::test]
async fn client_queries_of_keys_and_indexes() {
    let context = session_of(sample_schema::with_keys());
    for (sql, expected) in [
        (
            "SELECT conname, contype, conkey, confkey, convalidated, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY 1",
            vec![
                "orders_check\tc\t{1,4}\t\\N\tt\tCHECK ((id > 0 OR lower(note) <> ''))",
                "orders_customer_fkey\tf\t{2}\t{1}\tf\tFOREIGN KEY (customer) REFERENCES sales.region(id) ON DELETE CASCADE NOT VALID",
                "orders_note_id_key\tu\t{4,1}\t\\N\tf\tUNIQUE (note, id)",
                "region_pkey\tp\t{1}\t\\N\tf\tPRIMARY KEY (id)",
            ],
        ),
        (
            "SELECT d.deptype, d.refobjid::regclass::text, d.refobjsubid FROM pg_depend d JOIN pg_constraint c ON c.oid = d.objid \
             WHERE d.classid = 'pg_constraint'::regclass AND c.contype = 'f' ORDER BY 1, 2",
            vec!["a\torders\t2", "n\tsales.region\t1", "n\tsales.region_pkey\t0"],
        ),
        (
            "SELECT indexrelid::regclass::text, indisprimary, indisvalid, indkey, indoption, pg_get_indexdef(indexrelid) FROM pg_index ORDER BY 1",
            vec![
                "orders_lower_day_idx\tf\tf\t0 6\t3 0\tCREATE INDEX orders_lower_day_idx ON main.orders USING btree (lower(note) DESC, day)",
                "orders_note_id_key\tf\tf\t4 1\t0 0\tCREATE UNIQUE INDEX orders_note_id_key ON main.orders USING btree (note, id)",
                "sales.region_pkey\tt\tf\t1\t0\tCREATE UNIQUE INDEX region_pkey ON sales.region USING btree (id)",
            ],
        ),
        // Django's query.
        (
            "SELECT c.conname, array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx) JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx) FROM pg_constraint AS c ORDER BY 1",
            vec![
                "orders_check\t{id,note}",
                "orders_customer_fkey\t{customer}",
                "orders_note_id_key\t{note,id}",
                "region_pkey\t{id}",
            ],
        ),
        (
            "SELECT c.relname, key, option & 1, arridx FROM (SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx JOIN pg_class c ON idx.indexrelid = c.oid WHERE NOT indisprimary ORDER BY 1, 4",
            vec![
                "orders_lower_day_idx\t0\t1\t1",
                "orders_lower_day_idx\t6\t0\t2",
                "orders_note_id_key\t4\t0\t1",
                "orders_note_id_key\t1\t0\t2",
            ],
        ),
        // Peewee's query.
        (
            "SELECT i.relname, array_to_string(ARRAY(SELECT pg_get_indexdef(idx.indexrelid, k + 1, TRUE) FROM generate_subscripts(idx.indkey, 1) AS k ORDER BY k), ',') FROM pg_index idx JOIN pg_class i ON idx.indexrelid = i.oid ORDER BY 1",
            vec!["orders_lower_day_idx\tlower(note),day", "orders_note_id_key\tnote,id", "region_pkey\tid"],
        ),
        // Rails' query.
        (
            "SELECT a.attname FROM (SELECT indrelid, indkey, generate_subscripts(indkey, 1) idx FROM pg_index WHERE NOT indisprimary) i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[i.idx] ORDER BY i.idx",
            vec!["note", "id", "day"],
        ),
        (
            "SELECT constraint_name, unique_constraint_name, delete_rule FROM information_schema.referential_constraints",
            vec!["orders_customer_fkey\tregion_pkey\tCASCADE"],
        ),
        (
            "SELECT constraint_name, table_name, constraint_type, enforced FROM information_schema.table_constraints ORDER BY 1",
            vec![
                "orders_check\torders\tCHECK\tYES",
                "orders_customer_fkey\torders\tFOREIGN KEY\tNO",
                "orders_note_id_key\torders\tUNIQUE\tNO",
                "region_pkey\tregion\tPRIMARY KEY\tNO",
            ],
        ),
        (
            "SELECT relname, relhasindex, relhastriggers, relchecks FROM pg_class WHERE relname IN ('orders', 'region', 'measures') ORDER BY 1",
            vec!["measures\tf\tf\t0", "orders\tt\tt\t1", "region\tt\tt\t0"],
        ),
        (
            "SELECT constraint_name, check_clause FROM information_schema.check_constraints",
            vec!["orders_check\tid > 0 OR lower(note) <> ''"],
        ),
        // Object identifiers are names in texts.
        (
            "SELECT 'of ' || c.conrelid::regclass || '!', concat(c.conrelid::regclass, 1), format('%s', 'int4'::regtype) FROM pg_constraint c WHERE contype = 'c'",
            vec!["of orders!\torders1\tinteger"],
        ),
    ] {
        let rows = run(&context, sql).await.unwrap_or_else(|error| panic!("{error} of {sql}")).1;
        let (mut rows, mut expected) = (rows, expected.iter().map(|row| row.to_string()).collect::<Vec<_>>());
        rows.sort();
        expected.sort();
        assert_eq!(rows, expected, "{sql}");
    }
}

#[tokio::test]
async fn parameters_may_be_object_names_and_arrays() {
    use datafusion::scalar::ScalarValue;
    let context = session();
    let sql = "SELECT relname FROM pg_class WHERE oid = $1::regclass AND relkind = ANY ($2) AND relname = $3::VARCHAR";
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).expect("it is SQL").remove(0);
    rewrite(&mut statement);
    let plan = context.state().statement_to_plan(Statement::Statement(Box::new(statement))).await;
    let kinds = ["r", "v"].map(ScalarValue::from);
    let kinds = ScalarValue::List(ScalarValue::new_list(&kinds, &DataType::Utf8, true));
    let values = vec![ScalarValue::from("main.orders"), kinds, ScalarValue::from("orders")];
    let plan = plan.expect("it can be planned").with_param_values(values).expect("these are its parameters");
    let frame = context.execute_logical_plan(plan).await.expect("it can be run");
    assert_eq!(frame.count().await.expect("it has rows"), 1);
}

#[tokio::test]
async fn missing_objects_are_errors() {
    let context = session();
    for (sql, expected) in [
        ("SELECT 'nothing'::regclass", "relation \"nothing\" does not exist"),
        ("SELECT has_table_privilege('nobody', 'orders', 'SELECT')", "role \"nobody\" does not exist"),
        ("SELECT current_setting('nothing')", "unrecognized configuration parameter \"nothing\""),
        ("SELECT 'x'::oid", "invalid input syntax for type oid: \"x\""),
        ("SELECT pg_get_userbyid()", "function pg_get_userbyid() does not exist"),
    ] {
        let error = run(&context, sql).await.expect_err(sql).to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}
