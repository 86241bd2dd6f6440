//! `harrier completions SHELL`: shell completion scripts, generated from the command line's definitions.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use harrier_error::exit;

use crate::visible_command_line;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell that is to read them
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the script to standard output. Reports I/O errors, except a broken pipe.
pub(crate) fn run(args: Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut without_hidden(&visible_command_line()), "harrier", &mut script);
    write_stdout(&script)
}

/// Removes hidden commands and options, which clap_complete would include.
fn without_hidden(command: &Command) -> Command {
    // clap wants 'static names; the process ends right after the script is written.
    let name: &'static str = command.get_name().to_string().leak();
    let subcommands = command.get_subcommands().filter(|below| !below.is_hide_set()).map(without_hidden);
    let mut all = Command::new(name)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(subcommands);
    if let Some(about) = command.get_about() {
        all = all.about(about.clone());
    }
    match command.get_version() {
        Some(_) => all.version(env!("CARGO_PKG_VERSION")),
        None => all,
    }
}

/// Prints a line to standard output. Whoever reads it may have read enough and closed it, as `head` does;
/// that ends neither the command nor its work.
pub(crate) fn print_line(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Writes `bytes` to standard output. Returns status 0 on success.
pub(crate) fn write_stdout(bytes: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(exit::FAILED),
        Err(error) => {
            eprintln!("ERROR 58030: cannot write to standard output: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}
