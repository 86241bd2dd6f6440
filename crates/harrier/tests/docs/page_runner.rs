//! Does what a page asks for, step by step, and compares what is printed with what the page says.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::compare::compare;
use super::page::{Action, Page, Speaker, Waits};
use super::sandbox::Sandbox;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// From looking for something to looking again.
const LOOK: Duration = Duration::from_millis(10);

/// Runs `$2` where the last script that ran so has left off, with the variables that it has exported: these
/// are in the file `$1`.
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

/// The same for what does not change where others begin.
const APART: &str = r#"
. "$1"
set -e
. "$2"
"#;

/// What came of a page.
#[derive(Default)]
pub struct Played {
    pub run: usize,
    pub compared: usize,
    pub skipped: usize,
    /// With the page and the line.
    pub failures: Vec<String>,
}

pub fn play(page: &Page, sandbox: &Sandbox) -> Played {
    let steps = sandbox.steps();
    fs::write(steps.join("state"), "cd /home/maria\n").expect("a file");
    let mut player = Player {
        sandbox,
        steps,
        scripts: 0,
        client: None,
        server: None,
        last: Last::Nobody,
        said: String::new(),
    };
    let mut played = Played::default();
    for step in &page.steps {
        let fail = |why: String| format!("{}:{}: {why}", page.name, step.line);
        if !matches!(step.action, Action::Output { .. })
            && let Err(why) = player.unexpected()
        {
            played.failures.push(fail(format!("before this, {why}")));
        }
        match player.step(&step.action) {
            Ok(()) => match step.action {
                Action::Output { .. } => played.compared += 1,
                Action::Skip(_) => played.skipped += 1,
                Action::File(..) | Action::Stop => {}
                _ => played.run += 1,
            },
            Err(why) => played.failures.push(fail(why)),
        }
    }
    if let Err(why) = player.unexpected() {
        played.failures.push(format!("{}: at the end, {why}", page.name));
    }
    player.end();
    played
}

