//! Tests of the configuration file and its error messages.

use harrier_error::SqlError;

use super::values::*;
use super::*;

const FOLDER: &str = "/etc/harrier";

fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    Config::parse(text, Path::new(FOLDER))
}

/// Formats each problem.
fn problems(text: &str) -> Vec<String> {
    parse(text).expect_err(text).iter().map(Problem::to_string).collect()
}

#[test]
fn empty_file_and_example_are_the_defaults() {
    assert_eq!(parse(""), Ok(Config::default()));
    let example = Config::example();
    assert_eq!(parse(&example), Ok(Config::default()));
    // Uncomments every `#key = value`; documentation has a blank after its `#`.
    let active: Vec<String> = example
        .lines()
        .filter(|line| !Settings::EXAMPLE.contains(&line.trim_start_matches('#')))
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest.to_string(),
            _ => line.to_string(),
        })
        .collect();
    let keys = active.iter().filter(|line| line.contains(" = ") && !line.starts_with('#')).count();
    assert_eq!(keys, Config::keys().len());
    assert_eq!(parse(&active.join("\n")), Ok(Config::default()));
}

#[test]
fn the_settings_of_the_example_can_be_set() {
    let text = format!("[settings]\n{}", Settings::EXAMPLE.join("\n"));
    assert_eq!(parse(&text).unwrap().settings.0.len(), Settings::EXAMPLE.len());
}

#[test]
fn every_key_is_documented_and_its_documentation_ends_as_a_sentence() {
    for key in Config::keys() {
        assert!(key.documentation.last().unwrap().ends_with('.'), "{}", key.name);
        assert!(key.documentation.iter().all(|line| line.starts_with(' ')), "{}", key.name);
    }
}

#[test]
fn every_setting_is_parsed() {
    let config = parse(
        r#"
[server]
listen = ["127.0.0.1:5500", "[::1]:5500", "0.0.0.0:5501"]
unix_socket = "/run/harrier"
http = "off"
http_names = ["warehouse.example.com"]
http_actions = true
flight = "localhost:31337"
max_connections = 10
hba_file = "hba.conf"
tls_certificate = "/tls/server.pem"
tls_key = "tls/server.key"
tls_client_ca = "off"
authentication_timeout = "500 ms"
drain_timeout = "1min"

[gang]
ranks = 4
spares = 2
launcher = "mpirun"
hostfile = "hosts"
launcher_arguments = ["--bind-to", "none"]
threads_per_rank = 1
memory = "2GiB"
spill_dirs = ["spill"]
statements_max = "off"

[statements]
timeout = "1h"
idle_session_timeout = "1d"
idle_in_transaction_timeout = "10min"
queue_wait_max = "off"
memory_max = "512MiB"
spill_max = "off"
rows_max = 1000000

[telemetry]
otlp_endpoint = "https://collector.example.com:4318/otlp"
otlp_headers = ["Authorization: Bearer x"]
service_name = "warehouse"
literals = true

[settings]
timezone = "UTC"
harrier.distribute_bytes_min = "4MiB"
"datafusion.execution.batch_size" = 4096
datafusion.optimizer.enable_dynamic_filter_pushdown = false
"#,
    )
    .unwrap();
    let server = &config.server;
    assert_eq!(server.listen[1], Address { host: "::1".to_string(), port: 5500 });
    assert_eq!(server.unix_socket.get(), Some(&PathBuf::from("/run/harrier")));
    assert_eq!(server.http, OrOff::OFF);
    assert!(server.http_actions);
    assert_eq!(server.flight.get().unwrap().to_string(), "localhost:31337");
    assert_eq!(server.hba_file.get(), Some(&PathBuf::from("/etc/harrier/hba.conf")));
    assert_eq!(server.tls_certificate.get(), Some(&PathBuf::from("/tls/server.pem")));
    assert_eq!(server.tls_key.get(), Some(&PathBuf::from("/etc/harrier/tls/server.key")));
    assert_eq!(server.tls_client_ca, OrOff::OFF);
    assert_eq!(server.authentication_timeout.0.as_millis(), 500);
    assert_eq!(server.drain_timeout, Period::seconds(60));
    assert_eq!((config.gang.ranks.get(), config.gang.spares), (Some(&4), 2));
    assert_eq!(config.gang.launcher, GangLauncher::Mpirun);
    assert_eq!(config.gang.launcher_arguments, ["--bind-to", "none"]);
    assert_eq!(config.gang.memory.get(), Some(&Size(2 << 30)));
    assert_eq!(config.gang.spill_dirs, [PathBuf::from("/etc/harrier/spill")]);
    assert_eq!(config.gang.statements_max, OrOff::OFF);
    assert_eq!(config.statements.queue_wait_max, OrOff::OFF);
    assert_eq!(config.statements.memory_max.get(), Some(&Size(512 << 20)));
    assert_eq!(
        (config.statements.spill_max, config.statements.rows_max),
        (OrOff::OFF, OrOff(Some(1_000_000)))
    );
    let telemetry = &config.telemetry;
    assert_eq!(telemetry.otlp_endpoint.get().unwrap().0.as_str(), "https://collector.example.com:4318/otlp");
    assert_eq!(telemetry.otlp_headers[0].0, "Authorization: Bearer x");
    assert_eq!((telemetry.service_name.as_str(), telemetry.literals), ("warehouse", true));
    let settings: Vec<(&str, &str)> =
        config.settings.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("datafusion.execution.batch_size", "4096"),
        ("datafusion.optimizer.enable_dynamic_filter_pushdown", "false"),
        ("harrier.distribute_bytes_min", "4MiB"),
        ("timezone", "UTC"),
    ];
    assert_eq!(settings, expected);
}

