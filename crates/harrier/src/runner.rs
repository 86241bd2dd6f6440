//! Runs statements and meta commands one after the other and shows what comes of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt;
use harrier_engine::{CopyIn, Outcome, ParsedStatement, Session, SqlError, SqlState, Written};
use harrier_sql::splitter::{Splitter, StatementText};

use crate::bar::Bar;
use crate::copying::Copying;
use crate::interrupt::{self, Interrupts, Watch};
use crate::meta;
use crate::output::{Format, Layout, OutputError, row_writer};
use crate::sink::{Pager, Sink};
use crate::variables::Variables;

/// How many files may include one another with `\i`; more is a circle.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Why a script or a shell ends before its input does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A statement failed, and its error has been shown.
    Failed,
    /// Nobody reads the rows any more, as when `head` has seen enough.
    Closed,
    /// `\q`.
    Quit,
}

/// Whether rows are shown with one line per column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expanded {
    Off,
    On,
    /// Where they are wider than the terminal.
    Auto,
}

/// How results are shown; what `\x`, `\timing`, `\format`, `\pset` and `\o` change.
pub(crate) struct Display {
    pub(crate) format: Format,
    pub(crate) expanded: Expanded,
    pub(crate) is_timed: bool,
    /// Whether somebody is told of changes such as those of `\x`, and of what was skipped.
    pub(crate) is_chatty: bool,
    /// Whether tags such as CREATE VIEW are left out.
    pub(crate) is_quiet: bool,
    pub(crate) null: String,
    /// Where `\o` sends rows; standard output without it.
    pub(crate) sink: Option<Sink>,
    /// The command that shows what is longer than the screen; of the shell alone.
    pub(crate) pager: Option<String>,
    /// The result that is being shown, where a pager may have to.
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

    /// Rows and columns of the terminal that rows go to, if they do.
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

    /// To be called before the first row of a result.
    fn begin_page(&mut self) {
        if let (Some(command), Some(screen), Format::Table | Format::Vertical) =
            (&self.pager, self.screen(), self.format)
        {
            self.page = Some(Pager::new(command.clone(), screen));
        }
    }

    /// To be called after the last one, however it ended.
    fn end_page(&mut self) -> io::Result<()> {
        self.page.take().map_or(Ok(()), Pager::close)
    }

    fn has_pager(&self) -> bool {
        self.page.as_ref().is_some_and(Pager::is_started)
    }

    fn is_page_left(&self) -> bool {
        self.page.as_ref().is_some_and(Pager::is_left)
    }
}

pub(crate) struct Runner {
    pub(crate) session: Session,
    pub(crate) display: Display,
    pub(crate) interrupts: Interrupts,
    pub(crate) variables: Variables,
    /// Which warehouse this is, and who works in it, as `\conninfo` tells.
    pub(crate) place: String,
    /// The last statement that ran, for `\g` and its like.
    pub(crate) last: Option<StatementText>,
    include_depth: usize,
    /// The lines that come are rows of this COPY.
    copying: Option<Copying>,
    /// Whether the rows of a COPY come from standard input, and not from the lines after it.
    copies_stdin: bool,
    /// How long the statement took whose error is about to be shown, if that is to be told.
    failed_after: Option<Duration>,
}

/// What a statement or a meta command went wrong with.
pub(crate) enum Trouble {
    Sql(SqlError),
    Closed,
}

impl From<SqlError> for Trouble {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<OutputError> for Trouble {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Io(error) => error.into(),
            OutputError::Value(error) => {
                Self::Sql(harrier_engine::sql_error(datafusion::error::DataFusionError::from(error)))
            }
        }
    }
}

