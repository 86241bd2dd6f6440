//! Test servers: they start, stop with their process, and the proxy injects its faults.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use harrier_servers::{Fault, Hdfs, Postgres, Proxy, Rule, S3};

/// Sends one request. Returns the response up to the end of the connection.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// A server that answers every request with its first line, twice in chunks, and the length of its body.
fn start_echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            let mut byte = [0];
            while !text.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                text.push(char::from(byte[0]));
            }
            let line = text.lines().next().unwrap_or_default().to_string();
            let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("0");
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let reply = format!("{line} {}", body.len());
            let answer = format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{0:x}\r\n{reply}\r\n{0:x}\r\n{reply}\r\n0\r\n\r\n",
                reply.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn proxy_forwards_and_counts() {
    let proxy = Proxy::start(start_echo_server());
    let answer = get(proxy.address(), "/bucket/a?b=c");
    assert_eq!(answer.matches("GET /bucket/a?b=c HTTP/1.1 0").count(), 2, "{answer}");
    let put_request =
        "PUT /bucket/a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
    let answer = ask(proxy.address(), put_request);
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{answer}");
    assert!(answer.contains("PUT /bucket/a HTTP/1.1 5"), "{answer}");
    get(proxy.address(), "/bucket?list-type=2&prefix=x");
    ask(
        proxy.address(),
        "PUT /b/y HTTP/1.1\r\nHost: x\r\nx-amz-copy-source: /b/x\r\nContent-Length: 0\r\n\r\n",
    );
    ask(proxy.address(), "POST /b?delete HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let counted = get(proxy.address(), "/-/proxy/requests");
    assert!(counted.ends_with("COPY 1\nDELETE-MANY 1\nGET 1\nLIST 1\nPUT 1\n"), "{counted}");
    assert_eq!((proxy.total(), proxy.requests().len()), (5, 5));
    ask(proxy.address(), "POST /-/proxy/reset HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(proxy.total(), 0);
}

#[test]
fn proxy_injects_faults() {
    let proxy = Proxy::start(start_echo_server());
    proxy.add(Rule::new(Fault::Status(503)).of("GET").on("/slow").after(1).times(2));
    assert!(get(proxy.address(), "/slow").contains("200 OK"));
    for _ in 0..2 {
        let answer = get(proxy.address(), "/slow");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("<Code>SlowDown</Code>"), "{answer}");
    }
    assert!(get(proxy.address(), "/slow").contains("200 OK"));
    assert!(get(proxy.address(), "/other").contains("200 OK"));

    proxy.add(Rule::new(Fault::CutAfterwards).on("/cut"));
    assert_eq!(get(proxy.address(), "/cut"), "");
    proxy.add(Rule::new(Fault::StatusAfterwards(500)).on("/lost"));
    assert!(get(proxy.address(), "/lost").starts_with("HTTP/1.1 500"));
    proxy.add(Rule::new(Fault::CutWithin(3)).on("/torn"));
    assert!(get(proxy.address(), "/torn").ends_with("\r\nGET"));
    proxy.clear();

    proxy.add(Rule::new(Fault::Delay(Duration::from_millis(60))));
    let start = Instant::now();
    assert!(get(proxy.address(), "/").contains("200 OK"));
    assert!(start.elapsed() >= Duration::from_millis(60));
    proxy.close();
    assert_eq!(get(proxy.address(), "/"), "");
    proxy.open();
    assert!(get(proxy.address(), "/").contains("200 OK"));
}

#[test]
fn s3_requires_credentials() {
    let Some(server) = S3::shared_instance() else { return };
    let bucket = server.new_bucket();
    let answer = get(server.address(), &format!("/{bucket}/x"));
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(server.objects(&bucket).is_empty());
    assert!(server.listens() && server.answers());
}

#[test]
fn s3_restarts_at_its_address_with_its_data() {
    let Some(server) = S3::start_dedicated() else { return };
    let (pid, bucket) = (server.pid().expect("it runs"), server.new_bucket());
    server.put_object(&bucket, "x", b"kept");
    server.stop();
    assert!(!server.listens() && !server.answers());
    server.restart();
    assert!(server.answers());
    let again = server.pid().expect("it runs");
    assert_ne!(again, pid);
    assert_eq!(server.objects(&bucket), ["x"]);
    // Restarting a running server is a no-op.
    server.restart();
    assert_eq!(server.pid(), Some(again));
}

#[test]
fn postgres_creates_databases() {
    let Some(server) = Postgres::shared_instance() else { return };
    let database = server.new_database();
    assert_eq!(server.psql(&database, "SELECT current_database()"), database);
    // Its first process is the parent of those that serve.
    let pid = server.pid().expect("it runs");
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(server.listens() && server.answers());
}

#[test]
fn hdfs_counts_its_calls() {
    let Some(server) = Hdfs::shared_instance() else { return };
    assert!(server.url().starts_with("hdfs://127.0.0.1:"));
    assert!(server.configuration().join("core-site.xml").is_file());
    let [namenode, datanode] = server.ports();
    assert_eq!(server.url(), format!("hdfs://127.0.0.1:{namenode}"));
    assert!(std::net::TcpStream::connect(("127.0.0.1", datanode)).is_ok());
    assert!(server.is_up() && server.works());
    for pid in [server.namenode_pid(), server.datanode_pid()] {
        let command = std::fs::read_to_string(format!("/proc/{}/comm", pid.expect("it runs"))).unwrap();
        assert_eq!(command.trim(), "java");
    }
    assert!(server.files("/nosuch").is_empty());
    // It creates folders of its own at its start, or there are no calls yet.
    assert!(server.calls("/").keys().all(|call| call.chars().all(char::is_alphanumeric)));
}
