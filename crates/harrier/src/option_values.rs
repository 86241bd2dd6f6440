//! Values of options on the command line that several commands have.

use harrier_engine::memory_size;

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err("expected KEY=VALUE".to_string()),
    }
}

pub(crate) fn memory_size(text: &str) -> Result<u64, String> {
    memory_size::parse_bytes(text).map_err(|error| match error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message,
    })
}
