//! Tries every order of the steps by which a driver goes to sleep and a task wakes it, see the handshake's own file.
//!
//! `cargo test --manifest-path checks/handshake/Cargo.toml`
#![cfg(test)]

#[path = "../../../crates/interconnect/src/handshake.rs"]
mod handshake;

use handshake::{Flag, Handshake};
use std::sync::atomic::Ordering;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::sync::{Arc, Notify};

impl Flag for AtomicBool {
    fn set(&self, value: bool) {
        self.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.load(Ordering::Relaxed)
    }

    fn fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// How often the driver looks, awake, before it lies down: it may look on for a while, or sleep at once.
const LOOKS: std::ops::Range<usize> = 1..3;

/// A task queues a frame while the driver takes frames, looks on and sleeps: in every order of their steps the driver gets it. A
/// wake-up that is lost would leave it asleep, which the model checker calls a deadlock.
#[test]
fn no_wake_up_is_lost() {
    LOOKS.for_each(no_wake_up_is_lost_after);
}

fn no_wake_up_is_lost_after(looks: usize) {
    loom::model(move || {
        let handshake = Arc::new(Handshake::<AtomicBool>::default());
        let queued = Arc::new(AtomicUsize::new(0));
        // As an eventfd: set until it is read.
        let event = Arc::new(Notify::new());
        let task = {
            let (handshake, queued, event) = (handshake.clone(), queued.clone(), event.clone());
            loom::thread::spawn(move || {
                queued.store(1, Ordering::Release);
                if handshake.must_wake() {
                    event.notify();
                }
            })
        };
        let is_queued = (0..looks).any(|_| {
            loom::thread::yield_now();
            queued.load(Ordering::Acquire) > 0
        });
        if !is_queued {
            if handshake.start_sleeping(|| queued.load(Ordering::Acquire) == 0) {
                event.wait();
            }
            handshake.stop_sleeping();
        }
        task.join().unwrap();
    });
}
