//! Backslash commands of the shell and of scripts, as in psql.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use datafusion::error::DataFusionError;
use harrier_engine::{Session, SqlError, SqlState};
use harrier_sql::splitter::StatementText;

use crate::arguments;
use crate::output::Format;
use crate::runner::{Expanded, RunError, Runner, Script, Stop};
use crate::sink::Sink;
use crate::statements::{STATEMENTS, Statement};

/// Name, argument and purpose of each, in the order of `\?`.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\q", "", "leave; so do quit and exit"),
    ("\\?", "", "this list"),
    ("\\h", "[STATEMENT]", "syntax of SQL statements"),
    ("\\d", "[NAME]", "list tables and views, or the columns of one, or of a 'file'"),
    ("\\dt", "", "list tables"),
    ("\\dv", "", "list views"),
    ("\\dn", "", "list schemas"),
    ("\\df", "[PATTERN]", "list functions; * in the pattern stands for any text"),
    ("\\du", "", "list roles"),
    ("\\l", "", "list databases"),
    ("\\conninfo", "", "tell which warehouse this is, who works in it, and on how many ranks"),
    (
        "\\g",
        "[FILE or |COMMAND]",
        "run the statement, or the last one again, with its rows into a file or a command",
    ),
    ("\\gx", "[FILE or |COMMAND]", "the same with one line per column"),
    ("\\watch", "[SECONDS] [c=TIMES]", "run the statement again and again, until Ctrl-C"),
    ("\\e", "[FILE]", "edit the statement, or the last one, or a file, with $EDITOR, and run it"),
    ("\\p", "", "show the statement as it is so far"),
    ("\\r", "", "forget the statement"),
    ("\\i", "FILE", "run the statements of a file"),
    ("\\o", "[FILE or |COMMAND]", "send rows to a file or a command, or back to standard output"),
    ("\\copy", "TABLE from FILE, … to FILE", "COPY, whose file needs no quotes"),
    ("\\x", "[on|off|auto]", "one line per column; auto: where rows are wider than the terminal"),
    ("\\timing", "[on|off]", "show how long each statement took"),
    ("\\format", "[table|csv|json|vertical]", "how rows are written"),
    ("\\null", "[TEXT]", "what stands for NULL in the formats table and vertical"),
    ("\\pset", "pager [on|off]", "whether $PAGER shows what is longer than the screen"),
    ("\\set", "[NAME [VALUE]]", "give a variable its value, for :NAME, :'NAME' and :\"NAME\", or list them"),
    ("\\unset", "NAME", "forget a variable"),
    ("\\echo", "[TEXT]", "write a line"),
    ("\\restrict", "TOKEN", "refuse all commands but \\unrestrict with this token, as dumps do"),
    ("\\unrestrict", "TOKEN", "permit commands again"),
];

/// Reason why a command stopped or failed.
pub(crate) enum MetaError {
    Stop(Stop),
    Failed(RunError),
}

impl<T: Into<RunError>> From<T> for MetaError {
    fn from(trouble: T) -> Self {
        Self::Failed(trouble.into())
    }
}

/// What the script does after a command.
pub(crate) enum Then {
    NextLine,
    /// It runs the statements of this file.
    RunFile(PathBuf),
    /// It runs this text as its next lines.
    RunLines(String),
}

