//! Mutual exclusion of tests that start ranks: one gang at a time per process, a few per machine.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Poll interval while all slots are taken.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A slot held by a test; dropping it releases the slot.
#[derive(Debug)]
pub struct GangSlot {
    _process: MutexGuard<'static, ()>,
    /// File lock of the slot; `None` if no limit is configured.
    _slot: Option<File>,
}

/// Waits for a slot. Ranks compete for processors with every other gang, so tests that start one run one at a
/// time within a process, and `HARRIER_TEST_GANGS=FOLDER:N` limits all processes together to N gangs by lock
/// files in the folder.
///
/// Panics: the variable is malformed, or the folder is not writable.
pub fn gang_slot() -> GangSlot {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let process = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let slot = std::env::var("HARRIER_TEST_GANGS").ok().map(|slots| {
        let (folder, count) = slots.rsplit_once(':').expect("HARRIER_TEST_GANGS=FOLDER:N");
        lock_slot(Path::new(folder), count.parse().expect("HARRIER_TEST_GANGS=FOLDER:N"))
    });
    GangSlot { _process: process, _slot: slot }
}

/// Locks one of `count` files in `folder`.
fn lock_slot(folder: &Path, count: usize) -> File {
    fs::create_dir_all(folder).expect("a folder for locks");
    loop {
        for slot in 0..count {
            let file = File::create(folder.join(slot.to_string())).expect("a file to lock");
            match file.try_lock() {
                Ok(()) => return file,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("{}: {error}", folder.display()),
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_for_one_each() {
        let folder = std::env::temp_dir().join(format!("harrier-places-{}", std::process::id()));
        let (first, second) = (lock_slot(&folder, 2), lock_slot(&folder, 2));
        let waiting = {
            let folder = folder.clone();
            std::thread::spawn(move || lock_slot(&folder, 2))
        };
        std::thread::sleep(5 * POLL_INTERVAL);
        assert!(!waiting.is_finished(), "a third has a slot");
        drop(first);
        drop(waiting.join().unwrap());
        drop(second);
        fs::remove_dir_all(folder).unwrap();
    }
}
