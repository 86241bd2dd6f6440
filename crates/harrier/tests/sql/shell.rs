//! The interactive shell, driven through a pseudo-terminal.

use std::process::Command;

use rexpect::session::{PtySession, spawn_command};

use crate::command::{BINARY, ENDLESS, Folder};

/// Timeout of a reply in milliseconds, on a machine that runs other tests.
const REPLY_MS: u64 = 30_000;

const PROMPT: &str = "harrier=> ";
const CONTINUED: &str = "harrier-> ";

struct Shell(PtySession);

impl Shell {
    fn start(folder: &Folder) -> Self {
        Self::start_with(folder, &[], "")
    }

    /// Same after sh commands, with environment variables.
    fn start_with(folder: &Folder, variables: &[(&str, &str)], before: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{before} exec \"$0\" \"$@\""), BINARY])
            .args(["sql", "--warehouse", ":memory:", "--memory", "1GiB", "--threads", "2"])
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .env("TERM", "xterm")
            .env_remove("COLUMNS")
            .envs(variables.iter().copied());
        let mut shell = Self(spawn_command(command, Some(REPLY_MS)).unwrap());
        shell.expect(PROMPT);
        shell
    }

    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        match self.0.exp_string(text) {
            Ok(before) => before,
            Err(error) => panic!("waiting for {text:?}: {error}"),
        }
    }

    fn send(&mut self, line: &str) {
        self.0.send_line(line).unwrap();
    }

    /// Sends a line and returns the output up to the next prompt.
    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.expect(PROMPT)
    }

    fn leave(mut self) {
        self.0.send_control('d').unwrap();
        self.0.exp_eof().unwrap();
    }
}

#[test]
fn statements_and_meta_commands() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    assert!(shell.ask("select 41 + 1 as answer;").contains("(1 row)"));
    assert!(shell.ask("create view v as select 7 as seven;").contains("CREATE VIEW"));
    let listed = shell.ask("\\d");
    assert!(listed.contains("public") && listed.contains("view"), "{listed}");
    assert!(shell.ask("\\d v").contains("seven"));
    assert!(shell.ask("\\d nosuch").contains("ERROR 42P01: "));
    assert!(shell.ask("\\dv").contains("(1 row)"));
    assert!(shell.ask("\\dt").contains("(0 rows)"));
    assert!(shell.ask("\\df date_tr*").contains("date_trunc"));
    assert!(shell.ask("\\timing").contains("Timing is on."));
    assert!(shell.ask("select 1;").contains("Time: "));
    assert!(shell.ask("\\timing off").contains("Timing is off."));
    assert!(shell.ask("\\x").contains("Expanded display is on."));
    assert!(shell.ask("select 5 as five;").contains("-[ RECORD 1 ]"));
    assert!(shell.ask("\\x off").contains("Expanded display is off."));
    assert!(shell.ask("\\format json").contains("Output format is json."));
    assert!(shell.ask("select 5 as five;").contains("{\"five\":5}"));
    assert!(shell.ask("\\?").contains("\\timing"));
    assert!(shell.ask("\\h copy").contains("PARTITIONED BY"));
    assert!(shell.ask("\\nope").contains("ERROR 42601: invalid command"));
    folder.write("in.sql", "select 'included' as i;\n");
    assert!(shell.ask("\\i in.sql").contains("{\"i\":\"included\"}"));
    assert!(shell.ask("\\o out.json").ends_with(""));
    shell.ask("select 6 as six;");
    shell.ask("\\o");
    let written = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert_eq!(written, "{\"six\":6}\n");
    shell.send("\\q");
    shell.0.exp_eof().unwrap();
}

#[test]
fn multi_line_statements() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    shell.send("select 20");
    shell.expect(CONTINUED);
    shell.send("  + 3 as sum");
    shell.expect(CONTINUED);
    assert!(shell.ask(";").contains("23"));
    shell.send("select 'a");
    shell.expect("harrier'> ");
    assert!(shell.ask("b' as x;").contains("(1 row)"));
    // An error does not end the shell.
    assert!(shell.ask("select nope;").contains("ERROR 42703: "));
    assert!(shell.ask("select 1 as one; select 2 as two;").contains("two"));
    shell.leave();
}

