//! The driver's hold on one worker: its processes, and what is asked of it.
//!
//! Order of calls: [`WorkerProcess::start`], `tables` once, then `run` and, for its rows, `answer`. A worker
//! that moves batches: `transfer` and `round_trips` instead. Crash: dropping it closes the worker's standard
//! input, at which it ends; one that does not within [`END_S_MAX`] is killed.

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

/// A worker that says nothing for so long is given up: an hour, the longest that a query at a large scale may
/// take.
const REPLY_S_MAX: u64 = 3600;
/// How long a worker may take to end.
const END_S_MAX: u64 = 10;
/// Lines read ahead. A worker answers one request at a time; more are a launcher's own.
const LINES_MAX: usize = 16;

/// A running worker.
pub struct WorkerProcess {
    name: String,
    child: Child,
    /// `None` only while it is dropped.
    requests: Option<ChildStdin>,
    replies: Receiver<String>,
    /// What it says it is, as `harrier 0.1.0`.
    pub engine: String,
    /// From its start to its first word.
    pub started: Duration,
}

/// One run of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    pub wall: Duration,
    /// Of all its processes, user and system.
    pub cpu: Duration,
    pub rows: u64,
    /// Of the processor time of all ranks, from 0 to 1; `None` where nobody counts it.
    pub transport_share: Option<f64>,
}

/// Why there is no reply of the kind that was asked for.
#[derive(Debug)]
pub enum Refusal {
    /// The statement or the transfer failed; the worker goes on.
    Statement(String),
    /// The worker is of no more use.
    Dead(Failure),
}

impl WorkerProcess {
    /// Starts the worker of `configuration` and waits for its first word, calling `waiting` once a second.
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
        // Ends with the worker's output, or when nobody listens any more.
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
            other => return Err(worker.unexpected(other)),
        }
        worker.started = start.elapsed();
        Ok(worker)
    }

    /// Makes tables known.
    pub fn tables(&mut self, tables: &[(String, String)], waiting: &mut dyn FnMut()) -> Result<(), Failure> {
        match self.ask(&Request::Tables(tables.to_vec()), waiting) {
            Ok(Reply::Ok) => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Runs one statement.
    pub fn run(&mut self, sql: &str, waiting: &mut dyn FnMut()) -> Result<Run, Refusal> {
        let before = cpu::tree(self.child.id());
        match self.ask(&Request::Run(sql.to_owned()), waiting) {
            Ok(Reply::Ran { wall, rows, transport_share }) => {
                let cpu = cpu::tree(self.child.id()).saturating_sub(before);
                Ok(Run { wall, cpu, rows, transport_share })
            }
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    /// The rows of the last run.
    pub fn answer(&mut self, waiting: &mut dyn FnMut()) -> Result<Vec<Vec<Option<String>>>, Refusal> {
        match self.ask(&Request::Answer, waiting) {
            Ok(Reply::Answer(rows)) => Ok(rows),
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    /// Moves batches between the worker's ranks.
    pub fn transfer(&mut self, transfer: &Transfer, waiting: &mut dyn FnMut()) -> Result<Moved, Refusal> {
        match self.ask(&Request::Transfer(*transfer), waiting) {
            Ok(Reply::Moved(moved)) => Ok(moved),
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    /// Sends small messages to and fro between the worker's ranks 0 and 1.
    pub fn round_trips(&mut self, count: u64, waiting: &mut dyn FnMut()) -> Result<Latency, Refusal> {
        match self.ask(&Request::RoundTrips(count), waiting) {
            Ok(Reply::Latency(latency)) => Ok(latency),
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    /// Sends a message to and fro for so long.
    pub fn ping_pong(
        &mut self,
        bytes: usize,
        time: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<Latency, Refusal> {
        match self.ask(&Request::PingPong { bytes, time }, waiting) {
            Ok(Reply::Latency(latency)) => Ok(latency),
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    /// Moves `total_bytes` in packets of `bytes`, or as many as go in the time.
    pub fn packets(
        &mut self,
        bytes: usize,
        total_bytes: u64,
        time: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<Moved, Refusal> {
        match self.ask(&Request::Packets { bytes, total_bytes, time }, waiting) {
            Ok(Reply::Moved(moved)) => Ok(moved),
            Ok(Reply::Error(error)) => Err(Refusal::Statement(error)),
            other => Err(Refusal::Dead(self.unexpected(other))),
        }
    }

    fn ask(&mut self, request: &Request, waiting: &mut dyn FnMut()) -> Result<Reply, Failure> {
        if let Some(requests) = &mut self.requests {
            // A worker that is gone is noticed by what it does not answer.
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

    fn unexpected(&self, reply: Result<Reply, Failure>) -> Failure {
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
                // A launcher that is killed takes its ranks along: their connection to it breaks.
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
        // Double quotes end a word of the command line, so the script prints its JSON with printf and octal
        // quotes.
        let script = "printf 'noise\\n{\\042engine\\042: \\042test 1\\042}\\n'; read a; printf '{\\042ok\\042: true}\\n'; \
                      read a; printf '{\\042wall_s\\042: 0.5, \\042rows\\042: 2}\\n'; \
                      read a; printf '{\\042error\\042: \\042no rows\\042}\\n'; read a";
        let mut worker = start(script).unwrap_or_else(|failure| panic!("{}", failure.error.message));
        assert_eq!(worker.engine, "test 1");
        worker.tables(&[], &mut || {}).unwrap_or_else(|failure| panic!("{}", failure.error.message));
        let run = worker.run("select 1", &mut || {}).unwrap();
        assert_eq!((run.wall, run.rows), (Duration::from_millis(500), 2));
        assert!(matches!(worker.answer(&mut || {}), Err(Refusal::Statement(error)) if error == "no rows"));
    }

    #[test]
    fn a_dead_worker_is_told() {
        let failure = start("exit 7").err().expect("it has ended");
        assert_eq!(failure.exit_status, 3);
        assert!(failure.error.message.contains("exit status: 7"), "{}", failure.error.message);
    }
}
