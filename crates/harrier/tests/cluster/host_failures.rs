//! A server whose ranks are on several hosts, one of which is cut off and comes back, and ranks that move
//! between them. The hosts are namespaces; where none can be made, the tests say so and do nothing.

use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::namespace_hosts::Network;
use crate::test_server::{Client, PATIENCE, Served};

/// Of ranks and spares, by number.
const STATES: &str = "SELECT string_agg(state, ' ' ORDER BY rank) FROM sys.ranks";
const HOSTS: &str = "SELECT string_agg(host, ' ' ORDER BY rank) FROM sys.ranks";
const WHOLE: &str = "working working working spare";

const ROWS: i64 = 40_000;
const SUM: &str = "SELECT sum(x) FROM t";

/// Takes some tenths of a second or more, and gives its row at the end.
const SLOW: &str = "SELECT count(*) FROM t a JOIN t b ON a.x % 16 = b.x % 16 WHERE (a.x * b.x) % 5 = 1";

/// Much longer than the detection of a host that is silent (5 s).
const BOUND: Duration = Duration::from_secs(40);

fn sum() -> String {
    (ROWS * (ROWS + 1) / 2).to_string()
}

/// A server with three ranks and a spare on four hosts, and the turn that goes with it.
fn start() -> Option<(MutexGuard<'static, ()>, Network, Served)> {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let turn = crate::turn();
    let network = Network::make(3)?;
    let file = network.hosts_file(&[1, 1, 1, 1]);
    let gang = ["--ranks", "3", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];
    let arguments = [&gang[..], &["--memory", "1GiB", "--hostfile", file.to_str().unwrap()]].concat();
    let environment = network.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let served = Served::start_with(tempfile::tempdir().unwrap(), &arguments, &environment);
    served.wait_for(STATES, WHOLE);
    let sql = format!("CREATE TABLE t AS SELECT x FROM generate_series(1, {ROWS}) s(x)");
    served.client().query(&sql).unwrap();
    Some((turn, network, served))
}

/// Asks a statement that takes long, and waits until the gang runs it.
fn ask_slow(served: &Served, settings: &[&str]) -> Client {
    let mut client = served.client();
    // Where other programs use the machine, it may take long.
    client.stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    for setting in settings {
        client.query(setting).unwrap();
    }
    client.ask(SLOW);
    let running = format!(
        "SELECT count(*) FROM sys.statements WHERE pid = {} AND state = 'running' AND on_gang",
        client.process
    );
    served.wait_for(&running, "1");
    client
}

fn generation(served: &Served) -> u64 {
    served.client().one("SELECT coalesce(max(gang), 0) FROM sys.ranks").unwrap().parse().unwrap()
}

#[test]
fn a_host_that_is_cut_off_is_done_without_until_it_is_back() {
    let Some((_turn, network, mut served)) = start() else { return };
    let placed = served.client().one(HOSTS).unwrap();
    assert_eq!(placed.split(' ').skip(1).collect::<Vec<_>>(), [2, 3, 4].map(|host| network.host(host)));
    let right = served.client().one(SLOW).unwrap();
    let first = generation(&served);

    // One that may not be run again fails with the name of what was lost, the other one is answered by the
    // ranks that are left.
    let mut plain = ask_slow(&served, &["SET harrier.retry_reads = off"]);
    let mut retried = ask_slow(&served, &[]);
    let began = Instant::now();
    network.cut(3);
    let (state, message) = plain.answer().unwrap_err();
    assert!(state == "57P02" && message.contains("rank 2"), "{state} {message}");
    assert!(message.contains(&network.host(3)), "{message}");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    let rows = retried.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", served.log()));
    assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));

    // The next one has a spare in its place, without a new gang, and the session has lived on.
    assert_eq!(plain.one(SUM), Ok(sum()));
    served.wait_for(STATES, "working working down working");
    assert_eq!(generation(&served), first);

    // It gets its ranks back when it answers again.
    network.repair(3);
    served.wait_for(STATES, WHOLE);
    served.wait_for(HOSTS, &placed);
    assert!(generation(&served) > first);
    assert_eq!(plain.one(SUM), Ok(sum()));
    assert!(served.log().contains(&format!("host {} is back", network.host(3))), "{}", served.log());
    assert_eq!(served.stop(), Some(0));
}

