//! Monitoring pages of `harrier serve` for real statements: plans, progress, and metrics of every rank.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::test_server::{Client, PATIENCE, TestServer, page};
use crate::trace_check;

/// Two ranks, with every scan of a file distributed.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

const ALONE: &[&str] = &["--launcher", "none"];

fn make_table(client: &mut Client) {
    let sql = "CREATE TABLE t AS SELECT x, x % 1000 AS k FROM generate_series(1, 200000) s(x)";
    client.query(sql).unwrap();
}

/// Number of the last started statement with this text.
fn number(client: &mut Client, text: &str) -> u64 {
    let sql = format!("SELECT max(id) FROM sys.statements WHERE text LIKE '{text}%'");
    client.one(&sql).unwrap().parse().unwrap()
}

fn statement_page(server: &TestServer, statement: u64) -> Value {
    let (status, body) = page(&server.pages, &format!("/statements/{statement}/work.json"), true);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn operators(page_json: &Value) -> Vec<&Value> {
    let slices = page_json["slices"].as_array().map(Vec::as_slice).unwrap_or_default();
    slices.iter().flat_map(|slice| slice["operators"].as_array().unwrap()).collect()
}

fn operator_named<'v>(page_json: &'v Value, name: &str) -> &'v Value {
    let matching = operators(page_json)
        .into_iter()
        .find(|operator| operator["name"].as_str().unwrap().starts_with(name));
    matching.unwrap_or_else(|| panic!("no {name} in {page_json:#}"))
}

/// A metric of an operator, summed over ranks.
fn sum(operator: &Value, number: &str) -> u64 {
    let shares = operator["shares"].as_array().map(Vec::as_slice).unwrap_or_default();
    shares.iter().filter_map(|share| share[number].as_u64()).sum()
}

