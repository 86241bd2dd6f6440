//! Commands that begin with a backslash: for the shell, and for scripts as in psql.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use datafusion::error::DataFusionError;
use harrier_engine::split::StatementText;
use harrier_engine::{Session, SqlError, SqlState};

use crate::output::Format;
use crate::runner::{Runner, Stop, Trouble};

/// Name, argument and purpose of each, in the order of `\?`.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\q", "", "leave"),
    ("\\?", "", "this list"),
    ("\\h", "[STATEMENT]", "syntax of SQL statements"),
    ("\\d", "[NAME]", "list tables and views, or the columns of one, or of a 'file'"),
    ("\\dt", "", "list tables"),
    ("\\dv", "", "list views"),
    ("\\dn", "", "list schemas"),
    ("\\df", "[PATTERN]", "list functions; * in the pattern stands for any text"),
    ("\\i", "FILE", "run the statements of a file"),
    ("\\o", "[FILE]", "send rows to a file, or back to standard output"),
    ("\\x", "[on|off]", "one line per column"),
    ("\\timing", "[on|off]", "show how long each statement took"),
    ("\\format", "[table|csv|json|vertical]", "how rows are written"),
    ("\\null", "[TEXT]", "what stands for NULL in the formats table and vertical"),
    ("\\echo", "[TEXT]", "write a line"),
];

const SYNTAX: &[(&str, &str)] = &[
    (
        "SELECT",
        "[WITH name AS (query), …] SELECT expression, … [FROM table | 'file' | function(…)] [JOIN …]\n  [WHERE condition] [GROUP BY expression, …] [HAVING condition] [WINDOW …]\n  [UNION | INTERSECT | EXCEPT [ALL] query] [ORDER BY expression [ASC | DESC], …] [LIMIT n] [OFFSET n]",
    ),
    ("VALUES", "VALUES (expression, …), …"),
    (
        "CREATE EXTERNAL TABLE",
        "CREATE [OR REPLACE] EXTERNAL TABLE [IF NOT EXISTS] name [(column type, …)]\n  STORED AS PARQUET | ORC | CSV | JSON | AVRO | ARROW | TEXTFILE [PARTITIONED BY (column, …)] [WITH ORDER (column, …)]\n  [ROW FORMAT DELIMITED [FIELDS TERMINATED BY 'c'] [ESCAPED BY 'c'] [NULL DEFINED AS 'text']]\n  [OPTIONS (key value, …)] LOCATION 'file, folder or pattern'",
    ),
    (
        "CREATE TABLE",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (column type, …)\n  [PARTITION BY (column | year(column) | bucket(n, column), …)\n   | PARTITION BY RANGE (column) ([PARTITION name] START (value) END (value) [EVERY (step)], …, [DEFAULT PARTITION name])\n   | PARTITION BY LIST (column) ([PARTITION name] VALUES (value, …), …, [DEFAULT PARTITION name])]\n  [DISTRIBUTED BY (column)] [ORDER BY (column, …)] [WITH (option = value, …)] | AS query",
    ),
    ("CREATE VIEW", "CREATE [OR REPLACE] VIEW name AS query"),
    ("CREATE SCHEMA", "CREATE SCHEMA [IF NOT EXISTS] name"),
    ("DROP TABLE", "DROP TABLE [IF EXISTS] name"),
    ("DROP VIEW", "DROP VIEW [IF EXISTS] name"),
    ("DROP SCHEMA", "DROP SCHEMA [IF EXISTS] name [CASCADE]"),
    ("INSERT", "INSERT INTO table [(column, …)] query | VALUES (…), …"),
    (
        "COPY",
        "COPY table [(column, …)] FROM 'file' | STDIN [WITH (FORMAT format, option value, …)]\nCOPY table [(column, …)] | (query) TO 'file' | STDOUT [WITH (FORMAT format, option value, …)]\nCOPY table | (query) TO 'file or folder' [STORED AS format] [PARTITIONED BY (column, …)] [OPTIONS (key value, …)]\n  formats: TEXT, CSV, JSON, PARQUET, ORC, AVRO, ARROW; options: HEADER, DELIMITER, NULL, QUOTE, ESCAPE,\n  COMPRESSION, ON_ERROR, REJECT_LIMIT",
    ),
    ("EXPLAIN", "EXPLAIN [ANALYZE] [VERBOSE] [FORMAT INDENT | TREE | PGJSON | GRAPHVIZ] statement"),
    ("DESCRIBE", "DESCRIBE table | 'file'"),
    ("SET", "SET parameter = value"),
    ("SHOW", "SHOW parameter | ALL | TABLES | COLUMNS FROM table | FUNCTIONS [LIKE pattern]"),
    ("RESET", "RESET parameter | ALL"),
    ("PREPARE", "PREPARE name [(type, …)] AS statement"),
    ("EXECUTE", "EXECUTE name [(value, …)]"),
    ("DEALLOCATE", "DEALLOCATE name"),
];

/// Why a command did not go well.
pub(crate) enum Ended {
    Stop(Stop),
    Trouble(Trouble),
}

