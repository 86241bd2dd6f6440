//! The handshake by which no wake-up of a sleeping driver is lost.
//!
//! The driver first publishes that it is asleep, then looks at its queue once more, then sleeps. Who queues
//! something does so first and then looks whether it is asleep. Between the two steps of each stands a
//! sequentially consistent fence, so at least one of the two sees the other, whatever orders the queue itself
//! keeps. The crate `checks/handshake` tries every order of the steps; it stands outside of the workspace,
//! whose libraries would get other features from its model checker.

use std::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Default)]
pub(crate) struct Handshake<F> {
    asleep: F,
}

/// A flag between threads, and the fence that goes with it.
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
    /// For who has queued something: whether the driver has to be woken for it.
    pub(crate) fn must_wake(&self) -> bool {
        F::fence();
        self.asleep.get()
    }

    /// For the driver: whether it may sleep. Until [`Handshake::get_up`] it is woken.
    pub(crate) fn lie_down(&self, nothing_to_do: impl FnOnce() -> bool) -> bool {
        self.asleep.set(true);
        F::fence();
        nothing_to_do()
    }

    pub(crate) fn get_up(&self) {
        self.asleep.set(false);
    }
}
