//! Example programs over keys and values that ship with Harrier, each with a generator of its input and a
//! check of its result.
//!
//! They run as a single process, or under `mpirun`, `srun` or `mpidrun`. Rank 0 prints one line with the
//! result's sums, and alone runs programs that need no ranks. Exit status: 0, 1 for a failed job or a wrong
//! result, 2 for wrong usage, 3 if the ranks could not join or were lost.

mod data;
mod iterations;
mod output;
mod plain;
mod records;
mod sliding;
mod tables;
mod text;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use harrier_mpid::{BoxError, Config, Error, World};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "mpid-programs", about = "Programs in keys and values, on any number of ranks", version)]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

/// Parser of positive numbers.
fn positive<T: TryFrom<u64>>() -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..)
}

/// Parses a size, as in the settings, that is not 0.
fn size(text: &str) -> Result<u64, String> {
    let bytes = harrier_mpid::bytes_of(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "it is a number of bytes, such as 1000000 or 16MiB".to_string())
}

/// Input and output of a program.
#[derive(Args, Clone)]
struct InOut {
    /// Files, or folders of files.
    #[arg(long, required = true, num_args = 1..)]
    input: Vec<PathBuf>,
    /// Folder for the answer, one file for each A task; of a stream, one for each A task and window, as soon
    /// as that is known. One that has files of an earlier job is refused, unless this is the same job, which
    /// goes on with its checkpoint.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Work the answer out once more, by other means, and compare.
    #[arg(long)]
    check: bool,
    /// Size of a split, such as 16MiB. O tasks read one each, unless their number is said (mpidrun -O,
    /// HARRIER_MPID_O): then they share them.
    #[arg(long, default_value_t = harrier_mpid::input::SPLIT_BYTES, value_parser = size)]
    split_bytes: u64,
}

#[derive(Subcommand)]
enum Program {
    /// Make input: text, records, rankings, uservisits, graph, points or events, in a folder that is new or
    /// empty.
    Generate(data::Generate),
    /// Count every word.
    Wordcount(InOut),
    /// Count every word in a plain program of one thread: the floor that wordcount is compared with.
    PlainWordcount(InOut),
    /// Sort records of 100 bytes by their first 10.
    Terasort(InOut),
    /// Check that --output has the records of --input, in order, whoever sorted them.
    Validate(InOut),
    /// Find the lines with a text in them.
    Grep {
        pattern: String,
        #[command(flatten)]
        io: InOut,
    },
    /// For every word, the lines in which it stands.
    Index(InOut),
    /// Sum the revenue of uservisits by source address, in hundredths: an answer of 1234 is 12.34.
    Aggregate(InOut),
    /// Join rankings and the uservisits of a year: average rank and revenue (in hundredths, as aggregate has
    /// it) by source address, the largest revenue first.
    Join {
        #[arg(long)]
        rankings: PathBuf,
        #[command(flatten)]
        io: InOut,
    },
    /// The importance of the nodes of a graph.
    Pagerank {
        #[arg(long, default_value_t = 10, value_parser = positive::<usize>())]
        rounds: usize,
        #[command(flatten)]
        io: InOut,
    },
    /// Clusters of points.
    Kmeans {
        #[arg(long, default_value_t = 10, value_parser = positive::<usize>())]
        rounds: usize,
        #[arg(long, default_value_t = 8, value_parser = positive::<usize>())]
        clusters: usize,
        #[command(flatten)]
        io: InOut,
    },
    /// How often each key occurs in windows that slide over streams of events: files or named pipes in the
    /// order of times, each read by an O task of its own. Late events are left out, and their number is told
    /// on stderr.
    Sliding {
        /// Length of a window, in the unit of the events' times; a multiple of --slide.
        #[arg(long, default_value_t = 60, value_parser = positive::<u64>())]
        window: u64,
        #[arg(long, default_value_t = 10, value_parser = positive::<u64>())]
        slide: u64,
        #[command(flatten)]
        io: InOut,
    },
}

impl Program {
    /// Returns the output folder, if any, and the input paths.
    fn places(&self) -> Option<(&Path, Vec<&Path>)> {
        let (io, also) = match self {
            Program::Generate(_) | Program::PlainWordcount(_) | Program::Validate(_) => return None,
            Program::Join { io, rankings } => (io, Some(rankings)),
            Program::Wordcount(io) | Program::Terasort(io) | Program::Index(io) | Program::Aggregate(io) => {
                (io, None)
            }
            Program::Grep { io, .. }
            | Program::Pagerank { io, .. }
            | Program::Kmeans { io, .. }
            | Program::Sliding { io, .. } => (io, None),
        };
        let inputs = io.input.iter().chain(also).map(PathBuf::as_path);
        Some((io.output.as_deref()?, inputs.collect()))
    }
}

