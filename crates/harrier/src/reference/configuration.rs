//! The page of the configuration file of `harrier serve`.

use harrier_server::config::{Config, Key};

use super::page::{Page, code};

pub(super) fn page() -> String {
    let mut page = Page::new(
        "Configuration file",
        "This page lists the keys of the configuration file of `harrier serve`, with what they take, their defaults, and \
         whether a running server takes a new value over.",
    );
    page.paragraph(
        "The file is TOML. `harrier serve --example-config` prints one with every key and its default, \
         `harrier doctor --config FILE` tells what is wrong with one, and `harrier serve --config FILE` starts with it; \
         options of the [command line](command-line.md) go before it. Relative paths are relative to the folder of the \
         file. [Run a server](../how-to/server.md) has the steps.",
    );
    page.paragraph(
        "At a reload (`harrier ctl reload`, SIGHUP or `SELECT pg_reload_conf()`) the server takes over the keys that say \
         so below; the others wait for its next start.",
    );
    for section in Config::sections() {
        page.heading(2, section.name);
        page.paragraph(&sentences(section.about));
        if !section.example.is_empty() {
            page.code("toml", &format!("[{}]\n{}", section.name, section.example.join("\n")));
        }
        let rows: Vec<_> = section.keys.iter().map(row).collect();
        if !rows.is_empty() {
            page.table(["key", "takes", "default", "reload", "meaning"], rows);
        }
    }
    page.finish()
}

fn row(key: &Key) -> [String; 5] {
    let name = key.name.rsplit('.').next().unwrap_or_default();
    let reload = if key.can_change { "yes" } else { "" };
    [
        code(name),
        quoted_as_code(&key.allowed),
        code(&key.default),
        reload.to_string(),
        quoted_as_code(&sentences(key.documentation)),
    ]
}

fn sentences(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// `"8GiB"` is what is typed.
fn quoted_as_code(text: &str) -> String {
    let parts: Vec<String> = text
        .split('"')
        .enumerate()
        .map(|(at, part)| if at % 2 == 1 { format!("`\"{part}\"`") } else { part.to_string() })
        .collect();
    parts.concat()
}