/// Of writing rows; reading has its own errors.
impl From<io::Error> for Trouble {
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
            include_depth: 0,
            copying: None,
            copies_stdin: false,
            failed_after: None,
        }
    }

    /// Runs all of `text`: what `-c` gives.
    pub(crate) async fn text(&mut self, text: &str) -> Result<(), Stop> {
        let mut script = Script::default();
        self.copies_stdin = true;
        for line in text.split_inclusive('\n') {
            self.line(&mut script, line, None).await?;
        }
        self.rest(&mut script, None).await
    }

    /// Runs a file, statement by statement as they are read; `-` is standard input.
    pub(crate) async fn file(&mut self, path: &Path) -> Result<(), Stop> {
        if path == Path::new("-") {
            return self.stdin().await;
        }
        let name = path.display().to_string();
        let reader = match File::open(path).and_then(|file| {
            // Opening a folder works, reading it does not.
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
        let result = self.lines(reader, &name).await;
        self.include_depth -= 1;
        result
    }

    async fn lines(&mut self, mut reader: impl BufRead, name: &str) -> Result<(), Stop> {
        let mut script = Script::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return self.rest(&mut script, Some(name)).await,
                Ok(_) => {}
                Err(error) => return self.fail(&cannot_read(name, error), None, None),
            }
            match std::str::from_utf8(&line) {
                Ok(line) => self.line(&mut script, line, Some(name)).await?,
                Err(_) => return self.fail(&not_utf8(name), None, None),
            }
        }
    }

    /// Runs statements as they come in. Another thread reads, so that Ctrl-C is heard meanwhile.
    async fn stdin(&mut self) -> Result<(), Stop> {
        let (sender, mut lines) = tokio::sync::mpsc::channel::<io::Result<Vec<u8>>>(64);
        // Ends with the process if standard input does not.
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
                None => return self.rest(&mut script, None).await,
                Some(Ok(line)) => line,
                Some(Err(error)) => {
                    return self.fail(&cannot_read("standard input", error), None, None);
                }
            };
            match std::str::from_utf8(&line) {
                Ok(line) => self.line(&mut script, line, None).await?,
                Err(_) => return self.fail(&not_utf8("standard input"), None, None),
            }
        }
    }

    /// One line of a script or a shell: runs what it completes.
    pub(crate) async fn line(
        &mut self,
        script: &mut Script,
        line: &str,
        file: Option<&str>,
    ) -> Result<(), Stop> {
        if script.lines_read == 0 && script.splitter.is_between_statements() {
            // What some editors put at the beginning of a file.
            return self.line_of(script, line.trim_start_matches('\u{feff}'), file).await;
        }
        self.line_of(script, line, file).await
    }

    async fn line_of(&mut self, script: &mut Script, line: &str, file: Option<&str>) -> Result<(), Stop> {
        script.lines_read += 1;
        if let Some(copying) = &mut self.copying {
            // Keeps the line numbers of what follows right.
            script.splitter.push("\n");
            return match copying.line(line).await {
                true => self.end_copy(file.map(|file| (file, script.lines_read))).await,
                false => Ok(()),
            };
        }
        let command = script.splitter.first_outside(line, b'\\');
        let (text, command) = command.map_or((line, None), |at| (&line[..at], Some(&line[at..])));
        script.splitter.push(text);
        while self.copying.is_none()
            && let Some(statement) = script.splitter.next_statement()
        {
            self.statement(statement, file).await?;
        }
        let Some(command) = command else { return Ok(()) };
        // Keeps the line numbers of what follows right.
        script.splitter.push("\n");
        while self.copying.is_none() && script.splitter.next_statement().is_some() {}
        let at = file.map(|file| (file, script.lines_read));
        match Box::pin(meta::run(self, script, command.trim(), file)).await {
            Ok(()) => Ok(()),
            Err(meta::Ended::Stop(stop)) => Err(stop),
            Err(meta::Ended::Trouble(Trouble::Closed)) => Err(Stop::Closed),
            Err(meta::Ended::Trouble(Trouble::Sql(error))) => self.fail(&error, None, at),
        }
    }

    /// The last row of a COPY was there: waits for its end and shows what came of it.
    pub(crate) async fn end_copy(&mut self, place: Option<(&str, usize)>) -> Result<(), Stop> {
        let Some(copying) = self.copying.take() else {
            return Ok(());
        };
        let (text, started) = (copying.text.clone(), copying.started);
        let result = tokio::select! {
            biased;
            () = self.interrupts.interrupted() => Err(SqlError::canceled()),
            written = copying.end() => written,
        };
        let result = match self.session.settle().await {
            Err(error) if result.is_ok() => Err(error),
            _ => result,
        };
        match result.map_err(Trouble::from).and_then(|written| self.display.written(&written)) {
            Ok(()) => {
                self.display.time(started);
                Ok(())
            }
            Err(Trouble::Closed) => Err(Stop::Closed),
            Err(Trouble::Sql(error)) => {
                self.failed_after = Some(started.elapsed());
                self.fail(&error, Some(&text), place)
            }
        }
    }

    /// Whether the lines that come are rows of a COPY.
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Gives up the COPY that takes rows.
    pub(crate) async fn cancel_copy(&mut self) {
        if self.copying.take().is_some() {
            let _ = self.session.settle().await;
            self.display.note(&SqlError::canceled().report(None));
        }
    }

    /// The statement at the end that has no semicolon.
    pub(crate) async fn rest(&mut self, script: &mut Script, file: Option<&str>) -> Result<(), Stop> {
        self.end_copy(None).await?;
        while let Some(statement) = script.splitter.finish() {
            self.statement(statement, file).await?;
            self.end_copy(None).await?;
        }
        Ok(())
    }

    /// Runs a statement, with the values of variables in their places, and shows its rows or its error.
    pub(crate) async fn statement(
        &mut self,
        statement: StatementText,
        file: Option<&str>,
    ) -> Result<(), Stop> {
        self.last = Some(statement.clone());
        let text = self.variables.interpolated(&statement.text).into_owned();
        let statement = StatementText { text: text.clone(), ..statement };
        let line = statement.line;
        match self.run(statement).await {
            Ok(()) => Ok(()),
            Err(Trouble::Closed) => Err(Stop::Closed),
            Err(Trouble::Sql(error)) => self.fail(&error, Some(&text), file.map(|file| (file, line))),
        }
    }

    /// Runs a statement and shows its rows, until it is done or Ctrl-C is pressed.
    pub(crate) async fn run(&mut self, statement: StatementText) -> Result<(), Trouble> {
        self.run_as(statement, Session::parse).await
    }

    /// The same of a statement that is parsed by `parse`.
    pub(crate) async fn run_as(&mut self, statement: StatementText, parse: Parse) -> Result<(), Trouble> {
        let started = Instant::now();
        let text = statement.text.clone();
        let Self { session, display, interrupts, copies_stdin, .. } = self;
        let from_stdin = *copies_stdin;
        let time_max = session.time_limits().statement;
        let watch = Watch::begin(time_max);
        let result = tokio::select! {
            biased;
            () = interrupts.interrupted() => Err(SqlError::canceled().into()),
            () = interrupt::after(time_max) => Err(SqlError::timed_out().into()),
            result = watch.canceled.scope(async {
                let statement = parse(session, statement)?;
                let shown = show(session, display, statement).await;
                let ended = display.end_page();
                let Some(copy) = shown? else {
                    ended?;
                    return Ok(None);
                };
                let mut copying = Copying::begin(copy, text, started);
                if !from_stdin {
                    return Ok(Some(copying));
                }
                copying.stdin().await.map_err(|error| cannot_read("standard input", error))?;
                display.written(&copying.end().await?)?;
                Ok(None)
            }) => result,
        };
        if watch.canceled.is_set() {
            // The same Ctrl-C.
            interrupts.forget();
        }
        let result: Result<(), Trouble> = match result {
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
        // What was interrupted.
        let _ = display.end_page();
        // What the statement ended with matters more to the user.
        let result = match session.settle().await {
            Err(error) if result.is_ok() => Err(error.into()),
            _ => result,
        };
        match &result {
            Ok(()) => display.time(started),
            // After the error.
            Err(Trouble::Sql(_)) => *failed_after = Some(started.elapsed()),
            Err(Trouble::Closed) => {}
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
        if interrupt::is_worth_telling(error) {
            self.display.note(&report);
        }
        if let Some(elapsed) = self.failed_after.take().filter(|_| self.display.is_timed) {
            self.display.note(&format!("Time: {}", duration(elapsed)));
        }
        Err(Stop::Failed)
    }
}

/// How a statement is parsed in a session.
type Parse = fn(&Session, StatementText) -> Result<ParsedStatement, SqlError>;

/// A script that is being read.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) splitter: Splitter,
    lines_read: usize,
}

