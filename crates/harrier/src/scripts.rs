//! Scripts, line by line: arguments of `-c`, files, standard input, and what is typed into a shell.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use harrier_engine::{SqlError, SqlState};

use crate::meta::{self, MetaError, Then};
use crate::runner::{RunError, Runner, Script, Stop, cannot_read};

/// Maximum nesting of `\i`; deeper nesting is a cycle.
const INCLUDE_DEPTH_MAX: usize = 16;

impl Runner {
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
                () = self.interrupts.wait() => {
                    return self.fail(&SqlError::canceled_by_user(), None, None);
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
        self.take_language(script);
        let command = script.splitter.first_unquoted(line, b'\\');
        let (text, command) = command.map_or((line, None), |at| (&line[..at], Some(&line[at..])));
        script.splitter.push(text);
        while self.copying.is_none()
            && let Some(statement) = script.splitter.next_statement()
        {
            self.run_statement(statement, file).await?;
            self.take_language(script);
        }
        let Some(command) = command else { return Ok(()) };
        // Keeps the line numbers of later statements right.
        script.splitter.push("\n");
        while self.copying.is_none() && script.splitter.next_statement().is_some() {}
        let at = file.map(|file| (file, script.lines_read));
        match Box::pin(meta::run(self, script, command.trim(), file)).await {
            Ok(Then::NextLine) => Ok(()),
            Ok(Then::RunFile(path)) => Box::pin(self.run_file(&path)).await,
            Ok(Then::RunLines(text)) => Box::pin(self.run_line(script, &text, file)).await,
            Err(MetaError::Stop(stop)) => Err(stop),
            Err(MetaError::Failed(RunError::Closed)) => Err(Stop::Closed),
            Err(MetaError::Failed(RunError::Sql(error))) => self.fail(&error, None, at),
        }
    }

    /// Has the statements that follow end as those of the session's language do.
    fn take_language(&self, script: &mut Script) {
        script.splitter.set_language(self.session.settings().dialect);
    }

    /// Runs the last statement, which may lack a semicolon.
    pub(crate) async fn run_rest(&mut self, script: &mut Script, file: Option<&str>) -> Result<(), Stop> {
        self.end_copy(None).await?;
        self.take_language(script);
        while let Some(statement) = script.splitter.finish() {
            self.run_statement(statement, file).await?;
            self.take_language(script);
            self.end_copy(None).await?;
        }
        Ok(())
    }
}

fn not_utf8(name: &str) -> SqlError {
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, format!("\"{name}\" is not encoded in UTF-8"))
}