/// Runs one backslash command; `script` holds the statement before it, if any.
pub(crate) async fn run(
    runner: &mut Runner,
    script: &mut Script,
    line: &str,
    file: Option<&str>,
) -> Result<Then, MetaError> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim().trim_end_matches(';').trim_end();
    let argument = &*runner.variables.interpolate(argument).into_owned();
    let words = |runner: &Runner| {
        let text = line.split_once(char::is_whitespace).map_or("", |(_, text)| text);
        arguments::words(text, &runner.variables).map_err(invalid)
    };
    let name = name.trim_end_matches(';');
    if runner.restricted.is_some() && name != "\\unrestrict" {
        return Err(
            invalid("backslash commands are restricted; only \\unrestrict is allowed".to_string()).into()
        );
    }
    match name {
        "\\q" | "\\quit" => return Err(MetaError::Stop(Stop::Quit)),
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
        "\\l" | "\\list" => catalog_query(runner, DATABASES).await?,
        "\\du" | "\\dg" => catalog_query(runner, ROLES).await?,
        "\\conninfo" => {
            let text = runner.place.clone();
            runner.display.with_output(|out| Ok(writeln!(out, "{text}")?))?;
        }
        "\\g" => go(runner, script, argument, runner.display.expanded, file).await?,
        "\\gx" => go(runner, script, argument, Expanded::On, file).await?,
        "\\watch" => watch(runner, script, &words(runner)?, file).await?,
        "\\e" | "\\edit" => return Ok(Then::RunLines(edit(runner, script, unquote(argument))?)),
        "\\p" | "\\print" => {
            let text = match script.splitter.incomplete_text() {
                "" => runner.last.as_ref().map(|last| last.text.clone()).unwrap_or_default(),
                text => text.to_string(),
            };
            runner.display.with_output(|out| Ok(writeln!(out, "{text}")?))?;
        }
        "\\r" | "\\reset" => {
            script.splitter.clear();
            confirm(runner, "The statement is forgotten.");
        }
        "\\i" | "\\include" => {
            let path = unquote(argument);
            if path.is_empty() {
                return Err(needs_argument(name).into());
            }
            return Ok(Then::RunFile(PathBuf::from(path)));
        }
        "\\o" | "\\out" => output(runner, unquote(argument))?,
        "\\copy" => {
            let text = arguments::copy(argument)
                .map_err(|message| SqlError::new(SqlState::SYNTAX_ERROR, message))?;
            runner.run_statement(StatementText { text, line: 1 }, file).await.map_err(MetaError::Stop)?;
        }
        "\\x" => {
            let value = match argument.to_lowercase().as_str() {
                "auto" => Expanded::Auto,
                _ => match switch(name, argument, runner.display.expanded != Expanded::Off)? {
                    true => Expanded::On,
                    false => Expanded::Off,
                },
            };
            runner.display.expanded = value;
            let state = match value {
                Expanded::Auto => "used automatically",
                value => on_off(value == Expanded::On),
            };
            confirm(runner, &format!("Expanded display is {state}."));
        }
        "\\timing" => {
            let value = switch(name, argument, runner.display.is_timed)?;
            runner.display.is_timed = value;
            confirm(runner, &format!("Timing is {}.", on_off(value)));
        }
        "\\format" => {
            if !argument.is_empty() {
                runner.display.format = argument.parse::<Format>().map_err(|_| {
                    invalid(format!("unknown format \"{argument}\""))
                        .with_hint("available formats: table, csv, json, vertical")
                })?;
            }
            let text = format!("Output format is {}.", runner.display.format.name());
            confirm(runner, &text);
        }
        "\\null" => {
            runner.display.null = unquote(argument).to_string();
            let text = format!("Null display is \"{}\".", runner.display.null);
            confirm(runner, &text);
        }
        "\\pset" => {
            let value = match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
                ("pager", value) => switch(name, value.trim(), runner.display.pager.is_some())?,
                (option, _) => return Err(invalid(format!("\\pset has no option \"{option}\"")).into()),
            };
            runner.display.pager =
                if value { Some(pager().unwrap_or_else(|| "more".to_string())) } else { None };
            confirm(runner, &format!("Pager usage is {}.", on_off(value)));
        }
        "\\set" => match words(runner)?.split_first() {
            None => {
                let lines: String =
                    runner.variables.iter().map(|(name, value)| format!("{name} = '{value}'\n")).collect();
                runner.display.with_output(|out| Ok(out.write_all(lines.as_bytes())?))?;
            }
            Some((name, values)) => runner.variables.set(name, values.concat()).map_err(invalid)?,
        },
        "\\unset" => match &words(runner)?[..] {
            [name] => runner.variables.unset(name),
            _ => return Err(needs_argument(name).into()),
        },
        "\\echo" => {
            let text = words(runner)?.join(" ");
            runner.display.with_output(|out| Ok(writeln!(out, "{text}")?))?;
        }
        "\\restrict" => match words(runner)?.into_iter().next() {
            Some(token) => runner.restricted = Some(token),
            None => return Err(needs_argument(name).into()),
        },
        "\\unrestrict" => match (words(runner)?.into_iter().next(), &runner.restricted) {
            (None, _) => return Err(needs_argument(name).into()),
            (Some(_), None) => {
                return Err(invalid("\\unrestrict: commands are not restricted".to_string()).into());
            }
            (Some(token), Some(restricted)) if token == *restricted => runner.restricted = None,
            (Some(_), Some(_)) => return Err(invalid("\\unrestrict: wrong token".to_string()).into()),
        },
        other => {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("invalid command {other}"))
                .with_hint("\\? lists the commands")
                .into());
        }
    }
    Ok(Then::NextLine)
}