/// Runs a program. A wrong result is an error, too.
fn run(program: &Program, world: &World, config: &Config) -> Result<String, BoxError> {
    if let Some((folder, inputs)) = program.places() {
        output::begin(world, config, folder, &inputs)?;
    }
    match program {
        Program::Generate(_) | Program::PlainWordcount(_) | Program::Validate(_) => {
            unreachable!("they need no ranks")
        }
        Program::Wordcount(io) => text::wordcount(world, config, io),
        Program::Terasort(io) => records::terasort(world, config, io),
        Program::Grep { pattern, io } => text::grep(world, config, io, pattern),
        Program::Index(io) => text::index(world, config, io),
        Program::Aggregate(io) => tables::aggregate(world, config, io),
        Program::Join { rankings, io } => tables::join(world, config, io, rankings),
        Program::Pagerank { rounds, io } => iterations::pagerank(world, config, io, *rounds),
        Program::Kmeans { rounds, clusters, io } => iterations::kmeans(world, config, io, *rounds, *clusters),
        Program::Sliding { window, slide, io } => sliding::sliding(world, config, io, *window, *slide),
    }
}

fn status_of(error: &BoxError) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(error) if !error.leaves_the_ranks_alive() => 3,
        _ => 1,
    }
}

/// Waits until the launcher has started all ranks. MPICH's `mpirun` dies silently of SIGPIPE, and loses the
/// ranks' output, if its first rank has exited before it forwards its standard input: in two of a thousand
/// runs of `mpirun -n 2 false`, under other load.
fn outlive_start() {
    const START: Duration = Duration::from_millis(200);
    if harrier_interconnect::launched_rank().is_some() {
        std::thread::sleep(START);
    }
}

/// Prints the error of the command line, or the requested help.
fn print_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    outlive_start();
    ExitCode::from(error.exit_code() as u8)
}

fn main() -> ExitCode {
    harrier_mpid::tell_warnings();
    let program = match Arguments::try_parse() {
        Ok(arguments) => arguments.program,
        Err(error) => return print_usage(&error),
    };
    if let Program::Sliding { window, slide, .. } = &program
        && !window.is_multiple_of(*slide)
    {
        let wrong = "--window is a multiple of --slide";
        return print_usage(&Arguments::command().error(ErrorKind::ValueValidation, wrong));
    }
    let needs_ranks =
        !matches!(program, Program::Generate(_) | Program::PlainWordcount(_) | Program::Validate(_));
    if !needs_ranks && harrier_interconnect::launched_rank().is_some_and(|rank| rank > 0) {
        outlive_start();
        return ExitCode::SUCCESS;
    }
    let alone = match &program {
        Program::Generate(generate) => Some(data::generate(generate)),
        Program::PlainWordcount(io) => Some(plain::wordcount(io)),
        Program::Validate(io) => Some(records::validate(io)),
        _ => None,
    };
    if let Some(outcome) = alone {
        outlive_start();
        return match outcome {
            Ok(line) => {
                println!("{line}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                harrier_mpid::last_words(&error.to_string());
                ExitCode::FAILURE
            }
        };
    }
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            harrier_mpid::last_words(&error.to_string());
            return ExitCode::from(3);
        }
    };
    let config = match world.configure() {
        Ok(config) => config,
        Err(error) => {
            if world.rank() == 0 {
                harrier_mpid::last_words(&error.to_string());
            }
            let status = if error.leaves_the_ranks_alive() { 2 } else { 3 };
            let left = world.leave(status);
            return ExitCode::from(if left.is_ok() { status as u8 } else { 3 });
        }
    };
    let outcome = run(&program, &world, &config);
    let status = outcome.as_ref().err().map_or(0, status_of);
    match &outcome {
        Ok(line) if world.rank() == 0 => println!("{line}"),
        Ok(_) => {}
        // Every rank has the same error; after a loss, rank 0 may be the lost one.
        Err(error) if world.rank() == 0 || status == 3 => harrier_mpid::last_words(&error.to_string()),
        Err(_) => {}
    }
    let left = world.leave(status.into());
    if let Some((folder, _)) = program.places().filter(|_| status == 0 && left.is_ok() && world.rank() == 0) {
        output::end(folder);
    }
    ExitCode::from(if left.is_err() { 3 } else { status })
}
