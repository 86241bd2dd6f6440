//! Catalog on a file system without locks: the error names the cause and the remedy. It is not 08006, after
//! which clients would reconnect and retry.

use crate::command::{Folder, build_preload_library};

#[test]
fn filesystem_without_locks_is_reported() {
    let library = build_preload_library("warehouse/no_locks.c", &["-ldl"]);
    // ENOSYS and EOPNOTSUPP. With ENOLCK SQLite waits for half a minute, as for a held lock.
    for number in ["38", "95"] {
        let folder = Folder::new();
        let mut command = folder.command(&["--warehouse", "w", "-c", "CREATE TABLE t (a INT)"]);
        let run = command.env("LD_PRELOAD", &library).env("NO_LOCKS", number).output().unwrap();
        let error_output = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{error_output}");
        assert!(
            error_output.contains("ERROR 58030") && error_output.contains("has no locks"),
            "{error_output}"
        );
        assert!(error_output.contains("-o flock") && error_output.contains("--catalog"), "{error_output}");
        // With locks, the same folder becomes a warehouse.
        let run = folder.sql(&["--warehouse", "w", "-c", "CREATE TABLE t (a INT)"]);
        assert_eq!(run.status, Some(0), "{run:?}");
    }
}
