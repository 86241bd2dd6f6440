//! Servers shared by all programs of a run: started once, announced by environment variables, ended on drop.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Running servers, managed by the example `servers` of the crate of that name.
pub struct Servers {
    keeper: Child,
    /// Names and values, one for each server that could be started.
    pub variables: Vec<(String, String)>,
}

impl Servers {
    /// Blocks until they answer, half a minute on a busy machine.
    ///
    /// Errors: the process that keeps them does not start, or ends.
    pub fn start(keeper: &Path, log: &Path) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("{}: {error}", keeper.display());
        let mut child = Command::new(keeper)
            .arg("--keep")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(log).map_err(error)?)
            .spawn()
            .map_err(error)?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let variables = variables_in(lines.map_while(Result::ok));
        match variables {
            Some(variables) => Ok(Self { keeper: child, variables }),
            None => {
                let _ = child.wait();
                Err(format!("the servers for the tests did not start: {}", log.display()))
            }
        }
    }
}

/// Variables printed before `up`; `None` if that line is missing.
fn variables_in(mut lines: impl Iterator<Item = String>) -> Option<Vec<(String, String)>> {
    let mut variables = Vec::new();
    loop {
        let line = lines.next()?;
        if line == "up" {
            return Some(variables);
        }
        let (name, value) = line.split_once('=')?;
        variables.push((name.to_owned(), value.to_owned()));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_what_is_printed_before_up() {
        let lines = |text: &str| variables_in(text.lines().map(str::to_owned));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(lines("A=1:/x=y\nB=2\nup\n"), Some(vec![pair("A", "1:/x=y"), pair("B", "2")]));
        assert_eq!(lines("up\n"), Some(vec![]));
        assert_eq!(lines("A=1\n"), None);
    }

    #[test]
    fn a_keeper_ends_with_its_standard_input() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = folder.path().join("keeper");
        // Another process writes it: a process that another thread has just forked may still hold a file open
        // that this process has written, and executing it would fail (ETXTBSY).
        let write = r#"printf '#!/bin/sh\necho X=1\necho up\ncat >/dev/null\n' >"$0" && chmod +x "$0""#;
        assert!(Command::new("sh").args(["-c", write]).arg(&keeper).status().unwrap().success());
        let servers = Servers::start(&keeper, &folder.path().join("log")).unwrap();
        assert_eq!(servers.variables, [("X".to_owned(), "1".to_owned())]);
    }
}
