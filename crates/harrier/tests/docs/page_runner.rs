//! Runs the steps of a page and compares the output with the page.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::compare::compare;
use super::page::{Action, InputMode, OutputSource, Page};
use super::sandbox::Sandbox;

/// Timeout of a step.
const PATIENCE: Duration = Duration::from_secs(120);

/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// Runs `$2` in the working directory and with the exported variables of the previous script, stored in the
/// file `$1`.
const SHELL: &str = r#"
state=$1 script=$2
leave() {
    status=$?
    trap - EXIT
    { export -p; printf 'cd "%s"\n' "$(pwd)"; } >"$state.new"
    mv "$state.new" "$state"
    exit $status
}
trap leave EXIT
. "$state"
set -e
. "$script"
"#;

/// Same without saving the state.
const APART: &str = r#"
. "$1"
set -e
. "$2"
"#;

/// Result of a page.
#[derive(Default)]
pub struct PageResult {
    pub run: usize,
    pub compared: usize,
    pub skipped: usize,
    /// Failures with page and line.
    pub failures: Vec<String>,
}

pub fn play(page: &Page, sandbox: &Sandbox) -> PageResult {
    let steps = sandbox.steps();
    fs::write(steps.join("state"), "cd /home/maria\n").expect("a file");
    let mut player = Player {
        sandbox,
        steps,
        scripts: 0,
        client: None,
        server: None,
        last: LastOutput::Nobody,
        output_text: String::new(),
    };
    let mut result = PageResult::default();
    for step in &page.steps {
        let fail = |why: String| format!("{}:{}: {why}", page.name, step.line);
        if !matches!(step.action, Action::Output { .. })
            && let Err(why) = player.check_for_errors()
        {
            result.failures.push(fail(format!("before this, {why}")));
        }
        match player.step(&step.action) {
            Ok(()) => match step.action {
                Action::Output { .. } => result.compared += 1,
                Action::Skip(_) => result.skipped += 1,
                Action::File(..) | Action::Stop => {}
                _ => result.run += 1,
            },
            Err(why) => result.failures.push(fail(why)),
        }
    }
    if let Err(why) = player.check_for_errors() {
        result.failures.push(format!("{}: at the end, {why}", page.name));
    }
    player.end();
    result
}

/// Source of the next expected output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastOutput {
    Nobody,
    /// Its output was compared, or does not matter.
    Script {
        is_compared: bool,
    },
    Client,
    Server,
}

struct Player<'a> {
    sandbox: &'a Sandbox,
    steps: PathBuf,
    scripts: usize,
    client: Option<Client>,
    server: Option<Running>,
    last: LastOutput,
    /// Output of the last script.
    output_text: String,
}

