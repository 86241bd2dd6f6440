//! `harrier reference DIR`: generates the reference pages from the code.
//!
//! A page is derived from what the program uses: definitions of settings and options, schemas of tables,
//! results of statements and functions run here. Prose (causes, meanings) stands beside these definitions, or
//! in a table that must match them: a column without a meaning is an error.
//!
//! Pages are the same on every machine.

mod command_line;
mod configuration;
pub(crate) mod environment;
mod functions;
mod metrics;
mod page;
mod scratch;
mod settings;
mod sqlstates;
mod statements;
mod sys_tables;
mod types;

use std::path::PathBuf;
use std::process::ExitCode;

use harrier_error::exit;

use self::scratch::Scratch;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The folder that gets the pages
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes all pages, or none.
pub(crate) fn run(args: Args) -> ExitCode {
    let written = std::path::absolute(&args.folder).map_err(|error| error.to_string()).and_then(|folder| {
        let pages = pages()?;
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        pages.into_iter().try_for_each(|(name, text)| {
            std::fs::write(folder.join(format!("{name}.md")), text).map_err(|error| error.to_string())
        })
    });
    match written {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(message) => {
            eprintln!("ERROR XX000: the reference cannot be written: {message}");
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Exit statuses of the command line, and their meanings.
pub(crate) fn exit_statuses() -> [(u8, &'static str); 4] {
    [
        (exit::DONE, "all is done"),
        (exit::FAILED, "a statement failed, or what was asked for was refused"),
        (
            exit::USAGE,
            "wrong usage: an unknown option, a hosts file, token or configuration that cannot be used",
        ),
        (
            exit::BROKEN,
            "ranks were lost, the server ended or cannot be reached, or a check found something wrong",
        ),
    ]
}

/// Renders all pages: names and texts.
fn pages() -> Result<Vec<(&'static str, String)>, String> {
    let mut pages = vec![
        ("command-line", command_line::page()),
        ("configuration", configuration::page()),
        ("environment", environment::page()),
        ("metrics", metrics::page()?),
        ("sqlstates", sqlstates::page()?),
    ];
    let scratch = Scratch::new()?;
    pages.extend(scratch.run(async |session| {
        Ok(vec![
            ("settings", settings::page(session)),
            ("system-tables", sys_tables::page(session).await?),
            ("statements", statements::page(session).await?),
            ("types", types::page(session).await?),
            ("functions", functions::page(session).await?),
        ])
    })?);
    Ok(pages)
}
