//! The sleep/wake handshake of the driver, which loses no wake-up.
//!
//! The driver first publishes that it is asleep, then checks its queue once more, then sleeps. A producer
//! first queues, then checks whether the driver is asleep. Between the two steps of each is a sequentially
//! consistent fence, so at least one of the two sees the other, whatever ordering the queue itself has. The
//! crate `checks/handshake` model-checks every interleaving; it is outside the workspace, since its model
//! checker would enable other features of shared libraries.

use std::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Default)]
pub(crate) struct Handshake<F> {
    asleep: F,
}

/// An atomic flag and its fence.
pub(crate) trait Flag {
    fn set(&self, value: bool);
    fn get(&self) -> bool;
    fn fence();
}

impl Flag for AtomicBool {
    fn set(&self, value: bool) {
        self.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.load(Ordering::Relaxed)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

impl<F: Flag> Handshake<F> {
    /// For a producer, after queueing: whether the driver has to be woken.
    pub(crate) fn must_wake(&self) -> bool {
        F::fence();
        self.asleep.get()
    }

    /// For the driver: whether it may sleep. It is woken until [`Handshake::stop_sleeping`].
    pub(crate) fn start_sleeping(&self, nothing_to_do: impl FnOnce() -> bool) -> bool {
        self.asleep.set(true);
        F::fence();
        nothing_to_do()
    }

    pub(crate) fn stop_sleeping(&self) {
        self.asleep.set(false);
    }
}
