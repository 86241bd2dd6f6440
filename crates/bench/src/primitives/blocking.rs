//! Blocking sends, which wait until the data is received, against non-blocking ones (figure 6 of "Hive on
//! DataMPI").
//!
//! Both are `mpid-programs aggregate` over the same uservisits, whose keys are skewed by Zipf's law, on two
//! ranks; they differ in the setting `HARRIER_MPID_BLOCKING`. The runs are interleaved. The compared time is
//! from the first O task's begin to the last one's end; the chart shows the timeline of the median run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cell::median;
use crate::configuration::{self, this_binary};
use crate::progress::Progress;

const RANKS: usize = 2;

/// Number of O tasks: several per rank, one after the other.
const O_TASKS: u64 = 8;

/// Values of `HARRIER_MPID_BLOCKING`, and their names.
const STYLES: [(&str, &str); 2] = [("1", "blocking"), ("0", "non-blocking")];

/// Environment variable that names another `mpid-programs`.
const PROGRAMS: &str = "HARRIER_MPID_PROGRAMS";

/// Time interval of an O task, in seconds from the first one's begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    task: u32,
    rank: u32,
    begin_s: f64,
    end_s: f64,
}

/// Runs of one style.
#[derive(Debug, Clone, Default)]
pub(super) struct Style {
    pub(super) name: &'static str,
    runs: Vec<Vec<Span>>,
}

impl Style {
    /// Seconds until the last O task has ended, the median of the runs.
    pub(super) fn o_s(&self) -> Option<f64> {
        median(self.runs.iter().map(|spans| o_s(spans)).collect())
    }

    /// The run with the median time, or the next one.
    fn middle(&self) -> Option<&Vec<Span>> {
        let mut runs: Vec<&Vec<Span>> = self.runs.iter().collect();
        runs.sort_by(|one, other| o_s(one).total_cmp(&o_s(other)));
        runs.get(runs.len() / 2).copied()
    }
}

fn o_s(spans: &[Span]) -> f64 {
    spans.iter().map(|span| span.end_s).fold(0.0, f64::max)
}

/// Result of both styles.
#[derive(Debug, Clone)]
pub(super) struct Blocking {
    pub(super) bytes: u64,
    pub(super) ranks: usize,
    pub(super) o_tasks: usize,
    pub(super) styles: Vec<Style>,
}

impl Blocking {
    /// Ratio of blocking to non-blocking time.
    pub(super) fn ratio(&self) -> Option<f64> {
        match &self.styles[..] {
            [blocking, other] => Some(blocking.o_s()? / other.o_s()?),
            _ => None,
        }
    }

