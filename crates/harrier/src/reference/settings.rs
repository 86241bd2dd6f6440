//! Reference page of settings: Harrier's own, PostgreSQL's parameters, and the planner's options that every
//! role may set.

use harrier_engine::Session;
use harrier_engine::setting_facts;
use harrier_engine::settings::{SetBy, SettingFacts, is_for_everybody};

use super::page::{Page, code};

/// Description prefix of parameters without an effect.
const REMEMBERED: &str = "Remembered only";

/// `session`: source of the planner's options.
pub(super) fn page(session: &Session) -> String {
    let mut page = Page::new(
        "Settings",
        "This page lists the settings that `SET`, `SHOW` and `SHOW ALL` know, with their defaults, what they take, and who \
         may set them.",
    );
    page.list([
        "`SET name = value` holds until the session ends, `SET LOCAL` until the transaction does, and `RESET name` gives \
         back the value that the session began with.",
        "`ALTER ROLE role SET name = value` has the sessions of a role begin with a value.",
        "`harrier sql --set name=value`, `harrier serve --set name=value` and the section `settings` of the \
         [configuration file](configuration.md) have all sessions begin with it. In the file, names with a dot need a \
         restart of the server.",
        "A client can give values when it connects: `PGOPTIONS='-c statement_timeout=10s'`.",
        "Of these, `SET LOCAL` goes before `SET`, that before `PGOPTIONS`, that before `ALTER ROLE`, and that before \
         what all sessions begin with, where `--set` goes before the file.",
        "Sizes take B, kB, MB, GB, TB, KiB, MiB, GiB and TiB, which all count in 1024s; without a unit they are bytes.",
    ]);
    page.paragraph("What the settings are now, as a list:");
    let lists = [
        ("`SHOW ALL`", "all that this page names, with values and descriptions"),
        ("`SELECT * FROM pg_settings`", "PostgreSQL's parameters alone"),
        (
            "`SELECT name, value FROM information_schema.df_settings`",
            "Harrier's settings and the planner's, whose names have a dot",
        ),
        ("`\\drds` in psql", "what the sessions of roles begin with"),
        ("`harrier doctor --config FILE`", "which settings the configuration file has for all sessions"),
    ];
    let rows = lists.iter().map(|(ask, what)| [ask.to_string(), what.to_string()]);
    page.table(["ask", "what it lists"], rows.collect());
    page.paragraph(
        "No list says where a value comes from: the column `source` of `pg_settings` is `session` in every row.",
    );
    let (own, parameters) = setting_facts();
    page.heading(2, "Harrier's settings");
    page.paragraph(
        "Some settings are for superusers, because they change what the statements of others have to bear: others get \
         42501. A limit that the server has by its configuration cannot be raised by a session.",
    );
    for facts in &own {
        page.heading(3, &facts.name);
        page.paragraph(&sentence(&facts.description));
        let by = if facts.by == SetBy::Everybody { "every role" } else { "superusers" };
        let size = readable_size(facts).map(|size| format!(" ({size})")).unwrap_or_default();
        let mut default = format!("Default: {}{size}", code(&facts.default));
        let (name, value) = crate::serve::DISTRIBUTE;
        if facts.name == name {
            let size = value.parse().map(harrier_engine::memory_size::format_bytes).unwrap_or_default();
            default.push_str(&format!("; in a server {} ({size})", code(value)));
        }
        page.list([
            format!("{default}. Takes {}.", facts.allowed).as_str(),
            format!("May be set by {by}.").as_str(),
        ]);
    }
    page.heading(3, "harrier.operator");
    page.paragraph(
        "This name is known when a session begins, and only then: with `harrier.operator = on` a superuser is let in \
         while the server is drained ([Monitor a server](../how-to/monitoring.md)).",
    );
    page.heading(2, "PostgreSQL's parameters");
    page.paragraph("Every role may set these.");
    let is_remembered = |facts: &&SettingFacts| facts.description.starts_with(REMEMBERED);
    let of = |by: SetBy| parameters.iter().filter(move |facts| facts.by == by);
    let rows = of(SetBy::Everybody).filter(|facts| !is_remembered(facts)).map(|facts| {
        [code(&facts.name), format_value(&facts.default), facts.allowed.clone(), sentence(&facts.description)]
    });
    page.table(["parameter", "default", "takes", "meaning"], rows.collect());
    page.heading(3, "Without effect");
    page.paragraph("Clients set these, so they are accepted, checked and shown. They change nothing.");
    let rows = of(SetBy::Everybody).filter(is_remembered).map(|facts| {
        let why = facts.description.split_once(": ").map(|(_, why)| sentence(&capital(why)));
        [code(&facts.name), format_value(&facts.default), facts.allowed.clone(), why.unwrap_or_default()]
    });
    page.table(["parameter", "default", "takes", "note"], rows.collect());
    page.heading(3, "That cannot be set");
    page.paragraph("These tell a client what it talks to; setting one is an error (55P02).");
    let rows = of(SetBy::Nobody)
        .map(|facts| [code(&facts.name), format_value(&facts.default), sentence(&facts.description)]);
    page.table(["parameter", "value", "meaning"], rows.collect());
    page.heading(2, "The planner's settings");
    page.paragraph(
        "The planner and its operators are DataFusion's, whose settings begin with `datafusion.`. `SHOW ALL` lists them with \
         their descriptions. Superusers may set all of them, every role these:",
    );
    let state = session.context().state();
    let mut entries = state.config_options().entries();
    entries.retain(|entry| entry.key.starts_with("datafusion.") && is_for_everybody(&entry.key));
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    let rows = entries
        .iter()
        .map(|entry| [code(&entry.key), format_value(entry.value.as_deref().unwrap_or_default())]);
    page.table(["setting", "default"], rows.collect());
    page.heading(2, "Options of stores");
    page.paragraph(
        "`SET s3.endpoint = '…'` and others that begin with `s3.` or `hdfs.` say what the stores are opened with that \
         statements of the session name: [Use S3 and HDFS](../how-to/object-stores.md). They are for superusers.",
    );
    page.finish()
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn format_value(value: &str) -> String {
    if value.is_empty() { "empty".to_string() } else { code(value) }
}

/// Human-readable default of a size setting.
fn readable_size(facts: &SettingFacts) -> Option<String> {
    let bytes: u64 = facts.default.parse().ok()?;
    (facts.allowed.contains("bytes") && bytes >= 1024)
        .then(|| harrier_engine::memory_size::format_bytes(bytes))
}