/// It is known by the connection that closes with it, not by its silence.
#[test]
fn a_rank_that_ends_on_another_host_is_missed_at_once() {
    let Some((_turn, network, served)) = start() else { return };
    let mut client = ask_slow(&served, &["SET harrier.retry_reads = off"]);
    network.kill_ranks(3);
    let (state, message) = client.answer().unwrap_err();
    assert!(state == "57P02" && message.contains("rank 2"), "{state} {message}");
    assert!(message.contains(&format!("on {} ended", network.host(3))), "{message}");
    assert_eq!(client.one(SUM), Ok(sum()));
}

#[test]
fn a_gang_is_started_again_on_the_hosts_that_are_left() {
    let Some((_turn, network, served)) = start() else { return };
    let placed = served.client().one(HOSTS).unwrap();
    let own = placed.split(' ').next().unwrap();
    network.cut(3);
    network.cut(4);
    // Two of four are not enough; the two hosts that are left have two ranks each.
    let left = format!("{own} {two} {own} {two}", two = network.host(2));
    served.wait_for(HOSTS, &left);
    served.wait_for(STATES, WHOLE);
    let mut client = served.client();
    assert_eq!(client.one(SUM), Ok(sum()));
    network.repair(4);
    network.repair(3);
    served.wait_for(HOSTS, &placed);
    served.wait_for(STATES, WHOLE);
    assert_eq!(client.one(SUM), Ok(sum()));
}

fn ctl(served: &Served, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_harrier"))
        .args(["ctl", "--host", "127.0.0.1", "--port", &served.port.to_string()])
        .args(arguments)
        .env_remove("PGHOST")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_rank_is_moved_to_another_host() {
    let Some((_turn, network, served)) = start() else { return };
    let placed = served.client().one(HOSTS).unwrap();
    let own = placed.split(' ').next().unwrap();
    let host = |number| network.host(number);
    let right = served.client().one(SLOW).unwrap();
    // What runs may end, sessions live on.
    let mut running = ask_slow(&served, &["SET harrier.retry_reads = off"]);
    assert_eq!(ctl(&served, &["move-rank", "1", &host(3), "--wait"]), (Some(0), String::new()));
    let rows = running.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", served.log()));
    assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));
    let moved = format!("{own} {} {} {}", host(3), host(3), host(4));
    served.wait_for(HOSTS, &moved);
    served.wait_for(STATES, WHOLE);
    assert_eq!(running.one(SUM), Ok(sum()));
    // It stays there when the gang is started again.
    assert_eq!(ctl(&served, &["restart-gang", "--wait"]), (Some(0), String::new()));
    served.wait_for(HOSTS, &moved);
    served.wait_for(STATES, WHOLE);
    let refused = |rank: &str, host: &str, state: &str| {
        let (status, message) = ctl(&served, &["move-rank", rank, host]);
        assert!(status == Some(1) && message.starts_with(&format!("ERROR {state}: ")), "{message}");
    };
    refused("1", &host(3), "55000");
    refused("1", "nowhere", "22023");
    refused("0", &host(2), "55000");
    refused("4", &host(2), "22023");
    let mut client = served.client();
    assert_eq!(client.one(&format!("SELECT harrier_move_rank(1, '{}')", host(2))).as_deref(), Ok("t"));
    served.wait_for(HOSTS, &placed);
    served.wait_for(STATES, WHOLE);
    assert_eq!(client.one(SUM), Ok(sum()));
}

#[test]
fn rows_between_hosts_are_compressed_where_asked() {
    let Some((_turn, _network, served)) = start() else { return };
    let mut client = served.client();
    let sql =
        format!("CREATE TABLE w AS SELECT x, repeat('abcde', 40) AS s FROM generate_series(1, {ROWS}) g(x)");
    client.query(&sql).unwrap();
    // Every row has to go where its key is.
    let sql = "FROM (SELECT x % 20011 AS k, max(s) AS s, count(*) FROM w GROUP BY 1) g \
               JOIN (SELECT (x * 7) % 20011 AS k, min(s) AS s FROM w GROUP BY 1) h ON g.k = h.k AND g.s = h.s";
    let mut moved = |codec: &str| -> i64 {
        client.query(&format!("SET harrier.interconnect_compression = {codec}")).unwrap();
        assert_eq!(
            client.one(&format!("SELECT count(*) AS by_{codec} {sql}")).as_deref(),
            Ok("20011"),
            "{codec}"
        );
        // What its streams have moved is known a little later.
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
