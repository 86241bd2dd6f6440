//! Runs statements and shows their results.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use futures::StreamExt;
use harrier_engine::{CopyIn, Outcome, ParsedStatement, Session, SqlError, SqlState};
use harrier_session_api::statement::Completion;
use harrier_sql::splitter::{Splitter, StatementText};

use crate::bar::Bar;
use crate::copy_input::CopyInput;
use crate::interrupt::{self, Interrupts, Watch};
use crate::output::{Format, Layout, OutputError, row_writer};
use crate::sink::{Pager, Sink};
use crate::variables::Variables;

/// Reason for ending a script or a shell before its input does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A statement failed, and its error has been shown.
    Failed,
    /// The reader of the rows is gone, for example `head`.
    Closed,
    /// `\q`.
    Quit,
}

/// Whether rows are shown with one line per column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expanded {
    Off,
    On,
    /// If the rows are wider than the terminal.
    Auto,
}

/// Display options, changed by `\x`, `\timing`, `\format`, `\pset` and `\o`.
pub(crate) struct Display {
    pub(crate) format: Format,
    pub(crate) expanded: Expanded,
    pub(crate) is_timed: bool,
    /// Whether to confirm changes such as those of `\x`, and report what was skipped.
    pub(crate) is_chatty: bool,
    /// Whether to omit tags such as CREATE VIEW.
    pub(crate) is_quiet: bool,
    pub(crate) null: String,
    /// Target of `\o`; `None` is standard output.
    pub(crate) sink: Option<Sink>,
    /// Pager command; set in the interactive shell only.
    pub(crate) pager: Option<String>,
    /// The result being shown, if a pager may be needed.
    page: Option<Pager>,
}

impl Display {
    pub(crate) fn new(format: Format, is_quiet: bool) -> Self {
        Self {
            format,
            expanded: Expanded::Off,
            is_timed: false,
            is_chatty: io::stderr().is_terminal() && !is_quiet,
            is_quiet,
            null: "NULL".to_string(),
            sink: None,
            pager: None,
            page: None,
        }
    }

    /// Rows and columns of the terminal, if rows go to one.
    fn screen(&self) -> Option<(usize, usize)> {
        match self.sink {
            Some(_) => None,
            None => harrier_mpi::terminal::size(io::stdout().as_raw_fd()),
        }
    }

    fn layout(&self) -> Layout {
        let format = match self.format {
            Format::Table if self.expanded == Expanded::On => Format::Vertical,
            format => format,
        };
        let columns = self.screen().map(|(_, columns)| columns);
        Layout { format, columns, folds: self.expanded == Expanded::Auto }
    }

    /// Starts a page; call it before the first row of a result.
    fn begin_page(&mut self) {
        if let (Some(command), Some(screen), Format::Table | Format::Vertical) =
            (&self.pager, self.screen(), self.format)
        {
            self.page = Some(Pager::new(command.clone(), screen));
        }
    }

    /// Ends the page; call it after the last row, also after an error.
    fn end_page(&mut self) -> io::Result<()> {
        self.page.take().map_or(Ok(()), Pager::close)
    }

    fn has_pager(&self) -> bool {
        self.page.as_ref().is_some_and(Pager::is_started)
    }

    fn is_page_closed(&self) -> bool {
        self.page.as_ref().is_some_and(Pager::is_closed)
    }
}

pub(crate) struct Runner {
    pub(crate) session: Session,
    pub(crate) display: Display,
    pub(crate) interrupts: Interrupts,
    pub(crate) variables: Variables,
    /// Warehouse and user, as shown by `\conninfo`.
    pub(crate) place: String,
    /// The last statement that ran, for `\g` and others.
    pub(crate) last: Option<StatementText>,
    /// With which token `\restrict` has refused other commands.
    pub(crate) restricted: Option<String>,
    /// How many scripts include one another.
    pub(crate) include_depth: usize,
    /// The COPY that takes the following lines as rows.
    pub(crate) copying: Option<CopyInput>,
    /// Whether a COPY reads its rows from standard input instead of the lines after it.
    pub(crate) copies_stdin: bool,
    /// Duration of the failed statement whose error is shown next, for `\timing`.
    failed_after: Option<Duration>,
}

