//! `mpidrun -f HOSTFILE -mode COM|ITER|STREAM -O n -A m PROGRAM args…`: starts a program's ranks, with the
//! papers' command line.
//!
//! It calls the installed `mpirun`, and passes mode and numbers of tasks to the program in environment
//! variables. With `-checkpoint`, an Open MPI that supports it is told to leave the other ranks running when
//! one dies, so that they continue without it; with `-restarts` too, ranks that could not continue are
//! restarted. A launcher that hangs after all its ranks are gone is ended.

mod launcher;
mod outcome;

use harrier_mpid::{BROKEN, OUTCOME};
use launcher::{Kind, Signals};
use nix::sys::signal::Signal;
use outcome::{Outcome, RankReports};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: mpidrun [-f HOSTFILE] [-mode COM|ITER|STREAM] [-O TASKS] [-A TASKS] [-n RANKS]
               [-checkpoint FOLDER] [-restarts TIMES] [-conf NAME=VALUE]… [-progress] PROGRAM [ARGUMENT]…

  -f HOSTFILE        where the ranks run, as mpirun takes it
  -mode MODE         COM: O tasks, then A tasks; ITER: rounds over what stays in memory; STREAM: windows. A program that does
                     something else is refused; without it, any may run
  -O, -A TASKS       numbers of O and A tasks; more than can run at once are run one after another. A program that has
                     numbers of its own refuses others
  -n RANKS           default: a rank for each slot of HOSTFILE, or for each core here
  -checkpoint FOLDER keep what was received there; every rank must see it. Where the launcher can (Open MPI 4), ranks
                     that are left when one is lost go on from there. Rounds and streams keep none, and say so
  -restarts TIMES    with -checkpoint: start again when ranks were lost and the others could not go on, so often; jobs that
                     had ended run once more, the one that had not goes on from its checkpoint. A rank is lost that a signal
                     ends after the ranks have met; a program that does not start, or that exits, is not started again
  -conf NAME=VALUE   any other knob, such as MEMORY_SHARE=0.4 or SEND_QUEUE=6
  -progress          tell on stderr how far it is, and the counters
  --help             this text

SIGTERM, SIGINT and SIGHUP end the launcher and its ranks. Exit status: the launcher's, or what rank 0 has left with where a
launcher does not tell that (Open MPI 4 with -checkpoint); 3 for ranks that were lost; 128 and its number for a signal; 2 for
wrong usage";

#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    hostfile: Option<PathBuf>,
    ranks: Option<usize>,
    variables: Vec<(String, OsString)>,
    restarts: u32,
    program: Vec<OsString>,
    /// Print the usage and start nothing.
    help: bool,
}

/// Parses the command line. Errors: a message about it.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Run, String> {
    let mut arguments = arguments.into_iter();
    let mut run = Run::default();
    let set = |name: &str, value: OsString| (format!("HARRIER_MPID_{name}"), value);
    while let Some(argument) = arguments.next() {
        let option = argument.to_string_lossy().into_owned();
        if !option.starts_with('-') {
            run.program.push(argument);
            run.program.extend(arguments);
            return match run.restarts > 0 && checkpoint(&run).is_none() {
                true => Err("-restarts needs a -checkpoint".to_string()),
                false => Ok(run),
            };
        }
        let mut value = || {
            let given = arguments.next().filter(|given| !given.is_empty());
            given.ok_or(format!("{option} takes a value"))
        };
        let number = |value: OsString| {
            let text = value.to_string_lossy().into_owned();
            text.parse::<u32>()
                .ok()
                .filter(|number| *number > 0)
                .ok_or(format!("{option} takes a number, not {text}"))
        };
        match option.as_str() {
            "-h" | "-help" | "--help" => {
                run.help = true;
                return Ok(run);
            }
            "-f" => run.hostfile = Some(value()?.into()),
            "-n" => run.ranks = Some(number(value()?)? as usize),
            "-restarts" => run.restarts = number(value()?)?,
            "-mode" => {
                let mode = value()?;
                if !["COM", "ITER", "STREAM"].iter().any(|known| mode == **known) {
                    return Err(format!("-mode takes COM, ITER or STREAM, not {}", mode.to_string_lossy()));
                }
                run.variables.push(set("MODE", mode));
            }
            "-O" | "-A" => run.variables.push(set(&option[1..], number(value()?)?.to_string().into())),
            "-checkpoint" => run.variables.push(set("CHECKPOINT", value()?)),
            "-progress" => run.variables.push(set("PROGRESS", "1".into())),
            "-conf" => {
                let given = value()?;
                let mut parts = given.as_bytes().splitn(2, |byte| *byte == b'=').map(OsStr::from_bytes);
                let name = parts.next().unwrap_or_default().to_string_lossy().into_owned();
                let value = parts.next().filter(|value| !value.is_empty());
                let pair = set(&name, value.ok_or("-conf takes NAME=VALUE".to_string())?.into());
                if !harrier_mpid::VARIABLES.iter().any(|(known, _)| *known == pair.0) {
                    return Err(format!("there is no knob {name}"));
                }
                run.variables.push(pair);
            }
            _ => return Err(format!("{option} is no option")),
        }
    }
    Err("there is no PROGRAM".to_string())
}

