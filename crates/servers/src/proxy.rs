//! An HTTP/1.1 proxy for fault injection: it counts and delays requests, answers in the server's place, and
//! cuts connections before or after the server has handled the request.
//!
//! Requests and answers pass unchanged, signatures included, except `Expect: 100-continue`, which the proxy
//! answers itself. Each client connection has one thread and one connection to the server.
//!
//! A request's kind is `LIST` if it lists a bucket, `COPY` if it copies an object, `DELETE-MANY` if it
//! deletes several; otherwise its method. The proxy itself answers `GET /-/proxy/requests` with its counts, a
//! line `WORD COUNT` each, and resets them on `POST /-/proxy/reset`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

mod disturbance;
mod fault;

use self::disturbance::Disturbance;
pub use self::fault::{Fault, Request};

/// Maximum length and number of the lines of a head.
const LINE_BYTES_MAX: u64 = 64 << 10;
const LINES_MAX: usize = 256;
/// Bytes of a body copied at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of requests recorded in detail.
const REMEMBERED_MAX: usize = 100_000;

/// A fault and the requests it applies to.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    kind: Option<String>,
    path: Option<String>,
    /// Matching requests to skip first.
    skip: usize,
    /// Maximum number of faults; `None` for no limit.
    times: Option<usize>,
}

impl Rule {
    /// Applies to every request.
    pub fn new(fault: Fault) -> Self {
        Self { fault, kind: None, path: None, skip: 0, times: None }
    }

    /// Restricts the rule to requests of this kind, such as `PUT` or `LIST`.
    pub fn of(mut self, kind: &str) -> Self {
        self.kind = Some(kind.to_string());
        self
    }

    /// Restricts the rule to requests whose path and query contain this text.
    pub fn on(mut self, path: &str) -> Self {
        self.path = Some(path.to_string());
        self
    }

    /// Skips the first `skip` matching requests.
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Limits how often the rule applies.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether the rule applies to this request; counts it if so.
    fn strikes(&mut self, request: &Request) -> bool {
        let fits = self.kind.as_ref().is_none_or(|kind| *kind == request.kind)
            && self.path.as_ref().is_none_or(|path| request.path.contains(path.as_str()));
        if !fits || self.times == Some(0) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}

/// Runs once, before a request is passed on.
type Action = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    rules: Mutex<Vec<Rule>>,
    disturbance: Mutex<Option<Disturbance>>,
    /// The faults that the disturbance has injected.
    struck: Mutex<Vec<(Request, Fault)>>,
    action: Mutex<Option<(Rule, Action)>>,
    counts: Mutex<BTreeMap<String, u64>>,
    requests: Mutex<Vec<Request>>,
    /// Accepts no connections; open ones are cut.
    closed: AtomicBool,
    ended: AtomicBool,
}

