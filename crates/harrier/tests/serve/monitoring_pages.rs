//! What the pages of `harrier serve` tell of real statements: their plans, how far they are, and what every
//! rank did.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::test_server::{Client, PATIENCE, Served, page};
use crate::trace_check;

/// Two ranks that take every scan of a file.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

const ALONE: &[&str] = &["--launcher", "none"];

fn make_table(client: &mut Client) {
    let sql = "CREATE TABLE t AS SELECT x, x % 1000 AS k FROM generate_series(1, 200000) s(x)";
    client.query(sql).unwrap();
}

/// The number of the statement that began last with this text.
fn number(client: &mut Client, text: &str) -> u64 {
    let sql = format!("SELECT max(id) FROM sys.statements WHERE text LIKE '{text}%'");
    client.one(&sql).unwrap().parse().unwrap()
}

fn told(served: &Served, statement: u64) -> Value {
    let (status, body) = page(&served.pages, &format!("/statements/{statement}/work.json"), true);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn operators(told: &Value) -> Vec<&Value> {
    let slices = told["slices"].as_array().map(Vec::as_slice).unwrap_or_default();
    slices.iter().flat_map(|slice| slice["operators"].as_array().unwrap()).collect()
}

fn named<'v>(told: &'v Value, name: &str) -> &'v Value {
    let found =
        operators(told).into_iter().find(|operator| operator["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {told:#}"))
}

/// One number of an operator, over all ranks.
fn sum(operator: &Value, number: &str) -> u64 {
    let shares = operator["shares"].as_array().map(Vec::as_slice).unwrap_or_default();
    shares.iter().filter_map(|share| share[number].as_u64()).sum()
}