impl<T: Into<Trouble>> From<T> for Ended {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

/// Runs one command, which begins with a backslash.
pub(crate) async fn run(runner: &mut Runner, line: &str) -> Result<(), Ended> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim().trim_end_matches(';').trim_end();
    match name.trim_end_matches(';') {
        "\\q" | "\\quit" => return Err(Ended::Stop(Stop::Quit)),
        "\\?" => help(runner)?,
        "\\h" | "\\help" => syntax(runner, argument)?,
        "\\d" if !argument.is_empty() => query(runner, &format!("DESCRIBE {argument}")).await?,
        "\\d" => tables(runner, "").await?,
        "\\dt" => tables(runner, "AND table_type = 'BASE TABLE'").await?,
        "\\dv" => tables(runner, "AND table_type = 'VIEW'").await?,
        "\\dn" => {
            query(
                runner,
                "SELECT catalog_name AS \"Catalog\", schema_name AS \"Schema\" \
                 FROM information_schema.schemata ORDER BY 1, 2",
            )
            .await?;
        }
        "\\df" => functions(runner, argument).await?,
        "\\i" | "\\include" => {
            let path = unquoted(argument);
            if path.is_empty() {
                return Err(needs_argument(name).into());
            }
            runner.file(Path::new(path)).await.map_err(Ended::Stop)?;
        }
        "\\o" | "\\out" => output(runner, unquoted(argument))?,
        "\\x" => {
            let value = switch(name, argument, runner.display.is_expanded)?;
            runner.display.is_expanded = value;
            say(runner, &format!("Expanded display is {}.", on_off(value)));
        }
        "\\timing" => {
            let value = switch(name, argument, runner.display.is_timed)?;
            runner.display.is_timed = value;
            say(runner, &format!("Timing is {}.", on_off(value)));
        }
        "\\format" => {
            if !argument.is_empty() {
                runner.display.format = argument.parse::<Format>().map_err(|_| {
                    invalid(format!("unknown format \"{argument}\""))
                        .with_hint("available formats: table, csv, json, vertical")
                })?;
            }
            let text = format!("Output format is {}.", runner.display.format.name());
            say(runner, &text);
        }
        "\\null" => {
            runner.display.null = unquoted(argument).to_string();
            let text = format!("Null display is \"{}\".", runner.display.null);
            say(runner, &text);
        }
        "\\echo" => {
            let text = unquoted(argument);
            runner.display.with_output(|out| Ok(writeln!(out, "{text}")?))?;
        }
        other => {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("invalid command {other}"))
                .with_hint("\\? lists the commands")
                .into());
        }
    }
    Ok(())
}

/// Confirms a change where somebody is looking.
fn say(runner: &mut Runner, text: &str) {
    if runner.display.is_chatty {
        runner.display.note(text);
    }
}

/// What the planner's `information_schema` tells, which lists `sys` and functions.
async fn query(runner: &mut Runner, sql: &str) -> Result<(), Trouble> {
    let text = sql.to_string();
    runner.run_as(StatementText { text, line: 1 }, Session::parse_for_planner).await
}

async fn tables(runner: &mut Runner, condition: &str) -> Result<(), Trouble> {
    let sql = format!(
        "SELECT table_schema AS \"Schema\", table_name AS \"Name\", \
         CASE table_type WHEN 'BASE TABLE' THEN 'table' ELSE lower(table_type) END AS \"Type\" \
         FROM information_schema.tables \
         WHERE table_schema <> 'information_schema' {condition} ORDER BY 1, 2"
    );
    query(runner, &sql).await
}

async fn functions(runner: &mut Runner, pattern: &str) -> Result<(), Trouble> {
    let pattern = unquoted(pattern).replace('\'', "''").replace('_', "\\_").replace('*', "%");
    let condition = match pattern.is_empty() {
        true => String::new(),
        false => format!("WHERE routine_name LIKE '{pattern}'"),
    };
    let sql = format!(
        "SELECT DISTINCT routine_name AS \"Name\", lower(function_type) AS \"Type\", \
         syntax_example AS \"Syntax\" FROM information_schema.routines {condition} ORDER BY 1, 2, 3"
    );
    query(runner, &sql).await
}

fn help(runner: &mut Runner) -> Result<(), Trouble> {
    runner.display.with_output(|out| {
        for (name, argument, purpose) in COMMANDS {
            let usage = format!("{name} {argument}");
            writeln!(out, "  {usage:<36} {purpose}")?;
        }
        writeln!(out, "Statements end with a semicolon. Ctrl-C cancels one, Ctrl-D leaves.")?;
        Ok(())
    })
}

fn syntax(runner: &mut Runner, topic: &str) -> Result<(), Trouble> {
    let topic = topic.to_uppercase();
    let found: Vec<_> = SYNTAX.iter().filter(|(name, _)| name.starts_with(&topic)).collect();
    if found.is_empty() {
        return Err(invalid(format!("no help for \"{topic}\""))
            .with_hint("\\h alone lists the statements")
            .into());
    }
    runner.display.with_output(|out| {
        for (name, text) in found {
            if topic.is_empty() {
                writeln!(out, "  {name}")?;
            } else {
                writeln!(out, "{text}")?;
            }
        }
        Ok(())
    })
}

fn output(runner: &mut Runner, path: &str) -> Result<(), Trouble> {
    if let Some(mut file) = runner.display.file.take() {
        std::io::Write::flush(&mut file)?;
    }
    if path.is_empty() {
        return Ok(());
    }
    let file = File::create(path).map_err(|error| {
        let cause = SqlError::from(DataFusionError::IoError(error));
        SqlError::new(cause.sqlstate, format!("could not create file \"{path}\": {}", cause.message))
    })?;
    runner.display.file = Some(BufWriter::new(file));
    Ok(())
}

/// The value a switch gets: what is asked for, or else the other one.
fn switch(name: &str, argument: &str, value: bool) -> Result<bool, SqlError> {
    match argument.to_lowercase().as_str() {
        "" => Ok(!value),
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(invalid(format!("{name} takes on or off, not \"{argument}\""))),
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn needs_argument(name: &str) -> SqlError {
    invalid(format!("{name} needs an argument"))
}

fn unquoted(text: &str) -> &str {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}
