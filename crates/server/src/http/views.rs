//! HTML of the pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::response::Html;
use harrier_session_api::query_profile::{Progress, QueryProfile};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plan::{self, Plan};
use super::{Filter, ROWS_MAX, Site, format};
use crate::facts::Facts;
use crate::overview::{QueueFacts, RankFacts, RankState, ServerFacts, SnapshotFacts, TableFacts};
use crate::registry::{Activity, Phase, StatementEntry};

/// Maximum letters of a statement in a list.
const TEXT_LETTERS: usize = 160;

/// Ranks report every second; an older report is highlighted.
const SILENT: Duration = Duration::from_secs(4);

/// Maximum statements on the first page.
const LATEST: usize = 12;

const PAGES: [(&str, &str); 6] = [
    ("/", "Overview"),
    ("/statements", "Statements"),
    ("/sessions", "Sessions"),
    ("/ranks", "Ranks"),
    ("/queues", "Queues"),
    ("/tables", "Tables"),
];

/// A complete page.
pub(super) type Page = Html<String>;

/// Whether a page refreshes itself.
#[derive(Clone, Copy, PartialEq)]
enum Refresh {
    Live,
    Still,
}

fn page(current: &str, title: &str, refresh: Refresh, content: Markup) -> Page {
    page_below(current, title, refresh, html! {}, content)
}

/// `top` does not change while the rest of a live page is refreshed.
fn page_below(current: &str, title: &str, refresh: Refresh, top: Markup, content: Markup) -> Page {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Harrier" }
                link rel="icon" href="/favicon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/pages.css";
                @if refresh == Refresh::Live { noscript { meta http-equiv="refresh" content="10"; } }
                script src="/pages.js" defer {}
            }
            body {
                header {
                    a.name href="/" { (PreEscaped(include_str!("favicon.svg"))) "Harrier" }
                    nav aria-label="pages" {
                        @for (path, name) in PAGES {
                            a href=(path) aria-current=[(path == current).then_some("page")] { (name) }
                        }
                    }
                    @if refresh == Refresh::Live {
                        button #pause type="button" hidden aria-pressed="false" { "Pause" }
                    }
                }
                p #stale hidden role="status" { "The server does not answer. What is shown is old." }
                main {
                    (top)
                    div.content data-live[refresh == Refresh::Live] { (content) }
                }
            }
        }
    };
    Html(page.into_string())
}

pub(super) fn message(title: &str, text: &str) -> Page {
    page("", title, Refresh::Still, html! { h1 { (title) } p { (text) } })
}

fn unknown(reason: &str) -> Markup {
    html! { p.notice.bad { "Not known: " (reason) } }
}

fn tile(name: &str, value: Markup, more: Markup) -> Markup {
    html! { div.tile { div.what { (name) } div.value { (value) } div.more { (more) } } }
}

fn badge(kind: &str, text: &str) -> Markup {
    html! { span.{"badge " (kind)} { (text) } }
}

/// The phase of a statement, with its progress if known.
fn phase(statement: &StatementEntry) -> Markup {
    let name = statement.phase().name();
    let progress = (!statement.has_ended()).then(|| statement.profile()?.progress()).flatten();
    html! {
        (badge(name, name))
        @if let Some(progress) = progress { span.far { (plan::percent(progress.fraction)) } }
    }
}

/// Running statements, the oldest first, then finished ones, the latest first.
fn list_statements(site: &Site) -> Vec<Arc<StatementEntry>> {
    let (ended, mut open): (Vec<_>, Vec<_>) =
        site.pages.registry.statements().into_iter().partition(|statement| statement.has_ended());
    let mut ended = ended;
    open.sort_by_key(|statement| statement.id);
    ended.sort_by_key(|statement| std::cmp::Reverse(statement.id));
    open.extend(ended);
    open
}

