//! Dumps of PostgreSQL's, loaded as scripts.

use crate::command::{Folder, Run};

#[track_caller]
fn prints(run: &Run, stdout: &str) {
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), stdout), "{run:?}");
}

#[track_caller]
fn fails(run: &Run, code: &str, message: &str) {
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.starts_with(&format!("ERROR {code}")), "{run:?}");
    assert!(run.stderr.contains(message), "{run:?}");
}

#[test]
fn other_commands_wait_for_the_token() {
    let folder = Folder::new();
    let run = |script: &str| {
        folder.write("s.sql", script);
        folder.sql(&["--format", "csv", "-f", "s.sql"])
    };
    prints(&run("\\restrict abc\nselect 1 as a;\n\\unrestrict abc\n\\echo after\n"), "a\n1\nafter\n");
    fails(&run("\\restrict abc\n\\echo no\n"), "22023", "backslash commands are restricted");
    fails(&run("\\restrict abc\n\\restrict def\n"), "22023", "backslash commands are restricted");
    fails(&run("\\restrict abc\n\\i other.sql\n"), "22023", "backslash commands are restricted");
    fails(&run("\\restrict abc\n\\unrestrict ab\n"), "22023", "wrong token");
    fails(&run("\\unrestrict abc\n"), "22023", "are not restricted");
    fails(&run("\\restrict\n"), "22023", "needs an argument");
    // What one file has left restricted is so in the next.
    folder.write("s.sql", "\\restrict abc\n");
    fails(&folder.sql(&["-f", "s.sql", "-c", "\\echo no"]), "22023", "backslash commands are restricted");
}
