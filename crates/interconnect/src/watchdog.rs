//! Watchdog that kills a process whose driver hangs inside a call: an MPI library that waits for a peer that
//! will not answer, or a service that blocks.
//!
//! Such a rank answers no heartbeat, detects no loss, and cannot be woken; ranks that wait for it would
//! declare it lost, and all others would believe it alive. Once its process is killed, everybody detects its
//! exit as usual.
//!
//! Time is counted in checks, not by the clock: in a process that was stopped or starved as a whole, checks
//! and driver turns pause alike.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Consecutive checks at which the driver was inside the same turn. Together 4 s, less than the silence that
/// others tolerate.
const CHECKS_MAX: u32 = 16;

/// The heartbeat of a driver.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    turns: AtomicU64,
    /// It sleeps until something happens, for as long as that takes.
    sleeps: AtomicBool,
    ended: AtomicBool,
}

impl Pulse {
    /// Starts a turn.
    pub fn beat(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_sleeping(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Marks the driver as ended.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Watches the driver of this process until it ends.
///
/// Errors: the thread cannot be started.
pub(crate) fn start(pulse: Arc<Pulse>) -> io::Result<()> {
    watch(pulse, CHECK_INTERVAL, || {
        let seconds = (CHECK_INTERVAL * CHECKS_MAX).as_secs();
        eprintln!("the interconnect has stood still for {seconds} s inside of one call; this rank is ended");
        // SIGKILL, since exit handlers may wait for the driver.
        let _ = kill(Pid::this(), Signal::SIGKILL);
    })
}

fn watch(
    pulse: Arc<Pulse>,
    check_interval: Duration,
    on_hang: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        let (mut last, mut checks) = (None, 0);
        while !pulse.ended.load(Ordering::Relaxed) {
            std::thread::sleep(check_interval);
            let now = pulse.turns.load(Ordering::Relaxed);
            let hangs = last.replace(now) == Some(now) && !pulse.sleeps.load(Ordering::Relaxed);
            checks = if hangs { checks + 1 } else { 0 };
            if checks >= CHECKS_MAX {
                return on_hang();
            }
        }
    };
    std::thread::Builder::new().name("watchdog".to_string()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    /// Time for some of [`CHECKS_MAX`] checks, and for more than all of them.
    const CHECK: Duration = Duration::from_millis(2);
    const MANY_CHECKS: Duration = CHECK.saturating_mul(4 * CHECKS_MAX);

    #[test]
    fn only_stalled_drivers_trip_the_watchdog() {
        let pulse = Arc::new(Pulse::default());
        let (sender, receiver) = channel();
        watch(Arc::clone(&pulse), CHECK, move || sender.send(()).unwrap()).unwrap();
        pulse.set_sleeping(true);
        assert_eq!(receiver.recv_timeout(MANY_CHECKS), Err(RecvTimeoutError::Timeout));
        let beats = Arc::clone(&pulse);
        let turning = std::thread::spawn(move || {
            beats.set_sleeping(false);
            for _ in 0..1000 {
                beats.beat();
                std::thread::sleep(CHECK / 10);
            }
        });
        turning.join().unwrap();
        receiver.recv().unwrap();
    }

    #[test]
    fn ended_drivers_are_not_watched() {
        let pulse = Arc::new(Pulse::default());
        let (sender, receiver) = channel::<()>();
        pulse.end();
        watch(pulse, CHECK, move || sender.send(()).unwrap()).unwrap();
        assert_eq!(receiver.recv(), Err(std::sync::mpsc::RecvError));
    }
}