/// Whose output an output of the page is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nobody,
    /// It was compared, or nobody has looked at it.
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
    last: Last,
    /// By the last script.
    said: String,
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
            Action::Typed(text, waits) => self.typed(text, *waits),
            Action::File(name, text) => {
                let path = self.write("file", text);
                self.shell(&format!("cp {} '{name}'\n", path.display()), 0)?;
                self.last = Last::Nobody;
                Ok(())
            }
            Action::Stop => self.stop_server(),
            Action::Output { of, text, varies } => self.compare(*of, text, varies),
            Action::Skip(_) => {
                self.last = Last::Nobody;
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

    /// A script of the page's shell, in `way`, with its output in a file.
    fn script(&mut self, way: &str, program: &[&str], script: &str) -> (Command, PathBuf) {
        let path = self.write("sh", script);
        let output = path.with_extension("out");
        let file = fs::File::create(&output).expect("a file");
        let mut command = self.sandbox.command(program[0]);
        command.args(&program[1..]).args(["-c", way, "sh"]).arg(self.steps.join("state")).arg(path);
        // What it starts is signalled with it, as at a terminal.
        command.process_group(0).stdout(file.try_clone().expect("a file")).stderr(file);
        (command, output)
    }

    fn shell(&mut self, script: &str, status: i32) -> Result<(), String> {
        let (mut command, output) = self.script(SHELL, &["sh"], script);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let ended = wait_for(|| child.try_wait().ok().flatten());
        self.said = read(&output);
        self.last = Last::Script { is_compared: false };
        match ended {
            None => {
                signal("KILL", child.id());
                let _ = child.wait();
                Err(format!("still runs after {PATIENCE:?}:\n{}", self.said))
            }
            Some(ended) if ended.code() == Some(status) => Ok(()),
            Some(ended) => Err(format!("{ended}, not {status}:\n{}", self.said)),
        }
    }

    fn serve(&mut self, script: &str) -> Result<(), String> {
        let (mut command, output) = self.script(APART, &["sh"], script);
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut running = Running { child, output, compared: 0 };
        let is_up = wait_for(|| {
            let said = read(&running.output);
            let is_up = said.lines().any(|line| line.starts_with("ready: ") || line.starts_with("standby: "));
            match is_up {
                true => Some(true),
                false => running.child.try_wait().ok().flatten().map(|_| false),
            }
        });
        let said = read(&running.output);
        // One that stands by does not take the place of the one that serves.
        self.server = Some(running);
        self.last = Last::Server;
        match is_up {
            Some(true) => Ok(()),
            _ => Err(format!("the server did not start:\n{said}")),
        }
    }

    fn stop_server(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Err("there is no server".to_owned()) };
        let group = server.child.id();
        signal("INT", group);
        // Its parent has heard that, too, and may end before it.
        match wait_for(|| server.child.try_wait().ok().flatten().filter(|_| !signal("0", group))) {
            Some(_) => Ok(()),
            None => Err(format!("the server does not end:\n{}", read(&server.output))),
        }
    }

    fn start_client(&mut self, script: &str) -> Result<(), String> {
        // Programs write lines to a terminal, and blocks to a file.
        let (mut command, output) = self.script(APART, &["stdbuf", "-oL", "sh"], script);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take().expect("piped");
        self.client = Some(Client { running: Running { child, output, compared: 0 }, input, asked: 0 });
        self.last = Last::Client;
        self.client.as_mut().expect("it has been started").catch_up()
    }

    fn typed(&mut self, text: &str, waits: Waits) -> Result<(), String> {
        if self.client.is_none() {
            self.start_client("harrier sql\n")?;
        }
        let client = self.client.as_mut().expect("it has been started");
        self.last = Last::Client;
        client.catch_up()?;
        client.running.compared = client.said().len();
        client.input.write_all(text.as_bytes()).map_err(|error| format!("the client is gone: {error}"))?;
        if !text.ends_with('\n') {
            client.input.write_all(b"\n").map_err(|error| error.to_string())?;
        }
        match waits {
            Waits::ForItsEnd => client.catch_up(),
            Waits::No => client.mark(),
        }
    }

    fn compare(&mut self, of: Speaker, expected: &str, varies: &[String]) -> Result<(), String> {
        let of = match of {
            Speaker::Last => self.last,
            Speaker::Client => Last::Client,
            Speaker::Server => Last::Server,
        };
        match of {
            Last::Nobody => Err("nothing has run that could print this".to_owned()),
            Last::Script { is_compared: true } => Err("what was printed is compared already".to_owned()),
            Last::Script { .. } => {
                self.last = Last::Script { is_compared: true };
                compare(expected, &self.said, varies)
            }
            Last::Client => {
                let client = self.client.as_mut().ok_or("there is no client")?;
                client.catch_up()?;
                let said = client.running.new();
                compare(expected, &without_marks(&said), varies)
            }
            Last::Server => {
                let server = self.server.as_mut().ok_or("there is no server")?;
                compare(expected, &server.new(), varies)
            }
        }
    }

    /// Errors: the client has said something that is an error, and no output of the page has it.
    fn unexpected(&mut self) -> Result<(), String> {
        if self.last != Last::Client {
            return Ok(());
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        let said = client.running.new();
        let is_error =
            |line: &str| ["ERROR", "FATAL", "psql: error"].iter().any(|word| line.starts_with(word));
        match said.lines().any(is_error) {
            true => Err(format!("there was an error:\n{said}")),
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
    /// Bytes of the output that were looked at.
    compared: usize,
}

impl Running {
    /// What was not looked at yet.
    fn new(&mut self) -> String {
        let said = read(&self.output);
        let new = said.get(self.compared..).unwrap_or_default().to_owned();
        self.compared = said.len();
        new
    }
}

/// A program that SQL is typed into.
struct Client {
    running: Running,
    input: ChildStdin,
    /// How many marks it was asked for.
    asked: usize,
}

impl Client {
    fn said(&self) -> String {
        read(&self.running.output)
    }

    /// Has it print something when it has done all that it was told.
    fn mark(&mut self) -> Result<(), String> {
        self.asked += 1;
        let mark = format!("\\echo {}\n", mark(self.asked));
        self.input.write_all(mark.as_bytes()).map_err(|_| format!("the client has ended:\n{}", self.said()))
    }

    /// Waits until it has done all that it was told.
    fn catch_up(&mut self) -> Result<(), String> {
        self.mark()?;
        let mark = mark(self.asked);
        let done = wait_for(|| {
            let said = read(&self.running.output);
            if said.lines().any(|line| line == mark) {
                return Some(true);
            }
            self.running.child.try_wait().ok().flatten().map(|_| false)
        });
        match done {
            Some(true) => Ok(()),
            Some(false) => Err(format!("the client has ended:\n{}", self.said())),
            None => Err(format!("no answer after {PATIENCE:?}:\n{}", self.said())),
        }
    }
}

/// No output of a page has this.
fn mark(number: usize) -> String {
    format!("-- done {number} --")
}

fn without_marks(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("-- done ")).map(|line| format!("{line}\n")).collect()
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Asks until there is an answer; `None`: there was none in time.
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

/// To a process and all that it has started; whether there is one of them.
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
