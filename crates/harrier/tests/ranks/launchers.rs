//! Startup of gangs under launchers: minimal environments, independent tasks, foreign variables, and ranks
//! that do not start.

use std::process::Command;
use std::time::Duration;

use harrier_launch::{Launcher, Run, absent, finish, gang_slot};

use crate::command::{BINARY, Folder};

const RUN_TIME_MAX: Duration = Duration::from_secs(60);

/// A way to start some ranks.
type Launch = fn(usize) -> Launcher;

const LAUNCHES: [Launch; 3] = [Launcher::open_mpi, Launcher::mpich, mpich_by_port];

/// Hydra without an inherited PMI descriptor: the usual variables for rank and size are missing.
fn mpich_by_port(ranks: usize) -> Launcher {
    Launcher::mpich(ranks).with_option("-pmi-port")
}

/// Starts three ranks of a shell script with `$HARRIER` as the binary and `$RANK` as the rank.
fn ranks(launch: Launch, script: &str, variables: &[(&str, &str)]) -> Option<Run> {
    let _turn = gang_slot();
    let mut command = match launch(3).command("/bin/sh") {
        Ok(command) => command,
        Err(reason) => {
            absent(&reason);
            return None;
        }
    };
    let whole = format!("RANK=${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-$PMI_ID}}}}; {script}");
    command.args(["-c", &whole]).env("HARRIER", BINARY).envs(variables.iter().copied());
    Some(finish(command, RUN_TIME_MAX))
}

#[test]
fn a_statement_runs_once_under_every_launcher() {
    for launch in LAUNCHES {
        let folder = Folder::new();
        let insert = "INSERT INTO t SELECT * FROM generate_series(1, 1000)";
        let script = format!(
            "exec $HARRIER sql --warehouse {}/w -c 'CREATE TABLE t(a int)' -c '{insert}'",
            folder.path().display()
        );
        let Some(run) = ranks(launch, &script, &[]) else { continue };
        assert!(run.success, "{run:#?}");
        let count = folder.sql(&["--warehouse", "w", "--format", "csv", "-c", "SELECT count(*) n FROM t"]);
        assert_eq!(count.stdout, "n\n1000\n", "{run:#?}");
    }
}

#[test]
fn different_tasks_form_no_gang() {
    let folder = Folder::new();
    folder.write("0/q.sql", "SELECT 1");
    folder.write("1/q.sql", "SELECT 1");
    folder.write("2/q.sql", "SELECT 1");
    for (task, expected_error) in [
        ("-c \"SELECT $RANK\"", "with other statements: SELECT 1; rank 0: SELECT 0"),
        ("-f q$RANK.sql", "started with other statements: -f q1.sql; rank 0: -f q0.sql"),
        ("-c 'SELECT 1' --set \"datafusion.execution.batch_size=1000$RANK\"", "with other settings"),
        ("--warehouse w$RANK -c 'SELECT 1'", "with other warehouse: w1; rank 0: w0"),
    ] {
        let Some(run) = ranks(Launcher::open_mpi, &format!("exec $HARRIER sql {task}"), &[]) else { return };
        assert!(!run.success && run.stderr.contains("ERROR 55000: rank 1 (on "), "{run:#?}");
        assert!(run.stderr.contains(expected_error) && run.stderr.contains("--alone"), "{run:#?}");
        assert_eq!(run.stderr.matches("ERROR").count(), 1, "{run:#?}");
    }
    let script = format!("cd {}/$RANK && exec $HARRIER sql -f q.sql", folder.path().display());
    for launch in [Launcher::open_mpi as Launch, mpich_by_port] {
        let Some(run) = ranks(launch, &script, &[]) else { continue };
        assert!(!run.success && run.stderr.contains("started with other folder"), "{run:#?}");
        assert!(!run.stdout.contains("1 row"), "{run:#?}");
    }
}

#[test]
fn tasks_run_independently_on_request() {
    let statement = "-c \"SELECT 10 + $RANK\"";
    let ways: [(&str, &[(&str, &str)]); 2] = [("--alone", &[]), ("", &[("HARRIER_ALONE", "1")])];
    for ((arguments, variables), launch) in
        ways.into_iter().zip([mpich_by_port as Launch, Launcher::open_mpi])
    {
        let script = format!("exec $HARRIER sql {arguments} {statement}");
        let Some(run) = ranks(launch, &script, variables) else { continue };
        assert!(run.success, "{run:#?}");
        assert!(["10", "11", "12"].iter().all(|row| run.stdout.contains(row)), "{run:#?}");
    }
}

/// Runs a process with `variables` that no launcher has started.
fn run_without_launcher(variables: &[(&str, &str)], arguments: &[&str]) -> crate::command::Run {
    let mut command: Command = Launcher::none().command(BINARY).unwrap();
    command.arg("sql").args(arguments).args(["--format", "csv", "-c", "SELECT 1 a"]);
    command.envs(variables.iter().copied()).output().unwrap().into()
}

#[test]
fn foreign_launcher_variables_are_reported() {
    let _turn = gang_slot();
    let mut cases = vec![
        (vec![("PMI_SIZE", "4"), ("PMI_RANK", "2"), ("PMI_FD", "987654")], "PMI_FD=987654"),
        (vec![("PMI_RANK", "2"), ("PMI_FD", "987654")], "PMI_FD=987654"),
    ];
    if Launcher::open_mpi(2).available() {
        cases.extend([
            (vec![("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "2")], "started 4 ranks"),
            (vec![("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-a-7@1")], "started 2 ranks"),
            (
                vec![("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "1")],
                "srun started 3 tasks",
            ),
        ]);
    }
    for (variables, expected_error) in cases {
        let run = run_without_launcher(&variables, &[]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(3), ""), "{run:?}");
        assert!(run.stderr.contains("ERROR 58000") && run.stderr.contains(expected_error), "{run:?}");
        assert!(run.stderr.contains("HARRIER_ALONE=1"), "{run:?}");
        let run = run_without_launcher(&variables, &["--alone"]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "a\n1\n"), "{run:?}");
    }
    // Variables of a single rank, or of a batch script that is not a rank.
    for variables in [
        vec![("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0"), ("PMIX_RANK", "0")],
        vec![("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")],
    ] {
        let run = run_without_launcher(&variables, &[]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "a\n1\n"), "{run:?}");
    }
    let run = run_without_launcher(&[("HARRIER_ALONE", "maybe")], &[]);
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("HARRIER_ALONE takes 1, 0 or nothing"), "{run:?}");
}

#[test]
fn missing_ranks_are_named() {
    for (launch, missing) in [(Launcher::open_mpi as Launch, 0), (Launcher::mpich, 1)] {
        let script = format!("[ $RANK != {missing} ] || exit 0; exec $HARRIER sql -c 'SELECT 1'");
        let Some(run) = ranks(launch, &script, &[("HARRIER_START_SECONDS", "2")]) else { continue };
        assert!(!run.success && !run.timed_out, "{run:#?}");
        let expected_error = format!("ERROR 08001: rank {missing} did not come within 2 s");
        assert!(
            run.stderr.contains(&expected_error) && run.stderr.contains("HARRIER_START_SECONDS"),
            "{run:#?}"
        );
        assert_eq!(run.stderr.matches("ERROR").count(), 1, "{run:#?}");
    }
    let script = "exec $HARRIER sql -c 'SELECT 1'";
    let Some(run) = ranks(Launcher::open_mpi, script, &[("HARRIER_START_SECONDS", "soon")]) else { return };
    assert!(!run.success && run.stderr.contains("HARRIER_START_SECONDS takes seconds"), "{run:#?}");
}
