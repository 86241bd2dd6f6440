//! Worker of one primitive: two processes, of which this one sends and the other one answers.
//!
//! Requests and replies use the driver's protocol on standard input and output (see `protocol`); a primitive
//! is a [`Pair`].

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::interconnect::latency;
use crate::protocol::{Moved, Reply, Request};
use crate::worker;
use harrier_error::exit;

/// Maximum and minimum number of round trips per request.
const ROUND_TRIPS_MAX: usize = 20_000;
const ROUND_TRIPS_MIN: usize = 3;

/// Fraction of a request's time for warming up.
const WARM_PART: f64 = 0.2;

/// A primitive that sends bytes from this process to another one. Calls block.
pub(super) trait Pair {
    /// Name and version.
    fn engine(&self) -> String;

    /// Sends a message and waits for its echo.
    ///
    /// Errors: no echo, or a different one.
    fn round_trip(&mut self, message: &[u8]) -> Result<(), String>;

    /// Sends packets while `more` returns true for the bytes sent so far. Returns the bytes that the other
    /// side has received.
    fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String>;
}

/// Answers the driver until standard input ends.
pub(super) fn serve(mut pair: impl Pair) -> Result<(), String> {
    let to_text = |error: std::io::Error| error.to_string();
    worker::reply(&Reply::Engine(pair.engine())).map_err(to_text)?;
    while let Some(line) = worker::next_line().map_err(to_text)? {
        let answer = match Request::parse(&line) {
            Ok(Request::PingPong { bytes, time }) => ping_pong(&mut pair, bytes, time),
            Ok(Request::Packets { bytes, total_bytes, time }) => packets(&mut pair, bytes, total_bytes, time),
            Ok(_) => Err("this worker only sends bytes".to_owned()),
            Err(message) => Err(message),
        };
        worker::reply(&answer.unwrap_or_else(Reply::Error)).map_err(to_text)?;
    }
    Ok(())
}

/// Builds a message whose damage would be detected.
fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn ping_pong(pair: &mut impl Pair, bytes: usize, time: Duration) -> Result<Reply, String> {
    let message = message(bytes);
    let warm = Instant::now();
    loop {
        pair.round_trip(&message)?;
        if warm.elapsed() >= time.mul_f64(WARM_PART) {
            break;
        }
    }
    let mut halves_ns = Vec::new();
    let begun = Instant::now();
    while halves_ns.len() < ROUND_TRIPS_MIN || (begun.elapsed() < time && halves_ns.len() < ROUND_TRIPS_MAX) {
        let start = Instant::now();
        pair.round_trip(&message)?;
        halves_ns.push(start.elapsed().as_nanos() as f64 / 2.0);
    }
    latency::of(halves_ns).map(Reply::Latency).ok_or_else(|| "nothing was measured".to_owned())
}

fn packets(pair: &mut impl Pair, bytes: usize, total_bytes: u64, time: Duration) -> Result<Reply, String> {
    let packet = message(bytes);
    // Warm up memory and connections first.
    let warm = Instant::now();
    pair.packets(&packet, &mut |sent| sent < total_bytes && warm.elapsed() < time.mul_f64(WARM_PART))?;
    let begun = Instant::now();
    let mut sent_bytes = 0;
    let mut more = |sent: u64| {
        let more = sent == 0 || (sent < total_bytes && begun.elapsed() < time);
        sent_bytes = sent;
        more
    };
    let got_bytes = pair.packets(&packet, &mut more)?;
    let wall = begun.elapsed();
    match got_bytes == sent_bytes && sent_bytes > 0 {
        true => Ok(Reply::Moved(Moved { bytes: got_bytes, wall, cpu: Duration::ZERO })),
        false => Err(format!("{got_bytes} of {sent_bytes} bytes arrived")),
    }
}

/// Exit code of a worker.
pub(super) fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(error) => {
            eprintln!("ERROR 58000: {error}");
            ExitCode::from(exit::BROKEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends to itself, and may lose the last packet.
    struct Own {
        loses: bool,
        round_trips: usize,
    }

    impl Pair for Own {
        fn engine(&self) -> String {
            "own".to_owned()
        }

        fn round_trip(&mut self, _: &[u8]) -> Result<(), String> {
            self.round_trips += 1;
            Ok(())
        }

        fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
            let mut sent = 0;
            while more(sent) {
                sent += packet.len() as u64;
            }
            Ok(if self.loses { sent - packet.len() as u64 } else { sent })
        }
    }

    #[test]
    fn packets_go_until_all_are_sent_or_the_time_is_up() {
        let mut own = Own { loses: false, round_trips: 0 };
        let moved = |reply| match reply {
            Ok(Reply::Moved(moved)) => moved.bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(moved(packets(&mut own, 300, 1000, Duration::from_secs(60))), 1200);
        assert_eq!(moved(packets(&mut own, 300, 1000, Duration::ZERO)), 300);
        own.loses = true;
        assert_eq!(packets(&mut own, 300, 1000, Duration::ZERO), Err("0 of 300 bytes arrived".to_owned()));
        assert!(matches!(ping_pong(&mut own, 1, Duration::ZERO), Ok(Reply::Latency(_))));
        assert_eq!(own.round_trips, 1 + ROUND_TRIPS_MIN);
    }
}
