//! Runs statements and meta commands in order and shows their results.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt;
use harrier_engine::{CopyIn, Outcome, ParsedStatement, Session, SqlError, SqlState};
use harrier_session_api::statement::Completion;
use harrier_sql::splitter::{Splitter, StatementText};

use crate::bar::Bar;
use crate::copy_input::CopyInput;
use crate::interrupt::{self, Interrupts, Watch};
use crate::meta;
use crate::output::{Format, Layout, OutputError, row_writer};
use crate::sink::{Pager, Sink};
use crate::variables::Variables;

/// Maximum nesting of `\i`; deeper nesting is a cycle.
const INCLUDE_DEPTH_MAX: usize = 16;

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
    include_depth: usize,
    /// The COPY that takes the following lines as rows.
    copying: Option<CopyInput>,
    /// Whether a COPY reads its rows from standard input instead of the lines after it.
    copies_stdin: bool,
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

    /// Runs all statements of `text`, an argument of `-c`.
    pub(crate) async fn run_text(&mut self, text: &str) -> Result<(), Stop> {
        let before = std::mem::replace(&mut self.copies_stdin, true);
        let result = self.text_lines(text).await;
        self.copies_stdin = before;
        result
    }

    async fn text_lines(&mut self, text: &str) -> Result<(), Stop> {
        let mut script = Script::default();
        for line in text.split_inclusive('\n') {
            self.run_line(&mut script, line, None).await?;
        }
        self.run_rest(&mut script, None).await
    }

    /// Runs a file statement by statement as it is read; `-` is standard input.
    pub(crate) async fn run_file(&mut self, path: &Path) -> Result<(), Stop> {
        // Its lines have the rows of a COPY, whatever has included it.
        let before = std::mem::replace(&mut self.copies_stdin, false);
        let result = self.file_lines(path).await;
        self.copies_stdin = before;
        result
    }

    async fn file_lines(&mut self, path: &Path) -> Result<(), Stop> {
        if path == Path::new("-") {
            return self.run_stdin().await;
        }
        let name = path.display().to_string();
        let reader = match File::open(path).and_then(|file| {
            // Opening a directory works, reading it does not.
            match file.metadata()?.is_dir() {
                true => Err(io::ErrorKind::IsADirectory.into()),
                false => Ok(BufReader::new(file)),
            }
        }) {
            Ok(reader) => reader,
            Err(error) => return self.fail(&cannot_read(&name, error), None, None),
        };
        if self.include_depth == INCLUDE_DEPTH_MAX {
            let error = SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("more than {INCLUDE_DEPTH_MAX} files include one another"),
            );
            return self.fail(&error, None, None);
        }
        self.include_depth += 1;
        let result = self.run_lines(reader, &name).await;
        self.include_depth -= 1;
        result
    }

    async fn run_lines(&mut self, mut reader: impl BufRead, name: &str) -> Result<(), Stop> {
        let mut script = Script::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return self.run_rest(&mut script, Some(name)).await,
                Ok(_) => {}
                Err(error) => return self.fail(&cannot_read(name, error), None, None),
            }
            match std::str::from_utf8(&line) {
                Ok(line) => self.run_line(&mut script, line, Some(name)).await?,
                Err(_) => return self.fail(&not_utf8(name), None, None),
            }
        }
    }

    /// Runs statements as they arrive. Another thread reads, so that Ctrl-C is handled meanwhile.
    async fn run_stdin(&mut self) -> Result<(), Stop> {
        let (sender, mut lines) = tokio::sync::mpsc::channel::<io::Result<Vec<u8>>>(64);
        // Blocked reads end with the process.
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut line = Vec::new();
                let read = stdin.read_until(b'\n', &mut line);
                let is_end = !matches!(read, Ok(1..));
                if matches!(read, Ok(0)) || sender.blocking_send(read.map(|_| line)).is_err() {
                    return;
                }
                if is_end {
                    return;
                }
            }
        });
        let mut script = Script::default();
        loop {
            let line = tokio::select! {
                biased;
                () = self.interrupts.interrupted() => {
                    return self.fail(&SqlError::canceled(), None, None);
                }
                line = lines.recv() => line,
            };
            let line = match line {
                None => return self.run_rest(&mut script, None).await,
                Some(Ok(line)) => line,
                Some(Err(error)) => {
                    return self.fail(&cannot_read("standard input", error), None, None);
                }
            };
            match std::str::from_utf8(&line) {
                Ok(line) => self.run_line(&mut script, line, None).await?,
                Err(_) => return self.fail(&not_utf8("standard input"), None, None),
            }
        }
    }

    /// Processes one line of a script or a shell: runs the statements that it completes.
    pub(crate) async fn run_line(
        &mut self,
        script: &mut Script,
        line: &str,
        file: Option<&str>,
    ) -> Result<(), Stop> {
        if script.lines_read == 0 && script.splitter.is_between_statements() {
            // Byte order mark of some editors.
            return self.run_script_line(script, line.trim_start_matches('\u{feff}'), file).await;
        }
        self.run_script_line(script, line, file).await
    }

    async fn run_script_line(
        &mut self,
        script: &mut Script,
        line: &str,
        file: Option<&str>,
    ) -> Result<(), Stop> {
        script.lines_read += 1;
        if let Some(copying) = &mut self.copying {
            // Keeps the line numbers of later statements right.
            script.splitter.push("\n");
            return match copying.push_line(line).await {
                true => self.end_copy(file.map(|file| (file, script.lines_read))).await,
                false => Ok(()),
            };
        }
        let command = script.splitter.first_unquoted(line, b'\\');
        let (text, command) = command.map_or((line, None), |at| (&line[..at], Some(&line[at..])));
        script.splitter.push(text);
        while self.copying.is_none()
            && let Some(statement) = script.splitter.next_statement()
        {
            self.run_statement(statement, file).await?;
        }
        let Some(command) = command else { return Ok(()) };
        // Keeps the line numbers of later statements right.
        script.splitter.push("\n");
        while self.copying.is_none() && script.splitter.next_statement().is_some() {}
        let at = file.map(|file| (file, script.lines_read));
        match Box::pin(meta::run(self, script, command.trim(), file)).await {
            Ok(()) => Ok(()),
            Err(meta::MetaError::Stop(stop)) => Err(stop),
            Err(meta::MetaError::Failed(RunError::Closed)) => Err(Stop::Closed),
            Err(meta::MetaError::Failed(RunError::Sql(error))) => self.fail(&error, None, at),
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
            () = self.interrupts.interrupted() => Err(SqlError::canceled()),
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
            self.display.note(&SqlError::canceled().report(None));
        }
    }

    /// Runs the last statement, which may lack a semicolon.
    pub(crate) async fn run_rest(&mut self, script: &mut Script, file: Option<&str>) -> Result<(), Stop> {
        self.end_copy(None).await?;
        while let Some(statement) = script.splitter.finish() {
            self.run_statement(statement, file).await?;
            self.end_copy(None).await?;
        }
        Ok(())
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
            () = interrupts.interrupted() => Err(SqlError::canceled().into()),
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

    fn fail(
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
    lines_read: usize,
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

fn cannot_read(name: &str, error: io::Error) -> SqlError {
    let cause = harrier_engine::sql_error(datafusion::error::DataFusionError::IoError(error));
    match cause.sqlstate {
        SqlState::UNDEFINED_FILE => SqlError::new(cause.sqlstate, format!("file \"{name}\" does not exist")),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            SqlError::new(cause.sqlstate, format!("permission denied for file \"{name}\""))
        }
        state => SqlError::new(state, format!("could not read file \"{name}\": {}", cause.message)),
    }
}

fn not_utf8(name: &str) -> SqlError {
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, format!("\"{name}\" is not encoded in UTF-8"))
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
