//! Interactive shell: prompts, history, multi-line statements, completion.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::complete::{Names, ShellHelper};
use crate::meta;
use crate::runner::{Runner, Script, Stop};

/// Maximum number of statements in the history file.
const HISTORY_MAX: usize = 10_000;

const PROMPT: &str = "harrier=> ";
const PROMPT_CONTINUED: &str = "harrier-> ";
const PROMPT_IN_QUOTE: &str = "harrier'> ";
/// Prompt for the rows of a COPY, ended by `\.`.
const PROMPT_IN_ROWS: &str = ">> ";

/// Reads and runs statements until Ctrl-D or `\q`. A failed statement does not end it.
pub(crate) async fn run(runner: &mut Runner) -> Result<(), Stop> {
    runner.display.is_chatty = !runner.display.is_quiet;
    runner.display.pager = meta::pager();
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)
        .map(|config| config.completion_type(CompletionType::List).auto_add_history(false).build())
        .unwrap_or_default();
    let mut editor: Editor<ShellHelper, FileHistory> = match Editor::with_config(config) {
        Ok(editor) => editor,
        Err(error) => {
            runner.display.note(&format!("the terminal cannot be used: {error}"));
            return Err(Stop::Failed);
        }
    };
    let names = Arc::new(RwLock::new(Names::default()));
    editor.set_helper(Some(ShellHelper::new(Arc::clone(&names))));
    let history = history_file();
    if let Some(path) = &history {
        // The file does not exist at first.
        let _ = editor.load_history(path);
    }
    runner
        .display
        .note(&format!("harrier {}. Type \\? for help, \\q or Ctrl-D to leave.", env!("CARGO_PKG_VERSION")));

    let mut script = Script::default();
    let mut entered = String::new();
    loop {
        let is_copying = runner.is_copying();
        let is_first = script.splitter.is_between_statements() && !is_copying;
        if is_first {
            entered.clear();
            *names.write() = Names::load(runner.session.context()).await;
        }
        let prompt = match (is_first, script.splitter.is_in_quote()) {
            _ if is_copying => PROMPT_IN_ROWS,
            (true, _) => PROMPT,
            (false, true) => PROMPT_IN_QUOTE,
            (false, false) => PROMPT_CONTINUED,
        };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                runner.cancel_copy().await;
                script = Script::default();
                continue;
            }
            // Ends the rows, as in psql.
            Err(ReadlineError::Eof) if is_copying => {
                let _ = runner.end_copy(None).await;
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => {
                runner.display.note(&format!("the terminal cannot be read: {error}"));
                return Err(Stop::Failed);
            }
        };
        if is_copying {
            let _ = runner.run_line(&mut script, &format!("{line}\n"), None).await;
            continue;
        }
        let line = match line.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
            "quit" | "exit" if is_first => "\\q".to_string(),
            "help" if is_first => "\\?".to_string(),
            _ => line,
        };
        if !entered.is_empty() {
            entered.push('\n');
        }
        entered.push_str(&line);
        runner.interrupts.discard();
        let result = runner.run_line(&mut script, &format!("{line}\n"), None).await;
        if result.is_err() {
            // The rest of the line after a failed statement is skipped.
            script = Script::default();
        }
        if script.splitter.is_between_statements() && !entered.trim().is_empty() {
            remember(&mut editor, history.as_ref(), entered.trim_end());
        }
        match result {
            Ok(()) | Err(Stop::Failed) => {}
            Err(Stop::Quit) => return Ok(()),
            Err(Stop::Closed) => return Err(Stop::Closed),
        }
    }
}

fn remember(editor: &mut Editor<ShellHelper, FileHistory>, path: Option<&PathBuf>, entry: &str) {
    if !matches!(editor.add_history_entry(entry), Ok(true)) {
        return;
    }
    let Some(path) = path else {
        return;
    };
    // At once, so that a killed shell loses nothing and concurrent shells keep both histories.
    if let Err(error) = editor.append_history(path) {
        tracing::debug!(%error, path = %path.display(), "the history was not written");
    }
}

/// `$XDG_STATE_HOME/harrier/history`, by default below `~/.local/state`; creates the folder.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    let folder = state.join("harrier");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}