/// The unfinished statement before the command, otherwise the last one that ran.
///
/// Errors: there is none.
fn previous_statement(runner: &Runner, script: &mut Script) -> Result<StatementText, SqlError> {
    let last = || runner.last.clone();
    script.splitter.finish().or_else(last).ok_or_else(|| invalid("there is no statement to run".to_string()))
}

/// Runs a statement and sends its rows to a file or a command.
async fn go(
    runner: &mut Runner,
    script: &mut Script,
    target: &str,
    expanded: Expanded,
    file: Option<&str>,
) -> Result<(), MetaError> {
    let statement = previous_statement(runner, script)?;
    let expanded = std::mem::replace(&mut runner.display.expanded, expanded);
    let sink = match unquote(target) {
        "" => None,
        target => Some(runner.display.sink.replace(open_sink(target)?)),
    };
    let result = runner.run_statement(statement, file).await;
    runner.display.expanded = expanded;
    if let Some(earlier) = sink
        && let Some(used) = std::mem::replace(&mut runner.display.sink, earlier)
    {
        used.close()?;
    }
    result.map_err(MetaError::Stop)
}

/// Runs a statement periodically; the formats for people print the time above it.
async fn watch(
    runner: &mut Runner,
    script: &mut Script,
    words: &[String],
    file: Option<&str>,
) -> Result<(), MetaError> {
    let (mut seconds, mut times) = (2.0_f64, usize::MAX);
    for word in words {
        let unfit = || invalid(format!("\\watch takes seconds, and c= and a number, not \"{word}\""));
        match word.strip_prefix("c=") {
            Some(count) => times = count.parse().map_err(|_| unfit())?,
            None => {
                seconds = word.strip_prefix("i=").unwrap_or(word).parse().map_err(|_| unfit())?;
                if !(0.0..1e9).contains(&seconds) {
                    return Err(unfit().into());
                }
            }
        }
    }
    let statement = previous_statement(runner, script)?;
    for time in 1..=times {
        if matches!(runner.display.format, Format::Table | Format::Vertical) {
            // psql's format: `%c` in the C locale.
            let now = chrono::Local::now().format("%a %b %e %H:%M:%S %Y");
            runner.display.with_output(|out| Ok(writeln!(out, "{now} (every {seconds}s)\n")?))?;
        }
        runner.run_statement(statement.clone(), file).await.map_err(MetaError::Stop)?;
        if time == times {
            break;
        }
        tokio::select! {
            biased;
            () = runner.interrupts.wait() => break,
            () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
        }
    }
    Ok(())
}

/// Opens a statement or a file in the editor. Returns the text, whose complete statements are run; the rest
/// becomes the current statement.
fn edit(runner: &mut Runner, script: &mut Script, path: &str) -> Result<String, MetaError> {
    let own = path.is_empty().then(|| {
        Scratch::new(
            &previous_statement(runner, script)
                .map_or_else(|_| String::new(), |statement| statement.text + ";\n"),
        )
    });
    let own = own.transpose().map_err(|error| cannot("make a file to edit", error))?;
    let path = own.as_ref().map_or(Path::new(path), |own| &own.0);
    let named = ["PSQL_EDITOR", "EDITOR", "VISUAL"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor = named.into_iter().find(|editor| !editor.is_empty()).unwrap_or_else(|| "vi".to_string());
    let _ = std::io::stdout().flush();
    // The shell splits arguments in the variable.
    let ended = Command::new("sh").arg("-c").arg(format!("{editor} \"$0\"")).arg(path).status();
    runner.interrupts.discard();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(invalid(format!("the editor \"{editor}\" ended with {status}")).into()),
        Err(error) => return Err(cannot("start the editor", error).into()),
    }
    let text = std::fs::read_to_string(path).map_err(|error| cannot("read what was edited", error))?;
    drop(own);
    script.splitter.clear();
    let text = text.trim_end();
    if !text.is_empty() {
        runner.display.with_output(|out| Ok(writeln!(out, "{text}")?))?;
    }
    Ok(format!("{text}\n"))
}

/// Temporary file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("harrier-edit-{:016x}.sql", rand::random::<u64>()));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let scratch = Self(path);
        file.write_all(text.as_bytes())?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The pager command: `$PAGER`, or `less` or `more`; `None` if `$PAGER` is empty.
pub(crate) fn pager() -> Option<String> {
    let named = std::env::var("PAGER").unwrap_or_else(|_| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has_less = std::env::split_paths(&path).any(|folder| folder.join("less").is_file());
        // -X leaves the output on the screen, -S does not fold long lines.
        if has_less { "less -SX" } else { "more" }.to_string()
    });
    Some(named).filter(|command| !command.trim().is_empty())
}

