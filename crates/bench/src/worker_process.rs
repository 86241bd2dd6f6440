//! Client of one worker: its processes, and the requests to it.
//!
//! Order of calls: [`WorkerProcess::start`], `tables` once, then `run` and, for its rows, `answer`. For a
//! worker that moves batches: `transfer` and `round_trips` instead.
//! Crash: dropping it closes the worker's standard input, whereupon the worker ends; one that does not end
//! within [`END_S_MAX`] is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Failure;
use super::configuration::Configuration;
use super::cpu;
use super::interconnect::transfer::Transfer;
use super::protocol::{Latency, Moved, Reply, Request};

/// Reply timeout in seconds: an hour, the maximum duration of a query at a large scale.
const REPLY_S_MAX: u64 = 3600;
/// Time limit for a worker to end, in seconds.
const END_S_MAX: u64 = 10;
/// Lines read ahead. A worker answers one request at a time; additional lines come from a launcher.
const LINES_MAX: usize = 16;

/// A running worker.
pub struct WorkerProcess {
    name: String,
    child: Child,
    /// `None` only during drop.
    requests: Option<ChildStdin>,
    replies: Receiver<String>,
    /// Engine and version that the worker reports, such as `harrier 0.1.0`.
    pub engine: String,
    /// Time from its start to its first line.
    pub started: Duration,
}

/// One run of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    pub wall: Duration,
    /// CPU time of all its processes, user and system.
    pub cpu: Duration,
    pub rows: u64,
    /// Share of moving rows in the CPU time of all ranks, from 0 to 1; `None` if not measured.
    pub transport_share: Option<f64>,
}

/// Why there is no reply of the expected kind.
#[derive(Debug)]
pub enum WorkerError {
    /// The statement or the transfer failed; the worker continues.
    Statement(String),
    /// The worker is unusable.
    Dead(Failure),
}

