//! Backpressure by a client that does not read: every producer waits for credit, rows in flight are bounded,
//! and ranks spill the rows they have to redistribute.
//!
//! ```text
//! scan ─► redistribute (spills) ═ window ═► join ═ window ═► coordinator ─► server ─► a client that waits
//! ```
//! A producer without credit is not polled. A redistribution below it continues while any of its outputs has
//! space: here all rows go to one output and the others stay empty, so the rank reads all of its rows while
//! nobody consumes them.

use std::process::Command;

use crate::test_server::TestServer;

const RANKS: u64 = 2;
const THREADS: u64 = 2;

/// Rows of `t`, each with a text of this length that compresses badly.
const ROWS: u64 = 1_000_000;
const TEXT_BYTES: u64 = 128;

/// Memory limit of each rank and of the server.
const MEMORY_BYTES: u64 = 32 << 20;

/// Bytes in flight and unread in addition: a window and a block for each stream
/// (`interconnect/src/limits.rs`), which are one to and one from the other rank for the redistribution, and
/// the gather.
const WINDOWS_BYTES: u64 = 4 * ((3 << 19) + (1 << 20));

/// Creates the tables without a memory limit.
fn make_tables(warehouse: &str) {
    let text: Vec<String> = (0..4).map(|part| format!("md5((x * 4 + {part})::text)")).collect();
    let part = |from: u64, to: u64| {
        format!(
            "SELECT x, (CASE WHEN x = 1 THEN 0 ELSE 1 END)::bigint AS k, {} AS s FROM generate_series({from}, {to}) g(x)",
            text.join(" || ")
        )
    };
    let files = 4;
    let bounds = |file: u64| (file * ROWS / files + 1, (file + 1) * ROWS / files);
    let mut sql = format!("CREATE TABLE t AS {};", part(bounds(0).0, bounds(0).1));
    for file in 1..files {
        sql += &format!("INSERT INTO t {};", part(bounds(file).0, bounds(file).1));
    }
    sql +=
        "CREATE TABLE o AS SELECT x::bigint AS k, 'one of ' || x AS name FROM generate_series(1, 100) g(x)";
    let setup = Command::new(env!("CARGO_BIN_EXE_harrier"))
        .args(["sql", "--warehouse", warehouse, "-c", &sql])
        .output()
        .unwrap();
    assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
}

#[test]
fn slow_reader_makes_producers_spill() {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let folder = tempfile::tempdir().unwrap();
    make_tables(folder.path().join("warehouse").to_str().unwrap());
    let memory = ((RANKS + 1) * MEMORY_BYTES).to_string();
    let (ranks, threads) = (RANKS.to_string(), THREADS.to_string());
    let arguments = ["--ranks", &ranks, "--threads", &threads, "--memory", &memory];
    let arguments = [&arguments[..], &["--set", "harrier.distribute_bytes_min=1"]].concat();
    let server = TestServer::start_in(folder, &arguments);
    server.wait_for_ranks(RANKS as usize);
    let mut client = server.client();
    // Neither side is broadcast.
    for setting in ["hash_join_single_partition_threshold", "hash_join_single_partition_threshold_rows"] {
        client.query(&format!("SET datafusion.optimizer.{setting} = 0")).unwrap();
    }
    let sql = "SELECT t.x, t.s, o.name FROM t JOIN o ON t.k = o.k";
    let plan = client.query(&format!("EXPLAIN {sql}")).unwrap();
    let plan: Vec<String> = plan.into_iter().flatten().flatten().collect();
    let plan = plan.join("\n");
    assert!(plan.matches("◄ redistribute").count() >= 2, "{plan}");

    // Reads no row until most rows are spilled on the ranks' disks.
    client.ask(sql);
    let on_disk = "SELECT coalesce(sum(spilled_bytes), 0)::bigint FROM sys.disks WHERE rank IS NOT NULL";
    let most = format!("SELECT ({on_disk}) > {}", ROWS * TEXT_BYTES / 2);
    server.wait_for(&most, "t");
    let running = format!(
        "SELECT count(*) FROM sys.statements WHERE pid = {} AND state = 'running' AND on_gang",
        client.process
    );
    assert_eq!(server.client().one(&running).as_deref(), Ok("1"));
    let reserved: u64 =
        server.client().one("SELECT max(reserved_bytes) FROM sys.ranks").unwrap().parse().unwrap();
    println!("ranks have reserved up to {} MiB", reserved >> 20);
    // Half of the rows are each rank's to send, far more than the limit.
    const { assert!(ROWS * TEXT_BYTES / RANKS > MEMORY_BYTES + WINDOWS_BYTES) };
    assert!(reserved <= MEMORY_BYTES + WINDOWS_BYTES, "{reserved} bytes are reserved");

    // All rows arrive once.
    let mut missing = vec![true; ROWS as usize + 1];
    let mut rows = 0;
    loop {
        let (kind, body) = client.message().expect("the server answers");
        match kind {
            b'D' => {
                let [x, s, name] = values(&body);
                let x: usize = x.parse().unwrap();
                assert!(std::mem::take(&mut missing[x]), "row {x} comes twice");
                assert_eq!((s.len() as u64, name.as_str()), (TEXT_BYTES, "one of 1"), "row {x}");
                rows += 1;
            }
            b'E' => panic!("{}\n{}", String::from_utf8_lossy(&body), server.log()),
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(rows, ROWS - 1);
    assert!(missing[1], "row 1 has nothing to be joined with");
    server.wait_for(on_disk, "0");
    // The producers have waited for credit.
    let credit_wait_sql = "SELECT coalesce(sum(credit_waits), 0) > 0 FROM sys.interconnect WHERE kind = 'stream' AND state <> 'running' \
                  AND statement LIKE 'SELECT t.x, t.s, o.name FROM t%'";
    server.wait_for(credit_wait_sql, "t");
    assert_eq!(server.client().one("SELECT count(*) FROM t").as_deref(), Ok(ROWS.to_string().as_str()));
}

/// The three non-null values of a row.
fn values(body: &[u8]) -> [String; 3] {
    let mut rest = &body[2..];
    std::array::from_fn(|_| {
        let (length, after) = rest.split_at(4);
        let length = i32::from_be_bytes(length.try_into().unwrap());
        let (value, after) = after.split_at(usize::try_from(length).expect("a value"));
        rest = after;
        String::from_utf8_lossy(value).into_owned()
    })
}
