//! A catalog on a file system without locks: what is wrong and the way out are told. 08006 is for connections
//! that are lost, and clients try again.

use crate::command::{Folder, preloaded};

#[test]
fn a_file_system_without_locks_is_told() {
    let library = preloaded("warehouse/no_locks.c", &["-ldl"]);
    // ENOSYS and EOPNOTSUPP. With ENOLCK SQLite waits for half a minute, as if somebody had the lock.
    for number in ["38", "95"] {
        let folder = Folder::new();
        let mut command = folder.command(&["--warehouse", "w", "-c", "CREATE TABLE t (a INT)"]);
        let run = command.env("LD_PRELOAD", &library).env("NO_LOCKS", number).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains("ERROR 58030") && said.contains("has no locks"), "{said}");
        assert!(said.contains("-o flock") && said.contains("--catalog"), "{said}");
        // With locks it is a warehouse, whatever was left.
        let run = folder.sql(&["--warehouse", "w", "-c", "CREATE TABLE t (a INT)"]);
        assert_eq!(run.status, Some(0), "{run:?}");
    }
}