#[test]
fn meta_commands_after_and_inside_statements() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    assert!(shell.ask("select 6 as six \\g").contains("(1 row)"));
    assert!(shell.ask("\\gx").contains("-[ RECORD 1 ]"));
    shell.send("select 7 as seven");
    shell.expect(CONTINUED);
    assert!(shell.ask("\\g").contains("seven"));
    shell.send("select 8");
    shell.expect(CONTINUED);
    assert!(shell.ask("\\nope").contains("ERROR 42601: invalid command \\nope"));
    shell.send("select 8");
    shell.expect(CONTINUED);
    shell.ask("\\r");
    shell.ask("\\set x 'it''s'");
    assert!(shell.ask("select :'x' as x;").contains("it's"));
    assert!(shell.ask("\\timing").contains("Timing is on."));
    let error_output = shell.ask("select nope;");
    assert!(
        error_output.find("ERROR 42703").unwrap() < error_output.find("Time: ").unwrap(),
        "{error_output}"
    );
    assert!(shell.ask("\\conninfo").contains(":memory:"));
    assert!(shell.ask("\\l").contains("Encoding"));
    assert!(shell.ask("help").contains("\\watch"));
    // The editor writes the statement.
    folder.write("edit.sh", "echo 'select 9 as nine;' > \"$1\"\n");
    let editor = folder.path().join("edit.sh").display().to_string();
    shell.send("quit");
    shell.0.exp_eof().unwrap();
    let mut shell = Shell::start_with(&folder, &[("EDITOR", &format!("sh {editor}"))], "");
    assert!(shell.ask("\\e").contains("nine"));
    shell.send("exit");
    shell.0.exp_eof().unwrap();
}

#[test]
fn long_output_uses_a_pager() {
    let folder = Folder::new();
    let mut shell = Shell::start_with(&folder, &[("PAGER", "sed 's/^/paged /'")], "stty rows 10 cols 90;");
    assert!(!shell.ask("select 1 as one;").contains("paged"));
    let long = shell.ask("select * from generate_series(1, 20);");
    assert!(long.contains("paged   20") || long.contains("paged               20"), "{long}");
    assert!(long.contains("paged (20 rows)"), "{long}");
    let wide = "select repeat('x', 80) as a, repeat('y', 80) as b;";
    assert!(shell.ask(wide).contains("paged"));
    shell.ask("\\pset pager off");
    assert!(!shell.ask("select * from generate_series(1, 20);").contains("paged"));
    assert!(shell.ask("\\x auto").contains("used automatically"));
    assert!(shell.ask(wide).contains("RECORD 1"));
    assert!(shell.ask("select 1 as one;").contains("(1 row)"));
    let plan = shell.ask("explain select repeat('x', 80) as a, repeat('y', 80) as b;");
    assert!(plan.contains(&"-".repeat(90)) && !plan.contains(&"-".repeat(91)), "{plan}");
    shell.leave();
}

#[test]
fn history_is_saved() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    assert!(shell.ask("select 12345 as remembered;").contains("(1 row)"));
    shell.leave();
    let mut shell = Shell::start(&folder);
    // Arrow up, then Enter.
    shell.0.send("\u{1b}[A").unwrap();
    shell.0.flush().unwrap();
    shell.expect("remembered;");
    assert!(shell.ask("").contains("12345"));
    shell.leave();
}

#[test]
fn tab_completion_of_names() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    shell.ask("create table lineitem_sample (l_orderkey int);");
    shell.0.send("select l_ord\t from lineitem_s\t").unwrap();
    shell.0.flush().unwrap();
    shell.expect("lineitem_sample");
    assert!(shell.ask(";").contains("(0 rows)"));
    shell.leave();
}

#[test]
fn ctrl_c_cancels_the_statement() {
    let folder = Folder::new();
    let mut shell = Shell::start(&folder);
    // At the prompt, Ctrl-C clears the line.
    shell.send("select");
    shell.expect(CONTINUED);
    shell.0.send_control('c').unwrap();
    shell.expect(PROMPT);
    // During a statement, it cancels. The echo is read from the same input, so its text shows that the
    // previous statement has ended.
    shell.ask("\\timing on");
    shell.send(&format!("select 99 as ready; {ENDLESS};"));
    shell.expect("(1 row)");
    shell.expect("Time: ");
    shell.0.send_control('c').unwrap();
    shell.expect("ERROR 57014: canceling statement due to user request");
    shell.expect(PROMPT);
    assert!(shell.ask("select 1 as alive;").contains("(1 row)"));
    shell.leave();
}
