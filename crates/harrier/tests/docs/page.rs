//! Parser of documentation pages: Markdown to a list of steps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::sandbox::Need;

/// Languages of blocks that are run.
const SHELL: [&str; 3] = ["sh", "bash", "console"];
const SQL: [&str; 2] = ["sql", "psql"];

#[derive(Debug)]
pub struct Page {
    pub name: String,
    pub needs: BTreeSet<Need>,
    pub steps: Vec<Step>,
}

/// A block or comment with its line number.
#[derive(Debug, PartialEq)]
pub struct Step {
    pub line: usize,
    pub action: Action,
}

#[derive(Debug, PartialEq)]
pub enum Action {
    /// Shell script with its expected exit status.
    Shell(String, i32),
    Python(String),
    /// Shell script that keeps running in the background.
    Server(String),
    /// Shell script whose last program reads from the test.
    Client(String),
    /// Input for the client, and whether to wait for its end.
    Input(String, InputMode),
    File(String, String),
    Stop,
    /// Expected output.
    Output {
        of: OutputSource,
        text: String,
        varies: Vec<String>,
    },
    /// A skipped block with its reason.
    Skip(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputMode {
    WaitForEnd,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputSource {
    /// The last block that was run.
    Last,
    Client,
    Server,
}

/// Attributes of the next block, set by comments.
#[derive(Default)]
struct Marks {
    skip: Option<String>,
    file: Option<String>,
    status: i32,
    is_server: bool,
    is_client: bool,
    is_ahead: bool,
    varies: Vec<String>,
    of: Option<OutputSource>,
}

impl Page {
    /// Panics: the file cannot be read, or has a comment not listed in [`super`].
    pub fn read(root: &Path, name: &str) -> Self {
        let text = fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self::parse(name, &text).unwrap_or_else(|error| panic!("{name}:{error}"))
    }

    /// Errors: line number and problem.
    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut page = Self { name: name.to_owned(), needs: BTreeSet::new(), steps: Vec::new() };
        let mut marks = Marks::default();
        // A skipped block skips the output right after it.
        let mut is_behind_skipped = false;
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let (line_number, trimmed_line) = (number + 1, line.trim_start());
            let at = |why: String| format!("{line_number}: {why}");
            if let Some(first) = trimmed_line.strip_prefix("<!--") {
                let mut comment = first.to_owned();
                while !comment.contains("-->") {
                    let (_, more) = lines.next().ok_or_else(|| at("a comment without an end".to_owned()))?;
                    comment = comment + "\n" + more;
                }
                let comment = comment.split("-->").next().unwrap_or_default().trim();
                page.comment(line_number, comment, &mut marks).map_err(at)?;
            } else if let Some(language) = trimmed_line.strip_prefix("```") {
                let indent = line.len() - trimmed_line.len();
                let mut block = String::new();
                loop {
                    let (_, line) = lines.next().ok_or_else(|| at("a block without an end".to_owned()))?;
                    if line.trim() == "```" {
                        break;
                    }
                    block += line.get(indent..).unwrap_or_default();
                    block += "\n";
                }
                let marks = std::mem::take(&mut marks);
                let is_output = language == "text" && marks.skip.is_none() && marks.file.is_none();
                if is_output && is_behind_skipped {
                    is_behind_skipped = false;
                    continue;
                }
                is_behind_skipped = marks.skip.is_some();
                if let Some(action) = action(language.trim(), block, marks).map_err(at)? {
                    page.steps.push(Step { line: line_number, action });
                }
            }
        }
        Ok(page)
    }

    /// Runs a comment, or stores it as an attribute of the next block.
    fn comment(&mut self, line: usize, comment: &str, marks: &mut Marks) -> Result<(), String> {
        let (name, value) = match comment.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
            None => (comment, None),
        };
        let mut push = |action| self.steps.push(Step { line, action });
        match (name, value) {
            ("skip", Some(reason)) => marks.skip = Some(reason),
            ("file", Some(file)) => marks.file = Some(file),
            ("status", Some(status)) => marks.status = status.parse().map_err(|_| "no exit status")?,
            ("varies", Some(words)) => {
                marks.varies = words.split_whitespace().map(str::to_owned).collect();
            }
            ("of", Some(who)) if who == "client" => marks.of = Some(OutputSource::Client),
            ("of", Some(who)) if who == "server" => marks.of = Some(OutputSource::Server),
            ("ahead", None) => marks.is_ahead = true,
            ("server", None) => marks.is_server = true,
            ("client", None) => marks.is_client = true,
            ("stop", None) => push(Action::Stop),
            ("sh", Some(script)) => push(Action::Shell(script, 0)),
            ("sql", Some(text)) => push(Action::Input(text, InputMode::WaitForEnd)),
            ("server", Some(script)) => push(Action::Server(script)),
            ("client", Some(script)) => push(Action::Client(script)),
            ("needs", Some(all)) => {
                for word in all.split_whitespace() {
                    self.needs.insert(Need::parse(word).ok_or_else(|| format!("nobody has {word}"))?);
                }
            }
            _ => return Err(format!("nobody knows the comment <!-- {comment} -->")),
        }
        Ok(())
    }

