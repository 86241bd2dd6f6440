//! Interconnect metrics: `sys.interconnect`, EXPLAIN ANALYZE and the trace; and a sort-preserving merge
//! without head-of-line blocking.

use std::fs;
use std::time::Duration;

use harrier_launch::{Launcher, Run};
use serde_json::{Value, json};

use crate::command::{BINARY, Folder};
use crate::trace_check;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Timeout of a stalled statement, which has no work left after a second.
const STALL_PATIENCE: Duration = Duration::from_secs(20);

const RANKS: usize = 3;

/// Runs `harrier sql` with `arguments` on ranks, in `folder`; `None` if MPI is skipped.
fn on_ranks(launcher: Launcher, folder: &Folder, arguments: &[&str], patience: Duration) -> Option<Run> {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: it needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let _turn = harrier_launch::gang_slot();
    let mut command = launcher.command(BINARY).unwrap_or_else(|reason| panic!("{reason}"));
    command.arg("sql").args(["--threads", "1", "--set", "harrier.distribute_bytes_min=1"]);
    command.args(arguments).current_dir(folder.path());
    Some(harrier_launch::finish(command, patience))
}

/// Creates six small files.
fn numbers(folder: &Folder) {
    let copies = (0..6).map(|file| {
        let (from, to) = (file * 50_000 + 1, (file + 1) * 50_000);
        format!(
            "COPY (SELECT x, x % 1000 AS k FROM generate_series({from}, {to}) s(x)) TO 't/{file}.parquet';"
        )
    });
    fs::create_dir(folder.path().join("t")).unwrap();
    let run = folder.sql(&["-c", &copies.collect::<String>()]);
    assert_eq!(run.status, Some(0), "{run:?}");
}

/// Every reading rank has rows for every other one.
const GROUPED: &str = "SELECT k, count(*), sum(x) FROM 't/*.parquet' GROUP BY k ORDER BY k";

#[test]
fn sys_interconnect_counts_every_stream_and_rank() {
    let folder = Folder::new();
    numbers(&folder);
    let streams = "SELECT kind, statement_id, state, stream, slice_from <> slice_to AS feeds, rank_from <> rank_to AS apart, \
                   bytes > 0 AND blocks > 0 AS moved, credit_waits >= 0 AND credit_wait_ms >= 0 AS waited, \
                   encode_ms > 0 AND queue_ms > 0 AND decode_ms > 0 AS timed, sleeps IS NULL AND epoch IS NULL AS of_stream, \
                   statement LIKE 'SELECT k, count%' AS said \
                   FROM sys.interconnect WHERE kind = 'stream' AND statement_id = 1 ORDER BY slice_from, rank_from, rank_to";
    let ranks = "SELECT rank_from, rank_to, bytes > 0 AND blocks > 0, encode_ms > 0 AND queue_ms > 0, sleeps > 0, \
                 doorbells > 0, driver_cpu_ms > 0, epoch, clock_ahead_ms, statement_id FROM sys.interconnect \
                 WHERE kind = 'rank' ORDER BY rank_from";
    // One message per block, each of which must be counted correctly.
    let sums = "SELECT (SELECT sum(blocks) FROM sys.interconnect WHERE kind = 'rank') >= \
                (SELECT sum(blocks) FROM sys.interconnect WHERE kind = 'stream') AS fits";
    let arguments =
        ["--warehouse", "w", "--format", "csv", "-c", GROUPED, "-c", streams, "-c", ranks, "-c", sums];
    let Some(run) = on_ranks(Launcher::open_mpi(RANKS), &folder, &arguments, PATIENCE) else { return };
    assert!(run.success, "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    let of = |kind: &str| lines.iter().filter(|line| line.starts_with(kind)).copied().collect::<Vec<_>>();
    // A redistribution of three ranks to three, and a gather to the coordinator, without streams of a rank to
    // itself.
    let streams = of("stream,");
    assert_eq!(streams.len(), RANKS * (RANKS - 1) + RANKS - 1, "{}", run.stdout);
    for line in &streams {
        let (before, after) = line.split_once("slice[").unwrap();
        assert_eq!(before, "stream,1,done,q1 ", "{line}");
        assert!(after.contains("] rank "), "{line}");
        // A rank without any of these small files has nothing to send.
        let with_rows = after.ends_with(",true,true,true,true,true,true,true");
        assert!(with_rows || after.ends_with(",true,true,false,true,false,true,true"), "{line}");
    }
    let with_rows =
        streams.iter().filter(|line| line.ends_with(",true,true,true,true,true,true,true")).count();
    assert!(with_rows >= 2 * (RANKS - 1), "{streams:?}");
    assert!(streams.iter().any(|line| line.contains(" rank 2->1,")), "{streams:?}");
    for rank in 0..RANKS {
        let expected = format!("{rank},,true,true,true,true,true,1,0.0,");
        assert!(lines.contains(&expected.as_str()), "no {expected} in {}", run.stdout);
    }
    assert_eq!(lines.last(), Some(&"true"), "{}", run.stdout);
}

/// Statistics of a rank in `sys.interconnect` for one statement.
#[test]
fn explain_analyze_has_metrics_of_every_rank() {
    let folder = Folder::new();
    numbers(&folder);
    let statement = format!("EXPLAIN ANALYZE {GROUPED}");
    let arguments = ["--format", "csv", "-c", statement.as_str()];
    let Some(run) = on_ranks(Launcher::open_mpi(RANKS), &folder, &arguments, PATIENCE) else { return };
    assert!(run.success, "{run:?}");
    // Values with a comma are quoted in CSV.
    let lines: Vec<&str> = run.stdout.lines().map(|line| line.trim_matches('"')).collect();
    let heading = lines.iter().position(|line| *line == "Interconnect").expect(&run.stdout);
    let ranks = &lines[heading + 1..];
    assert_eq!(ranks.len(), RANKS, "{}", run.stdout);
    let number = |line: &str, name: &str| -> u64 {
        let (_, after) =
            line.split_once(&format!(", {name} ")).unwrap_or_else(|| panic!("no {name} in {line}"));
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|error| panic!("{name} in {line}: {error}"))
    };
    for (rank, line) in ranks.iter().enumerate() {
        assert!(line.starts_with(&format!("  rank {rank}: sent ")), "{line}");
        assert!(number(line, "sleeps") > 0 && number(line, "doorbells") > 0, "{line}");
        assert_eq!(number(line, "epoch"), 1, "{line}");
    }
    // More than the replies to the statistics requests before and after it.
    let blocks = ranks.iter().map(|line| {
        let (_, after) = line.split_once(" in ").expect(line);
        after.split(' ').next().and_then(|blocks| blocks.parse::<usize>().ok()).expect(line)
    });
    assert!(blocks.sum::<usize>() > 2 * (RANKS - 1), "{ranks:?}");

    let alone = folder.sql(&arguments);
    assert!(alone.stdout.contains("Whole query") && !alone.stdout.contains("Interconnect"), "{alone:?}");
}

