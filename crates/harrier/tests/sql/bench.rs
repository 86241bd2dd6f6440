//! `harrier bench interconnect` end to end: small transfers over every transport with their bytes compared;
//! and other benchmarks that need only this program, at minimum size.
//!
//! `HARRIER_SKIP_MPI=1` leaves out what needs MPI, which otherwise has to be there.

use std::fs;
use std::process::Command;

use harrier_launch::Launcher;
use serde_json::Value;

use crate::command::{BINARY, Folder, Run};

/// Minimum size: checks that everything arrives, not how fast.
const SMALL: [&str; 10] =
    ["--sizes", "1KiB,1MiB", "--streams", "3", "--seconds", "0.01", "--runs", "1", "--round-trips", "50"];

/// Runs the benchmark and returns the output of `--json`.
#[track_caller]
fn bench(launcher: &str, arguments: &[&str]) -> Value {
    let folder = Folder::new();
    let run: Run = Command::new(BINARY)
        .args(["bench", "interconnect", "--json", "out/a.json", "--chart", "out/a.svg"])
        .args(SMALL)
        .args(arguments)
        .env("HARRIER_MPIRUN", launcher)
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("\n1 KiB "), "{run:?}");
    assert!(fs::read_to_string(folder.path().join("out/a.svg")).unwrap().contains("<polyline"));
    let again = folder.run(&["bench", "chart", "out/a.json", "--out", "out/b.svg"]);
    assert_eq!(again.status, Some(0), "{again:?}");
    json(&folder)
}

/// Output of `--json`.
#[track_caller]
fn json(folder: &Folder) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path().join("out/a.json")).unwrap()).unwrap()
}

/// Every cell of every table and every latency has a value.
#[track_caller]
fn is_complete(result: &Value, tables: usize, configurations: usize, latencies: usize) {
    let all = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    assert_eq!(all(result, "tables").len(), tables);
    for case in all(result, "tables").iter().flat_map(|table| all(table, "cases")) {
        let cells = all(&case, "configurations");
        assert_eq!(cells.len(), configurations);
        for cell in cells {
            assert!(cell["gb_per_s_median"].as_f64().is_some_and(|figure| figure > 0.0), "{case}");
            assert!(cell["cpu_s_per_gb_median"].as_f64().is_some(), "{case}");
        }
    }
    let round_trips = all(result, "half_round_trips");
    assert_eq!(round_trips.len(), latencies);
    for latency in round_trips {
        assert!(latency["p50_ns_median"].as_f64().is_some_and(|ns| ns > 0.0), "{latency}");
    }
}

#[test]
fn interconnect_inside_one_process() {
    let ways = ["--config", "memcpy", "--config", "memcpysum", "--config", "inprocess"];
    let result = bench("/nowhere/mpirun", &[&ways[..], &["--ranks", "3"]].concat());
    is_complete(&result, 5, 3, 1);
}

#[test]
fn interconnect_over_quic() {
    let ways = ["--config", "udp", "--config", "udp:env.HARRIER_SHARED_MEMORY=0"];
    let result = bench("/nowhere/mpirun", &[&ways[..], &["--ranks", "3"]].concat());
    is_complete(&result, 5, 2, 2);
}

#[test]
fn interconnect_between_processes() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let words = Launcher::open_mpi(2).words().unwrap();
    let ways = [
        "mpi",
        "mpi:env.HARRIER_SHARED_MEMORY=0",
        "grpc:compression=none",
        "grpc:compression=lz4",
        "mpidirect",
    ];
    let ways: Vec<&str> = ways.into_iter().flat_map(|way| ["--config", way]).collect();
    let patterns = ["--patterns", "one-to-one,many-to-many", "--ranks", "2"];
    is_complete(&bench(&words[0], &[&ways[..], &patterns].concat()), 3, 4, 5);
}