impl Player<'_> {
    fn step(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Shell(script, status) => self.shell(script, *status),
            Action::Python(script) => {
                let path = self.write("py", script);
                self.shell(&format!("python3 {}\n", path.display()), 0)
            }
            Action::Server(script) => self.serve(script),
            Action::Client(script) => self.start_client(script),
            Action::Input(text, waits) => self.send_input(text, *waits),
            Action::File(name, text) => {
                let path = self.write("file", text);
                self.shell(&format!("cp {} '{name}'\n", path.display()), 0)?;
                self.last = LastOutput::Nobody;
                Ok(())
            }
            Action::Stop => self.stop_server(),
            Action::Output { of, text, varies } => self.compare(*of, text, varies),
            Action::Skip(_) => {
                self.last = LastOutput::Nobody;
                Ok(())
            }
        }
    }

    fn write(&mut self, extension: &str, text: &str) -> PathBuf {
        self.scripts += 1;
        let path = self.steps.join(format!("{}.{extension}", self.scripts));
        fs::write(&path, text).expect("a file");
        path
    }

    /// Runs a script in the page's shell, in `way`, with its output in a file.
    fn script(&mut self, way: &str, program: &[&str], script: &str) -> (Command, PathBuf) {
        let path = self.write("sh", script);
        let output = path.with_extension("out");
        let file = fs::File::create(&output).expect("a file");
        let mut command = self.sandbox.command(program[0]);
        command.args(&program[1..]).args(["-c", way, "sh"]).arg(self.steps.join("state")).arg(path);
        // Signals reach its whole process group, as at a terminal.
        command.process_group(0).stdout(file.try_clone().expect("a file")).stderr(file);
        (command, output)
    }

    fn shell(&mut self, script: &str, status: i32) -> Result<(), String> {
        let (mut command, output) = self.script(SHELL, &["sh"], script);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let exit = wait_for(|| child.try_wait().ok().flatten());
        self.output_text = read(&output);
        self.last = LastOutput::Script { is_compared: false };
        match exit {
            None => {
                signal("KILL", child.id());
                let _ = child.wait();
                Err(format!("still runs after {PATIENCE:?}:\n{}", self.output_text))
            }
            Some(exit) if exit.code() == Some(status) => Ok(()),
            Some(exit) => Err(format!("{exit}, not {status}:\n{}", self.output_text)),
        }
    }

    fn serve(&mut self, script: &str) -> Result<(), String> {
        let (mut command, output) = self.script(APART, &["sh"], script);
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut running = Running { child, output, compared: 0 };
        let is_up = wait_for(|| {
            let output = read(&running.output);
            let is_up =
                output.lines().any(|line| line.starts_with("ready: ") || line.starts_with("standby: "));
            match is_up {
                true => Some(true),
                false => running.child.try_wait().ok().flatten().map(|_| false),
            }
        });
        let output = read(&running.output);
        // A standby does not replace the serving server.
        self.server = Some(running);
        self.last = LastOutput::Server;
        match is_up {
            Some(true) => Ok(()),
            _ => Err(format!("the server did not start:\n{output}")),
        }
    }

    fn stop_server(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Err("there is no server".to_owned()) };
        let group = server.child.id();
        signal("INT", group);
        // Its parent has received the signal too, and may end first.
        match wait_for(|| server.child.try_wait().ok().flatten().filter(|_| !signal("0", group))) {
            Some(_) => Ok(()),
            None => Err(format!("the server does not end:\n{}", read(&server.output))),
        }
    }

    fn start_client(&mut self, script: &str) -> Result<(), String> {
        // Programs line-buffer output to a terminal, and block-buffer output to a file.
        let (mut command, output) = self.script(APART, &["stdbuf", "-oL", "sh"], script);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take().expect("piped");
        self.client = Some(Client { running: Running { child, output, compared: 0 }, input, asked: 0 });
        self.last = LastOutput::Client;
        self.client.as_mut().expect("it has been started").wait_until_idle()
    }

    fn send_input(&mut self, text: &str, waits: InputMode) -> Result<(), String> {
        if self.client.is_none() {
            self.start_client("harrier sql\n")?;
        }
        let client = self.client.as_mut().expect("it has been started");
        self.last = LastOutput::Client;
        client.wait_until_idle()?;
        client.running.compared = client.output_text().len();
        client.input.write_all(text.as_bytes()).map_err(|error| format!("the client is gone: {error}"))?;
        if !text.ends_with('\n') {
            client.input.write_all(b"\n").map_err(|error| error.to_string())?;
        }
        match waits {
            InputMode::WaitForEnd => client.wait_until_idle(),
            InputMode::No => client.mark(),
        }
    }

    fn compare(&mut self, of: OutputSource, expected: &str, varies: &[String]) -> Result<(), String> {
        let of = match of {
            OutputSource::Last => self.last,
            OutputSource::Client => LastOutput::Client,
            OutputSource::Server => LastOutput::Server,
        };
        match of {
            LastOutput::Nobody => Err("nothing has run that could print this".to_owned()),
            LastOutput::Script { is_compared: true } => {
                Err("what was printed is compared already".to_owned())
            }
            LastOutput::Script { .. } => {
                self.last = LastOutput::Script { is_compared: true };
                compare(expected, &self.output_text, varies)
            }
            LastOutput::Client => {
                let client = self.client.as_mut().ok_or("there is no client")?;
                client.wait_until_idle()?;
                let output = client.running.take_output();
                compare(expected, &without_marks(&output), varies)
            }
            LastOutput::Server => {
                let server = self.server.as_mut().ok_or("there is no server")?;
                compare(expected, &server.take_output(), varies)
            }
        }
    }

    /// Errors: the client printed an error that no expected output contains.
    fn check_for_errors(&mut self) -> Result<(), String> {
        if self.last != LastOutput::Client {
            return Ok(());
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        let output = client.running.take_output();
        let is_error =
            |line: &str| ["ERROR", "FATAL", "psql: error"].iter().any(|word| line.starts_with(word));
        match output.lines().any(is_error) {
            true => Err(format!("there was an error:\n{output}")),
            false => Ok(()),
        }
    }

    fn end(self) {
        if let Some(client) = self.client {
            drop(client.input);
            end(client.running.child);
        }
        if let Some(server) = self.server {
            end(server.child);
        }
    }
}

/// A process with its output in a file.
struct Running {
    child: Child,
    output: PathBuf,
    /// Bytes of the output that were consumed.
    compared: usize,
}

impl Running {
    /// Unread output.
    fn take_output(&mut self) -> String {
        let output = read(&self.output);
        let new = output.get(self.compared..).unwrap_or_default().to_owned();
        self.compared = output.len();
        new
    }
}

/// A client program that receives SQL.
struct Client {
    running: Running,
    input: ChildStdin,
    /// Number of marks requested so far.
    asked: usize,
}

impl Client {
    fn output_text(&self) -> String {
        read(&self.running.output)
    }

    /// Makes the client print a mark after all previous input.
    fn mark(&mut self) -> Result<(), String> {
        self.asked += 1;
        let mark = format!("\\echo {}\n", mark(self.asked));
        self.input
            .write_all(mark.as_bytes())
            .map_err(|_| format!("the client has ended:\n{}", self.output_text()))
    }

    /// Waits until the client has processed all previous input.
    fn wait_until_idle(&mut self) -> Result<(), String> {
        self.mark()?;
        let mark = mark(self.asked);
        let is_done = wait_for(|| {
            let output = read(&self.running.output);
            if output.lines().any(|line| line == mark) {
                return Some(true);
            }
            self.running.child.try_wait().ok().flatten().map(|_| false)
        });
        match is_done {
            Some(true) => Ok(()),
            Some(false) => Err(format!("the client has ended:\n{}", self.output_text())),
            None => Err(format!("no answer after {PATIENCE:?}:\n{}", self.output_text())),
        }
    }
}

/// A mark, which no expected output contains.
fn mark(number: usize) -> String {
    format!("-- done {number} --")
}

fn without_marks(output: &str) -> String {
    output.lines().filter(|line| !line.starts_with("-- done ")).map(|line| format!("{line}\n")).collect()
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Polls until there is a value; `None`: timeout.
fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if started.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Signals a process group; `false` if it has no process.
fn signal(name: &str, group: u32) -> bool {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status();
    sent.is_ok_and(|status| status.success())
}

fn end(mut child: Child) {
    signal("KILL", child.id());
    let _ = child.wait();
}