#[test]
fn one_process_sends_nothing() {
    let folder = Folder::new();
    numbers(&folder);
    let run = folder.sql(&[
        "--warehouse",
        "w",
        "--format",
        "csv",
        "-c",
        GROUPED,
        "-c",
        "SELECT count(*) AS n, count(statement) AS s FROM sys.interconnect",
    ]);
    assert_eq!((run.status, run.stdout.lines().last()), (Some(0), Some("0,0")), "{run:?}");
}

#[test]
fn a_trace_has_ranks_as_processes_and_streams_as_tracks() {
    let folder = Folder::new();
    numbers(&folder);
    let wrong = "SELECT sum(x / (k - k)) FROM 't/*.parquet'";
    let arguments = ["--trace", "trace.json", "-c", GROUPED, "-c", GROUPED, "-c", wrong];
    let Some(run) = on_ranks(Launcher::open_mpi(RANKS), &folder, &arguments, PATIENCE) else { return };
    assert!(!run.success && run.stderr.contains("ERROR 22012"), "{run:?}");
    let text = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    let events = trace_check::check(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let ranks: Vec<String> = trace_check::processes(&events).into_iter().collect();
    assert_eq!(ranks, ["rank 0", "rank 1", "rank 2"]);
    let tracks = trace_check::tracks(&events);
    assert!(tracks.contains("statements"), "{tracks:?}");
    for part in ["DataSourceExec", "AggregateExec", "rank 1->0", "rank 1->2"] {
        assert!(tracks.iter().any(|track| track.contains(part)), "no {part} in {tracks:?}");
    }
    assert!(trace_check::arrows(&events) >= RANKS, "{events:#?}");
    let of = |category: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["cat"] == category && event["ph"] == "X").collect()
    };
    assert_eq!(of("statement").len(), 3);
    let second = of("stream").into_iter().filter(|event| event["args"]["statement"] == 2);
    assert_eq!(second.count(), RANKS * (RANKS - 1) + RANKS - 1);
    let start = of("statement")[0];
    let ended_us = start["ts"].as_f64().unwrap() + start["dur"].as_f64().unwrap();
    for event in of("operator").into_iter().filter(|event| event["args"]["statement"] == 1) {
        assert!(event["ts"].as_f64().unwrap() <= ended_us, "{event} after {start}");
    }
}