const DATABASES: &str = "SELECT datname AS \"Name\", pg_catalog.pg_get_userbyid(datdba) AS \"Owner\", \
    pg_catalog.pg_encoding_to_char(encoding) AS \"Encoding\", datcollate AS \"Collate\", datctype AS \"Ctype\" \
    FROM pg_catalog.pg_database ORDER BY 1";

const ROLES: &str = "SELECT rolname AS \"Role name\", concat_ws(', ', CASE WHEN rolsuper THEN 'Superuser' END, \
    CASE WHEN rolcreaterole THEN 'Create role' END, CASE WHEN rolcreatedb THEN 'Create DB' END, \
    CASE WHEN NOT rolcanlogin THEN 'Cannot login' END) AS \"Attributes\", \
    ARRAY(SELECT g.rolname FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON m.roleid = g.oid \
    WHERE m.member = r.oid ORDER BY 1) AS \"Member of\" \
    FROM pg_catalog.pg_roles r WHERE rolname NOT LIKE 'pg\\_%' ORDER BY 1";

/// Runs a query on PostgreSQL's catalogs.
async fn catalog_query(runner: &mut Runner, sql: &str) -> Result<(), RunError> {
    runner.run(StatementText { text: sql.to_string(), line: 1 }).await
}

/// Confirms a change in an interactive shell.
fn confirm(runner: &mut Runner, text: &str) {
    if runner.display.is_chatty {
        runner.display.note(text);
    }
}

/// Runs a query on the planner's `information_schema`, which lists `sys` and functions.
async fn query(runner: &mut Runner, sql: &str) -> Result<(), RunError> {
    let text = sql.to_string();
    runner.run_as(StatementText { text, line: 1 }, Session::parse_for_planner).await
}

async fn tables(runner: &mut Runner, condition: &str) -> Result<(), RunError> {
    let sql = format!(
        "SELECT table_schema AS \"Schema\", table_name AS \"Name\", \
         CASE table_type WHEN 'BASE TABLE' THEN 'table' ELSE lower(table_type) END AS \"Type\" \
         FROM information_schema.tables \
         WHERE table_schema <> 'information_schema' {condition} ORDER BY 1, 2"
    );
    query(runner, &sql).await
}

async fn functions(runner: &mut Runner, pattern: &str) -> Result<(), RunError> {
    let pattern = unquote(pattern).replace('\'', "''").replace('_', "\\_").replace('*', "%");
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

fn help(runner: &mut Runner) -> Result<(), RunError> {
    runner.display.with_output(|out| {
        for (name, argument, purpose) in COMMANDS {
            let usage = format!("{name} {argument}");
            writeln!(out, "  {usage:<36} {purpose}")?;
        }
        writeln!(out, "Statements end with a semicolon. Ctrl-C cancels one, Ctrl-D leaves.")?;
        Ok(())
    })
}

fn syntax(runner: &mut Runner, topic: &str) -> Result<(), RunError> {
    let topic = topic.to_uppercase();
    let found: Vec<_> = STATEMENTS.iter().filter(|statement| statement.name.starts_with(&topic)).collect();
    if found.is_empty() {
        return Err(invalid(format!("no help for \"{topic}\""))
            .with_hint("\\h alone lists the statements")
            .into());
    }
    runner.display.with_output(|out| {
        for Statement { name, syntax, .. } in found {
            if topic.is_empty() {
                writeln!(out, "  {name}")?;
            } else {
                writeln!(out, "{syntax}")?;
            }
        }
        Ok(())
    })
}

fn output(runner: &mut Runner, path: &str) -> Result<(), RunError> {
    if let Some(sink) = runner.display.sink.take() {
        sink.close()?;
    }
    if !path.is_empty() {
        runner.display.sink = Some(open_sink(path)?);
    }
    Ok(())
}

fn open_sink(target: &str) -> Result<Sink, SqlError> {
    Sink::open(target).map_err(|error| match target.strip_prefix('|') {
        Some(command) => cannot(&format!("run \"{}\"", command.trim()), error),
        None => cannot(&format!("create file \"{target}\""), error),
    })
}

fn cannot(what: &str, error: std::io::Error) -> SqlError {
    let cause = harrier_engine::sql_error(DataFusionError::IoError(error));
    SqlError::new(cause.sqlstate, format!("could not {what}: {}", cause.message))
}

/// The new value of a switch: the argument, or the opposite of `value` without one.
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

fn unquote(text: &str) -> &str {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}