/// Returns the lines of a hosts file that name a host.
fn lines_of(hostfile: &str) -> impl Iterator<Item = &str> {
    let lines = hostfile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty())
}

/// Counts the slots of a hosts file: `slots=N` or `host:N` of each line, else one.
fn slots(hostfile: &str) -> usize {
    lines_of(hostfile)
        .map(|line| {
            let slots = line.split_whitespace().find_map(|word| word.strip_prefix("slots="));
            let slots =
                slots.or_else(|| line.split_whitespace().next()?.split_once(':').map(|(_, slots)| slots));
            slots.and_then(|slots| slots.parse().ok()).unwrap_or(1)
        })
        .sum()
}

/// Whether ranks run on this host only.
fn is_local(hostfile: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let known = ["localhost", "127.0.0.1", own.trim()];
    lines_of(hostfile).all(|line| {
        let name = line.split(|end: char| end.is_whitespace() || end == ':').next().unwrap_or_default();
        known.contains(&name)
    })
}

/// Checkpoint folder.
fn checkpoint(run: &Run) -> Option<&Path> {
    let set = run.variables.iter().rfind(|(name, _)| name == "HARRIER_MPID_CHECKPOINT");
    set.map(|(_, folder)| Path::new(folder))
}

/// Whether a program of this name exists and is executable on this host.
fn can_be_started(program: &OsStr) -> bool {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return is_program(Path::new(program));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // Open MPI also searches here.
    std::env::split_paths(&folders).any(|folder| is_program(&folder.join(program)))
        || is_program(Path::new(program))
}

