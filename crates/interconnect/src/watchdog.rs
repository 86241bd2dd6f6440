//! Ends a process whose driver stands still inside of a call: an MPI library that waits for a peer that will
//! not answer, or a service that blocks.
//!
//! Such a rank hears no heartbeat, misses nobody, and cannot be woken; all others would take it for silent,
//! and whoever is not one of them would take it for well. When the process has gone, everybody learns of it
//! as of any other that was killed.
//!
//! Time is counted in looks, not by the clock: a process that was stopped or starved as a whole has looked as
//! seldom as its driver has turned.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks in a row at which the driver was inside of the same turn. Together 4 s, less than others bear its
/// silence.
const LOOKS_MAX: u32 = 16;

/// Where a driver is.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    turns: AtomicU64,
    /// It waits for something to happen, for as long as that takes.
    rests: AtomicBool,
    ended: AtomicBool,
}

impl Pulse {
    /// A turn begins.
    pub fn beat(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub fn rest(&self, rests: bool) {
        self.rests.store(rests, Ordering::Relaxed);
    }

    /// There is no further turn.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Looks after the driver of this process until that ends.
///
/// Errors: no thread can be had.
pub(crate) fn start(pulse: Arc<Pulse>) -> io::Result<()> {
    watch(pulse, LOOK_EVERY, || {
        let seconds = (LOOK_EVERY * LOOKS_MAX).as_secs();
        eprintln!("the interconnect has stood still for {seconds} s inside of one call; this rank is ended");
        // Nothing that may wait for the driver, as handlers at exit do.
        let _ = kill(Pid::this(), Signal::SIGKILL);
    })
}

fn watch(pulse: Arc<Pulse>, look_every: Duration, stands: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        let (mut last, mut looks) = (None, 0);
        while !pulse.ended.load(Ordering::Relaxed) {
            std::thread::sleep(look_every);
            let now = pulse.turns.load(Ordering::Relaxed);
            let stands_still = last.replace(now) == Some(now) && !pulse.rests.load(Ordering::Relaxed);
            looks = if stands_still { looks + 1 } else { 0 };
            if looks >= LOOKS_MAX {
                return stands();
            }
        }
    };
    std::thread::Builder::new().name("watchdog".to_string()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    /// Time for some of [`LOOKS_MAX`] looks, and for more than all of them.
    const LOOK: Duration = Duration::from_millis(2);
    const MANY_LOOKS: Duration = LOOK.saturating_mul(4 * LOOKS_MAX);

    #[test]
    fn who_rests_or_turns_is_left_alone_and_who_stands_is_not() {
        let pulse = Arc::new(Pulse::default());
        let (tell, told) = channel();
        watch(Arc::clone(&pulse), LOOK, move || tell.send(()).unwrap()).unwrap();
        pulse.rest(true);
        assert_eq!(told.recv_timeout(MANY_LOOKS), Err(RecvTimeoutError::Timeout));
        let beats = Arc::clone(&pulse);
        let turning = std::thread::spawn(move || {
            beats.rest(false);
            for _ in 0..1000 {
                beats.beat();
                std::thread::sleep(LOOK / 10);
            }
        });
        turning.join().unwrap();
        told.recv().unwrap();
    }

    #[test]
    fn who_has_ended_is_not_looked_after() {
        let pulse = Arc::new(Pulse::default());
        let (tell, told) = channel::<()>();
        pulse.end();
        watch(pulse, LOOK, move || tell.send(()).unwrap()).unwrap();
        assert_eq!(told.recv(), Err(std::sync::mpsc::RecvError));
    }
}
