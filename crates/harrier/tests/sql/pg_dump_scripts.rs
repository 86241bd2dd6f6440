//! Scripts of `pg_dump -O --no-acl` of PostgreSQL 15, loaded by `harrier sql`.

use crate::command::{Folder, Run};

const DUMP: &str = include_str!("dump.sql");

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
fn pg_dump_script_is_loaded() {
    let folder = Folder::new();
    folder.write("dump.sql", DUMP);
    let run = folder.sql(&["-q", "-f", "dump.sql"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let queries = [
        "SELECT id, name, tags[2] AS tag, scores, paid, born FROM public.people ORDER BY id",
        "SELECT name, visits FROM public.paid_visits ORDER BY name",
        "SELECT a, b FROM other.t",
        // Later statements run after the end of the dump.
        "INSERT INTO public.people (name) VALUES ('Dan') RETURNING id, scores, paid",
        "INSERT INTO public.visits (person, data) VALUES (4, '\\x00') RETURNING id, is_paid",
        "INSERT INTO public.named (label) VALUES ('c') RETURNING id",
        "SELECT nextval('public.free_seq') AS n",
        "SELECT length(note) AS n, data = '\\x0102' AS d FROM public.visits WHERE id < 4 ORDER BY id",
    ];
    let mut args = vec!["--format", "csv", "-q"];
    queries.iter().for_each(|query| args.extend(["-c", *query]));
    prints(
        &folder.sql(&args),
        "id,name,tag,scores,paid,born\n\
         1,Ann,\"b,c\",\"[1, , 3]\",12.50,1990-01-02\n\
         2,Bob,,[],0.00,\n\
         3,\"C\\\"\"\",back\\slash,[5],1.00,\n\
         name,visits\nAnn,2\nBob,1\n\
         a,b\n1,x  \n\
         id,scores,paid\n4,[],0.00\n\
         id,is_paid\n4,false\n\
         id\n3\n\
         n\n15\n\
         n,d\n5,true\n9,\n0,false\n",
    );
    fails(&folder.sql(&["-c", "INSERT INTO public.people (name, paid) VALUES ('E', -1)"]), "23514", "paid");
}

#[test]
fn restrict_blocks_meta_commands() {
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
    // `\restrict` in one file stays in effect for the next.
    folder.write("s.sql", "\\restrict abc\n");
    fails(&folder.sql(&["-f", "s.sql", "-c", "\\echo no"]), "22023", "backslash commands are restricted");
}