/// Starts the ranks once. Returns the outcome and the signal that ended it, if any.
///
/// Errors: the ranks cannot be started.
fn start(run: &Run, signals: &Signals) -> Result<(Outcome, Option<Signal>), String> {
    let launcher = PathBuf::from(std::env::var_os("HARRIER_MPIRUN").unwrap_or_else(|| "mpirun".into()));
    let hosts = match &run.hostfile {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            Some(text.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    // Open MPI's launcher waits forever for a missing program if it tolerates lost ranks.
    let missing = run.program.first().filter(|program| !can_be_started(program));
    if let Some(program) = missing.filter(|_| hosts.as_deref().is_none_or(is_local)) {
        return Err(format!("{}: there is no such program", program.display()));
    }
    let ranks = run.ranks.unwrap_or_else(|| match &hosts {
        Some(hosts) => slots(hosts).max(1),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    });
    let kind = Kind::of(&launcher);
    let reports = checkpoint(run).map(|folder| {
        RankReports::within(folder).map_err(|error| format!("-checkpoint {}: {error}", folder.display()))
    });
    let reports = reports.transpose()?;
    // A single rank has no other to continue with.
    let tolerates_losses = kind.tolerates_losses && reports.is_some() && ranks > 1;
    let mut command = command(run, &launcher, kind, ranks);
    if tolerates_losses {
        command.arg("--enable-recovery");
    }
    if let Some(reports) = &reports {
        reports.set_variable(&mut command);
        if kind.open_mpi {
            command.args(["-x", OUTCOME]);
        }
    }
    command.args(&run.program);
    let named = |error: std::io::Error| format!("{}: {error}", launcher.display());
    let mut child = launcher::start(&command).map_err(named)?;
    let (exit, signal) =
        launcher::wait(&mut child, signals, reports.as_ref(), tolerates_losses).map_err(named)?;
    Ok((Outcome::of(reports.as_ref(), exit), signal))
}

/// Builds the launcher's command line, without the program.
fn command(run: &Run, launcher: &Path, kind: Kind, ranks: usize) -> Command {
    let mut command = Command::new(launcher);
    if kind.open_mpi {
        command.args([
            "--bind-to",
            "none",
            "--map-by",
            ":OVERSUBSCRIBE",
            "--mca",
            "mpi_yield_when_idle",
            "1",
        ]);
        if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            command.arg("--allow-run-as-root");
        }
        for (name, _) in &run.variables {
            command.args(["-x", name]);
        }
    }
    command.arg("-n").arg(ranks.to_string());
    if let Some(path) = &run.hostfile {
        command.arg(if kind.open_mpi { "--hostfile" } else { "-f" }).arg(path);
    }
    command.envs(run.variables.iter().cloned());
    command
}

fn status(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(BROKEN as u8))
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == launcher::AS_LAUNCHER).is_some() {
        eprintln!("mpidrun: {}", launcher::become_launcher(arguments));
        return ExitCode::from(2);
    }
    let run = match parse(arguments) {
        Ok(run) => run,
        Err(wrong) => {
            eprintln!("mpidrun: {wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if run.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("mpidrun: signals cannot be listened for: {error}");
            return ExitCode::from(2);
        }
    };
    for restarts_left in (0..=run.restarts).rev() {
        match start(&run, &signals) {
            Err(wrong) => {
                eprintln!("mpidrun: {wrong}");
                return ExitCode::from(2);
            }
            Ok((_, Some(signal))) => return status(128 + signal as i32),
            Ok((Outcome::Exit(code), None)) => return status(code),
            Ok((Outcome::Lost, None)) if restarts_left > 0 => eprintln!(
                "mpidrun: a rank was lost; the ranks are started again and go on from the checkpoint"
            ),
            Ok((Outcome::Lost, None)) => {}
        }
    }
    status(BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Run, String> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_papers_command_line() {
        let run = of("-f hosts -mode COM -O 8 -A 4 wordcount -f file").unwrap();
        let variable = |name: &str, value: &str| (format!("HARRIER_MPID_{name}"), OsString::from(value));
        assert_eq!(run.hostfile.as_deref(), Some(Path::new("hosts")));
        assert_eq!(run.variables, [variable("MODE", "COM"), variable("O", "8"), variable("A", "4")]);
        assert_eq!(run.program, ["wordcount", "-f", "file"]);
        assert!(of("-n 2 --help").unwrap().help && !of("-n 2 wordcount --help").unwrap().help);
    }

    #[test]
    fn usage_errors_are_reported() {
        for (line, what) in [
            ("-mode MAP p", "COM, ITER or STREAM"),
            ("-O none p", "takes a number"),
            ("-x p", "no option"),
            ("-O 3", "no PROGRAM"),
            ("-restarts 1 p", "-checkpoint"),
            ("-conf SPEED=9 p", "no knob SPEED"),
            ("-conf O= p", "NAME=VALUE"),
            ("-checkpoint  -restarts 1 p", "-checkpoint takes a value"),
            ("-f  p", "-f takes a value"),
        ] {
            let wrong = of(line).unwrap_err();
            assert!(wrong.contains(what), "{line}: {wrong}");
        }
        assert!(of("-conf SEND_QUEUE=9 -checkpoint c -restarts 1 p").is_ok());
    }

    #[test]
    fn slots_of_a_hosts_file() {
        assert_eq!(slots("# hosts\na slots=2\nb:3 # three\n\nc\n"), 6);
    }

    #[test]
    fn local_hosts_are_recognized() {
        assert!(is_local("localhost slots=2\n127.0.0.1:3 # three\n"));
        assert!(!is_local("localhost slots=2\nb.example:3\n"));
    }
}
