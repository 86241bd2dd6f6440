//! Edge cases of the PostgreSQL protocol of `harrier serve`: malformed, truncated, slow, long or many
//! messages, and binary COPY.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::test_server::{Client, PATIENCE, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// Far more than the buffers of a connection hold.
const BIG: &str = "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)";

/// Encodes a message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as i32 + 4).to_be_bytes()[..], body].concat()
}

/// Requests a large result without reading it, until the server cannot send more.
fn request_without_reading(server: &TestServer, client: &mut Client) {
    client.ask(BIG);
    let rows =
        format!("SELECT max(rows) FROM sys.statements WHERE pid = {} AND state = 'running'", client.process);
    let mut watcher = server.client();
    let (deadline, mut before) = (Instant::now() + PATIENCE, String::new());
    loop {
        let sent = watcher.one(&rows).unwrap();
        if !sent.is_empty() && sent != "0" && sent == before {
            return;
        }
        assert!(Instant::now() < deadline, "{sent} rows were sent\n{}", server.log());
        before = sent;
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn assert_answers(server: &TestServer) {
    assert_eq!(server.client().one("SELECT 6 * 7").as_deref(), Ok("42"), "{}", server.log());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn canceled_results_end_with_an_error() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    let process = client.process;
    let last = format!("SELECT state FROM sys.statements WHERE pid = {process} ORDER BY id DESC LIMIT 1");
    // Without a reader, cancellation ends the statement at once; a client that continues reading gets the
    // error, and the session goes on.
    request_without_reading(&server, &mut client);
    assert_eq!(server.client().one(&format!("SELECT pg_cancel_backend({process})")).as_deref(), Ok("t"));
    server.wait_for(&last, "canceled");
    assert_eq!(client.answer().unwrap_err().0, "57014");
    assert_eq!(client.one("SELECT 2").as_deref(), Ok("2"));
    // The same for statement_timeout, and for COPY in both formats.
    client.query("SET statement_timeout = '1s'").unwrap();
    client.ask(BIG);
    server.wait_for(&last, "canceled");
    assert_eq!(client.answer().unwrap_err().0, "57014");
    for options in ["", "(FORMAT binary)"] {
        client.ask(&format!("COPY ({BIG}) TO STDOUT {options}"));
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(client.answer().unwrap_err().0, "57014", "{options}");
    }
    client.query("RESET statement_timeout").unwrap();
    assert_eq!(client.one("SELECT 3").as_deref(), Ok("3"));
    // In a transaction, the transaction fails.
    client.query("BEGIN").unwrap();
    request_without_reading(&server, &mut client);
    server.client().query(&format!("SELECT pg_cancel_backend({process})")).unwrap();
    assert_eq!(client.answer().unwrap_err().0, "57014");
    assert_eq!(client.state, b'E');
    client.query("ROLLBACK").unwrap();
    // A terminated session does not wait for its reader.
    request_without_reading(&server, &mut client);
    server.client().query(&format!("SELECT pg_terminate_backend({process})")).unwrap();
    server.wait_for(&format!("SELECT count(*) FROM sys.sessions WHERE pid = {process}"), "0");
}

#[test]
fn simple_query_message_is_one_transaction() {
    let server = TestServer::start(ALONE);
    let (mut client, mut other) = (server.client(), server.client());
    client.query("CREATE TABLE t (a int)").unwrap();
    let mut count = || other.one("SELECT count(*) FROM t").unwrap();
    // BEGIN makes earlier statements of the message part of the client's transaction.
    client.query("INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); ROLLBACK").unwrap();
    assert_eq!(count(), "0");
    client.query("INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2)").unwrap();
    assert_eq!((client.state, count().as_str()), (b'T', "0"));
    client.query("COMMIT; INSERT INTO t VALUES (3)").unwrap();
    assert_eq!((client.state, count().as_str()), (b'I', "3"));
    // COMMIT ends the earlier statements, even if a later one fails.
    assert_eq!(
        client.fails("INSERT INTO t VALUES (4); COMMIT; INSERT INTO t VALUES (5); SELECT 1/0"),
        "22012"
    );
    assert_eq!(count(), "4");
    assert_eq!(client.fails("INSERT INTO t VALUES (6); SAVEPOINT s"), "25P01");
    assert_eq!((client.state, count().as_str()), (b'I', "4"));
}

#[test]
fn random_messages_do_no_harm() {
    let seed = harrier_launch::seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = TestServer::start(ALONE);
    for round in 0..400 {
        let mut bytes: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
        let mut stream = match round % 4 {
            // No valid startup message.
            0 => {
                let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
                let _ = stream.write_all(&bytes);
                continue;
            }
            // Invalid messages.
            1 => {
                let mut client = server.client();
                let _ = client.stream.write_all(&bytes);
                client.stream
            }
            // Valid types and lengths with random bodies.
            2 => {
                let mut client = server.client();
                for _ in 0..5 {
                    let kind = *b"QPBDECHSdcfp".get(random.random_range(0..12)).unwrap();
                    bytes.truncate(random.random_range(0..=bytes.len()));
                    if client.stream.write_all(&message(kind, &bytes)).is_err() {
                        break;
                    }
                }
                client.stream
            }
            // Valid messages with some bytes changed, then truncated.
            _ => {
                let mut client = server.client();
                let mut bytes_sent = conversation();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes_sent.len());
                    bytes_sent[at] = random.random();
                }
                bytes_sent.truncate(random.random_range(1..=bytes_sent.len()));
                let _ = client.stream.write_all(&bytes_sent);
                client.stream
            }
        };
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_answers(&server);
    server.wait_for("SELECT count(*) FROM sys.sessions", "1");
}

/// Messages of every type, as a driver sends them.
fn conversation() -> Vec<u8> {
    let bind = [&b"p\0s\0"[..], &[0, 1, 0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7, 0, 1, 0, 1]].concat();
    let rows =
        [b"PGCOPY\n\xff\r\n\0".as_slice(), &[0; 8], &[0, 1, 0, 0, 0, 4, 0, 0, 0, 9, 0xff, 0xff]].concat();
    [
        message(b'Q', b"CREATE TEMP TABLE c (a int)\0"),
        message(b'P', b"s\0SELECT $1::int4 + x FROM generate_series(1, 10) g(x)\0\0\x01\0\0\0\x17"),
        message(b'D', b"Ss\0"),
        message(b'B', &bind),
        message(b'D', b"Pp\0"),
        message(b'E', b"p\0\0\0\0\x03"),
        message(b'H', b""),
        message(b'E', b"p\0\0\0\0\0"),
        message(b'C', b"Pp\0"),
        message(b'C', b"Ss\0"),
        message(b'S', b""),
        message(b'Q', b"COPY c FROM STDIN (FORMAT binary)\0"),
        message(b'd', &rows),
        message(b'c', b""),
        message(b'Q', b"COPY c TO STDOUT (FORMAT binary)\0"),
        message(b'Q', b"COPY c FROM STDIN\0"),
        message(b'f', b"no more\0"),
        message(b'X', b""),
    ]
    .concat()
}

#[test]
fn truncated_messages_block_no_other_session() {
    let server = TestServer::start(ALONE);
    let bytes_sent = conversation();
    let mut streams = Vec::new();
    for at in 0..200 {
        // Truncates the startup message, or a later one, and leaves the connection open.
        if at % 4 == 0 {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            stream.write_all(&[0, 0, 0, 80, 0, 3, 0, 0, b'u', b's'][..1 + at / 4 % 10]).unwrap();
            streams.push(stream);
        } else {
            let mut client = server.client();
            let end = 1 + at * (bytes_sent.len() - 1) / 200;
            client.stream.write_all(&bytes_sent[..end]).unwrap();
            streams.push(client.stream);
        }
    }
    // An announced length reserves no memory before the data arrives.
    let before = server.memory();
    for _ in 0..50 {
        let mut client = server.client();
        client.stream.write_all(&[&b"Q"[..], &1_000_000_000_i32.to_be_bytes(), b"SELECT"].concat()).unwrap();
        streams.push(client.stream);
    }
    assert_answers(&server);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes");
    drop(streams);
    server.wait_for("SELECT count(*) FROM sys.sessions", "1");
}

#[test]
fn slow_readers_block_no_other_session() {
    let server = TestServer::start(ALONE);
    let before = server.memory();
    let mut slow: Vec<Client> = (0..16).map(|_| server.client()).collect();
    for client in &mut slow {
        client.ask(BIG);
    }
    for client in &slow {
        let waits = format!(
            "SELECT rows > 0 FROM sys.statements WHERE pid = {} ORDER BY id DESC LIMIT 1",
            client.process
        );
        server.wait_for(&waits, "t");
    }
    // Each result would be a gigabyte.
    let mut client = server.client();
    for _ in 0..50 {
        assert_eq!(client.one("SELECT count(*) FROM generate_series(1, 1000)").as_deref(), Ok("1000"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let grown = server.memory().saturating_sub(before);
    println!("16 slow readers of a gigabyte each take {} MiB", grown >> 20);
    assert!(grown < 1 << 30, "{grown} bytes");
    // A client that reads byte by byte gets the whole result.
    let mut drop_by_drop = server.client();
    drop_by_drop.ask("SELECT x FROM generate_series(1, 2000) g(x)");
    let mut byte = [0];
    let mut read = Vec::new();
    while !read.ends_with(&[b'Z', 0, 0, 0, 5, b'I']) {
        assert_eq!(drop_by_drop.stream.read(&mut byte).unwrap(), 1);
        read.push(byte[0]);
    }
    assert!(read.windows(8).any(|part| part == b"\0\0\0\x042000"), "{} bytes", read.len());
    drop(slow);
    // Two sessions of this test, and the one that asks.
    server.wait_for("SELECT count(*) FROM sys.sessions", "3");
    assert_answers(&server);
}

#[test]
fn many_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    std::fs::write(&config, "[server]\nmax_connections = 1010\n").unwrap();
    let server = TestServer::start(&[ALONE, &["--config", config.to_str().unwrap()]].concat());
    let before = server.memory();
    let mut clients: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    // Connections that have sent nothing, and those that have run a statement.
    let grown = server.memory().saturating_sub(before);
    for client in &mut clients {
        client.query("SELECT 1").unwrap();
    }
    let memory_growth = server.memory().saturating_sub(before);
    println!(
        "1000 idle sessions take {} MiB, after a statement each {} MiB",
        grown >> 20,
        memory_growth >> 20
    );
    assert!(grown < 200 << 20, "{grown} bytes");
    assert!(memory_growth < 200 << 20, "{memory_growth} bytes");
    assert_answers(&server);
    drop(clients);
    server.wait_for("SELECT count(*) FROM sys.sessions", "1");
}

#[test]
fn long_statements_are_accepted() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.stream.set_read_timeout(Some(PATIENCE * 5)).unwrap();
    let text = format!("SELECT length('{}')", "x".repeat(100 << 20));
    assert_eq!(client.one(&text), Ok((100 << 20).to_string()));
    assert_eq!(client.one("SELECT 5").as_deref(), Ok("5"));
    // An invalid statement is reported as such.
    let text = format!("SELECT {}", "(".repeat(10 << 20));
    let state = client.fails(&text);
    assert!(["42601", "54001"].contains(&state.as_str()), "{state}");
    assert_answers(&server);
}

#[test]
fn ten_thousand_parameters() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.stream.set_read_timeout(Some(PATIENCE * 3)).unwrap();
    let count: i32 = 10_000;
    let places: Vec<String> = (1..=count).map(|at| format!("${at}::int8")).collect();
    let text =
        format!("SELECT count(*) FROM generate_series(1, 20000) g(x) WHERE x IN ({})", places.join(", "));
    let mut parse = [&b"\0"[..], text.as_bytes(), b"\0"].concat();
    parse.extend(0_i16.to_be_bytes());
    let mut bind = vec![0, 0, 0, 0];
    bind.extend((count as i16).to_be_bytes());
    for at in 1..=count {
        let value = (2 * at).to_string();
        bind.extend((value.len() as i32).to_be_bytes());
        bind.extend(value.as_bytes());
    }
    bind.extend([0, 0]);
    let bytes_sent =
        [message(b'P', &parse), message(b'B', &bind), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")];
    client.stream.write_all(&bytes_sent.concat()).unwrap();
    assert_eq!(client.answer().unwrap(), [[Some("10000".to_string())]]);
    assert_answers(&server);
}

/// CopyData messages of COPY … TO STDOUT.
fn copy_out(client: &mut Client, sql: &str) -> Vec<Vec<u8>> {
    client.ask(sql);
    let mut pieces = Vec::new();
    loop {
        match client.message().unwrap() {
            (b'H', body) => assert_eq!(body[0], 1, "not in binary"),
            (b'd', body) => pieces.push(body),
            (b'E', body) => panic!("{sql}: {}", String::from_utf8_lossy(&body)),
            (b'Z', _) => return pieces,
            _ => {}
        }
    }
}

#[test]
fn binary_copy() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client
        .query(
            "CREATE TABLE t (b boolean, i2 smallint, i4 int, i8 bigint, f4 real, f8 double precision, n numeric(12, 3), \
             s text, y bytea, d date, h time, p timestamp, z timestamptz, l int[], e text[]); \
             INSERT INTO t SELECT x % 2 = 0, x, x, -x, x / 2.0, x * 1.5, x / 8.0, 'text ' || x, CAST('bytes' AS bytea), \
             DATE '1969-07-20', CAST('01:02:03.5' AS time), TIMESTAMP '2024-02-29 12:00:00.25', \
             CAST('1969-07-20 20:17:40+00' AS timestamptz), ARRAY[CAST(x AS int), NULL], ARRAY['a', 'b ' || x] \
             FROM generate_series(1, 20000) g(x); \
             INSERT INTO t (i4) VALUES (NULL); CREATE TABLE u AS SELECT * FROM t WHERE false",
        )
        .unwrap();
    let pieces = copy_out(&mut client, "COPY t TO STDOUT (FORMAT binary)");
    assert_eq!(pieces.len(), 20_002);
    assert!(pieces[0].starts_with(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x0f"), "{:?}", pieces[0]);
    assert_eq!(pieces.last().unwrap(), &[0xff, 0xff]);
    // The rows are read back however they are split into messages.
    let bytes = pieces.concat();
    client.ask("COPY u FROM STDIN WITH BINARY");
    assert_eq!(client.message().unwrap(), (b'G', [&[1, 0, 15][..], &[0, 1].repeat(15)].concat()));
    for piece in bytes.chunks(70_001) {
        client.send(b'd', piece);
    }
    client.send(b'c', b"");
    client.answer().unwrap();
    assert_eq!(client.one("SELECT count(*) FROM u").as_deref(), Ok("20001"));
    let mut all =
        |table| copy_out(&mut client, &format!("COPY (SELECT * FROM {table} ORDER BY i4) TO STDOUT BINARY"));
    assert_eq!(all("t"), all("u"));
    // Invalid rows leave nothing; the error names the row.
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let row = [0, 1, 0, 0, 0, 4, 0, 0, 0, 9];
    let cases: [(&[u8], &str); 4] = [
        (&[0, 2], "22P04"),
        (&[0, 1, 0, 0, 0, 3, 0, 0, 0], "22P03"),
        (&[0, 1, 0, 0], "22P04"),
        (&[0xff, 0xff, 0], "22P04"),
    ];
    for (wrong, state) in cases {
        client.ask("COPY u (i4) FROM STDIN (FORMAT binary)");
        client.send(b'd', &[&header, &row[..], wrong].concat());
        client.send(b'c', b"");
        assert_eq!(client.answer().unwrap_err().0, state, "{wrong:?}");
        assert_eq!(client.one("SELECT count(*) FROM u").as_deref(), Ok("20001"));
    }
    client.ask("COPY u (i4) FROM STDIN (FORMAT binary)");
    client.send(b'd', b"1\n");
    client.send(b'c', b"");
    assert_eq!(client.answer().unwrap_err().0, "22P04");
    assert_eq!(copy_out(&mut client, "COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)").len(), 1);
    assert_eq!(client.fails("COPY t TO STDOUT (FORMAT binary, HEADER)"), "42601");
    assert_eq!(client.one("SELECT 7").as_deref(), Ok("7"));
}

#[test]
fn unsupported_types_in_binary_copy() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    let ragged = "SELECT ARRAY[ARRAY[1, 2], ARRAY[3]] AS a UNION ALL SELECT ARRAY[ARRAY[1], ARRAY[2]]";
    assert_eq!(client.query(ragged).unwrap().len(), 2);
    let parse = [&b"\0"[..], ragged.as_bytes(), b"\0\0\0"].concat();
    let bind = [0, 0, 0, 0, 0, 0, 0, 1, 0, 1];
    let bytes_sent =
        [message(b'P', &parse), message(b'B', &bind), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")];
    client.stream.write_all(&bytes_sent.concat()).unwrap();
    assert_eq!(client.answer().unwrap_err().0, "0A000");
    assert_eq!(client.one("SELECT 8").as_deref(), Ok("8"));
}

/// Statements that return rows are described beforehand.
#[test]
fn maintenance_statements_are_described() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("CREATE TABLE t (a INT)").unwrap();
    for (sql, columns, tag) in [
        ("CHECK TABLE t", &[b"object\0".as_slice(), b"problem\0"], b"CHECK TABLE\0".as_slice()),
        ("VACUUM DRY RUN", &[b"file\0".as_slice(), b"status\0"], b"VACUUM\0"),
    ] {
        client.send(b'P', &[&b"\0"[..], sql.as_bytes(), b"\0\0\0"].concat());
        client.send(b'D', b"S\0");
        client.send(b'B', &[0; 8]);
        client.send(b'E', &[0; 5]);
        client.send(b'S', &[]);
        let messages = std::iter::from_fn(|| client.message().filter(|(kind, _)| *kind != b'Z'));
        let messages: Vec<(u8, Vec<u8>)> = messages.filter(|(kind, _)| b"ETDC".contains(kind)).collect();
        let (description, completion) = (messages.first().unwrap(), messages.last().unwrap());
        assert_eq!((description.0, completion), (b'T', &(b'C', tag.to_vec())), "{messages:?}");
        for column in columns {
            assert!(description.1.windows(column.len()).any(|part| part == *column), "{messages:?}");
        }
    }
}