/// A running proxy; dropping it stops it.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a proxy in front of the server at `upstream`.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a bound socket");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let state = Arc::clone(&shared);
                // A broken connection is expected.
                thread::spawn(move || {
                    drop(Connection::new(client, upstream, state).and_then(Connection::serve))
                });
            }
        });
        Self { address, state }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule. The first rule that applies decides; delays add to later faults.
    pub fn add(&self, rule: Rule) {
        lock(&self.state.rules).push(rule);
    }

    /// Injects a random fault into one of `one_in` requests to which no rule applies; the seed determines
    /// which and how.
    pub fn disturb(&self, seed: u64, one_in: u64) {
        lock(&self.state.struck).clear();
        *lock(&self.state.disturbance) = Some(Disturbance::new(seed, one_in));
    }

    /// Runs an action once, before the first request that `rule` matches is passed on; ignores the rule's
    /// fault.
    pub fn before(&self, rule: Rule, action: impl FnOnce() + Send + 'static) {
        *lock(&self.state.action) = Some((rule, Box::new(action)));
    }

    /// Removes all rules and actions, and stops the disturbance. Returns the faults that it has injected.
    pub fn clear(&self) -> Vec<(Request, Fault)> {
        lock(&self.state.rules).clear();
        *lock(&self.state.disturbance) = None;
        *lock(&self.state.action) = None;
        std::mem::take(&mut lock(&self.state.struck))
    }

    /// Number of requests by kind.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.state.counts).clone()
    }

    /// Number of requests of this kind.
    pub fn count(&self, kind: &str) -> u64 {
        lock(&self.state.counts).get(kind).copied().unwrap_or(0)
    }

    /// Total number of requests.
    pub fn total(&self) -> u64 {
        lock(&self.state.counts).values().sum()
    }

    /// The requests since the last reset, in order of arrival; at most the first hundred thousand.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.state.requests).clone()
    }

    /// Resets the counts to zero.
    pub fn reset(&self) {
        self.state.reset();
    }

    /// Cuts every connection and rejects new ones, until reopened.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }

    pub fn open(&self) {
        self.state.closed.store(false, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn reset(&self) {
        lock(&self.counts).clear();
        lock(&self.requests).clear();
    }

    fn count(&self, request: &Request) {
        *lock(&self.counts).entry(request.kind.clone()).or_default() += 1;
        let mut requests = lock(&self.requests);
        if requests.len() < REMEMBERED_MAX {
            requests.push(request.clone());
        }
    }

    /// The total delay of a request, and its fault.
    fn faults(&self, request: &Request) -> (Duration, Option<Fault>) {
        let mut delay = Duration::ZERO;
        for rule in lock(&self.rules).iter_mut() {
            if !rule.strikes(request) {
                continue;
            }
            match rule.fault {
                Fault::Delay(more) => delay += more,
                fault => return (delay, Some(fault)),
            }
        }
        let Some(drawn) = lock(&self.disturbance).as_mut().and_then(|all| all.draw(request)) else {
            return (delay, None);
        };
        lock(&self.struck).push((request.clone(), drawn));
        match drawn {
            Fault::Delay(more) => (delay + more, None),
            fault => (delay, Some(fault)),
        }
    }

    /// Runs the actions due before this request.
    fn run_actions(&self, request: &Request) {
        let mut action = lock(&self.action);
        let due = action.take_if(|(rule, _)| rule.strikes(request));
        drop(action);
        if let Some((_, action)) = due {
            action();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The first lines of a request or answer.
struct Head {
    lines: Vec<String>,
}

impl Head {
    /// `None` at the end of the connection.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
            if bytes == 0 && lines.is_empty() {
                return Ok(None);
            }
            if !line.ends_with("\r\n") || lines.len() > LINES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if line == "\r\n" {
                return Ok(Some(Self { lines }));
            }
            lines.push(line.trim_end().to_string());
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.lines.iter().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    fn remove(&mut self, name: &str) {
        self.lines
            .retain(|line| !line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name)));
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let text: String = self.lines.iter().map(|line| format!("{line}\r\n")).collect();
        to.write_all(format!("{text}\r\n").as_bytes())
    }

    fn status(&self) -> u16 {
        self.lines[0].split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The kind and path of this request.
    fn request(&self) -> Request {
        let mut words = self.lines[0].split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default().to_string();
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let asks =
            |word: &str| query.split('&').any(|part| part == word || part.starts_with(&format!("{word}=")));
        let kind = match method {
            "GET" if asks("list-type") || asks("uploads") || asks("versions") => "LIST",
            "PUT" if self.header("x-amz-copy-source").is_some() => "COPY",
            "POST" if asks("delete") => "DELETE-MANY",
            method => method,
        };
        Request { kind: kind.to_string(), path }
    }

    fn body(&self) -> Body {
        if self.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return Body::Chunked;
        }
        match self.header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => Body::Bytes(length),
            None => Body::None,
        }
    }
}

enum Body {
    None,
    Bytes(u64),
    Chunked,
}

impl Body {
    /// Copies the body; with `limit`, fails after this many bytes.
    fn pass(&self, from: &mut impl BufRead, to: &mut impl Write, limit: Option<u64>) -> io::Result<()> {
        let mut left = limit;
        match self {
            Self::None => {}
            Self::Bytes(length) => pass_bytes(from, to, *length, &mut left)?,
            Self::Chunked => loop {
                let mut line = String::new();
                from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
                let digits = line.trim().split(';').next().unwrap_or_default();
                let length = u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
                to.write_all(line.as_bytes())?;
                pass_bytes(from, to, length, &mut left)?;
                // The line end after the bytes; for the last chunk the trailers up to an empty line.
                loop {
                    let mut line = String::new();
                    from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
                    to.write_all(line.as_bytes())?;
                    if line == "\r\n" || line.is_empty() {
                        break;
                    }
                }
                if length == 0 {
                    break;
                }
            },
        }
        to.flush()
    }
}

fn pass_bytes(
    from: &mut impl Read,
    to: &mut impl Write,
    length: u64,
    limit: &mut Option<u64>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = length;
    while left > 0 {
        let most = left.min(PIECE_BYTES as u64).min(limit.unwrap_or(u64::MAX)) as usize;
        if most == 0 {
            to.flush()?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let bytes = from.read(&mut piece[..most])?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&piece[..bytes])?;
        left -= bytes as u64;
        if let Some(limit) = limit {
            *limit -= bytes as u64;
        }
    }
    Ok(())
}

struct Server {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Server {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let writer = TcpStream::connect(address)?;
        writer.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(writer.try_clone()?), writer })
    }
}

/// A client connection.
struct Connection {
    reader: BufReader<TcpStream>,
    client: TcpStream,
    upstream: SocketAddr,
    server: Option<Server>,
    state: Arc<State>,
}

