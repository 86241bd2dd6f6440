//! What came of a start of the ranks, from what they have told in their file and how the launcher has ended.

use harrier_mpid::{BROKEN, JOINED, NOT_LEFT, OUTCOME, WITHOUT_OTHERS};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// What a program ends with that tells nobody what it ends with.
const FAILED: i32 = 1;

/// The file of [`OUTCOME`]; gone when this is.
pub struct Told(PathBuf);

impl Told {
    /// In the folder of a checkpoint, which every rank sees.
    ///
    /// Errors: the folder cannot be made.
    pub fn within(folder: &Path) -> io::Result<Told> {
        std::fs::create_dir_all(folder)?;
        // Ranks may have another folder of work.
        let path = std::path::absolute(folder)?.join(format!("outcome-{}", std::process::id()));
        // Of a process that had this number before.
        let _ = std::fs::remove_file(&path);
        Ok(Told(path))
    }

    pub fn ask(&self, launcher: &mut Command) {
        launcher.env(OUTCOME, &self.0);
    }

    pub fn have_met(&self) -> bool {
        self.0.exists()
    }

    fn last(&self) -> Option<Last> {
        last_of(&std::fs::read_to_string(&self.0).unwrap_or_default())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How far the ranks have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Met,
    /// One has exited, and did not leave the others in good order.
    Exited,
    /// Rank 0 has left with this status.
    Left(i32),
}

/// `None`: the ranks have not met.
fn last_of(told: &str) -> Option<Last> {
    told.lines().fold(None, |last, line| match line {
        JOINED => Some(Last::Met),
        NOT_LEFT if !matches!(last, Some(Last::Left(_))) => Some(Last::Exited),
        // Who has exited was lost to the others.
        WITHOUT_OTHERS => last.or(Some(Last::Met)),
        NOT_LEFT => last,
        status => status.parse().ok().map(Last::Left).or(last),
    })
}

/// How the launcher has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// It did so by itself.
    pub by_itself: bool,
    /// It was told to bear the death of ranks, and then does not tell what became of them.
    pub bears_deaths: bool,
}

/// What came of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program has ended with this status.
    Exit(i32),
    /// Ranks were lost after they had met, and the others could not go on.
    Lost,
}

impl Outcome {
    /// `told`: `None` without a checkpoint, where nobody is asked.
    pub fn of(told: Option<&Told>, ended: Ended) -> Outcome {
        let code = ended.status.code().filter(|_| ended.by_itself);
        match told {
            None => Outcome::Exit(code.unwrap_or(BROKEN)),
            Some(told) => Outcome::told(told.last(), code.filter(|_| !ended.bears_deaths)),
        }
    }

    /// `code`: the launcher's status, if that is the ranks'.
    fn told(last: Option<Last>, code: Option<i32>) -> Outcome {
        match last {
            Some(Last::Left(status)) => Outcome::Exit(code.unwrap_or(status)),
            Some(Last::Exited) => Outcome::Exit(code.unwrap_or(FAILED)),
            Some(Last::Met) => Outcome::Lost,
            None => Outcome::Exit(code.unwrap_or(BROKEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_that_have_met_are_lost() {
        for (told, code, expected) in [
            // Killed, or without those that were.
            ("joined\n", Some(137), Outcome::Lost),
            ("joined\n", Some(9), Outcome::Lost),
            ("joined\n", None, Outcome::Lost),
            ("joined\nbroken\n", Some(3), Outcome::Lost),
            ("broken", Some(9), Outcome::Lost),
            ("joined\n0\njoined\n", Some(9), Outcome::Lost),
            // They have left, whatever the status looks like.
            ("joined\n0\n", Some(0), Outcome::Exit(0)),
            ("joined\n3\n", Some(3), Outcome::Exit(3)),
            ("joined\n143\n", None, Outcome::Exit(143)),
            ("joined\n1\nexited\n", None, Outcome::Exit(1)),
            // They have exited without that, and others have missed them.
            ("joined\nexited\n", Some(143), Outcome::Exit(143)),
            ("joined\nexited\nbroken\n", Some(3), Outcome::Exit(3)),
            ("joined\nbroken\nexited\n", None, Outcome::Exit(FAILED)),
            // They have not met, or are no ranks.
            ("", Some(0), Outcome::Exit(0)),
            ("", Some(130), Outcome::Exit(130)),
            ("", None, Outcome::Exit(BROKEN)),
        ] {
            assert_eq!(Outcome::told(last_of(told), code), expected, "{told:?} {code:?}");
        }
    }
}
