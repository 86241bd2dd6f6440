//! `harrier completions SHELL`: what a shell needs to complete commands and options, from the command line's
//! own definitions.

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

/// Writes the script to standard output. Errors of that are told, but for a reader that has gone.
pub(crate) fn run(args: Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&visible_command_line()), "harrier", &mut script);
    written(&script)
}

/// The command without what is hidden, which shells would be told of.
fn shown(command: &Command) -> Command {
    // Names live as long as the program, which ends when they are written.
    let name: &'static str = command.get_name().to_string().leak();
    let shown_below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(shown);
    let mut all = Command::new(name)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(shown_below);
    if let Some(about) = command.get_about() {
        all = all.about(about.clone());
    }
    match command.get_version() {
        Some(_) => all.version(env!("CARGO_PKG_VERSION")),
        None => all,
    }
}

/// Status 0 if `bytes` are on standard output.
pub(crate) fn written(bytes: &[u8]) -> ExitCode {
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
