//! Reference page of the schema `sys`, column by column, and of PostgreSQL's catalogs.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use harrier_engine::Session;

use super::page::{Page, code, codes};
use super::scratch;

/// Name, rows and columns of a table, with their meanings.
struct Table {
    name: &'static str,
    rows: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

const SCHEMA: (&str, &str) = ("table_schema", "schema of the table");
const NAME: (&str, &str) = ("table_name", "name of the table");

/// Tables about the warehouse.
const OF_WAREHOUSE: &[Table] = &[
    Table {
        name: "tables",
        rows: "a row for each table",
        columns: &[
            SCHEMA,
            NAME,
            ("table_id", "number of the table, which stays when it is renamed"),
            ("rows", "rows that a query sees; NULL to whom a row filter hides some"),
            ("files", "data files"),
            ("bytes", "bytes of these files"),
            ("deleted_rows", "rows that are in files and deleted, until OPTIMIZE writes the files anew"),
            ("kept_rows", "rows that are in the catalog and in no file yet"),
            ("partitioned_by", "partitioning and distribution, such as `range(day)` or `bucket(8, id)`"),
            ("sorted_by", "order of rows within files"),
            ("location", "folder of the table's files"),
            ("comment", "what COMMENT ON TABLE says"),
        ],
    },
    Table {
        name: "columns",
        rows: "a row for each column of each table",
        columns: &[
            SCHEMA,
            NAME,
            ("column_name", "name of the column"),
            ("ordinal_position", "place in the table, from 1"),
            (
                "column_id",
                "number of the column, which stays when it is renamed; Parquet files have it as field id",
            ),
            ("data_type", "type, as Arrow calls it"),
            ("is_nullable", "whether NULL is allowed"),
            ("column_default", "default, as SQL"),
            ("comment", "what COMMENT ON COLUMN says"),
        ],
    },
    Table {
        name: "table_partitions",
        rows: "a row for each range or list that a table is divided by",
        columns: &[
            SCHEMA,
            NAME,
            ("partition_name", "name of the table partition"),
            ("partition_type", "`range` or `list`"),
            ("range_start", "where a range begins; NULL: it has no beginning"),
            ("start_inclusive", "whether the beginning is in the range"),
            ("range_end", "where a range ends; NULL: it has no end"),
            ("end_inclusive", "whether the end is in the range"),
            ("list_values", "values of a list"),
            ("is_default", "whether it takes what no other does"),
            ("options", "options of its own, from WITH"),
            ("rows", "rows that a query sees; NULL to whom a row filter hides some"),
            ("files", "data files"),
            ("bytes", "bytes of these files"),
        ],
    },
    Table {
        name: "data_files",
        rows: "a row for each data file that the current snapshot has",
        columns: &[
            SCHEMA,
            NAME,
            ("path", "where the file is"),
            ("rows", "rows in the file"),
            ("deleted_rows", "those of them that are deleted"),
            ("bytes", "size of the file"),
            (
                "table_partition",
                "values of the partitioning that all rows of the file have, such as `day=2026-11-29`",
            ),
        ],
    },
    Table {
        name: "snapshots",
        rows: "a row for each commit",
        columns: &[
            ("snapshot_id", "number of the commit, for `AS OF SNAPSHOT`"),
            ("snapshot_time", "when it was committed"),
            ("schema_version", "grows with every commit that changes definitions"),
            ("changes", "what was changed; for superusers"),
            ("author", "who committed, where that is known; for superusers"),
            ("message", "what was said about the commit; for superusers"),
        ],
    },
    Table {
        name: "column_analysis",
        rows: "a row for each column that ANALYZE has looked at",
        columns: &[
            SCHEMA,
            NAME,
            ("column_name", "name of the column"),
            ("snapshot_id", "the commit that was looked at"),
            ("rows", "rows of the table then"),
            ("nulls", "NULLs of the column"),
            ("distinct_values", "different values"),
            ("mean_bytes", "mean size of a value"),
            ("common_values", "the most frequent values"),
            ("common_shares", "the share of rows that each of these has"),
            ("bounds", "bounds of a histogram of the other values, with as many rows between each two"),
        ],
    },
    Table {
        name: "row_filters",
        rows: "a row for each row filter of a table that you own",
        columns: &[
            SCHEMA,
            NAME,
            ("role_name", "the role that it is for; `public` for all"),
            ("predicate", "which rows the role sees, as SQL"),
        ],
    },
];

/// Tables about the process.
const OF_SERVER: &[Table] = &[
    Table {
        name: "sessions",
        rows: "a row for each session of the server",
        columns: &[
            ("pid", "number of the session, for `pg_cancel_backend` and `harrier ctl cancel`"),
            ("role", "who it is of"),
            ("database", "the database that the client named"),
            ("application_name", "what the client calls itself"),
            ("client", "address and port of the client; NULL for the local socket"),
            ("started", "when it began"),
            ("state", "`active`, `idle`, `idle in transaction` or `idle in transaction (aborted)`"),
            ("state_changed", "since when"),
            ("operator", "whether it is let in while the server is drained"),
            ("statement_id", "its last statement in `sys.statements`"),
            ("statement", "text of this statement"),
        ],
    },
    Table {
        name: "statements",
        rows: "a row for each statement that runs or waits, and for the last 500 that have ended",
        columns: &[
            ("id", "number of the statement, as in the pages and in `q7 slice[3->1]`"),
            ("pid", "session that it is of"),
            ("role", "role that it runs as"),
            ("state", "`parsing`, `queued`, `planning`, `running`, `done`, `failed` or `canceled`"),
            ("queue", "its resource queue"),
            ("started", "when it came"),
            ("queued_ms", "how long it waited in the queue, in milliseconds"),
            ("elapsed_ms", "how long it has taken, or took, in milliseconds"),
            ("rows", "rows that went to or came from the client"),
            ("bytes", "bytes of these"),
            ("memory_bytes", "memory that its operators and motions hold now, over all processes"),
            ("memory_peak_bytes", "the most that they have held"),
            ("on_gang", "whether it runs on the ranks; otherwise in the server's process"),
            ("retries", "how often it was run again because a rank was lost"),
            ("sqlstate", "code of its error"),
            ("error", "message of its error"),
            ("text", "text of the statement"),
        ],
    },
    Table {
        name: "queues",
        rows: "a row for each resource queue",
        columns: &[
            ("name", "name of the queue"),
            ("active_statements", "how many statements may run at a time; NULL: any number"),
            ("memory_limit", "bytes that its statements may hold together; NULL: no limit"),
            (
                "priority",
                "how much of the gang it gets when others want it too: `min`, `low`, `medium`, `high` or `max`",
            ),
            ("max_cost", "estimated cost that its running statements may have together; NULL: no limit"),
            ("running", "statements that run"),
            ("waiting", "statements that wait"),
            ("longest_wait_ms", "how long the first of these has waited, in milliseconds"),
            ("admitted", "statements that were let run since the server began"),
            ("refused", "statements that were not"),
        ],
    },
    Table {
        name: "ranks",
        rows: "a row for each rank of a server's gang, with spares",
        columns: &[
            ("rank", "number of the rank"),
            ("host", "where it runs"),
            ("pid", "its process"),
            ("state", "`working`, `spare` or `down`"),
            ("reason", "why it is down"),
            ("bytes_sent", "bytes sent to other ranks since it started"),
            ("frames_sent", "frames that these were in"),
            ("streams_open", "streams to other ranks that are open now"),
            ("reserved_bytes", "memory that statements hold there"),
            ("cpu_seconds", "processor time of the process"),
            ("gang", "how often the ranks have been started"),
            ("gang_since", "when they were started"),
        ],
    },
    Table {
        name: "disks",
        rows: "a row for each folder of temporary files, of the server and of each rank",
        columns: &[
            ("rank", "whose folder it is; NULL: the server's"),
            ("host", "where it is"),
            ("folder", "its path"),
            ("state", "`up`, `full` (used again when it has room) or `down` (failed, and not used again)"),
            ("reason", "what failed there"),
            ("total_bytes", "size of its file system"),
            ("free_bytes", "what is free of that"),
            ("spilled_bytes", "bytes of temporary files there now"),
            ("spilled_files", "their number"),
        ],
    },
    Table {
        name: "interconnect",
        rows: "a row for each rank, and for each stream of the last statements: see \
               [What moves between ranks](interconnect.md)",
        columns: &[
            ("kind", "`rank` or `stream`"),
            ("statement_id", "of a stream: the statement"),
            ("state", "of a stream: what has become of the statement"),
            ("stream", "of a stream: its name"),
            ("slice_from", "of a stream: the slice that sends"),
            ("slice_to", "of a stream: the slice that receives"),
            ("rank_from", "the rank, or the rank that sends"),
            ("rank_to", "of a stream: the rank that receives"),
            ("bytes", "bytes sent by the rank, or received over the stream"),
            ("blocks", "blocks that these were in"),
            ("blocks_shared", "of a rank: those that went through shared memory"),
            ("credit_waits", "how often a sender might not send"),
            ("credit_wait_ms", "for how long, in milliseconds"),
            ("encode_ms", "time to make blocks"),
            ("queue_ms", "time that blocks waited for the thread that sends them"),
            ("decode_ms", "of a stream: time to read blocks"),
            ("sleeps", "of a rank: how often the thread that sends and receives slept"),
            ("doorbells", "of a rank: how often it told another rank to look"),
            ("driver_cpu_ms", "of a rank: processor time of this thread"),
            ("epoch", "of a rank: 1, and one more for every rank that was lost"),
            ("clock_ahead_ms", "of a rank: by how much its clock was ahead of rank 0's"),
            ("statement", "of a stream: text of the statement"),
        ],
    },
];

/// `session`: of an engine with a warehouse and the tables of a server.
///
/// Errors: a table or column without a description here, or a description without a table or column.
pub(super) async fn page(session: &Session) -> Result<String, String> {
    let mut page = Page::new(
        "System tables",
        "This page describes the tables of schema `sys` column by column, and lists the catalogs of PostgreSQL that there \
         are.",
    );
    page.paragraph(
        "Ask for them by name: psql's `\\d` and `information_schema` do not list them; `\\d` of `harrier sql` lists those \
         about the warehouse. Who is no superuser sees what they may look into; texts of other roles' sessions and \
         statements are hidden.",
    );
    let catalog = session.context().catalog("warehouse").ok_or("there is no catalog")?;
    let schema = catalog.schema("sys").ok_or("there is no schema sys")?;
    let mut known = Vec::new();
    let groups = [
        (
            "About the warehouse",
            "These show what the statement sees, with the changes of its own transaction. They are there with every \
             warehouse.",
            OF_WAREHOUSE,
        ),
        (
            "About the server",
            "These show the server's process and its ranks at the moment. `sys.interconnect` is in `harrier sql`, too.",
            OF_SERVER,
        ),
    ];
    for (title, introduction, tables) in groups {
        page.heading(2, title);
        page.paragraph(introduction);
        for table in tables {
            known.push(table.name);
            let provider = schema.table(table.name).await.map_err(|error| error.to_string())?;
            let provider = provider.ok_or_else(|| format!("there is no sys.{}", table.name))?;
            table_section(&mut page, table, &provider.schema())?;
        }
    }
    known.sort_unstable();
    let there = schema.table_names();
    if there != known {
        return Err(format!("the tables of sys are {there:?}, and described are {known:?}"));
    }
    page.heading(2, "PostgreSQL's catalogs");
    page.paragraph(
        "Drivers and tools read these. They have the columns of PostgreSQL 15; those about what Harrier has not, such as \
         indexes and triggers, have no rows. [Limits](limits.md) tells what is different.",
    );
    let mut rows = Vec::new();
    for name in ["pg_catalog", "information_schema"] {
        let sql = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{name}' ORDER BY 1"
        );
        let names = scratch::run(session, &sql).await?.rows;
        rows.push([code(name), codes(names.iter().map(String::as_str))]);
    }
    page.table(["schema", "tables and views"], rows);
    Ok(page.finish())
}

fn table_section(page: &mut Page, table: &Table, schema: &Arc<Schema>) -> Result<(), String> {
    let there: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let described: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    if there != described {
        return Err(format!(
            "the columns of sys.{} are {there:?}, and described are {described:?}",
            table.name
        ));
    }
    page.heading(3, &format!("sys.{}", table.name));
    page.paragraph(&format!("It has {}.", table.rows));
    let mut rows = Vec::new();
    for (field, (name, meaning)) in schema.fields().iter().zip(table.columns) {
        rows.push([code(name), sql_name(field.data_type())?.to_string(), meaning.to_string()]);
    }
    page.table(["column", "type", "meaning"], rows);
    Ok(())
}

/// SQL names of the types in these tables.
fn sql_name(kind: &DataType) -> Result<&'static str, String> {
    Ok(match kind {
        DataType::Boolean => "boolean",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float64 => "double precision",
        DataType::Utf8 | DataType::Utf8View => "text",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        other => return Err(format!("type {other} has no name here")),
    })
}
