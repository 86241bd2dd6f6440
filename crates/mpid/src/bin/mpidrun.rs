//! `mpidrun -f HOSTFILE -mode COM|ITER|STREAM -O n -A m PROGRAM args…`: starts a program's ranks with the papers' command line.
//!
//! It calls the `mpirun` there is, and passes mode and numbers of tasks to the program in the variables that its configuration
//! reads. With `-checkpoint`, an Open MPI that can is told to leave the other ranks alone when one dies, so that they go on without it;
//! with `-restarts` too, ranks that could not are started again. A launcher that stays when all its ranks are gone is ended. Exit
//! status: the launcher's; where ranks may go on without others, what rank 0 has left with; 2 for wrong usage.

use harrier_mpid::{BROKEN, OUTCOME, WITHOUT_OTHERS};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

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
                     had ended run once more, the one that had not goes on from its checkpoint
  -conf NAME=VALUE   any other knob, such as MEMORY_SHARE=0.4 or SEND_QUEUE=6
  -progress          tell on stderr how far it is, and the counters
  --help             this text";

/// How long a launcher without children is waited for: Open MPI's now and then does not notice that the last of its ranks was killed.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(5);

/// The time between two looks at a launcher.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    hostfile: Option<PathBuf>,
    ranks: Option<usize>,
    variables: Vec<(String, OsString)>,
    restarts: u32,
    program: Vec<OsString>,
    /// Nothing is started: how to start something is told.
    help: bool,
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

/// What the launcher is: others do not know Open MPI's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kind {
    open_mpi: bool,
    /// It can be told to leave the other ranks alone when one dies.
    bears_deaths: bool,
}

impl Kind {
    fn of(launcher: &Path) -> Kind {
        let asked = Command::new(launcher).arg("--version").output();
        asked.map_or(Kind::default(), |told| Kind::told(&String::from_utf8_lossy(&told.stdout)))
    }

    /// It tells its name as it was called: mpirun.openmpi is "OpenRTE", and Open MPI 5 is "PRRTE" by another name.
    fn told(version: &str) -> Kind {
        let open_mpi = ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name));
        let major = version.split_whitespace().find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
        Kind { open_mpi, bears_deaths: open_mpi && major == Some(4) }
    }
}

/// Where rank 0 tells its exit status, if the launcher will not.
fn outcome_file(run: &Run, kind: Kind) -> Option<PathBuf> {
    let checkpoint = run.variables.iter().find(|(name, _)| name.ends_with("CHECKPOINT"));
    let (_, folder) = checkpoint.filter(|_| kind.bears_deaths)?;
    Some(Path::new(folder).join(format!("outcome-{}", std::process::id())))
}

fn command(run: &Run) -> Result<(Command, Option<PathBuf>), String> {
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
    let kind = Kind::of(&launcher);
    // One rank alone has nobody to go on with, and says nothing there.
    let outcome = outcome_file(run, kind).filter(|_| ranks > 1);
    if let Some(path) = &outcome {
        let folder = path.parent().expect("it is in the checkpoint's folder");
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // Of a process that had this number before.
        let _ = std::fs::remove_file(path);
        command.args(["--enable-recovery", "-x", OUTCOME]).env(OUTCOME, path);
    }
    let open_mpi = kind.open_mpi;
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
    Ok((command, outcome))
}

/// Whether a process runs, and is not just waited for.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The processes that a process has started and that still run. `None`: the system does not tell.
fn children(process: u32) -> Option<usize> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut count = 0;
    for task in tasks.flatten() {
        let told = std::fs::read_to_string(task.path().join("children")).ok()?;
        count += told.split_whitespace().filter(|child| runs(child)).count();
    }
    Some(count)
}