    /// Reasons of skipped blocks, one per block.
    pub fn skips(&self) -> Vec<String> {
        let reason = |step: &Step| match &step.action {
            Action::Skip(reason) => Some(reason.clone()),
            _ => None,
        };
        self.steps.iter().filter_map(reason).collect()
    }

    /// Whether the page starts ranks; a server does.
    pub fn starts_ranks(&self) -> bool {
        self.steps.iter().any(|step| match &step.action {
            Action::Shell(script, _) | Action::Server(script) => {
                ["mpirun", "mpiexec", "srun", "sbatch", "serve", "HARRIER_RANK"]
                    .iter()
                    .any(|word| script.contains(word))
            }
            _ => false,
        })
    }
}

/// Action of a block; `None`: its language is not run.
fn action(language: &str, block: String, marks: Marks) -> Result<Option<Action>, String> {
    if let Some(reason) = marks.skip {
        return Ok(Some(Action::Skip(reason)));
    }
    if let Some(file) = marks.file {
        return Ok(Some(Action::File(file, block)));
    }
    Ok(Some(match language {
        _ if SHELL.contains(&language) => {
            let script = match language {
                "console" => typed_at_prompts(&block),
                _ => block,
            };
            match (marks.is_server, marks.is_client) {
                (true, true) => return Err("a block is a server or a client".to_owned()),
                (true, false) => Action::Server(script),
                (false, true) => Action::Client(script),
                (false, false) => Action::Shell(script, marks.status),
            }
        }
        _ if SQL.contains(&language) => {
            Action::Input(block, if marks.is_ahead { InputMode::No } else { InputMode::WaitForEnd })
        }
        "python" => Action::Python(block),
        "text" => {
            Action::Output { of: marks.of.unwrap_or(OutputSource::Last), text: block, varies: marks.varies }
        }
        "" => return Err("a block without a language".to_owned()),
        _ => return Ok(None),
    }))
}

/// Commands of a block that shows a terminal session.
fn typed_at_prompts(block: &str) -> String {
    block.lines().filter_map(|line| line.strip_prefix("$ ")).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_steps(text: &str) -> Result<Vec<(usize, Action)>, String> {
        let steps = Page::parse("page", text)?.steps;
        Ok(steps.into_iter().map(|step| (step.line, step.action)).collect())
    }

    #[test]
    fn blocks_become_steps() {
        let text =
            "a\n```sh\nls\n```\n\n```text\nx\n```\n1. b\n\n   ```sql\n   SELECT 1;\n   ```\n\n```rust\n```\n";
        let output = Action::Output { of: OutputSource::Last, text: "x\n".into(), varies: vec![] };
        let steps = [
            (2, Action::Shell("ls\n".into(), 0)),
            (6, output),
            (11, Action::Input("SELECT 1;\n".into(), InputMode::WaitForEnd)),
        ];
        assert_eq!(parse_steps(text).unwrap(), steps);
    }

    #[test]
    fn comments_set_attributes_of_the_next_block() {
        let text = "<!-- file: a/b -->\n```toml\nx = 1\n```\n<!-- server -->\n```sh\ns\n```\n\
                    <!-- sh: one\ntwo -->\n<!-- stop -->";
        let steps = [
            (2, Action::File("a/b".into(), "x = 1\n".into())),
            (6, Action::Server("s\n".into())),
            (9, Action::Shell("one\ntwo".into(), 0)),
            (11, Action::Stop),
        ];
        assert_eq!(parse_steps(text).unwrap(), steps);
    }

    #[test]
    fn output_of_skipped_blocks_is_skipped() {
        let text = "<!-- skip: why -->\n```sh\nls\n```\n```text\nx\n```\n```text\ny\n```\n";
        let output = Action::Output { of: OutputSource::Last, text: "y\n".into(), varies: vec![] };
        assert_eq!(parse_steps(text).unwrap(), [(2, Action::Skip("why".into())), (8, output)]);
    }

    #[test]
    fn unknown_comments_and_languages_are_errors() {
        assert!(parse_steps("<!-- omit: why -->").unwrap_err().starts_with("1: nobody knows"));
        assert!(parse_steps("```\nx\n```\n").unwrap_err().starts_with("1: a block without a language"));
        assert!(parse_steps("<!-- needs: magic -->").unwrap_err().contains("magic"));
    }
}