impl Connection {
    fn new(client: TcpStream, upstream: SocketAddr, state: Arc<State>) -> io::Result<Self> {
        client.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(client.try_clone()?), client, upstream, server: None, state })
    }

    fn serve(mut self) -> io::Result<()> {
        while !self.state.closed.load(Ordering::Relaxed) {
            let Some(head) = Head::read(&mut self.reader)? else { break };
            if self.state.closed.load(Ordering::Relaxed) || !self.pass_request(head)? {
                break;
            }
        }
        self.client.shutdown(Shutdown::Both)
    }

    /// Passes one request and its answer; returns whether the connection stays open.
    fn pass_request(&mut self, mut head: Head) -> io::Result<bool> {
        let request = head.request();
        if let Some(word) = request.path.strip_prefix("/-/proxy/") {
            head.body().pass(&mut self.reader, &mut io::sink(), None)?;
            return self.answer_about_itself(word).map(|()| true);
        }
        self.state.count(&request);
        let (delay, fault) = self.state.faults(&request);
        self.state.run_actions(&request);
        if head.header("expect").is_some() {
            head.remove("expect");
            self.client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        match fault {
            Some(Fault::Cut) => return Ok(false),
            Some(Fault::Late(wait)) => thread::sleep(wait),
            Some(Fault::Status(status)) => {
                head.body().pass(&mut self.reader, &mut io::sink(), None)?;
                thread::sleep(delay);
                self.refuse(status, request.kind == "HEAD")?;
                return Ok(!head.closes());
            }
            _ => {}
        }
        let mut server = match self.server.take() {
            Some(server) => server,
            None => Server::connect(self.upstream)?,
        };
        head.write(&mut server.writer)?;
        if let Some(Fault::CutRequest(bytes)) = fault {
            // Fails if the body is longer; otherwise the server has received all of it.
            let _ = head.body().pass(&mut self.reader, &mut server.writer, Some(bytes));
            let _ = server.writer.shutdown(Shutdown::Both);
            return Ok(false);
        }
        head.body().pass(&mut self.reader, &mut server.writer, None)?;
        let mut answer;
        loop {
            answer = Head::read(&mut server.reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if answer.status() != 100 {
                break;
            }
        }
        let bodiless = request.kind == "HEAD" || matches!(answer.status(), 204 | 304);
        let body = if bodiless { Body::None } else { answer.body() };
        thread::sleep(delay);
        match fault {
            Some(Fault::CutAfterwards) => {
                body.pass(&mut server.reader, &mut io::sink(), None)?;
                return Ok(false);
            }
            Some(Fault::SilentAfterwards) => {
                body.pass(&mut server.reader, &mut io::sink(), None)?;
                // Until the client disconnects.
                let _ = self.reader.read(&mut [0]);
                return Ok(false);
            }
            Some(Fault::CutHead) => {
                body.pass(&mut server.reader, &mut io::sink(), None)?;
                self.client.write_all(b"HTTP/1.1 2")?;
                return Ok(false);
            }
            Some(Fault::StatusAfterwards(status)) => {
                body.pass(&mut server.reader, &mut io::sink(), None)?;
                self.refuse(status, bodiless)?;
            }
            other => {
                let limit = match other {
                    Some(Fault::CutWithin(bytes)) => Some(bytes),
                    _ => None,
                };
                answer.write(&mut self.client)?;
                if let Err(error) = body.pass(&mut server.reader, &mut self.client, limit) {
                    let _ = self.client.shutdown(Shutdown::Both);
                    return Err(error);
                }
            }
        }
        let stays = !head.closes() && !answer.closes();
        if stays {
            self.server = Some(server);
        }
        Ok(stays)
    }

    fn refuse(&mut self, status: u16, bodiless: bool) -> io::Result<()> {
        let (reason, code) = match status {
            503 => ("Service Unavailable", "SlowDown"),
            500 => ("Internal Server Error", "InternalError"),
            403 => ("Forbidden", "AccessDenied"),
            404 => ("Not Found", "NoSuchKey"),
            409 => ("Conflict", "ConditionalRequestConflict"),
            429 => ("Too Many Requests", "TooManyRequests"),
            _ => ("Refused", "Refused"),
        };
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>refused by the proxy</Message></Error>"
        );
        self.say(&format!("{status} {reason}"), "application/xml", if bodiless { "" } else { &body })
    }

    fn answer_about_itself(&mut self, word: &str) -> io::Result<()> {
        match word {
            "requests" => {
                let counts = lock(&self.state.counts).clone();
                let text: String = counts.iter().map(|(kind, count)| format!("{kind} {count}\n")).collect();
                self.say("200 OK", "text/plain", &text)
            }
            "reset" => {
                self.state.reset();
                self.say("200 OK", "text/plain", "")
            }
            _ => self.say("404 Not Found", "text/plain", ""),
        }
    }

    fn say(&mut self, status: &str, kind: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let text =
            format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
        self.client.write_all(text.as_bytes())
    }
}
