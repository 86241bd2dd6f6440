//! moto: an in-memory S3 server. It checks no signatures, so its contents can be read without one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// `$1` is the folder, `$2` the program, `$3` the port. Its data is lost when it stops.
pub(super) const KEEPER: &str = r#"
folder=$1 program=$2 port=$3
"$program" -H 127.0.0.1 -p "$port" >>"$folder/log" 2>&1 & server=$!
echo "$server" >"$folder/pid"
sleep 0.2
kill -0 "$server" 2>/dev/null || { cat "$folder/log"; rm -rf "$folder"; exit 1; }
echo up
while read -r word; do echo done; done
kill -9 "$server" 2>/dev/null; wait "$server" 2>/dev/null
rm -rf "$folder"
"#;

pub(super) fn make_bucket(address: SocketAddr, bucket: &str) {
    let answer = ask(address, "PUT", &format!("/{bucket}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The sorted names of all objects in a bucket.
pub(super) fn objects(address: SocketAddr, bucket: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = ask(address, "GET", &format!("/{bucket}?list-type=2{token}"));
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        found.extend(elements(&page, "Key").map(str::to_string));
        match elements(&page, "NextContinuationToken").next() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    found.sort();
    found
}

/// Number of multipart uploads neither completed nor aborted.
pub(super) fn uploads(address: SocketAddr, bucket: &str) -> usize {
    let page = ask(address, "GET", &format!("/{bucket}?uploads"));
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    elements(&page, "UploadId").count()
}

fn ask(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("moto listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("moto listens");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("moto answers");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The texts of all elements with this name.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let pieces: Vec<&str> = xml.split(open.as_str()).skip(1).collect();
    pieces.into_iter().filter_map(move |piece| piece.split_once(close.as_str()).map(|(text, _)| text))
}