pub(super) fn overview(site: &Site, facts: &Facts) -> Page {
    let registry = &site.pages.registry;
    let (sessions, totals) = (registry.sessions(), registry.totals());
    let active = sessions.iter().filter(|session| session.activity().0 != Activity::Idle).count();
    let statements = list_statements(site);
    let count = |phase: Phase| statements.iter().filter(|statement| statement.phase() == phase).count();
    let running = count(Phase::Running) + count(Phase::Planning) + count(Phase::Parsing);
    let health = facts.health();
    let content = html! {
        h1 { "Overview" }
        @if health.is_well() {
            p.notice.good { "All is well." }
        } @else {
            div.notice.(if health.is_ready { "warn" } else { "bad" }) {
                @if health.is_ready { "Statements run, but not all is as wanted:" } @else { "Statements cannot run:" }
                ul { @for complaint in &health.complaints { li { (complaint) } } }
            }
        }
        div.tiles {
            (tile("Statements", html! { (running) }, html! { "running, " (count(Phase::Queued)) " waiting" }))
            (tile("Sessions", html! { (sessions.len()) }, html! { (active) " active" }))
            @if let (Ok(server), Ok(ranks)) = (&facts.server, &facts.ranks) { (ranks_tile(server, ranks)) }
            (tile(
                "Rows returned",
                html! { (format::count(totals.rows.load(Ordering::Relaxed))) },
                html! { (format::bytes(totals.bytes.load(Ordering::Relaxed))) },
            ))
            (tile(
                "Statements so far",
                html! { (format::count(totals.statements.load(Ordering::Relaxed))) },
                html! {
                    (format::count(totals.failures.load(Ordering::Relaxed))) " failed, "
                    (format::count(totals.cancels.load(Ordering::Relaxed))) " canceled"
                },
            ))
        }
        h2 { "Latest statements" }
        (statement_table(&statements[..statements.len().min(LATEST)]))
        @if statements.len() > LATEST { p { a href="/statements" { "All statements" } } }
        @if let Ok(ranks) = &facts.ranks { @if !ranks.is_empty() { h2 { "Ranks" } (rank_strip(ranks)) } }
        @match &facts.queues {
            Ok(queues) => { @if !queues.is_empty() { h2 { "Queues" } (queue_table(queues)) } },
            Err(reason) => (unknown(reason)),
        }
        h2 { "Server" }
        @match &facts.server {
            Ok(server) => dl {
                dt { "version" } dd { (server.version) }
                dt { "started" } dd { (format::ago(server.since)) }
                dt { "warehouse" } dd { (server.warehouse) }
                dt { "clients connect to" } dd { @for address in &server.listen { div { (address) } } }
            },
            Err(reason) => (unknown(reason)),
        }
    };
    page("/", "Overview", Refresh::Live, content)
}

fn ranks_tile(server: &ServerFacts, ranks: &[RankFacts]) -> Markup {
    let of = |state: RankState| ranks.iter().filter(|rank| rank.state == state).count();
    if server.ranks_wanted == 0 {
        return tile("Ranks", html! { "none" }, html! { "statements run in the server" });
    }
    let more = html! { (of(RankState::Spare)) " spare, " (of(RankState::Down)) " down" };
    tile("Ranks", html! { (of(RankState::Working)) span.of { " of " (server.ranks_wanted) } }, more)
}

pub(super) fn statements(site: &Site, filter: &Filter) -> Page {
    let wanted = filter.find.trim().to_lowercase();
    let mut found = list_statements(site);
    found.retain(|statement| {
        let shown = match filter.show.as_str() {
            "running" => !statement.has_ended(),
            "failed" => matches!(statement.phase(), Phase::Failed | Phase::Canceled),
            _ => true,
        };
        let is_found =
            || statement.text.to_lowercase().contains(&wanted) || statement.role.to_lowercase() == wanted;
        shown && (wanted.is_empty() || is_found())
    });
    let count = found.len();
    found.truncate(ROWS_MAX);
    let top = html! {
        h1 { "Statements" }
        form.filter method="get" action="/statements" {
            @for (value, name) in [("", "all"), ("running", "running and waiting"), ("failed", "failed and canceled")] {
                label {
                    input type="radio" name="show" value=(value) checked[filter.show == value];
                    " " (name)
                }
            }
            input type="search" name="find" value=(filter.find) placeholder="text or role" aria-label="text or role";
            button type="submit" { "Show" }
        }
    };
    let content = html! {
        (statement_table(&found))
        p.hint {
            (count) @if count == 1 { " statement" } @else { " statements" }
            ". Those that have ended are kept until many others have."
        }
    };
    page_below("/statements", "Statements", Refresh::Live, top, content)
}

