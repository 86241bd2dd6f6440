//! Loss and return of a host of a server's ranks, and moving ranks between hosts. Hosts are network
//! namespaces; without permission to create them, the tests print so and pass.

use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::namespace_hosts::Network;
use crate::test_server::{Client, PATIENCE, TestServer};

/// Hosts of ranks and spares, by number.
const STATES: &str = "SELECT string_agg(state, ' ' ORDER BY rank) FROM sys.ranks";
const HOSTS: &str = "SELECT string_agg(host, ' ' ORDER BY rank) FROM sys.ranks";
const WHOLE: &str = "working working working spare";

const ROWS: i64 = 40_000;
const SUM: &str = "SELECT sum(x) FROM t";

/// Statement that takes some tenths of a second or more, and returns one row at the end.
const SLOW: &str = "SELECT count(*) FROM t a JOIN t b ON a.x % 16 = b.x % 16 WHERE (a.x * b.x) % 5 = 1";

/// Much longer than the failure detector's timeout (5 s).
const BOUND: Duration = Duration::from_secs(40);

fn sum() -> String {
    (ROWS * (ROWS + 1) / 2).to_string()
}

/// Starts a server with three ranks and a spare on four hosts, holding the lock on the hosts.
fn start() -> Option<(MutexGuard<'static, ()>, Network, TestServer)> {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let turn = crate::exclusive_cluster();
    let network = Network::make(3)?;
    let file = network.hosts_file(&[1, 1, 1, 1]);
    let gang = ["--ranks", "3", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];
    let arguments = [&gang[..], &["--memory", "1GiB", "--hostfile", file.to_str().unwrap()]].concat();
    let environment = network.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), &arguments, &environment);
    server.wait_for(STATES, WHOLE);
    let sql = format!("CREATE TABLE t AS SELECT x FROM generate_series(1, {ROWS}) s(x)");
    server.client().query(&sql).unwrap();
    Some((turn, network, server))
}

/// Starts a long statement, and waits until the gang runs it.
fn ask_slow(server: &TestServer, settings: &[&str]) -> Client {
    let mut client = server.client();
    // Takes long when other programs use the machine.
    client.stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    for setting in settings {
        client.query(setting).unwrap();
    }
    client.ask(SLOW);
    let running = format!(
        "SELECT count(*) FROM sys.statements WHERE pid = {} AND state = 'running' AND on_gang",
        client.process
    );
    server.wait_for(&running, "1");
    client
}

fn generation(server: &TestServer) -> u64 {
    server.client().one("SELECT coalesce(max(gang), 0) FROM sys.ranks").unwrap().parse().unwrap()
}

#[test]
fn partitioned_host_is_replaced_until_it_returns() {
    let Some((_turn, network, mut server)) = start() else { return };
    let hosts = server.client().one(HOSTS).unwrap();
    assert_eq!(hosts.split(' ').skip(1).collect::<Vec<_>>(), [2, 3, 4].map(|host| network.host(host)));
    let right = server.client().one(SLOW).unwrap();
    let first = generation(&server);

    // A statement that may not be retried fails with the name of the lost rank; the other one is retried on
    // the remaining ranks.
    let mut plain = ask_slow(&server, &["SET harrier.retry_reads = off"]);
    let mut retry_client = ask_slow(&server, &[]);
    let began = Instant::now();
    network.cut(3);
    let (state, message) = plain.answer().unwrap_err();
    assert!(state == "57P02" && message.contains("rank 2"), "{state} {message}");
    assert!(message.contains(&network.host(3)), "{message}");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    let rows = retry_client.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", server.log()));
    assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));

    // The next statement uses the spare, without a new gang; the session has survived.
    assert_eq!(plain.one(SUM), Ok(sum()));
    server.wait_for(STATES, "working working down working");
    assert_eq!(generation(&server), first);

    // The host's ranks return when it answers again.
    network.repair(3);
    server.wait_for(STATES, WHOLE);
    server.wait_for(HOSTS, &hosts);
    assert!(generation(&server) > first);
    assert_eq!(plain.one(SUM), Ok(sum()));
    assert!(server.log().contains(&format!("host {} is back", network.host(3))), "{}", server.log());
    assert_eq!(server.stop(), Some(0));
}

/// Detected by the closed connection, not by missing heartbeats.
#[test]
fn remote_rank_exit_is_detected_immediately() {
    let Some((_turn, network, server)) = start() else { return };
    let mut client = ask_slow(&server, &["SET harrier.retry_reads = off"]);
    network.kill_ranks(3);
    let (state, message) = client.answer().unwrap_err();
    assert!(state == "57P02" && message.contains("rank 2"), "{state} {message}");
    assert!(message.contains(&format!("on {} ended", network.host(3))), "{message}");
    assert_eq!(client.one(SUM), Ok(sum()));
}