#[test]
fn problems_name_key_line_and_allowed_values() {
    for (text, expected) in [
        (
            "[server]\n\nlisten = 5433",
            "line 3: server.listen: 5433 is not allowed (allowed: a list, in brackets, of: an address",
        ),
        (
            "[server]\nlisten = [\n  \"127.0.0.1\"]",
            "line 2: server.listen: \"127.0.0.1\" is not an address with a port (allowed: ",
        ),
        (
            "[server]\nmax_connections = \"many\"",
            "line 2: server.max_connections: \"many\" is not allowed (allowed: a number)",
        ),
        (
            "[server]\nmax_connections = -1",
            "line 2: server.max_connections: -1 is not allowed (allowed: a number)",
        ),
        (
            "[server]\nmax_connections = 0",
            "line 2: server.max_connections: 0 is not allowed (allowed: 1 to 100000)",
        ),
        (
            "[server]\nmax_conections = 5",
            "line 2: server.max_conections: there is no such key (did you mean max_connections?)",
        ),
        ("[server]\nranks = 5", "line 2: server.ranks: there is no such key (did you mean gang.ranks?)"),
        (
            "[statements]\nxyzzyxyzzy = 5",
            "line 2: statements.xyzzyxyzzy: there is no such key (allowed: timeout, idle_session",
        ),
        ("\n[sever]\nlisten = []", "line 2: sever: there is no such section (did you mean server?)"),
        ("listen = []", "line 1: listen: there is no such section (did you mean server.listen?)"),
        ("server = 5", "line 1: server: not a section (write [server] and keys below it)"),
        ("[gang]\nmemory = 8", "line 2: gang.memory: 8 is not a size in quotes (allowed: a size in B, KiB"),
        (
            "[gang]\nmemory = \"8GB\"",
            "line 2: gang.memory: \"8GB\" is not a size (allowed: a size in B, KiB, MiB, GiB or TiB, such as \"8GiB\", or \"auto\")",
        ),
        (
            "[statements]\ntimeout = \"30\"",
            "line 2: statements.timeout: \"30\" is not a time (allowed: a time in ms, s",
        ),
        ("[statements]\ntimeout = \"0s\"", "line 2: statements.timeout: \"0s\" is not from 1ms to 24d"),
        (
            "[gang]\nstatements_max = \"many\"",
            "line 2: gang.statements_max: \"many\" is not allowed here (allowed: a number, or \"off\")",
        ),
        (
            "[gang]\nstatements_max = 0",
            "line 2: gang.statements_max: 0 is not allowed (allowed: 1 or more, or \"off\")",
        ),
        (
            "[gang]\nmemory = \"1023KiB\"",
            "line 2: gang.memory: too little for any statement (allowed: 1MiB or more)",
        ),
        (
            "[gang]\nlauncher = \"ssh\"",
            "line 2: gang.launcher: \"ssh\" is not a launcher (allowed: \"auto\", \"mpirun\", \"srun\" or \"none\")",
        ),
        ("[gang]\nranks = 9999", "line 2: gang.ranks: 9999 is not allowed (allowed: 1 to 4096)"),
        (
            "[gang]\nlauncher = \"none\"\nspares = 1",
            "line 3: gang.spares: launcher \"none\" starts no ranks (allowed: 0)",
        ),
        (
            "[gang]\nlauncher = \"none\"\nlauncher_arguments = [\"-v\"]",
            "line 3: gang.launcher_arguments: launcher \"none\" takes none (leave it []",
        ),
        (
            "[server]\nflight = \"127.0.0.1:5433\"",
            "line 2: server.flight: 127.0.0.1:5433 is in server.listen, too (",
        ),
        (
            "[server]\nflight = \"127.0.0.1:8080\"",
            "line 2: server.flight: 127.0.0.1:8080 is server.http, too (",
        ),
        ("[server]\nhive = \"127.0.0.1:8080\"", "line 2: server.hive: 127.0.0.1:8080 is server.http, too ("),
        (
            "[server]\nhive = \"127.0.0.1:9\"\nflight = \"127.0.0.1:9\"",
            "line 2: server.hive: 127.0.0.1:9 is server.flight, too (",
        ),
        (
            "[telemetry]\notlp_endpoint = \"localhost:4317\"",
            "line 2: telemetry.otlp_endpoint: \"localhost:4317\" is not a URL of HTTP, such as http://127.0.0.1:4318 (",
        ),
        (
            "[telemetry]\notlp_headers = [\"hunter2\"]",
            "line 2: telemetry.otlp_headers: a header is not of the form \"name: value\" (",
        ),
        (
            "[settings]\na = [1]",
            "line 2: settings.a: not a value of a setting, or set twice (allowed: a text",
        ),
        ("[settings]\n\na.b.c = 2026-01-01", "line 3: settings.a.b.c: not a value of a setting"),
        ("[settings]\na.b = 1\n\"a.b\" = 2", "line 3: settings.a.b: not a value of a setting, or set twice"),
        ("[settings]\n\"a b\" = 1", "line 2: settings.a b: not a name of a setting"),
        (
            "[server]\nhttp_names = [\"http://x\"]",
            "line 2: server.http_names: \"http://x\" is not a host name",
        ),
        ("[server]\nlisten = []\n[server]", "line 3: "),
        ("[server", "line 1: "),
    ] {
        let messages = problems(text);
        assert_eq!(messages.len(), 1, "{text}: {messages:?}");
        assert!(messages[0].starts_with(expected), "{text}:\n{}\n{expected}", messages[0]);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "[gang]\nranks = 0\n[server]\nlisten = []\nmax_connections = 0";
    let keys: Vec<String> = parse(text).unwrap_err().into_iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["gang.ranks", "server.listen", "server.max_connections"]);
}