fn statement_table(statements: &[Arc<StatementEntry>]) -> Markup {
    if statements.is_empty() {
        return html! { p.hint { "None." } };
    }
    html! {
        div.scroll { table.cards {
            thead { tr {
                th.number { "#" } th { "phase" } th { "statement" } th { "role" } th { "queue" }
                th.number { "waited" } th.number { "time" } th.number { "rows" } th.number title="to the client or from it" { "bytes" }
                th.number title="between ranks" { "moved" }
                th.number title="that it has reserved on all processes; at most, when it has ended" { "memory" } th { "begun" }
            } }
            tbody { @for statement in statements {
                @let link = format!("/statements/{}", statement.id);
                tr {
                    td.number data-label="#" { a href=(link) { (statement.id) } }
                    td data-label="phase" { (phase(statement)) }
                    td.text data-label="" { a href=(link) { code { (one_line(&statement.text)) } } }
                    td data-label="role" { (statement.role) }
                    td data-label="queue" { (statement.queue().unwrap_or_default()) }
                    td.number data-label="waited" {
                        @if !statement.queue_wait().is_zero() { (format::duration(statement.queue_wait())) }
                    }
                    td.number data-label="time" { (format::duration(statement.execution_time())) }
                    td.number data-label="rows" { (format::count(statement.rows.load(Ordering::Relaxed))) }
                    td.number data-label="bytes" { (format::bytes(statement.bytes.load(Ordering::Relaxed))) }
                    td.number data-label="moved" {
                        @if let Some(moved) = statement.profile().map(|work| work.moved_bytes()).filter(|moved| *moved > 0) {
                            (format::bytes(moved))
                        }
                    }
                    td.number data-label="memory" {
                        @let (held, peak) = statement.memory();
                        @let bytes = if statement.has_ended() { peak } else { held };
                        @if bytes > 0 { (format::bytes(bytes)) }
                    }
                    td data-label="begun" { (format::ago(statement.since)) }
                }
            } }
        } }
    }
}

/// The beginning of a statement, without line breaks.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > TEXT_LETTERS {
            let kept: String = line.chars().take(TEXT_LETTERS).collect();
            return format!("{kept}…");
        }
    }
    line
}

