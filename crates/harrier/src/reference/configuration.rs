//! Reference page of the configuration file of `harrier serve`.

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
        "Where several places say the same, the first of these counts (precedence): an option of the command line, \
         this file, an environment variable, the default. So `gang.spill_dirs` goes before `TMPDIR`, `gang.ranks` \
         before `SLURM_NTASKS`, and `s3.…` in `settings` before `AWS_…`. One exception: with \
         `gang.remote_shell = \"ssh\"`, which is the default, `OMPI_MCA_plm_rsh_agent` counts if it is set. Of settings, `SET` \
         goes before what the client gave when it connected (`PGOPTIONS`), that before `ALTER ROLE … SET`, \
         and that before `settings`.",
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
        for key in &section.keys {
            key_section(&mut page, key);
        }
    }
    page.finish()
}

fn key_section(page: &mut Page, key: &Key) {
    page.heading(3, &key.name);
    page.paragraph(&quoted_as_code(&sentences(key.documentation)));
    let taken_over = match key.can_change {
        true => "a running server takes a new value over",
        false => "a new value needs a restart",
    };
    page.list([
        format!("Default: {}; {taken_over}.", code(&key.default)).as_str(),
        format!("Takes {}.", quoted_as_code(&key.allowed)).as_str(),
    ]);
}

fn sentences(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Formats quoted values such as `"8GiB"` as code.
fn quoted_as_code(text: &str) -> String {
    let parts: Vec<String> = text
        .split('"')
        .enumerate()
        .map(|(at, part)| if at % 2 == 1 { format!("`\"{part}\"`") } else { part.to_string() })
        .collect();
    parts.concat()
}
