//! Outcome of a run, from the ranks' reports in their file and the launcher's exit status.

use harrier_mpid::{BROKEN, JOINED, NOT_LEFT, OUTCOME, WITHOUT_OTHERS};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Exit status of a program whose own status is unknown.
const FAILED: i32 = 1;

/// The file of [`OUTCOME`]; removed on drop.
pub struct RankReports(PathBuf);

impl RankReports {
    /// Uses a file in the checkpoint's folder, which every rank sees.
    ///
    /// Errors: the folder cannot be created.
    pub fn within(folder: &Path) -> io::Result<RankReports> {
        std::fs::create_dir_all(folder)?;
        // Absolute, because ranks may have another working directory.
        let path = std::path::absolute(folder)?.join(format!("outcome-{}", std::process::id()));
        // Left by an earlier process with this id.
        let _ = std::fs::remove_file(&path);
        Ok(RankReports(path))
    }

    pub fn set_variable(&self, launcher: &mut Command) {
        launcher.env(OUTCOME, &self.0);
    }

    pub fn have_joined(&self) -> bool {
        self.0.exists()
    }

    fn last(&self) -> Option<LastReport> {
        parse_reports(&std::fs::read_to_string(&self.0).unwrap_or_default())
    }
}

impl Drop for RankReports {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Latest state reported by the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastReport {
    Joined,
    /// A rank has exited without leaving.
    Exited,
    /// Rank 0 has left with this status.
    Final(i32),
}

/// Parses the reports. `None`: the ranks have not joined.
fn parse_reports(reports: &str) -> Option<LastReport> {
    reports.lines().fold(None, |last, line| match line {
        JOINED => Some(LastReport::Joined),
        NOT_LEFT if !matches!(last, Some(LastReport::Final(_))) => Some(LastReport::Exited),
        // The ranks that exited are those that the others lost.
        WITHOUT_OTHERS => last.or(Some(LastReport::Joined)),
        NOT_LEFT => last,
        status => status.parse().ok().map(LastReport::Final).or(last),
    })
}

/// Result of waiting for the launcher.
#[derive(Clone, Copy, Debug)]
pub struct LauncherExit {
    pub status: ExitStatus,
    /// It was not ended by `mpidrun`.
    pub by_itself: bool,
    /// It tolerates lost ranks, and then does not report their exit status.
    pub tolerates_losses: bool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program has ended with this status.
    Exit(i32),
    /// Ranks were lost after the rendezvous, and the others could not continue.
    Lost,
}

impl Outcome {
    /// `reports`: `None` without a checkpoint.
    pub fn of(reports: Option<&RankReports>, exit: LauncherExit) -> Outcome {
        let code = exit.status.code().filter(|_| exit.by_itself);
        match reports {
            None => Outcome::Exit(code.unwrap_or(BROKEN)),
            Some(reports) => Outcome::from_reports(reports.last(), code.filter(|_| !exit.tolerates_losses)),
        }
    }

    /// `code`: the launcher's status, if it is that of the ranks.
    fn from_reports(last: Option<LastReport>, code: Option<i32>) -> Outcome {
        match last {
            Some(LastReport::Final(status)) => Outcome::Exit(code.unwrap_or(status)),
            Some(LastReport::Exited) => Outcome::Exit(code.unwrap_or(FAILED)),
            Some(LastReport::Joined) => Outcome::Lost,
            None => Outcome::Exit(code.unwrap_or(BROKEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connected_ranks_count_as_lost() {
        for (reports, code, expected) in [
            // Killed, or left without the killed ranks.
            ("joined\n", Some(137), Outcome::Lost),
            ("joined\n", Some(9), Outcome::Lost),
            ("joined\n", None, Outcome::Lost),
            ("joined\nbroken\n", Some(3), Outcome::Lost),
            ("broken", Some(9), Outcome::Lost),
            ("joined\n0\njoined\n", Some(9), Outcome::Lost),
            // The ranks have left, whatever the status.
            ("joined\n0\n", Some(0), Outcome::Exit(0)),
            ("joined\n3\n", Some(3), Outcome::Exit(3)),
            ("joined\n143\n", None, Outcome::Exit(143)),
            ("joined\n1\nexited\n", None, Outcome::Exit(1)),
            // Ranks have exited without leaving, and others have lost them.
            ("joined\nexited\n", Some(143), Outcome::Exit(143)),
            ("joined\nexited\nbroken\n", Some(3), Outcome::Exit(3)),
            ("joined\nbroken\nexited\n", None, Outcome::Exit(FAILED)),
            // The ranks have not joined, or the program uses no ranks.
            ("", Some(0), Outcome::Exit(0)),
            ("", Some(130), Outcome::Exit(130)),
            ("", None, Outcome::Exit(BROKEN)),
        ] {
            assert_eq!(Outcome::from_reports(parse_reports(reports), code), expected, "{reports:?} {code:?}");
        }
    }
}