#[test]
fn a_trace_of_one_process() {
    let folder = Folder::new();
    let run = folder.sql(&["--trace", "trace.json", "-c", "SELECT count(*) FROM generate_series(1, 100)"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let text = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    let events = trace_check::check(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(trace_check::processes(&events).into_iter().collect::<Vec<_>>(), ["rank 0"]);
    let run = folder.sql(&["--trace", "no/such/trace.json", "-c", "SELECT 1"]);
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.starts_with("ERROR 58030: could not write file \"no/such/trace.json\""), "{run:?}");
}

/// The validator rejects invalid traces.
#[test]
fn invalid_traces_are_rejected() {
    let metadata_event = |kind: &str, tid: u64| json!({ "ph": "M", "name": kind, "pid": 1, "tid": tid, "args": { "name": "a" } });
    let span = |ts: f64, dur: f64| json!({ "ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {} });
    let arrow =
        |kind: &str, ts: f64| json!({ "ph": kind, "name": "x", "pid": 1, "tid": 1, "ts": ts, "id": 1 });
    let check = |events: &[serde_json::Value]| {
        let mut all = vec![metadata_event("process_name", 0), metadata_event("thread_name", 1)];
        all.extend_from_slice(events);
        trace_check::check(&json!({ "traceEvents": all }).to_string()).map(drop)
    };
    assert_eq!(check(&[span(0.0, 9.0), span(1.0, 2.0), span(9.0, 1.0)]), Ok(()));
    assert_eq!(check(&[span(0.0, 9.0), arrow("s", 1.0), arrow("f", 2.0)]), Ok(()));
    for wrong in [
        vec![span(0.0, 5.0), span(1.0, 5.0)],
        vec![span(-1.0, 5.0)],
        vec![span(0.0, f64::NAN)],
        vec![span(0.0, 9.0), arrow("s", 1.0)],
        vec![span(0.0, 9.0), arrow("s", 1.0), arrow("f", 9.5)],
        vec![span(0.0, 9.0), arrow("s", 2.0), arrow("f", 1.0)],
        vec![metadata_event("process_name", 0)],
        vec![json!({ "ph": "X", "name": "x", "pid": 1, "tid": 2, "ts": 0, "dur": 1, "args": {} })],
        vec![json!({ "ph": "?", "name": "x", "pid": 1, "tid": 1 })],
    ] {
        assert!(check(&wrong).is_err(), "{wrong:?}");
    }
    assert!(trace_check::check("{").is_err());
}

/// A sort-preserving merge reads one stream to its end while the next ones wait. Their blocks must not use up
/// the buffer of the stream being read: with credits per stream they do not; with gRPC's budget for all
/// streams of a connection they do, and the statement deadlocks.
#[test]
fn merge_streams_do_not_block_each_other() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("t")).unwrap();
    // Each output partition of each rank has a disjoint range of the order, far larger than the budget.
    let copies = (0..4).map(|file| {
        let (from, to) = (file * 30_000 + 1, (file + 1) * 30_000);
        format!("COPY (SELECT x, repeat('0123456789', 20) || x AS s FROM generate_series({from}, {to}) g(x)) TO 't/{file}.parquet';")
    });
    let run = folder.sql(&["-c", &copies.collect::<String>()]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let sorted = "SELECT x, s FROM 't/*.parquet' ORDER BY x";
    let budget = |bytes: u64| format!("distributed.worker_connection_buffer_budget_bytes={bytes}");
    let merged = |interconnect: &str, bytes: u64, patience| {
        let (interconnect, budget) = (format!("harrier.interconnect={interconnect}"), budget(bytes));
        let arguments = ["--format", "csv", "--set", &interconnect, "--set", &budget, "-c", sorted];
        on_ranks(Launcher::open_mpi(2), &folder, &arguments, patience)
    };
    let is_whole = |run: &Run| {
        let keys = run.stdout.lines().skip(1).map(|line| line.split_once(',').map(|(x, _)| x.parse::<u64>()));
        run.success && keys.eq((1..=120_000).map(|x| Some(Ok(x))))
    };
    let Some(run) = merged("mpi", 1 << 16, PATIENCE) else { return };
    assert!(is_whole(&run), "{}", run.stderr);
    // Producers have waited for credit, and the metrics count these waits.
    let waits = "SELECT count(*) > 0 AND sum(credit_waits) > 0 AND sum(credit_wait_ms) > 0 AS waited FROM sys.interconnect \
                 WHERE kind = 'stream'";
    let arguments = ["--format", "csv", "-c", sorted, "-c", waits];
    let run = on_ranks(Launcher::open_mpi(2), &folder, &arguments, PATIENCE).unwrap();
    assert_eq!(run.stdout.lines().last(), Some("true"), "{}", run.stderr);
    // The same with enough budget for all rows of a rank, to show that only the budget matters.
    let run = merged("grpc", 1 << 30, PATIENCE).unwrap();
    assert!(is_whole(&run), "{}", run.stderr);
    let run = merged("grpc", 1 << 16, STALL_PATIENCE).unwrap();
    assert!(
        run.timed_out,
        "gRPC's streams do not stall each other any more: say so in docs/benchmarks.md\n{}",
        run.stderr
    );
}
