//! Session settings of a configuration, and their validation.

use harrier_engine::{Engine, EngineOptions};
use harrier_server::config::Config;

/// Initial settings of every session, as a client would set them.
pub(super) fn of_sessions(config: &Config) -> Vec<(String, String)> {
    let statements = &config.statements;
    let timeouts = [
        ("statement_timeout", &statements.timeout),
        ("idle_session_timeout", &statements.idle_session_timeout),
        ("idle_in_transaction_session_timeout", &statements.idle_in_transaction_timeout),
    ];
    let timeouts = timeouts
        .into_iter()
        .filter_map(|(name, limit)| Some((name.to_string(), format!("{}ms", limit.get()?.0.as_millis()))));
    let plain = config.settings.of_sessions();
    timeouts.chain(plain.map(|(key, value)| (key.clone(), value.clone()))).collect()
}

/// Errors of invalid settings in a configuration, one each. With these the server would not start, or admit
/// nobody.
pub(crate) fn invalid_settings(config: &Config) -> Vec<String> {
    let of_engine = config.settings.of_engine().filter_map(|(name, value)| {
        let mut options = EngineOptions::default();
        options.settings = vec![(name.clone(), value.clone())];
        let error = Engine::try_new(options).err()?;
        Some(format!("settings.{name}: {}", error.report(None)))
    });
    let mut errors: Vec<String> = of_engine.collect();
    if config.settings.of_sessions().next().is_none() {
        return errors;
    }
    let engine = match Engine::try_new(EngineOptions::default()) {
        Ok(engine) => engine,
        Err(error) => {
            errors.push(error.report(None));
            return errors;
        }
    };
    let session = engine.session();
    errors.extend(config.settings.of_sessions().filter_map(|(name, value)| {
        let error = session.validate_setting(name, value).err()?;
        Some(format!("settings.{name}: {}", harrier_engine::sql_error(error).report(None)))
    }));
    errors
}

/// Errors: those of [`invalid_settings`], one per line.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let errors = invalid_settings(config);
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every commented line of the example alone, and all of them together.
    #[test]
    fn example_configuration_is_valid() {
        let example = Config::example();
        let lines: Vec<&str> = example.lines().collect();
        let is_marked = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.contains(" = ");
        let marked: Vec<usize> = (0..lines.len()).filter(|at| is_marked(lines[*at])).collect();
        assert!(marked.len() > Config::keys().len(), "the settings are among them: {example}");
        for active in marked.chunks(1).chain([marked.as_slice()]) {
            let line = |at: usize| if active.contains(&at) { &lines[at][1..] } else { lines[at] };
            let text: Vec<&str> = (0..lines.len()).map(line).collect();
            let config = Config::parse(&text.join("\n"), Path::new("/")).unwrap();
            assert_eq!(invalid_settings(&config), Vec::<String>::new());
        }
    }
}
