//! Reference page of the command line: every command with its arguments and options, and the commands of the
//! shell.

use clap::{Arg, Command};

use super::page::{Page, code, codes};
use crate::{meta, visible_command_line};

pub(super) fn page() -> String {
    let mut page = Page::new(
        "Command line",
        "This page lists every command of `harrier` with its arguments and options, and the commands of its shell.",
    );
    page.paragraph(
        "Every command has `--help`, and `harrier --version` tells the version. See also \
         [Exit statuses](statuses.md) and [Environment variables](environment.md).",
    );
    let mut all = visible_command_line().disable_help_subcommand(true);
    all.build();
    let rows = all.get_subcommands().map(|command| {
        let name = format!("harrier {}", command.get_name());
        let anchor = name.replace(' ', "-");
        [format!("[`{name}`](#{anchor})"), about(command)]
    });
    page.table(["command", "what it does"], rows.collect());
    for command in all.get_subcommands() {
        command_section(&mut page, command, "harrier", 2);
    }
    shell(&mut page);
    page.heading(2, "Manual pages and completions");
    page.paragraph(
        "`make install` installs a manual page for each command (`man harrier-sql`), and what bash, zsh and fish \
         need to complete commands and options. Without that, `harrier man` prints the first page, and a line in \
         the file that your shell reads when it starts has it complete:",
    );
    page.table(
        ["shell", "line"],
        vec![
            ["bash".to_string(), code("source <(harrier completions bash)")],
            ["zsh".to_string(), code("source <(harrier completions zsh)")],
            ["fish".to_string(), code("harrier completions fish | source")],
        ],
    );
    page.finish()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn command_section(page: &mut Page, command: &Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", command.get_name());
    page.heading(level, &name);
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    page.paragraph(&format!("{}.", text.trim_end_matches('.')));
    let usage = command.clone().render_usage().to_string();
    page.code("text", usage.trim_start_matches("Usage: "));
    let shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version";
    let arguments: Vec<&Arg> = command.get_positionals().filter(shown).collect();
    if !arguments.is_empty() {
        let rows = arguments.iter().map(|arg| [code(&value_names(arg)), meaning(arg)]).collect();
        page.table(["argument", "meaning"], rows);
    }
    // Global options are listed once, at the top-level command.
    let is_own = |arg: &Arg| level == 2 || !arg.is_global_set();
    let options: Vec<&Arg> =
        command.get_arguments().filter(|arg| !arg.is_positional() && is_own(arg)).filter(shown).collect();
    if !options.is_empty() {
        let rows = options.iter().map(|arg| [spelling(arg), meaning(arg), default(arg)]).collect();
        page.table(["option", "meaning", "default"], rows);
    }
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        command_section(page, below, &name, level + 1);
    }
}

/// `-c SQL`, `--command SQL`.
fn spelling(arg: &Arg) -> String {
    let value = value_names(arg);
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let spellings: Vec<String> =
        short.into_iter().chain(long).map(|name| format!("{name} {value}")).collect();
    codes(spellings.iter().map(String::as_str))
}

fn value_names(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    match arg.get_value_names() {
        Some(names) => names.join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

/// clap's marker of a default, which has a column of its own.
const DEFAULT: &str = "[default: ";

/// Splits a default named in the help text from it.
fn split_help(arg: &Arg) -> (String, Option<String>) {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.replace("\n\n", ". ");
    match help.split_once(DEFAULT) {
        Some((before, rest)) => {
            let (default, after) = rest.split_once(']').unwrap_or((rest, ""));
            let after = after.trim_start_matches(';').trim_start();
            (format!("{before}{after}"), Some(default.to_string()))
        }
        None => (help, None),
    }
}

fn meaning(arg: &Arg) -> String {
    let (help, _) = split_help(arg);
    let values: Vec<_> = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    if values.is_empty() || !arg.get_action().takes_values() {
        return help;
    }
    let explained = values.iter().map(|value| match value.get_help() {
        Some(help) => format!("{} ({help})", code(value.get_name())),
        None => code(value.get_name()),
    });
    format!("{help}: {}", explained.collect::<Vec<_>>().join(", "))
}

fn default(arg: &Arg) -> String {
    if let (_, Some(default)) = split_help(arg) {
        return default;
    }
    if !arg.get_action().takes_values() || arg.is_hide_default_value_set() {
        return String::new();
    }
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    codes(values.iter().map(AsRef::as_ref))
}

fn shell(page: &mut Page) {
    page.heading(2, "The shell");
    page.paragraph(
        "`harrier sql` without statements is a shell. A statement ends with a semicolon; these commands stand alone on \
         their lines, and most work in files and with `-c`, too.",
    );
    let rows = meta::COMMANDS
        .iter()
        .map(|(name, argument, purpose)| [code(&format!("{name} {argument}")), purpose.to_string()])
        .collect();
    page.table(["command", "what it does"], rows);
    page.paragraph(
        "Other commands of psql, such as `\\dt+`, `\\dp`, `\\gset`, `\\gexec` and `\\if`, are 42601 here. With a server you \
         have psql itself, and all of them; sizes of tables are in `sys.tables`. In place of `\\gset`, a script of `sh` \
         takes a value: `n=$(harrier sql -c \"COPY (SELECT count(*) FROM t) TO STDOUT\")`, and hands it on by \
         `-v n=$n`.",
    );
    page.paragraph(
        "The shell has no start-up file: neither `.psqlrc` nor one of its own is read. What shall hold from the \
         beginning stands on the command line, such as in an alias of bash:",
    );
    page.code(
        "sh",
        "alias hq='harrier sql --warehouse ~/lake --set TimeZone=Europe/Oslo -v region=north --format vertical'",
    );
    page.paragraph(
        "`--set` gives settings, `-v` variables, `--format` the format. Put `\\timing on` and the like into a file, \
         and begin with `\\i start.sql`; what it sets holds until the shell ends.",
    );
    page.paragraph(
        "In a script no alias expands. Write a function there: `hq() { harrier sql --warehouse ~/lake \
         \"$@\"; }`.",
    );
}
