//! `harrier man`: manual pages, generated from the command line's definitions and the tables of the
//! reference.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use harrier_error::exit;

use crate::completions::write_stdout;
use crate::reference::{environment, exit_statuses};
use crate::visible_command_line;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write the pages of all commands into this folder, instead of the first one to standard output
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let Some(folder) = args.folder else {
        return match page(&Man::new(documented_command()), true) {
            Ok(page) => write_stdout(&page),
            Err(error) => report_error(&error),
        };
    };
    match write(&folder) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(error) => report_error(&error),
    }
}

fn report_error(error: &io::Error) -> ExitCode {
    eprintln!("ERROR 58030: cannot write manual pages: {error}");
    ExitCode::from(exit::FAILED)
}

fn documented_command() -> Command {
    visible_command_line().disable_help_subcommand(true)
}

/// Writes a page for every command: `harrier.1`, `harrier-sql.1`, `harrier-generate-tpch.1`.
fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut all = documented_command();
    all.build();
    let mut commands = vec![all];
    let mut is_first = true;
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let man = Man::new(command);
        std::fs::write(folder.join(man.get_filename()), page(&man, is_first)?)?;
        is_first = false;
    }
    Ok(())
}

/// Renders one page; the program's own page also lists exit statuses and variables.
fn page(man: &Man, is_first: bool) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    if !is_first {
        return Ok(page);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in exit_statuses() {
        entry(&mut roff, &status.to_string(), meaning);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman("The variables of Harrier's own; the site has those of others that it reads.")]);
    for variable in environment::own() {
        entry(&mut roff, variable.names[0], &variable.meaning.replace('`', ""));
    }
    roff.control("SH", ["FILES"]);
    entry(
        &mut roff,
        "warehouse/",
        "the folder of tables and their catalog, unless --warehouse names another",
    );
    entry(&mut roff, "~/.local/state/harrier/history", "what was typed into the shell");
    // Skips the roff preamble, which the page has already.
    let rendered = roff.render();
    let lines = rendered.lines().skip_while(|line| !line.starts_with(".SH"));
    page.extend(lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes());
    Ok(page)
}

fn entry(roff: &mut Roff, name: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(meaning)]);
}
