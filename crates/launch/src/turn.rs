//! Turns of tests that start ranks: one at a time in a process, and a few on the machine.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// From finding all places taken to looking again.
const LOOK: Duration = Duration::from_millis(20);

/// A test's turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _process: MutexGuard<'static, ()>,
    /// Locked; `None` where nobody has said how many places there are.
    _place: Option<File>,
}

/// Waits for a turn. Ranks share the processors with those of every other gang: tests that start one take
/// turns within a process, and with those of other processes where `HARRIER_TEST_GANGS=FOLDER:N` says that N
/// gangs may run at a time; the folder has their locks.
///
/// Panics: the variable has another form, or the folder cannot be written to.
pub fn alone() -> Turn {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let process = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = std::env::var("HARRIER_TEST_GANGS").ok().map(|places| {
        let (folder, count) = places.rsplit_once(':').expect("HARRIER_TEST_GANGS=FOLDER:N");
        wait_for_place(Path::new(folder), count.parse().expect("HARRIER_TEST_GANGS=FOLDER:N"))
    });
    Turn { _process: process, _place: place }
}

/// A lock on one of so many files in `folder`.
fn wait_for_place(folder: &Path, count: usize) -> File {
    fs::create_dir_all(folder).expect("a folder for locks");
    loop {
        for place in 0..count {
            let file = File::create(folder.join(place.to_string())).expect("a file to lock");
            match file.try_lock() {
                Ok(()) => return file,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("{}: {error}", folder.display()),
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_for_one_each() {
        let folder = std::env::temp_dir().join(format!("harrier-places-{}", std::process::id()));
        let (first, second) = (wait_for_place(&folder, 2), wait_for_place(&folder, 2));
        let waiting = {
            let folder = folder.clone();
            std::thread::spawn(move || wait_for_place(&folder, 2))
        };
        std::thread::sleep(5 * LOOK);
        assert!(!waiting.is_finished(), "a third has a place");
        drop(first);
        drop(waiting.join().unwrap());
        drop(second);
        fs::remove_dir_all(folder).unwrap();
    }
}