#[test]
fn latencies_over_mpi_and_grpc_are_compared() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let words = Launcher::open_mpi(2).words().unwrap();
    let folder = Folder::new();
    let run: Run = Command::new(BINARY)
        .args(["bench", "crowded", "--scale", "0.01", "--queries", "1,6", "--runs", "3"])
        .args(["--config", "mpi:ranks=2,threads=1", "--config", "grpc:ranks=2,threads=1,compression=none"])
        .args(["--json", "out/a.json", "--chart", "out/a.svg"])
        .env("HARRIER_MPIRUN", &words[0])
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("\nA against B, 2 ranks\n"), "{run:?}");
    let result = json(&folder);
    assert_eq!(result["ratios"][0]["queries"], 2, "{result}");
    let comparison = result["compared"][0]["queries"].as_array().unwrap();
    assert_eq!(
        comparison.iter().map(|row| row["query"].as_str().unwrap()).collect::<Vec<_>>(),
        ["q01", "q06", "all"]
    );
    assert!(comparison.iter().all(|row| row["p99"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{result}");
    assert!(fs::read_to_string(folder.path().join("out/a.svg")).unwrap().contains("99th percentile of 3"));
}

#[test]
fn planning_benchmark_without_files() {
    let folder = Folder::new();
    let small = ["--files", "500", "--commit-files", "200", "--columns", "3", "--runs", "1"];
    let run = folder.run(&[&["bench", "plan", "--json", "out/a.json"], &small[..]].concat());
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("\n3 commits of 200 files: median "), "{run:?}");
    let result = json(&folder);
    assert_eq!(result["commits_s"].as_array().unwrap().len(), 3);
    let queries = result["queries"].as_array().unwrap();
    let files: Vec<u64> = queries.iter().map(|query| query["files"].as_u64().unwrap()).collect();
    assert_eq!(files, [500, 1, 5, 500]);
    for time in ["cold_s_median", "warm_s_median", "after_commit_s_median"] {
        assert!(
            queries.iter().all(|query| query[time].as_f64().is_some_and(|s| s > 0.0)),
            "{time}: {result}"
        );
    }
}

/// The data is reused by later runs of the tests.
#[test]
fn planning_benchmark_of_two_builds() {
    let folder = Folder::new();
    let data = concat!(env!("CARGO_TARGET_TMPDIR"), "/planning");
    // The same build twice: checks that both are measured.
    let run = folder.run(
        &[
            &["bench", "planning", "--queries", "1,14", "--runs", "2", "--baseline", BINARY][..],
            &["--data", data, "--json", "out/a.json"],
        ]
        .concat(),
    );
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("\nB/A of 2 statements: wall "), "{run:?}");
    assert!(run.stdout.contains("\nall suites\n"), "{run:?}");
    let result = json(&folder);
    let all = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    for (suite, expected) in all(&result, "suites").iter().zip([&["q01", "q14"][..], &["q01", "q14", "q14b"]])
    {
        let configurations = all(suite, "configurations");
        let names: Vec<_> =
            configurations.iter().map(|configuration| configuration["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["embedded of the baseline", "embedded"]);
        for configuration in &configurations {
            let statements = all(configuration, "statements");
            let names: Vec<_> =
                statements.iter().map(|statement| statement["statement"].as_str().unwrap()).collect();
            assert_eq!(names, expected);
            for time in ["wall_s", "cpu_s"] {
                let is_measured =
                    |runs: Vec<Value>| runs.len() == 2 && runs.iter().all(|run| run.as_f64() > Some(0.0));
                assert!(statements.iter().all(|statement| is_measured(all(statement, time))), "{result}");
            }
        }
        assert_eq!(suite["ratios"][0]["statements"], expected.len(), "{result}");
    }
    assert_eq!(result["ratios"][0]["statements"], 5, "{result}");
    for figure in ["wall", "wall_least", "cpu", "cpu_geomean"] {
        assert!(result["ratios"][0][figure].as_f64() > Some(0.0), "{figure}: {result}");
    }
}

#[test]
fn invalid_benchmark_options_are_refused() {
    let folder = Folder::new();
    for (arguments, status, message) in [
        (["--baseline", "no/harrier"], 3, "ERROR 58000: there is no program \"no/harrier\""),
        (["--suites", "tpch,tpcc"], 2, "there is no suite \"tpcc\": tpch, tpcds"),
        (["--queries", "23"], 2, "there is no query 23: tpch has queries 1 to 22"),
        (["--config", "embedded:ranks=2"], 2, "embedded is one process"),
    ] {
        let run = folder.run(&[&["bench", "planning"], &arguments[..]].concat());
        assert_eq!(run.status, Some(status), "{run:?}");
        assert!(run.stderr.contains(message), "{run:?}");
    }
    for (arguments, status, message) in [
        (["--config", "embedded"], 2, "it begins with one of mpi, udp, grpc"),
        (["--config", "mpi:ranks=3"], 2, "see --ranks"),
        (["--sizes", "12B"], 2, "a multiple of 8 bytes"),
    ] {
        let run = folder.run(&[&["bench", "interconnect"], &arguments[..]].concat());
        assert_eq!(run.status, Some(status), "{run:?}");
        assert!(run.stderr.contains(message), "{run:?}");
    }
    let alone = folder.run(&["bench", "crowded", "--config", "mpi:ranks=4", "--config", "grpc:ranks=2"]);
    assert_eq!(alone.status, Some(2), "{alone:?}");
    assert!(alone.stderr.contains("with as many ranks and threads"), "{alone:?}");
}