#[test]
fn finished_statement_has_metrics_of_each_rank() {
    let server = TestServer::start(GANG);
    let mut client = server.client();
    make_table(&mut client);
    server.wait_for_ranks(2);
    let rows = client.query("SELECT k, count(*), sum(x) FROM t GROUP BY k ORDER BY k").unwrap();
    assert_eq!(rows.len(), 1000);
    let statement = number(&mut client, "SELECT k, count");
    let page_json = statement_page(&server, statement);
    assert_eq!(
        (&page_json["phase"], &page_json["rows"], &page_json["fraction"]),
        (&"done".into(), &1000.into(), &1.0.into())
    );
    let scan = operator_named(&page_json, "DataSourceExec");
    assert_eq!(sum(scan, "rows"), 200_000);
    assert!(sum(scan, "read_bytes") > 100_000, "{scan:#}");
    let motion = operator_named(&page_json, "redistribute 2→2");
    assert!(sum(motion, "moved_bytes") > 1000 && sum(motion, "rows") >= 1000, "{motion:#}");
    let aggregate = operators(&page_json)
        .into_iter()
        .find(|operator| operator["detail"].as_str().unwrap_or_default().starts_with("mode=Final"))
        .unwrap_or_else(|| panic!("no final aggregate in {page_json:#}"));
    assert_eq!(sum(aggregate, "rows"), 1000);
    let ranks: Vec<u64> =
        aggregate["shares"].as_array().unwrap().iter().map(|share| share["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1]);
    let began = aggregate["shares"][0]["began_ns"].as_u64().unwrap();
    assert!(aggregate["shares"][0]["ended_ns"].as_u64().unwrap() >= began);
    // Redistributed rows and bytes.
    let streams = format!(
        "SELECT count(*), sum(blocks) > 0, min(state), min(statement LIKE 'SELECT k, count%') FROM sys.interconnect \
         WHERE statement_id = {statement} AND stream LIKE 'q{statement} slice[%] rank %->%'"
    );
    let rows = client.query(&streams).unwrap();
    let row: Vec<&str> = rows[0].iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
    // Streams between two ranks in both directions, and one to the coordinator.
    assert_eq!(row, ["3", "t", "done", "t"]);
    server.wait_for(
        "SELECT count(*) FROM sys.interconnect WHERE kind = 'rank' AND blocks > 0 AND epoch = 1",
        "2",
    );
    let (status, trace) = page(&server.pages, &format!("/statements/{statement}/trace.json"), true);
    assert_eq!(status, 200, "{trace}");
    let events = trace_check::check(&trace).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(trace_check::processes(&events).into_iter().collect::<Vec<_>>(), ["rank 0", "rank 1"]);
    assert!(trace_check::tracks(&events).iter().any(|track| track.ends_with("rank 1->0")), "{events:#?}");
    assert!(trace_check::arrows(&events) > 0, "{events:#?}");
    assert_eq!(page(&server.pages, "/statements/123456/trace.json", true).0, 404);
    // The HTML page.
    let (_, body) = page(&server.pages, &format!("/statements/{statement}"), true);
    for expected in ["redistribute 2→2", "gather 2→1", "moved between ranks", "<h2>Ranks</h2>", "on 2 ranks"]
    {
        assert!(body.contains(expected), "no {expected} in {body}");
    }
    let (_, metrics) = page(&server.pages, "/metrics", true);
    let moved_bytes = metrics.lines().find_map(|line| line.strip_prefix("harrier_moved_bytes_total "));
    assert!(moved_bytes.unwrap().parse::<f64>().unwrap() > 1000.0, "{metrics}");
    // A statement that fails on the ranks has a plan, too, unless it was very short.
    let sql = "SELECT sum(1 / (n - 40000)) FROM (SELECT a.k, count(*) AS n FROM t a JOIN t b ON a.k = b.k GROUP BY a.k) j";
    assert_eq!(client.fails(sql), "22012");
    let statement = number(&mut client, "SELECT sum(1 / (n");
    let page_json = statement_page(&server, statement);
    assert_eq!(page_json["phase"], "failed");
    operator_named(&page_json, "DataSourceExec");
}

#[test]
fn running_statement_has_progress() {
    let server = TestServer::start(GANG);
    let mut client = server.client();
    make_table(&mut client);
    server.wait_for_ranks(2);
    // 200 MB without a reader: runs until it is canceled.
    let mut busy = server.client();
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
    // Both ranks report their slices, with growing metrics.
    let page_json = loop {
        let page_json = statement_page(&server, statement);
        let read = |operator: &&Value| operator["scan"].is_object() && sum(operator, "rows") > 0;
        let ranks: std::collections::BTreeSet<u64> = operators(&page_json)
            .into_iter()
            .flat_map(|operator| operator["shares"].as_array().map(Vec::as_slice).unwrap_or_default())
            .filter_map(|share| share["rank"].as_u64())
            .collect();
        if operators(&page_json).iter().any(read) && ranks.len() == 2 {
            break page_json;
        }
        assert!(Instant::now() < until, "{page_json:#}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(page_json["phase"], "running");
    assert!(page_json["fraction"].as_f64().unwrap() > 0.0, "{page_json:#}");
    let (_, body) = page(&server.pages, &format!("/statements/{statement}"), true);
    assert!(body.contains("<progress") && body.contains(" % read"), "{body}");
    // Requesting the page leaves nothing allocated.
    client
        .query(&format!("SELECT pg_cancel_backend(pid) FROM sys.statements WHERE id = {statement}"))
        .unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57014");
    let page_json = statement_page(&server, statement);
    assert_eq!(page_json["phase"], "canceled");
    operator_named(&page_json, "DataSourceExec");
    assert_eq!(client.one("SELECT count(*) FROM t").as_deref(), Ok("200000"));
    server.wait_for("SELECT sum(streams_open) + sum(reserved_bytes) FROM sys.ranks", "0");
}

/// Streams between ranks are reported while a statement runs; those to the coordinator after its end.
#[test]
fn running_statement_has_stream_metrics() {
    let server = TestServer::start(GANG);
    let mut client = server.client();
    make_table(&mut client);
    server.wait_for_ranks(2);
    // All rows are redistributed before the first one is returned, and nobody reads the result of a gigabyte.
    let mut busy = server.client();
    busy.ask("SELECT y, repeat('x', 5000) FROM (SELECT x + 1 AS y FROM t GROUP BY 1) g");
    let running = "SELECT count(DISTINCT stream) = 2 AND sum(blocks) > 0 FROM sys.interconnect \
                   WHERE state = 'running' AND slice_to > 0 AND statement LIKE 'SELECT y, repeat%'";
    server.wait_for(running, "t");
    client
        .query("SELECT pg_cancel_backend(pid) FROM sys.statements WHERE text LIKE 'SELECT y, repeat%'")
        .unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57014");
}

/// Memory while it runs, after it was canceled, and after it ran out of memory.
#[test]
fn statement_memory_and_peak() {
    const LIMIT: u64 = 64 << 20;
    for (arguments, processes) in [(ALONE, 1), (GANG, 2)] {
        let server = TestServer::start(&[arguments, &["--memory", "64MiB"]].concat());
        let mut client = server.client();
        make_table(&mut client);
        if processes > 1 {
            server.wait_for_ranks(2);
        }
        // All rows are in memory, sorted, before the first one is returned, and nobody reads them.
        let mut busy = server.client();
        busy.ask("SELECT y, repeat('x', 5000) FROM (SELECT x + row_number() OVER (PARTITION BY k ORDER BY x DESC) AS y FROM t) g");
        let of = "FROM sys.statements WHERE text LIKE 'SELECT y, repeat%'";
        server.wait_for(&format!("SELECT memory_bytes > 1000000 {of} AND state = 'running'"), "t");
        let peak = |client: &mut Client| {
            let peak = client.one(&format!("SELECT memory_peak_bytes {of}")).unwrap();
            peak.parse::<u64>().unwrap()
        };
        let usage = client.one(&format!("SELECT memory_bytes <= memory_peak_bytes {of}"));
        assert_eq!(usage.as_deref(), Ok("t"), "{arguments:?}");
        let most = peak(&mut client);
        assert!((1_000_000..=processes * LIMIT).contains(&most), "{most}: {arguments:?}");
        let statement = number(&mut client, "SELECT y, repeat");
        // The server alone, or each rank once it has reported.
        let until = Instant::now() + PATIENCE;
        let expected = if processes == 1 { vec![None] } else { vec![Some(0), Some(1)] };
        loop {
            let page_json = statement_page(&server, statement);
            let memory = page_json["memory"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ranks: Vec<Option<u64>> = memory.iter().map(|process| process["rank"].as_u64()).collect();
            if expected.iter().all(|rank| ranks.contains(rank)) {
                break;
            }
            assert!(Instant::now() < until, "{page_json:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (_, body) = page(&server.pages, &format!("/statements/{statement}"), true);
        assert!(body.contains("MiB, at most "), "{body}");
        client.query(&format!("SELECT pg_cancel_backend(pid) {of}")).unwrap();
        assert_eq!(busy.answer().unwrap_err().0, "57014");
        let after = client.one(&format!("SELECT memory_bytes {of}"));
        assert_eq!(after.as_deref(), Ok("0"), "{arguments:?}");
        assert!(peak(&mut client) >= most, "{arguments:?}");
        server.wait_for("SELECT coalesce(sum(reserved_bytes), 0) FROM sys.ranks", "0");
        // The peak explains the failure.
        client.query("SET harrier.statement_memory = '2MB'").unwrap();
        assert_eq!(
            client.fails("SELECT sum(a.k + b.k) FROM t a JOIN t b USING (x)"),
            "53200",
            "{arguments:?}"
        );
        client.query("RESET harrier.statement_memory").unwrap();
        let failed_statement = "FROM sys.statements WHERE text LIKE 'SELECT sum(a.k%'";
        let least = format!("SELECT memory_bytes = 0 AND memory_peak_bytes > 1000000 {failed_statement}");
        assert_eq!(client.one(&least).as_deref(), Ok("t"), "{arguments:?}");
        if processes == 1 {
            // Including memory registered with the pool without a reservation.
            let most = format!("SELECT memory_peak_bytes < 2 * 2 * 1024 * 1024 {failed_statement}");
            assert_eq!(client.one(&most).as_deref(), Ok("t"));
        }
        // A statement that nobody looked at while it ran.
        assert_eq!(
            client.one("SELECT count(*) FROM (SELECT DISTINCT x, k FROM t) d").as_deref(),
            Ok("200000")
        );
        let sql = "SELECT memory_bytes = 0 AND memory_peak_bytes > 1000000 FROM sys.statements WHERE text LIKE 'SELECT count(*) FROM (SEL%'";
        assert_eq!(client.one(sql).as_deref(), Ok("t"), "{arguments:?}");
    }
}

#[test]
fn local_statement_has_a_plan() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    make_table(&mut client);
    let rows =
        client.query("SELECT a.k, count(*) FROM t a JOIN t b USING (x) GROUP BY a.k ORDER BY 1").unwrap();
    assert_eq!(rows.len(), 1000);
    let statement = number(&mut client, "SELECT a.k, count");
    let page_json = statement_page(&server, statement);
    assert_eq!((page_json["slices"].as_array().unwrap().len(), &page_json["fraction"]), (1, &1.0.into()));
    assert_eq!(sum(operator_named(&page_json, "HashJoinExec"), "rows"), 200_000);
    // DML has a plan as well.
    client.query("INSERT INTO t SELECT a.x, b.k FROM t a JOIN t b USING (x)").unwrap();
    let statement = number(&mut client, "INSERT INTO t");
    let page_json = statement_page(&server, statement);
    assert_eq!(sum(operator_named(&page_json, "HashJoinExec"), "rows"), 200_000);
}

#[test]
fn pages_list_tables_snapshots_ranks_and_queues() {
    let server = TestServer::start(GANG);
    let mut client = server.client();
    make_table(&mut client);
    client.query("DELETE FROM t WHERE x <= 10").unwrap();
    let (_, tables) = page(&server.pages, "/tables", true);
    assert!(tables.contains("199,990"), "{tables}");
    let (status, snapshots) =
        (tables.contains("Latest snapshots"), tables.split("Latest snapshots").nth(1).unwrap());
    assert!(status && snapshots.contains("inlined_delete"), "{snapshots}");
    server.wait_for_ranks(2);
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, ranks) = page(&server.pages, "/ranks", true);
        let working = ranks.matches("<span class=\"badge working\">").count();
        // Memory and processor use of the process, which need two samples.
        if working == 2 && ranks.contains(" MiB</td>") && ranks.contains("data-label=\"cores busy\">0.") {
            break;
        }
        assert!(Instant::now() < until, "{ranks}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let (_, queues) = page(&server.pages, "/queues", true);
    assert!(queues.contains("default") && queues.contains("Statements that wait"), "{queues}");
}