/// `work`: its profile.
pub(super) fn statement(site: &Site, statement: &StatementEntry, work: Option<&QueryProfile>) -> Page {
    let ended = statement.has_ended();
    let progress = work.and_then(QueryProfile::progress);
    let content = html! {
        div.title {
            h1 { "Statement " (statement.id) } (badge(statement.phase().name(), statement.phase().name()))
            @if site.pages.actions && !ended {
                (action(site, &format!("/statements/{}/cancel", statement.id), "Cancel"))
            }
        }
        @if let Some((sqlstate, message)) = statement.failure() {
            p.notice.bad { strong { (sqlstate) } " " (message) }
        }
        @if let Some(progress) = progress.filter(|_| !ended) { (progress_bar(&progress)) }
        pre.sql tabindex="0" { code { (statement.text) } }
        @if statement.text_bytes > statement.text.len() {
            p.hint { "The first " (format::bytes(statement.text.len() as u64)) " of " (format::bytes(statement.text_bytes as u64)) "." }
        }
        dl.facts {
            div { dt { "role" } dd { (statement.role) } }
            div { dt { "session" } dd { (statement.session) } }
            @if let Some(queue) = statement.queue() { div { dt { "queue" } dd { (queue) } } }
            div { dt { "ran on" } dd { @if statement.is_on_gang() { "the gang" } @else { "the server alone" } } }
            @if statement.retries() > 0 {
                div { dt { "run again" } dd { (format::count(statement.retries())) " after the loss of a rank" } }
            }
            div { dt { "begun" } dd { (format::ago(statement.since)) } }
            @if !statement.queue_wait().is_zero() {
                div { dt { "waited" } dd { (format::duration(statement.queue_wait())) } }
            }
            div { dt { "time" } dd { (format::duration(statement.execution_time())) } }
            div { dt { "rows" } dd { (format::count(statement.rows.load(Ordering::Relaxed))) } }
            div { dt { "bytes" } dd { (format::bytes(statement.bytes.load(Ordering::Relaxed))) } }
            @let (held, peak) = statement.memory();
            @if peak > 0 {
                div { dt { "memory" } dd {
                    @if !ended { (format::bytes(held)) ", " }
                    "at most " (format::bytes(peak))
                } }
            }
            @if let Some(work) = work {
                @for (name, bytes) in [
                    ("read from files", work.read_bytes()),
                    ("moved between ranks", work.moved_bytes()),
                    ("spilled to disk", work.spilled_bytes()),
                ] {
                    @if bytes > 0 { div { dt { (name) } dd { (format::bytes(bytes)) } } }
                }
            }
        }
        @if let Some(work) = work {
            h2 { "Plan" }
            @match Plan::of(work) {
                Some(picture) => (picture.picture(!ended)),
                None => p.hint { "It has too many operators for a picture." },
            }
            (plan::ranks(work))
            details #text { summary { "As text" } pre.scroll tabindex="0" { code { (plan::text(work)) } } }
        } @else if ended {
            p.hint { "What its operators did was not kept: it took a few milliseconds, read no rows, or was long ago." }
        }
    };
    let refresh = if ended { Refresh::Still } else { Refresh::Live };
    page("/statements", &format!("Statement {}", statement.id), refresh, content)
}

fn progress_bar(progress: &Progress) -> Markup {
    let Progress { fraction, read_bytes, total_bytes, rows } = *progress;
    html! {
        div.progress {
            progress max="1" value=(format!("{fraction:.3}")) aria-label="part of the files that is read" {}
            span { (plan::percent(fraction)) }
            span.hint {
                (format::bytes(read_bytes)) " of at most " (format::bytes(total_bytes)) " read, "
                (format::count(rows)) " rows"
            }
        }
    }
}

/// A button that submits an action.
fn action(site: &Site, path: &str, name: &str) -> Markup {
    html! {
        form method="post" action=(path) {
            input type="hidden" name="token" value=(site.token);
            button.danger type="submit" { (name) }
        }
    }
}

pub(super) fn sessions(site: &Site) -> Page {
    let sessions = site.pages.registry.sessions();
    let content = html! {
        h1 { "Sessions" }
        @if sessions.is_empty() { p.hint { "None." } } @else {
            div.scroll { table.cards {
                thead { tr {
                    th.number { "#" } th { "state" } th { "for" } th { "role" } th { "database" } th { "client" }
                    th { "application" } th { "statement" } th { "opened" } @if site.pages.actions { th {} }
                } }
                tbody { @for session in sessions.iter().take(ROWS_MAX) {
                    @let (activity, since) = session.activity();
                    tr {
                        td.number data-label="#" { (session.id) }
                        td.whole data-label="state" { (badge(activity_kind(activity), activity.name())) }
                        td data-label="for" { (format::seconds(since.elapsed().unwrap_or_default())) }
                        td data-label="role" { (session.role) }
                        td data-label="database" { (session.database) }
                        td.whole data-label="client" {
                            @match session.client { Some(client) => (client.to_string()), None => "this machine" }
                        }
                        td.wrap.whole data-label="application" { (session.application()) }
                        td.text data-label="" {
                            @if let Some(statement) = session.statement() {
                                a href={"/statements/" (statement.id)} { code { (one_line(&statement.text)) } }
                            }
                        }
                        td data-label="opened" { (format::ago(session.since)) }
                        @if site.pages.actions {
                            td.whole { (action(site, &format!("/sessions/{}/terminate", session.id), "End")) }
                        }
                    }
                } }
            } }
            @if sessions.len() > ROWS_MAX { p.hint { (sessions.len() - ROWS_MAX) " more." } }
        }
    };
    page("/sessions", "Sessions", Refresh::Live, content)
}