#[test]
fn remote_listeners_need_tls_and_exclude_the_pages() {
    let tls = "tls_certificate = \"c\"\ntls_key = \"k\"";
    for (text, key) in [
        ("listen = [\"0.0.0.0:5433\"]".to_string(), Some("server.listen")),
        ("listen = [\"warehouse:5433\"]".to_string(), Some("server.listen")),
        (format!("listen = [\"0.0.0.0:5433\"]\n{tls}"), None),
        ("http = \"[::]:8080\"".to_string(), Some("server.http")),
        (format!("http = \"[::]:8080\"\n{tls}"), Some("server.http")),
        ("http = \"[::1]:8080\"".to_string(), None),
        ("flight = \"10.0.0.1:8815\"".to_string(), Some("server.flight")),
        (format!("flight = \"warehouse:8815\"\n{tls}"), None),
        ("flight = \"127.0.0.1:8815\"".to_string(), None),
        ("hive = \"10.0.0.1:10000\"".to_string(), Some("server.hive")),
        (format!("hive = \"warehouse:10000\"\n{tls}"), None),
        ("tls_key = \"k\"".to_string(), Some("server.tls_key")),
        ("tls_certificate = \"c\"".to_string(), Some("server.tls_certificate")),
        ("tls_client_ca = \"c\"".to_string(), Some("server.tls_client_ca")),
    ] {
        let keys: Vec<String> = match parse(&format!("[server]\n{text}")) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.into_iter().map(|problem| problem.key).collect(),
        };
        assert_eq!(keys.first().map(String::as_str), key, "{text}");
    }
}