/// Waits for the launcher. One that has had children, and has had none for [`LAUNCHER_PATIENCE`], is ended; and, with an outcome file, one
/// of whose ranks another has died before they met: the others would wait for it.
///
/// Returns its status, and whether ranks were lost.
fn wait(launcher: &mut Child, outcome: Option<&Path>) -> std::io::Result<(ExitStatus, bool)> {
    let mut most = 0;
    // When there were as many children as ever, or the ranks had met; and when there was any child.
    let (mut whole, mut last_seen) = (Instant::now(), None);
    loop {
        if let Some(status) = launcher.try_wait()? {
            return Ok((status, is_broken(status)));
        }
        let now = Instant::now();
        let there = children(launcher.id());
        most = most.max(there.unwrap_or(0));
        if there != Some(0) {
            last_seen = Some(now);
        }
        // The file is there once they have met.
        if there.is_none_or(|there| there == most) || outcome.is_none_or(Path::exists) {
            whole = now;
        }
        let wrong = if last_seen.is_some_and(|seen| now - seen > LAUNCHER_PATIENCE) {
            "all ranks are gone, and the launcher still waits for them"
        } else if now - whole > LAUNCHER_PATIENCE {
            "a rank is gone, and the others wait for it to join them"
        } else {
            std::thread::sleep(LOOK_EVERY);
            continue;
        };
        eprintln!("mpidrun: {wrong}; it is ended");
        // It ends its ranks, if it is asked to.
        let _ = Command::new("kill").arg(launcher.id().to_string()).status();
        let asked = Instant::now();
        while asked.elapsed() < LAUNCHER_PATIENCE {
            if launcher.try_wait()?.is_some() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = launcher.kill();
        return Ok((launcher.wait()?, true));
    }
}

/// Starts the ranks once. Returns the exit status, and whether ranks were lost.
fn launch(run: &Run) -> Result<(i32, bool), String> {
    let (mut command, outcome) = command(run)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let named = |error: std::io::Error| format!("{name}: {error}");
    let (status, broken) = wait(&mut command.spawn().map_err(named)?, outcome.as_deref()).map_err(named)?;
    if let Some(path) = outcome {
        let told = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        if told == WITHOUT_OTHERS {
            return Ok((BROKEN, true));
        }
        if let Ok(told) = told.parse() {
            return Ok((told, false));
        }
        // Rank 0 did not come to its end.
        if status.success() {
            return Ok((BROKEN, true));
        }
    }
    let code = status.code().filter(|code| *code != 0 || !broken);
    Ok((code.unwrap_or(BROKEN), broken))
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
    if run.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let mut restarts = run.restarts;
    loop {
        match launch(&run) {
            Err(wrong) => {
                eprintln!("mpidrun: {wrong}");
                return ExitCode::from(2);
            }
            Ok((_, true)) if restarts > 0 => {
                restarts -= 1;
                eprintln!(
                    "mpidrun: a rank was lost; the ranks are started again and go on from the checkpoint"
                );
            }
            Ok((code, _)) => return ExitCode::from(u8::try_from(code).unwrap_or(BROKEN as u8)),
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
        assert!(of("-n 2 --help").unwrap().help && !of("-n 2 wordcount --help").unwrap().help);
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
    fn launchers_are_known_by_what_they_say() {
        let told = |text: &str| Kind::told(text);
        assert_eq!(told("mpirun (Open MPI) 4.1.4\n"), Kind { open_mpi: true, bears_deaths: true });
        assert_eq!(told("mpirun.openmpi (OpenRTE) 4.1.4"), Kind { open_mpi: true, bears_deaths: true });
        assert_eq!(told("mpirun (Open MPI) 5.0.6"), Kind { open_mpi: true, bears_deaths: false });
        assert_eq!(told("HYDRA build details:\n Version: 4.0.2"), Kind::default());
    }

    /// A launcher that stays without its ranks is ended, and one whose ranks wait for another; one whose ranks run is not.
    #[test]
    fn a_launcher_that_waits_for_nobody_is_ended() {
        let start = |script: &str| Command::new("bash").args(["-c", script]).spawn().unwrap();
        let begin = Instant::now();
        let (_, broken) = wait(&mut start("sleep 1; while :; do :; done"), None).unwrap();
        assert!(broken && begin.elapsed() > LAUNCHER_PATIENCE);
        let parts = "sleep 1 & sleep 9 & wait; exit 7";
        assert!(wait(&mut start(parts), Some(Path::new("/no/such/file"))).unwrap().1);
        // They have met: what they do without one another is their own affair.
        let (status, broken) = wait(&mut start(parts), Some(Path::new("/"))).unwrap();
        assert_eq!((status.code(), broken), (Some(7), false));
    }

    #[test]
    fn slots_of_a_hosts_file() {
        assert_eq!(slots("# hosts\na slots=2\nb:3 # three\n\nc\n"), 6);
    }
}