fn activity_kind(activity: Activity) -> &'static str {
    match activity {
        Activity::Idle => "idle",
        Activity::Active => "running",
        Activity::IdleInTransaction => "queued",
        Activity::IdleInFailedTransaction => "failed",
    }
}

/// A square for each rank.
fn rank_strip(ranks: &[RankFacts]) -> Markup {
    html! {
        ul.strip { @for rank in ranks.iter().take(ROWS_MAX) {
            li.(rank.state.name()) title={"rank " (rank.number) " on " (rank.host) ": " (rank.state.name())} {
                a href={"/ranks#rank-" (rank.number)} { (rank.number) }
            }
        } }
    }
}

pub(super) fn ranks(facts: &Facts) -> Page {
    let content = html! {
        h1 { "Ranks" }
        @match &facts.ranks {
            Err(reason) => (unknown(reason)),
            Ok(ranks) if ranks.is_empty() => p.hint { "There is no gang: statements run in the server's process." },
            Ok(ranks) => {
                (rank_strip(ranks))
                div.scroll { table.cards {
                    thead { tr {
                        th.number { "rank" } th { "state" } th.number title="since it told how it is" { "heard" } th { "host" }
                        th.number { "process" } th.number title="by statements, of what they may hold" { "memory held" }
                        th.number title="of the process" { "resident" } th.number { "cores busy" } th.number { "processor time" }
                        th.number title="to other ranks" { "sent" } th.number { "streams" }
                    } }
                    tbody { @for rank in ranks.iter().take(ROWS_MAX) {
                        tr #{"rank-" (rank.number)} {
                            td.number data-label="rank" { (rank.number) }
                            td data-label="state" { (badge(rank.state.name(), rank.state.name())) }
                            td.number.warn[rank.report_age.is_some_and(|heard| heard > SILENT)] data-label="heard" {
                                @if let Some(heard) = rank.report_age { (format!("{:.1} s", heard.as_secs_f64())) }
                            }
                            td.whole.host data-label="host" {
                                (rank.host)
                                @if let Some(reason) = &rank.reason { div.reason { (reason) } }
                            }
                            td.number data-label="process" { @if let Some(process) = rank.process { (process) } }
                            td.number data-label="memory held" {
                                (format::bytes(rank.reserved_bytes))
                                @if let Some(limit) = rank.memory_bytes { span.of { " of " (format::bytes(limit)) } }
                            }
                            td.number data-label="resident" { @if let Some(bytes) = rank.resident_bytes { (format::bytes(bytes)) } }
                            td.number data-label="cores busy" { @if let Some(cores) = rank.busy_cores { (format!("{cores:.1}")) } }
                            td.number data-label="processor time" { (format!("{:.1} s", rank.processor_seconds)) }
                            td.number data-label="sent" { (format::bytes(rank.sent_bytes)) }
                            td.number data-label="streams" { (rank.open_streams) }
                        }
                    } }
                } }
            }
        }
    };
    page("/ranks", "Ranks", Refresh::Live, content)
}

pub(super) fn queues(site: &Site, facts: &Facts) -> Page {
    let mut waiting = list_statements(site);
    waiting.retain(|statement| statement.phase() == Phase::Queued);
    waiting.truncate(ROWS_MAX);
    let content = html! {
        h1 { "Queues" }
        @match &facts.queues {
            Err(reason) => (unknown(reason)),
            Ok(queues) if queues.is_empty() => p.hint { "None." },
            Ok(queues) => (queue_table(queues)),
        }
        h2 { "Statements that wait" }
        (statement_table(&waiting))
    };
    page("/queues", "Queues", Refresh::Live, content)
}