/// Error of a statement or a meta command.
pub(crate) enum RunError {
    Sql(SqlError),
    Closed,
}

impl From<SqlError> for RunError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<OutputError> for RunError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Io(error) => error.into(),
            OutputError::Value(error) => {
                Self::Sql(harrier_engine::sql_error(datafusion::error::DataFusionError::from(error)))
            }
        }
    }
}

/// Converts errors of writing rows; reading has its own errors.
impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        let cause = harrier_engine::sql_error(datafusion::error::DataFusionError::IoError(error));
        Self::Sql(SqlError::new(cause.sqlstate, format!("could not write the rows: {}", cause.message)))
    }
}

impl Runner {
    pub(crate) fn new(session: Session, display: Display, interrupts: Interrupts) -> Self {
        Self {
            session,
            display,
            interrupts,
            variables: Variables::default(),
            place: String::new(),
            last: None,
            restricted: None,
            include_depth: 0,
            copying: None,
            copies_stdin: false,
            failed_after: None,
        }
    }

    /// Ends the rows of a COPY, waits for its completion and shows the result.
    pub(crate) async fn end_copy(&mut self, place: Option<(&str, usize)>) -> Result<(), Stop> {
        let Some(copying) = self.copying.take() else {
            return Ok(());
        };
        let (text, started) = (copying.text.clone(), copying.started);
        let result = tokio::select! {
            biased;
            () = self.interrupts.wait() => Err(SqlError::canceled_by_user()),
            written = copying.finish() => written,
        };
        let result = match self.session.settle().await {
            Err(error) if result.is_ok() => Err(error),
            _ => result,
        };
        match result.map_err(RunError::from).and_then(|written| self.display.print_written(&written)) {
            Ok(()) => {
                self.display.print_time(started);
                Ok(())
            }
            Err(RunError::Closed) => Err(Stop::Closed),
            Err(RunError::Sql(error)) => {
                self.failed_after = Some(started.elapsed());
                self.fail(&error, Some(&text), place)
            }
        }
    }

    /// Whether the following lines are rows of a COPY.
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Cancels the COPY that takes rows.
    pub(crate) async fn cancel_copy(&mut self) {
        if self.copying.take().is_some() {
            let _ = self.session.settle().await;
            self.display.note(&SqlError::canceled_by_user().report(None));
        }
    }

    /// Interpolates variables, runs the statement and shows its rows or its error.
    pub(crate) async fn run_statement(
        &mut self,
        statement: StatementText,
        file: Option<&str>,
    ) -> Result<(), Stop> {
        self.last = Some(statement.clone());
        let text = self.variables.interpolate(&statement.text).into_owned();
        let statement = StatementText { text: text.clone(), ..statement };
        let line = statement.line;
        match self.run(statement).await {
            Ok(()) => Ok(()),
            Err(RunError::Closed) => Err(Stop::Closed),
            Err(RunError::Sql(error)) => self.fail(&error, Some(&text), file.map(|file| (file, line))),
        }
    }

    /// Runs a statement and shows its rows, until it is done or Ctrl-C is pressed.
    pub(crate) async fn run(&mut self, statement: StatementText) -> Result<(), RunError> {
        self.run_as(statement, Session::parse).await
    }