#[test]
fn reload_applies_changeable_settings_and_names_the_rest() {
    let mut config = Config::default();
    let new = parse(
        "[server]\nlisten = [\"127.0.0.1:6000\"]\nmax_connections = 7\n[gang]\nranks = 3\n\
         statements_max = 9\n[statements]\ntimeout = \"1s\"\n[settings]\ntimezone = \"UTC\"",
    )
    .unwrap();
    assert_eq!(config.reload(new.clone()), ["server.listen", "gang.ranks"]);
    assert_eq!(config.server.max_connections, 7);
    assert_eq!(config.statements.timeout, OrOff(Some(Period::seconds(1))));
    assert_eq!(config.settings, new.settings);
    assert_eq!(config.server.listen, Config::default().server.listen);
    assert_eq!(config.gang, Gang { statements_max: OrOff(Some(9)), ..Gang::default() });
    let same = config.clone();
    assert_eq!(config.reload(same), Vec::<&str>::new());
}

#[test]
fn secret_values_are_not_printed() {
    let config = parse("[settings]\ns3.secret_access_key = \"hunter2\"").unwrap();
    let text = format!("{config:?}");
    assert!(text.contains("s3.secret_access_key") && !text.contains("hunter2"), "{text}");
    let config = parse("[telemetry]\notlp_headers = [\"x-token: hunter2\"]").unwrap();
    let text = format!("{config:?}");
    assert!(text.contains("x-token") && !text.contains("hunter2"), "{text}");
}

#[test]
fn errors_name_the_configuration_file() {
    let folder = std::env::temp_dir().join(format!("harrier-config-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("harrier.toml");
    std::fs::write(&path, "[server]\nhba_file = \"hba.conf\"\n").unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.server.hba_file.get(), Some(&folder.join("hba.conf")));
    std::fs::write(&path, "[server]\nhttp_actions = 1\n").unwrap();
    let error = Config::load(&path).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("configuration file \"/"), "{text}");
    assert!(
        text.ends_with("line 2: server.http_actions: 1 is not allowed (allowed: true or false)"),
        "{text}"
    );
    assert_eq!(SqlError::from(error).sqlstate, "F0000");
    assert!(Config::load(&folder.join("absent")).unwrap_err().to_string().contains("No such file"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn doctor_reports_missing_invalid_and_readable_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("harrier-config-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("empty.pem", "");
    write("key.pem", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n");
    std::fs::set_permissions(folder.join("key.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    write("hosts", "# none\n\n");
    let used_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_too = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "[server]\nlisten = [\"{}\", \"192.0.2.1:5433\"]\nhttp = \"127.0.0.1:0\"\nhttp_actions = true\n\
         flight = \"{}\"\nhba_file = \"absent\"\n\
         tls_certificate = \"empty.pem\"\ntls_key = \"key.pem\"\nunix_socket = \"/{}\"\n\
         [gang]\nhostfile = \"hosts\"\nspill_dirs = [\"no/where\"]\nmemory = \"1024TiB\"",
        used_port.local_addr().unwrap(),
        taken_too.local_addr().unwrap(),
        "long/".repeat(30),
    );
    let config = Config::parse(&text, &folder).unwrap();
    let findings = config.findings();
    let of = |key: &str, gravity| {
        findings.iter().filter(|finding| (finding.key, finding.gravity) == (key, gravity)).count()
    };
    assert_eq!(of("server.listen", Gravity::Note), 1, "{findings:?}");
    assert_eq!(of("server.listen", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("server.flight", Gravity::Note), 1, "{findings:?}");
    assert_eq!(of("server.http_actions", Gravity::Note), 1, "{findings:?}");
    assert_eq!(of("server.hba_file", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("server.tls_certificate", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("server.tls_key", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("server.unix_socket", Gravity::Wrong), 2, "{findings:?}");
    assert_eq!(of("gang.hostfile", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("gang.spill_dirs", Gravity::Wrong), 1, "{findings:?}");
    assert_eq!(of("gang.memory", Gravity::Note), 1, "{findings:?}");
    assert!(findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.gravity)));
    std::fs::remove_dir_all(&folder).unwrap();
}
