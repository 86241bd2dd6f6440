//! `mpidrun -f HOSTFILE -mode COM|ITER|STREAM -O n -A m PROGRAM args…`: starts a program's ranks with the papers' command line.
//!
//! It calls the `mpirun` there is, and passes mode and numbers of tasks to the program in the variables that its configuration
//! reads. With `-checkpoint` and `-restarts` it starts the ranks again when one was lost. Exit status: the program's; 2 for wrong usage.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

const USAGE: &str = "usage: mpidrun [-f HOSTFILE] [-mode COM|ITER|STREAM] [-O TASKS] [-A TASKS] [-n RANKS]
               [-checkpoint FOLDER] [-restarts TIMES] [-conf NAME=VALUE]… [-progress] PROGRAM [ARGUMENT]…

  -f HOSTFILE        where the ranks run, as mpirun takes it
  -mode MODE         COM: O tasks, then A tasks (default); ITER: rounds over what stays in memory; STREAM: windows
  -O, -A TASKS       numbers of O and A tasks, unless the program says; more than ranks are run one after another
  -n RANKS           default: a rank for each slot of HOSTFILE, or for each core here
  -checkpoint FOLDER keep what was received there; every rank must see it
  -restarts TIMES    with -checkpoint: start again when a rank was lost, so often
  -conf NAME=VALUE   any other knob, such as MEMORY_SHARE=0.4 or SEND_QUEUE=6
  -progress          tell on stderr how far it is, and the counters";

/// What a program ends with when a rank was lost.
const BROKEN: i32 = 3;

#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    hostfile: Option<PathBuf>,
    ranks: Option<usize>,
    variables: Vec<(String, OsString)>,
    restarts: u32,
    program: Vec<OsString>,
}

/// Errors: what is wrong with the command line.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Run, String> {
    let mut arguments = arguments.into_iter();
    let mut run = Run::default();
    let set = |name: &str, value: OsString| (format!("HARRIER_MPID_{name}"), value);
    while let Some(argument) = arguments.next() {
        let option = argument.to_string_lossy().into_owned();
        if !option.starts_with('-') {
            run.program.push(argument);
            run.program.extend(arguments);
            return match run.restarts > 0
                && run.variables.iter().all(|(name, _)| !name.ends_with("CHECKPOINT"))
            {
                true => Err("-restarts needs a -checkpoint".to_string()),
                false => Ok(run),
            };
        }
        let mut value = || arguments.next().ok_or(format!("{option} takes a value"));
        let number = |value: OsString| {
            let text = value.to_string_lossy().into_owned();
            text.parse::<u32>()
                .ok()
                .filter(|number| *number > 0)
                .ok_or(format!("{option} takes a number, not {text}"))
        };
        match option.as_str() {
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
                let value = value()?.to_string_lossy().into_owned();
                let (name, value) = value.split_once('=').ok_or("-conf takes NAME=VALUE".to_string())?;
                let pair = set(name, value.into());
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

/// Places in a hosts file: `slots=N` or `host:N` of each line, else one.
fn slots(hostfile: &str) -> usize {
    let lines = hostfile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let told = line.split_whitespace().find_map(|word| word.strip_prefix("slots="));
            let told =
                told.or_else(|| line.split_whitespace().next()?.split_once(':').map(|(_, slots)| slots));
            told.and_then(|slots| slots.parse().ok()).unwrap_or(1)
        })
        .sum()
}

/// Whether the launcher is Open MPI's, whose options others do not know.
fn is_open_mpi(launcher: &Path) -> bool {
    let asked = Command::new(launcher).arg("--version").output();
    // It tells its name as it was called: mpirun.openmpi is "OpenRTE", and Open MPI 5 is "PRRTE" by another name.
    let names = ["Open MPI", "OpenRTE", "PRRTE"];
    asked.is_ok_and(|told| names.iter().any(|name| String::from_utf8_lossy(&told.stdout).contains(name)))
}

fn command(run: &Run) -> Result<Command, String> {
    let launcher = PathBuf::from(std::env::var_os("HARRIER_MPIRUN").unwrap_or_else(|| "mpirun".into()));
    let ranks = match (&run.ranks, &run.hostfile) {
        (Some(ranks), _) => *ranks,
        (None, Some(path)) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            slots(&text).max(1)
        }
        (None, None) => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut command = Command::new(&launcher);
    let open_mpi = is_open_mpi(&launcher);
    if open_mpi {
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
        command.arg(if open_mpi { "--hostfile" } else { "-f" }).arg(path);
    }
    command.args(&run.program).envs(run.variables.iter().cloned());
    Ok(command)
}

/// Whether ranks were lost, and not just the job.
fn is_broken(status: ExitStatus) -> bool {
    // A rank that was killed: launchers end with 128 and the signal's number, or of that signal.
    status.signal().is_some() || status.code().is_some_and(|code| code == BROKEN || code > 128)
}

fn main() -> ExitCode {
    let run = match parse(std::env::args_os().skip(1)) {
        Ok(run) => run,
        Err(wrong) => {
            eprintln!("mpidrun: {wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut restarts = run.restarts;
    loop {
        let status = command(&run).and_then(|mut command| {
            command.status().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
        });
        match status {
            Err(wrong) => {
                eprintln!("mpidrun: {wrong}");
                return ExitCode::from(2);
            }
            Ok(status) if is_broken(status) && restarts > 0 => {
                restarts -= 1;
                eprintln!(
                    "mpidrun: a rank was lost; the ranks are started again and go on from the checkpoint"
                );
            }
            Ok(status) => {
                let code = status.code().unwrap_or(BROKEN);
                return ExitCode::from(u8::try_from(code).unwrap_or(BROKEN as u8));
            }
        }
    }
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
    }

    #[test]
    fn wrong_usage_is_told() {
        for (line, what) in [
            ("-mode MAP p", "COM, ITER or STREAM"),
            ("-O none p", "takes a number"),
            ("-x p", "no option"),
            ("-O 3", "no PROGRAM"),
            ("-restarts 1 p", "-checkpoint"),
            ("-conf SPEED=9 p", "no knob SPEED"),
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
}