    pub(super) fn json(&self) -> Value {
        let span = |span: &Span| json!({ "task": span.task, "rank": span.rank, "begin_s": span.begin_s, "end_s": span.end_s });
        let styles: Vec<Value> = self
            .styles
            .iter()
            .map(|style| {
                json!({
                    "name": style.name,
                    "o_s": style.runs.iter().map(|spans| o_s(spans)).collect::<Vec<_>>(),
                    "o_s_median": style.o_s(),
                    "spans": style.middle().into_iter().flatten().map(span).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "bytes": self.bytes,
            "ranks": self.ranks,
            "o_tasks": self.o_tasks,
            "styles": styles,
            "ratio": self.ratio(),
        })
    }
}

/// Measures both styles. Errors: the reason why it is impossible.
pub(super) fn measure(bytes: u64, runs: u32, progress: &mut Progress<'_>) -> Result<Blocking, String> {
    let programs = match env::var_os(PROGRAMS) {
        Some(path) => PathBuf::from(path),
        None => this_binary().map_err(|failure| failure.error.message)?.with_file_name("mpid-programs"),
    };
    if !programs.is_file() {
        return Err(format!("there is no \"{}\"; {PROGRAMS} names another one", programs.display()));
    }
    let launcher = configuration::launcher(None).map_err(|failure| failure.error.message)?;
    let folder = PathBuf::from(format!(".harrier/data/uservisits-{bytes}"));
    if !folder.is_dir() {
        progress.step("making uservisits".to_owned());
        // Atomically: an existing folder counts as complete.
        let unfinished = folder.with_extension("part");
        let _ = fs::remove_dir_all(&unfinished);
        let made = ["generate", "uservisits", "--bytes", &bytes.to_string(), "--out"];
        run_to_success(Command::new(&programs).args(made).arg(&unfinished))?;
        fs::rename(&unfinished, &folder).map_err(|error| error.to_string())?;
    }
    let timeline = env::temp_dir().join(format!("harrier-primitives-{}.csv", std::process::id()));
    let mut styles = STYLES.map(|(_, name)| Style { name, runs: Vec::new() }).to_vec();
    for run in 1..=runs {
        for ((value, name), style) in STYLES.into_iter().zip(&mut styles) {
            progress.step(format!("run {run} of {runs}, {name}"));
            let _ = fs::remove_file(&timeline);
            let mut command = Command::new(&launcher);
            command
                .args(["-n", &RANKS.to_string()])
                .arg(&programs)
                .arg("aggregate")
                .arg("--input")
                .arg(&folder);
            command.args(["--split-bytes", &(bytes / O_TASKS).max(1).to_string()]);
            command.envs(configuration::LAUNCHER_ENVIRONMENT);
            command.env("HARRIER_MPID_BLOCKING", value).env("HARRIER_MPID_TIMELINE", &timeline);
            // Send every pair: combining would hide the cost of sending.
            command.env("HARRIER_MPID_COMBINE", "0");
            run_to_success(&mut command)?;
            style.runs.push(spans(&timeline)?);
        }
    }
    let _ = fs::remove_file(&timeline);
    let o_tasks = styles[0].runs.first().map_or(0, Vec::len);
    Ok(Blocking { bytes, ranks: RANKS, o_tasks, styles })
}

fn run_to_success(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("?")).to_os_string();
    let done = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("{} did not start: {error}", name.display()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", name.display(), String::from_utf8_lossy(&done.stderr).trim())),
    }
}

/// Reads the O tasks of a timeline that `mpid` wrote.
fn spans(path: &Path) -> Result<Vec<Span>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("\"{}\": {error}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Span>, String> {
    let mut spans = Vec::new();
    for line in text.lines().skip(1) {
        let wrong = || format!("not a line of a timeline: {line}");
        let fields: Vec<&str> = line.rsplitn(7, ',').collect();
        let [_, end_s, begin_s, rank, task, side, _] = fields[..] else { return Err(wrong()) };
        if side != "O" {
            continue;
        }
        spans.push(Span {
            task: task.parse().map_err(|_| wrong())?,
            rank: rank.parse().map_err(|_| wrong())?,
            begin_s: begin_s.parse().map_err(|_| wrong())?,
            end_s: end_s.parse().map_err(|_| wrong())?,
        });
    }
    match spans.is_empty() {
        true => Err("no O task ran".to_owned()),
        false => Ok(spans),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "job,side,task,rank,begin_s,end_s,pairs\n\
                       aggregate,O,0,1,0.000000,1.500000,10\naggregate,O,1,0,0.250000,2.000000,10\n\
                       aggregate,A,0,0,2.000000,9.000000,20\n";

    #[test]
    fn o_tasks_are_read_from_a_timeline() {
        let spans = parse(CSV).unwrap();
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[1], Span { task: 1, rank: 0, begin_s: 0.25, end_s: 2.0 });
        assert_eq!(o_s(&spans), 2.0);
        assert!(parse("job,side\n").is_err() && parse("x\n1,2\n").is_err());
    }

    #[test]
    fn the_ratio_is_of_medians() {
        let style = |name, ends: &[f64]| Style {
            name,
            runs: ends
                .iter()
                .map(|end_s| vec![Span { task: 0, rank: 0, begin_s: 0.0, end_s: *end_s }])
                .collect(),
        };
        let styles = vec![style("blocking", &[8.0, 1.0, 6.0]), style("non-blocking", &[3.0, 2.0, 9.0])];
        let blocking = Blocking { bytes: 1, ranks: 2, o_tasks: 1, styles };
        assert_eq!(blocking.ratio(), Some(2.0));
        let json = blocking.json();
        assert_eq!(json["styles"][0]["spans"][0]["end_s"], 6.0);
    }
}