impl WorkerProcess {
    /// Starts the worker of `configuration` and waits for its first line, calling `waiting` once a second.
    pub fn start(configuration: &Configuration, waiting: &mut dyn FnMut()) -> Result<Self, Failure> {
        let start = Instant::now();
        let name = configuration.name.clone();
        let mut child = configuration
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::dead(format!("configuration {name} did not start: {e}")))?;
        let (Some(requests), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        let (sender, replies) = sync_channel(LINES_MAX);
        // Ends with the worker's output, or when the receiver is gone.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut worker = Self {
            name,
            child,
            requests: Some(requests),
            replies,
            engine: String::new(),
            started: Duration::ZERO,
        };
        match worker.reply(waiting) {
            Ok(Reply::Engine(engine)) => worker.engine = engine,
            other => return Err(worker.unexpected_reply(other)),
        }
        worker.started = start.elapsed();
        Ok(worker)
    }

    /// Registers tables.
    pub fn tables(&mut self, tables: &[(String, String)], waiting: &mut dyn FnMut()) -> Result<(), Failure> {
        match self.request(&Request::Tables(tables.to_vec()), waiting) {
            Ok(Reply::Ok) => Ok(()),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Runs one statement.
    pub fn run(&mut self, sql: &str, waiting: &mut dyn FnMut()) -> Result<Run, WorkerError> {
        let before = cpu::tree(self.child.id());
        match self.request(&Request::Run(sql.to_owned()), waiting) {
            Ok(Reply::Ran { wall, rows, transport_share }) => {
                let cpu = cpu::tree(self.child.id()).saturating_sub(before);
                Ok(Run { wall, cpu, rows, transport_share })
            }
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    /// Returns the rows of the last run.
    pub fn answer(&mut self, waiting: &mut dyn FnMut()) -> Result<Vec<Vec<Option<String>>>, WorkerError> {
        match self.request(&Request::Answer, waiting) {
            Ok(Reply::Answer(rows)) => Ok(rows),
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    /// Moves batches between the worker's ranks.
    pub fn transfer(&mut self, transfer: &Transfer, waiting: &mut dyn FnMut()) -> Result<Moved, WorkerError> {
        match self.request(&Request::Transfer(*transfer), waiting) {
            Ok(Reply::Moved(moved)) => Ok(moved),
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    /// Measures round trips of small messages between the worker's ranks 0 and 1.
    pub fn round_trips(&mut self, count: u64, waiting: &mut dyn FnMut()) -> Result<Latency, WorkerError> {
        match self.request(&Request::RoundTrips(count), waiting) {
            Ok(Reply::Latency(latency)) => Ok(latency),
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    /// Measures round trips of a message for this long.
    pub fn ping_pong(
        &mut self,
        bytes: usize,
        time: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<Latency, WorkerError> {
        match self.request(&Request::PingPong { bytes, time }, waiting) {
            Ok(Reply::Latency(latency)) => Ok(latency),
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    /// Moves `total_bytes` in packets of `bytes`, or as many as the time allows.
    pub fn packets(
        &mut self,
        bytes: usize,
        total_bytes: u64,
        time: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<Moved, WorkerError> {
        match self.request(&Request::Packets { bytes, total_bytes, time }, waiting) {
            Ok(Reply::Moved(moved)) => Ok(moved),
            Ok(Reply::Error(error)) => Err(WorkerError::Statement(error)),
            other => Err(WorkerError::Dead(self.unexpected_reply(other))),
        }
    }

    fn request(&mut self, request: &Request, waiting: &mut dyn FnMut()) -> Result<Reply, Failure> {
        if let Some(requests) = &mut self.requests {
            // A dead worker is detected by its missing reply.
            let _ = writeln!(requests, "{}", request.to_line()).and_then(|()| requests.flush());
        }
        self.reply(waiting)
    }

    fn reply(&mut self, waiting: &mut dyn FnMut()) -> Result<Reply, Failure> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(REPLY_S_MAX) {
            match self.replies.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => match Reply::parse(&line) {
                    Some(reply) => return Ok(reply),
                    None => eprintln!("{}: {line}", self.name),
                },
                Err(RecvTimeoutError::Timeout) => waiting(),
                Err(RecvTimeoutError::Disconnected) => {
                    let how = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
                    return Err(Failure::dead(format!(
                        "the worker of configuration {} ended: {how}",
                        self.name
                    )));
                }
            }
        }
        Err(Failure::dead(format!("configuration {} did not answer within {REPLY_S_MAX} s", self.name)))
    }

    fn unexpected_reply(&self, reply: Result<Reply, Failure>) -> Failure {
        match reply {
            Err(failure) => failure,
            Ok(Reply::Error(error)) => Failure::dead(format!("configuration {}: {error}", self.name)),
            Ok(reply) => Failure::dead(format!(
                "configuration {} said what it was not asked: {}",
                self.name,
                reply.to_line()
            )),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.requests.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(END_S_MAX) {
                // Killing a launcher ends its ranks, too: their connection to it breaks.
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> Result<WorkerProcess, Failure> {
        let peer = Configuration::peer(&format!("test=sh -c \"{script}\"")).unwrap();
        WorkerProcess::start(&peer, &mut || {})
    }

    #[test]
    fn a_worker_answers() {
        // Double quotes end a word of the command line, so the script prints the quotes of its JSON by printf
        // with octal escapes.
        let script = "printf 'noise\\n{\\042engine\\042: \\042test 1\\042}\\n'; read a; printf '{\\042ok\\042: true}\\n'; \
                      read a; printf '{\\042wall_s\\042: 0.5, \\042rows\\042: 2}\\n'; \
                      read a; printf '{\\042error\\042: \\042no rows\\042}\\n'; read a";
        let mut worker = start(script).unwrap_or_else(|failure| panic!("{}", failure.error.message));
        assert_eq!(worker.engine, "test 1");
        worker.tables(&[], &mut || {}).unwrap_or_else(|failure| panic!("{}", failure.error.message));
        let run = worker.run("select 1", &mut || {}).unwrap();
        assert_eq!((run.wall, run.rows), (Duration::from_millis(500), 2));
        assert!(
            matches!(worker.answer(&mut || {}), Err(WorkerError::Statement(error)) if error == "no rows")
        );
    }

    #[test]
    fn dead_workers_are_reported() {
        let failure = start("exit 7").err().expect("it has ended");
        assert_eq!(failure.exit_status, 3);
        assert!(failure.error.message.contains("exit status: 7"), "{}", failure.error.message);
    }
}