fn queue_table(queues: &[QueueFacts]) -> Markup {
    html! {
        div.scroll { table.cards {
            thead { tr {
                th { "queue" } th.number { "running" } th.number { "waiting" } th.number { "longest wait" }
                th.number title="since the server began" { "let run" } th.number title="since the server began" { "refused" }
                th { "limits" }
            } }
            tbody { @for queue in queues.iter().take(ROWS_MAX) {
                tr {
                    td data-label="queue" { (queue.name) }
                    td.number data-label="running" { (queue.running) }
                    td.number.warn[queue.waiting > 0] data-label="waiting" { (queue.waiting) }
                    td.number data-label="longest wait" {
                        @if !queue.longest_wait.is_zero() { (format::duration(queue.longest_wait)) }
                    }
                    td.number data-label="let run" { (format::count(queue.admitted)) }
                    td.number data-label="refused" { (format::count(queue.refused)) }
                    td.whole.wrap data-label="limits" {
                        @for (at, (name, value)) in queue.limits.iter().enumerate() {
                            @if at > 0 { ", " }
                            (name) " " (value)
                        }
                    }
                }
            } }
        } }
    }
}

pub(super) fn tables(
    tables: &Result<Vec<TableFacts>, String>,
    snapshots: &Result<Vec<SnapshotFacts>, String>,
) -> Page {
    let content = html! {
        h1 { "Tables" }
        @match tables {
            Err(reason) => (unknown(reason)),
            Ok(tables) if tables.is_empty() => p.hint { "None." },
            Ok(tables) => {
                div.scroll { table.cards {
                    thead { tr {
                        th { "schema" } th { "table" } th.number { "rows" } th.number { "bytes" } th.number { "files" }
                        th.number title="rows in files that are not in the table any more" { "deleted" }
                        th.number title="rows that the catalog has instead of a file" { "in the catalog" } th { "partitioned by" }
                    } }
                    tbody { @for table in tables.iter().take(ROWS_MAX) {
                        tr {
                            td data-label="schema" { (table.schema) }
                            td.whole.wrap data-label="table" { (table.name) }
                            td.number data-label="rows" { (format::count(table.rows)) }
                            td.number data-label="bytes" { (format::bytes(table.bytes)) }
                            td.number data-label="files" { (format::count(table.files)) }
                            td.number data-label="deleted" { @if table.deleted_rows > 0 { (format::count(table.deleted_rows)) } }
                            td.number data-label="in the catalog" { @if table.kept_rows > 0 { (format::count(table.kept_rows)) } }
                            td.wrap.whole data-label="partitioned by" { (table.partitioned_by.as_deref().unwrap_or_default()) }
                        }
                    } }
                } }
                @if tables.len() > ROWS_MAX { p.hint { (tables.len() - ROWS_MAX) " more." } }
            }
        }
        h2 { "Latest snapshots" }
        @match snapshots {
            Err(reason) => (unknown(reason)),
            Ok(snapshots) if snapshots.is_empty() => p.hint { "None." },
            Ok(snapshots) => div.scroll { table.cards {
                thead { tr { th.number { "#" } th { "committed" } th { "changes" } th { "author" } th { "message" } } }
                tbody { @for snapshot in snapshots {
                    tr {
                        td.number data-label="#" { (snapshot.id) }
                        td data-label="committed" { (format::ago(snapshot.at)) }
                        td.text data-label="" { (snapshot.changes) }
                        td data-label="author" { (snapshot.author.as_deref().unwrap_or_default()) }
                        td.wrap.whole data-label="message" { (snapshot.message.as_deref().unwrap_or_default()) }
                    }
                } }
            } },
        }
    };
    page("/tables", "Tables", Refresh::Still, content)
}