    /// Runs a statement that is parsed by `parse`.
    pub(crate) async fn run_as(&mut self, statement: StatementText, parse: Parse) -> Result<(), RunError> {
        let started = Instant::now();
        let text = statement.text.clone();
        let Self { session, display, interrupts, copies_stdin, .. } = self;
        let from_stdin = *copies_stdin;
        let time_max = session.time_limits().statement;
        let watch = Watch::begin(time_max);
        let result = tokio::select! {
            biased;
            () = interrupts.wait() => Err(SqlError::canceled_by_user().into()),
            () = interrupt::timeout(time_max) => Err(SqlError::timed_out().into()),
            result = watch.canceled.scope(async {
                let statement = parse(session, statement)?;
                let shown = show(session, display, statement).await;
                let ended = display.end_page();
                let Some(copy) = shown? else {
                    ended?;
                    return Ok(None);
                };
                let mut copying = CopyInput::begin(copy, text, started);
                if !from_stdin {
                    return Ok(Some(copying));
                }
                copying.feed_stdin().await.map_err(|error| cannot_read("standard input", error))?;
                display.print_written(&copying.finish().await?)?;
                Ok(None)
            }) => result,
        };
        if watch.canceled.is_set() {
            // Discards the Ctrl-C that canceled the statement.
            interrupts.discard();
        }
        let result: Result<(), RunError> = match result {
            Ok(Some(mut copying)) => {
                copying.watch = Some(watch);
                self.copying = Some(copying);
                return Ok(());
            }
            Ok(None) => Ok(()),
            Err(trouble) => Err(trouble),
        };
        drop(watch);
        let Self { session, display, failed_after, .. } = self;
        // Ends a page that was interrupted.
        let _ = display.end_page();
        // The statement's own error takes precedence.
        let result = match session.settle().await {
            Err(error) if result.is_ok() => Err(error.into()),
            _ => result,
        };
        match &result {
            Ok(()) => display.print_time(started),
            // Printed after the error.
            Err(RunError::Sql(_)) => *failed_after = Some(started.elapsed()),
            Err(RunError::Closed) => {}
        }
        result
    }

    /// Shows an error.
    pub(crate) fn fail(
        &mut self,
        error: &SqlError,
        text: Option<&str>,
        place: Option<(&str, usize)>,
    ) -> Result<(), Stop> {
        let mut report = error.report(text);
        if let Some((file, line)) = place {
            report.push_str(&format!("\nCONTEXT: file \"{file}\", line {line}"));
        }
        if interrupt::should_report(error) {
            self.display.note(&report);
        }
        if let Some(elapsed) = self.failed_after.take().filter(|_| self.display.is_timed) {
            self.display.note(&format!("Time: {}", duration(elapsed)));
        }
        Err(Stop::Failed)
    }
}

/// Parses a statement in a session.
type Parse = fn(&Session, StatementText) -> Result<ParsedStatement, SqlError>;

/// State of a script being read.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) splitter: Splitter,
    pub(crate) lines_read: usize,
}

impl Display {
    /// Writes a line to standard error, after flushing standard output.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = io::stdout().flush();
        // A closed standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{text}");
    }

    fn print_time(&mut self, started: Instant) {
        if self.is_timed {
            self.note(&format!("Time: {}", duration(started.elapsed())));
        }
    }

    fn print_written(&mut self, written: &Completion) -> Result<(), RunError> {
        for notice in &written.notices {
            self.note(&format!("NOTICE: {notice}"));
        }
        self.tag(&written.tag)
    }

    /// Prints the command tag: among the rows in the formats for people, on standard error in those for
    /// programs.
    fn tag(&mut self, tag: &str) -> Result<(), RunError> {
        match self.format {
            _ if self.is_quiet => {}
            Format::Table | Format::Vertical => self.with_output(|out| Ok(writeln!(out, "{tag}")?))?,
            Format::Csv | Format::Json | Format::Lines => self.note(tag),
        }
        Ok(())
    }

    /// Calls `write` with the current output of rows.
    pub(crate) fn with_output<T>(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        match (&mut self.sink, &mut self.page) {
            (Some(sink), _) => write(sink),
            (None, Some(page)) => write(page),
            (None, None) => {
                let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
                let value = write(&mut out)?;
                out.flush()?;
                Ok(value)
            }
        }
    }
}