#[test]
fn gang_restarts_on_remaining_hosts() {
    let Some((_turn, network, server)) = start() else { return };
    let hosts = server.client().one(HOSTS).unwrap();
    let own = hosts.split(' ').next().unwrap();
    network.cut(3);
    network.cut(4);
    // Two of four hosts are too few for one rank each; the two that are left run two ranks each.
    let remaining = format!("{own} {two} {own} {two}", two = network.host(2));
    server.wait_for(HOSTS, &remaining);
    server.wait_for(STATES, WHOLE);
    let mut client = server.client();
    assert_eq!(client.one(SUM), Ok(sum()));
    network.repair(4);
    network.repair(3);
    server.wait_for(HOSTS, &hosts);
    server.wait_for(STATES, WHOLE);
    assert_eq!(client.one(SUM), Ok(sum()));
}

fn ctl(server: &TestServer, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_harrier"))
        .args(["ctl", "--host", "127.0.0.1", "--port", &server.port.to_string()])
        .args(arguments)
        .env_remove("PGHOST")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn ranks_move_between_hosts() {
    let Some((_turn, network, server)) = start() else { return };
    let hosts = server.client().one(HOSTS).unwrap();
    let own = hosts.split(' ').next().unwrap();
    let host = |number| network.host(number);
    let right = server.client().one(SLOW).unwrap();
    // The running statement may end; sessions survive.
    let mut running = ask_slow(&server, &["SET harrier.retry_reads = off"]);
    assert_eq!(ctl(&server, &["move-rank", "1", &host(3), "--wait"]), (Some(0), String::new()));
    let rows = running.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", server.log()));
    assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));
    let moved = format!("{own} {} {} {}", host(3), host(3), host(4));
    server.wait_for(HOSTS, &moved);
    server.wait_for(STATES, WHOLE);
    assert_eq!(running.one(SUM), Ok(sum()));
    // The rank stays there after a restart of the gang.
    assert_eq!(ctl(&server, &["restart-gang", "--wait"]), (Some(0), String::new()));
    server.wait_for(HOSTS, &moved);
    server.wait_for(STATES, WHOLE);
    let refused = |rank: &str, host: &str, state: &str| {
        let (status, message) = ctl(&server, &["move-rank", rank, host]);
        assert!(status == Some(1) && message.starts_with(&format!("ERROR {state}: ")), "{message}");
    };
    refused("1", &host(3), "55000");
    refused("1", "nowhere", "22023");
    refused("0", &host(2), "55000");
    refused("4", &host(2), "22023");
    let mut client = server.client();
    assert_eq!(client.one(&format!("SELECT harrier_move_rank(1, '{}')", host(2))).as_deref(), Ok("t"));
    server.wait_for(HOSTS, &hosts);
    server.wait_for(STATES, WHOLE);
    assert_eq!(client.one(SUM), Ok(sum()));
}

#[test]
fn interconnect_compression_between_hosts() {
    let Some((_turn, _network, server)) = start() else { return };
    let mut client = server.client();
    let sql =
        format!("CREATE TABLE w AS SELECT x, repeat('abcde', 40) AS s FROM generate_series(1, {ROWS}) g(x)");
    client.query(&sql).unwrap();
    // Redistributes every row by its key.
    let sql = "FROM (SELECT x % 20011 AS k, max(s) AS s, count(*) FROM w GROUP BY 1) g \
               JOIN (SELECT (x * 7) % 20011 AS k, min(s) AS s FROM w GROUP BY 1) h ON g.k = h.k AND g.s = h.s";
    let mut moved = |codec: &str| -> i64 {
        client.query(&format!("SET harrier.interconnect_compression = {codec}")).unwrap();
        assert_eq!(
            client.one(&format!("SELECT count(*) AS by_{codec} {sql}")).as_deref(),
            Ok("20011"),
            "{codec}"
        );
        // Statistics of its streams arrive a little later.
        let bytes = format!(
            "SELECT sum(bytes)::bigint FROM sys.interconnect WHERE kind = 'stream' AND state <> 'running' \
             AND statement LIKE '%by_{codec} FROM%'"
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(Ok(bytes)) = client.one(&bytes).map(|bytes| bytes.parse()) {
                return bytes;
            }
            assert!(Instant::now() < deadline, "{codec}: {bytes}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let plain = moved("none");
    for codec in ["lz4", "zstd"] {
        let compressed = moved(codec);
        assert!(compressed * 2 < plain, "{compressed} bytes by {codec}, {plain} without");
    }
    assert_eq!(client.fails("SET harrier.interconnect_compression = gzip"), "22023");
}