#[test]
fn a_statement_that_ran_on_the_gang_shows_what_each_rank_did() {
    let served = Served::start(GANG);
    let mut client = served.client();
    make_table(&mut client);
    served.wait_for_ranks(2);
    let rows = client.query("SELECT k, count(*), sum(x) FROM t GROUP BY k ORDER BY k").unwrap();
    assert_eq!(rows.len(), 1000);
    let statement = number(&mut client, "SELECT k, count");
    let told = told(&served, statement);
    assert_eq!(
        (&told["phase"], &told["rows"], &told["fraction"]),
        (&"done".into(), &1000.into(), &1.0.into())
    );
    let scan = named(&told, "DataSourceExec");
    assert_eq!(sum(scan, "rows"), 200_000);
    assert!(sum(scan, "read_bytes") > 100_000, "{scan:#}");
    let motion = named(&told, "redistribute 2→2");
    assert!(sum(motion, "moved_bytes") > 1000 && sum(motion, "rows") >= 1000, "{motion:#}");
    let aggregate = operators(&told)
        .into_iter()
        .find(|operator| operator["detail"].as_str().unwrap_or_default().starts_with("mode=Final"))
        .unwrap_or_else(|| panic!("no final aggregate in {told:#}"));
    assert_eq!(sum(aggregate, "rows"), 1000);
    let ranks: Vec<u64> =
        aggregate["shares"].as_array().unwrap().iter().map(|share| share["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1]);
    let began = aggregate["shares"][0]["began_ns"].as_u64().unwrap();
    assert!(aggregate["shares"][0]["ended_ns"].as_u64().unwrap() >= began);
    // What moved from rank to rank.
    let streams = format!(
        "SELECT count(*), sum(blocks) > 0, min(state), min(statement LIKE 'SELECT k, count%') FROM sys.interconnect \
         WHERE statement_id = {statement} AND stream LIKE 'q{statement} slice[%] rank %->%'"
    );
    let rows = client.query(&streams).unwrap();
    let row: Vec<&str> = rows[0].iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
    // Of two ranks, each to the other one, and one to the coordinator.
    assert_eq!(row, ["3", "t", "done", "t"]);
    served.wait_for(
        "SELECT count(*) FROM sys.interconnect WHERE kind = 'rank' AND blocks > 0 AND epoch = 1",
        "2",
    );
    let (status, trace) = page(&served.pages, &format!("/statements/{statement}/trace.json"), true);
    assert_eq!(status, 200, "{trace}");
    let events = trace_check::check(&trace).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(trace_check::processes(&events).into_iter().collect::<Vec<_>>(), ["rank 0", "rank 1"]);
    assert!(trace_check::tracks(&events).iter().any(|track| track.ends_with("rank 1->0")), "{events:#?}");
    assert!(trace_check::arrows(&events) > 0, "{events:#?}");
    assert_eq!(page(&served.pages, "/statements/123456/trace.json", true).0, 404);
    // The same for people.
    let (_, body) = page(&served.pages, &format!("/statements/{statement}"), true);
    for expected in ["redistribute 2→2", "gather 2→1", "moved between ranks", "<h2>Ranks</h2>", "on 2 ranks"]
    {
        assert!(body.contains(expected), "no {expected} in {body}");
    }
    let (_, metrics) = page(&served.pages, "/metrics", true);
    let moved = metrics.lines().find_map(|line| line.strip_prefix("harrier_moved_bytes_total "));
    assert!(moved.unwrap().parse::<f64>().unwrap() > 1000.0, "{metrics}");
    // What fails on the ranks has a plan, too, unless it took next to no time.
    let sql = "SELECT sum(1 / (n - 40000)) FROM (SELECT a.k, count(*) AS n FROM t a JOIN t b ON a.k = b.k GROUP BY a.k) j";
    assert_eq!(client.fails(sql), "22012");
    let statement = number(&mut client, "SELECT sum(1 / (n");
    let told = self::told(&served, statement);
    assert_eq!(told["phase"], "failed");
    named(&told, "DataSourceExec");
}

#[test]
fn a_statement_that_runs_on_the_gang_shows_how_far_it_is() {
    let served = Served::start(GANG);
    let mut client = served.client();
    make_table(&mut client);
    served.wait_for_ranks(2);
    // 200 MB that nobody reads: it runs until it is canceled.
    let mut busy = served.client();
    busy.ask("SELECT x, repeat('x', 1000) FROM t");
    let until = Instant::now() + PATIENCE;
    let statement = loop {
        let sql =
            "SELECT coalesce(max(id), 0) FROM sys.statements WHERE text LIKE 'SELECT x, repeat%' AND on_gang";
        match client.one(sql).unwrap().as_str() {
            "0" => assert!(Instant::now() < until, "it never ran on the gang"),
            id => break id.parse().unwrap(),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // Both ranks tell of their parts, and of more as time goes.
    let told = loop {
        let told = told(&served, statement);
        let read = |operator: &&Value| operator["scan"].is_object() && sum(operator, "rows") > 0;
        let ranks: std::collections::BTreeSet<u64> = operators(&told)
            .into_iter()
            .flat_map(|operator| operator["shares"].as_array().map(Vec::as_slice).unwrap_or_default())
            .filter_map(|share| share["rank"].as_u64())
            .collect();
        if operators(&told).iter().any(read) && ranks.len() == 2 {
            break told;
        }
        assert!(Instant::now() < until, "{told:#}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(told["phase"], "running");
    assert!(told["fraction"].as_f64().unwrap() > 0.0, "{told:#}");
    let (_, body) = page(&served.pages, &format!("/statements/{statement}"), true);
    assert!(body.contains("<progress") && body.contains(" % read"), "{body}");
    // A look costs the statement nothing that it would not give back.
    client
        .query(&format!("SELECT pg_cancel_backend(pid) FROM sys.statements WHERE id = {statement}"))
        .unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57014");
    let told = self::told(&served, statement);
    assert_eq!(told["phase"], "canceled");
    named(&told, "DataSourceExec");
    assert_eq!(client.one("SELECT count(*) FROM t").as_deref(), Ok("200000"));
    served.wait_for("SELECT sum(streams_open) + sum(reserved_bytes) FROM sys.ranks", "0");
}

/// Streams between the slices of ranks; those to the coordinator are told when it has ended.
#[test]
fn a_statement_that_runs_tells_of_its_streams() {
    let served = Served::start(GANG);
    let mut client = served.client();
    make_table(&mut client);
    served.wait_for_ranks(2);
    // All rows have changed ranks before the first one comes out, and nobody reads the gigabyte that follows.
    let mut busy = served.client();
    busy.ask("SELECT y, repeat('x', 5000) FROM (SELECT x + 1 AS y FROM t GROUP BY 1) g");
    let running = "SELECT count(DISTINCT stream) = 2 AND sum(blocks) > 0 FROM sys.interconnect \
                   WHERE state = 'running' AND slice_to > 0 AND statement LIKE 'SELECT y, repeat%'";
    served.wait_for(running, "t");
    client
        .query("SELECT pg_cancel_backend(pid) FROM sys.statements WHERE text LIKE 'SELECT y, repeat%'")
        .unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57014");
}

/// While it runs, after it was canceled, and when it has failed for want of more.
#[test]
fn a_statement_tells_what_memory_it_takes() {
    const LIMIT: u64 = 64 << 20;
    for (arguments, processes) in [(ALONE, 1), (GANG, 2)] {
        let served = Served::start(&[arguments, &["--memory", "64MiB"]].concat());
        let mut client = served.client();
        make_table(&mut client);
        if processes > 1 {
            served.wait_for_ranks(2);
        }
        // All rows are in memory, sorted, before the first one comes out, and nobody reads them.
        let mut busy = served.client();
        busy.ask("SELECT y, repeat('x', 5000) FROM (SELECT x + row_number() OVER (PARTITION BY k ORDER BY x DESC) AS y FROM t) g");
        let of = "FROM sys.statements WHERE text LIKE 'SELECT y, repeat%'";
        served.wait_for(&format!("SELECT memory_bytes > 1000000 {of} AND state = 'running'"), "t");
        let peak = |client: &mut Client| {
            let peak = client.one(&format!("SELECT memory_peak_bytes {of}")).unwrap();
            peak.parse::<u64>().unwrap()
        };
        let held = client.one(&format!("SELECT memory_bytes <= memory_peak_bytes {of}"));
        assert_eq!(held.as_deref(), Ok("t"), "{arguments:?}");
        let most = peak(&mut client);
        assert!((1_000_000..=processes * LIMIT).contains(&most), "{most}: {arguments:?}");
        let statement = number(&mut client, "SELECT y, repeat");
        // The server alone, or every rank as soon as it has told.
        let until = Instant::now() + PATIENCE;
        let expected = if processes == 1 { vec![None] } else { vec![Some(0), Some(1)] };
        loop {
            let told = told(&served, statement);
            let memory = told["memory"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ranks: Vec<Option<u64>> = memory.iter().map(|process| process["rank"].as_u64()).collect();
            if expected.iter().all(|rank| ranks.contains(rank)) {
                break;
            }
            assert!(Instant::now() < until, "{told:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (_, body) = page(&served.pages, &format!("/statements/{statement}"), true);
        assert!(body.contains("MiB, at most "), "{body}");
        client.query(&format!("SELECT pg_cancel_backend(pid) {of}")).unwrap();
        assert_eq!(busy.answer().unwrap_err().0, "57014");
        let after = client.one(&format!("SELECT memory_bytes {of}"));
        assert_eq!(after.as_deref(), Ok("0"), "{arguments:?}");
        assert!(peak(&mut client) >= most, "{arguments:?}");
        served.wait_for("SELECT coalesce(sum(reserved_bytes), 0) FROM sys.ranks", "0");
        // What it had tells why it failed.
        client.query("SET harrier.statement_memory = '2MB'").unwrap();
        assert_eq!(
            client.fails("SELECT sum(a.k + b.k) FROM t a JOIN t b USING (x)"),
            "53200",
            "{arguments:?}"
        );
        client.query("RESET harrier.statement_memory").unwrap();
        let failed = "FROM sys.statements WHERE text LIKE 'SELECT sum(a.k%'";
        let least = format!("SELECT memory_bytes = 0 AND memory_peak_bytes > 1000000 {failed}");
        assert_eq!(client.one(&least).as_deref(), Ok("t"), "{arguments:?}");
        if processes == 1 {
            // With what is told to the pool and not asked of it.
            let most = format!("SELECT memory_peak_bytes < 2 * 2 * 1024 * 1024 {failed}");
            assert_eq!(client.one(&most).as_deref(), Ok("t"));
        }
        // One that was not looked at while it ran.
        assert_eq!(
            client.one("SELECT count(*) FROM (SELECT DISTINCT x, k FROM t) d").as_deref(),
            Ok("200000")
        );
        let sql = "SELECT memory_bytes = 0 AND memory_peak_bytes > 1000000 FROM sys.statements WHERE text LIKE 'SELECT count(*) FROM (SEL%'";
        assert_eq!(client.one(sql).as_deref(), Ok("t"), "{arguments:?}");
    }
}

#[test]
fn a_statement_of_the_server_itself_shows_its_plan() {
    let served = Served::start(ALONE);
    let mut client = served.client();
    make_table(&mut client);
    let rows =
        client.query("SELECT a.k, count(*) FROM t a JOIN t b USING (x) GROUP BY a.k ORDER BY 1").unwrap();
    assert_eq!(rows.len(), 1000);
    let statement = number(&mut client, "SELECT a.k, count");
    let told = told(&served, statement);
    assert_eq!((told["slices"].as_array().unwrap().len(), &told["fraction"]), (1, &1.0.into()));
    assert_eq!(sum(named(&told, "HashJoinExec"), "rows"), 200_000);
    // Writing has a plan as well.
    client.query("INSERT INTO t SELECT a.x, b.k FROM t a JOIN t b USING (x)").unwrap();
    let statement = number(&mut client, "INSERT INTO t");
    let told = self::told(&served, statement);
    assert_eq!(sum(named(&told, "HashJoinExec"), "rows"), 200_000);
}

#[test]
fn pages_tell_of_tables_snapshots_ranks_and_queues() {
    let served = Served::start(GANG);
    let mut client = served.client();
    make_table(&mut client);
    client.query("DELETE FROM t WHERE x <= 10").unwrap();
    let (_, tables) = page(&served.pages, "/tables", true);
    assert!(tables.contains("199,990"), "{tables}");
    let (status, snapshots) =
        (tables.contains("Latest snapshots"), tables.split("Latest snapshots").nth(1).unwrap());
    assert!(status && snapshots.contains("inlined_delete"), "{snapshots}");
    served.wait_for_ranks(2);
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, ranks) = page(&served.pages, "/ranks", true);
        let working = ranks.matches("<span class=\"badge working\">").count();
        // Memory of the process, and cores, which take two looks.
        if working == 2 && ranks.contains(" MiB</td>") && ranks.contains("data-label=\"cores busy\">0.") {
            break;
        }
        assert!(Instant::now() < until, "{ranks}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let (_, queues) = page(&served.pages, "/queues", true);
    assert!(queues.contains("default") && queues.contains("Statements that wait"), "{queues}");
}