/// Runs a statement and shows its rows; returns a COPY FROM STDIN that waits for its rows.
async fn show(
    session: &Session,
    display: &mut Display,
    statement: ParsedStatement,
) -> Result<Option<CopyIn>, RunError> {
    let is_bar_wanted = session.settings().progress;
    match session.execute(&statement).await? {
        Outcome::Rows { schema, mut stream, progress, .. } => {
            let mut bar = Bar::new(&progress, is_bar_wanted);
            let schema = statement.rename_columns(&schema);
            let mut writer = row_writer(display.layout(), &schema, &display.null);
            let mut rows = 0;
            display.begin_page();
            while !display.is_page_closed() {
                // A pager owns the terminal.
                let next = match display.has_pager() {
                    true => stream.next().await,
                    false => bar.during(stream.next()).await,
                };
                let Some(batch) = next else { break };
                let batch = batch.map_err(|error| harrier_engine::in_statement(&error, &statement.text))?;
                rows += batch.num_rows();
                display.with_output(|out| Ok(writer.batch(out, &batch)?))?;
                // A stream that is always ready would starve Ctrl-C.
                tokio::task::yield_now().await;
            }
            drop(bar);
            display.with_output(|out| Ok(writer.end(out)?))?;
            display.end_page()?;
            if let Some(tag) = statement.returning_tag(rows) {
                display.tag(&tag)?;
            }
            if rows == 0 && statement.is_check_table() && !display.is_quiet {
                display.note("NOTICE: nothing is wrong with the table");
            }
            if let Some(sink) = &mut display.sink {
                sink.flush()?;
            }
        }
        Outcome::Write(write) => {
            let mut bar = Bar::new(&write.progress, is_bar_wanted);
            let written = bar.during(write.finish()).await?;
            drop(bar);
            display.print_written(&written)?;
        }
        Outcome::CopyIn(copy) => return Ok(Some(copy)),
        Outcome::CopyOut(mut copy) => {
            while let Some(text) = copy.next().await? {
                display.with_output(|out| Ok(out.write_all(&text)?))?;
                tokio::task::yield_now().await;
            }
            // psql also prints no tag among the rows.
            if display.is_chatty {
                display.note(&copy.tag());
            }
        }
        Outcome::Command(Completion { tag, warnings, notices }) => {
            for notice in notices.iter().filter(|_| display.is_chatty) {
                eprintln!("NOTICE: {notice}");
            }
            for warning in warnings {
                eprintln!("WARNING: {warning}");
            }
            display.tag(&tag)?;
        }
        _ => {}
    }
    Ok(None)
}

pub(crate) fn cannot_read(name: &str, error: io::Error) -> SqlError {
    let cause = harrier_engine::sql_error(datafusion::error::DataFusionError::IoError(error));
    match cause.sqlstate {
        SqlState::UNDEFINED_FILE => SqlError::new(cause.sqlstate, format!("file \"{name}\" does not exist")),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            SqlError::new(cause.sqlstate, format!("permission denied for file \"{name}\""))
        }
        state => SqlError::new(state, format!("could not read file \"{name}\": {}", cause.message)),
    }
}

/// psql's format: `12.345 ms`, and minutes for longer times.
fn duration(elapsed: Duration) -> String {
    let milliseconds = elapsed.as_secs_f64() * 1000.0;
    let seconds = elapsed.as_secs();
    match seconds {
        0 => format!("{milliseconds:.3} ms"),
        1..3600 => {
            format!("{milliseconds:.3} ms ({:02}:{:06.3})", seconds / 60, elapsed.as_secs_f64() % 60.0)
        }
        _ => format!(
            "{milliseconds:.3} ms ({:02}:{:02}:{:06.3})",
            seconds / 3600,
            seconds / 60 % 60,
            elapsed.as_secs_f64() % 60.0
        ),
    }
}