impl Display {
    /// Writes a line to standard error, after the rows before it.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = io::stdout().flush();
        // Nothing is left to tell anyone when standard error is gone.
        let _ = writeln!(io::stderr(), "{text}");
    }

    fn time(&mut self, started: Instant) {
        if self.is_timed {
            self.note(&format!("Time: {}", duration(started.elapsed())));
        }
    }

    fn written(&mut self, written: &Written) -> Result<(), Trouble> {
        if let Some(notice) = &written.notice {
            self.note(&format!("NOTICE: {notice}"));
        }
        self.tag(&written.tag)
    }

    /// Says what a statement without rows has done: among the rows of others in what people read, beside them
    /// in what programs do.
    fn tag(&mut self, tag: &str) -> Result<(), Trouble> {
        match self.format {
            _ if self.is_quiet => {}
            Format::Table | Format::Vertical => self.with_output(|out| Ok(writeln!(out, "{tag}")?))?,
            Format::Csv | Format::Json | Format::Lines => self.note(tag),
        }
        Ok(())
    }

    /// Calls `write` with where rows go at the moment.
    pub(crate) fn with_output<T>(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
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

/// Runs a statement and shows its rows; returns the COPY that waits for them, if it is one.
async fn show(
    session: &Session,
    display: &mut Display,
    statement: ParsedStatement,
) -> Result<Option<CopyIn>, Trouble> {
    let is_bar_wanted = session.settings().progress;
    match session.execute(&statement).await? {
        Outcome::Rows { schema, mut stream, progress, .. } => {
            let mut bar = Bar::new(&progress, is_bar_wanted);
            let schema = statement.named(&schema);
            let mut writer = row_writer(display.layout(), &schema, &display.null);
            let mut rows = 0;
            display.begin_page();
            while !display.is_page_left() {
                // A pager has the terminal for itself.
                let next = match display.has_pager() {
                    true => stream.next().await,
                    false => bar.during(stream.next()).await,
                };
                let Some(batch) = next else { break };
                let batch = batch.map_err(|error| harrier_engine::in_statement(&error, &statement.text))?;
                rows += batch.num_rows();
                display.with_output(|out| Ok(writer.batch(out, &batch)?))?;
                // A statement whose rows are always there would not hear of Ctrl-C.
                tokio::task::yield_now().await;
            }
            drop(bar);
            display.with_output(|out| Ok(writer.end(out)?))?;
            display.end_page()?;
            if let Some(tag) = statement.written_tag(rows) {
                display.tag(&tag)?;
            }
            if rows == 0 && statement.checks_table() && !display.is_quiet {
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
            display.written(&written)?;
        }
        Outcome::CopyIn(copy) => return Ok(Some(copy)),
        Outcome::CopyOut(mut copy) => {
            while let Some(text) = copy.next().await? {
                display.with_output(|out| Ok(out.write_all(&text)?))?;
                tokio::task::yield_now().await;
            }
            // As in psql, which says nothing among the rows either.
            if display.is_chatty {
                display.note(&copy.tag());
            }
        }
        Outcome::Command { tag, warnings, notices } => {
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

/// As psql writes it: `12.345 ms`, and with minutes where there are any.
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
