//! Secret files named in the configuration.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Server;

impl Server {
    /// Reads the password of the pages, if a file is configured.
    ///
    /// Errors, as text: the file cannot be read, others can read it, or its first line is empty.
    pub fn http_password(&self) -> Option<Result<String, String>> {
        let path = self.http_password_file.get()?;
        Some(first_line(path))
    }
}

fn first_line(path: &Path) -> Result<String, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !is_secret(path) {
        return Err(format!("others can read {0}; chmod 600 {0}", path.display()));
    }
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_string()),
        _ => Err(format!("{} has no password in its first line", path.display())),
    }
}

/// Whether only the owner can read a file. As in PostgreSQL, the group may, if root owns it.
pub(super) fn is_secret(path: &Path) -> bool {
    let allowed = |metadata: fs::Metadata| match metadata.uid() {
        0 => metadata.mode() & 0o037 == 0,
        _ => metadata.mode() & 0o077 == 0,
    };
    fs::metadata(path).is_ok_and(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn password_files_must_be_private() {
        let path = std::env::temp_dir().join(format!("harrier-password-{}", uuid::Uuid::new_v4()));
        let with = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            first_line(&path)
        };
        assert_eq!(with("a b\nmore\n", 0o600).as_deref(), Ok("a b"));
        assert!(with("a b\n", 0o644).unwrap_err().contains("chmod 600"));
        assert!(with("", 0o600).unwrap_err().contains("no password"));
        assert!(with("\na", 0o600).unwrap_err().contains("no password"));
        fs::remove_file(&path).unwrap();
        assert!(first_line(&path).unwrap_err().contains("cannot read"));
        assert!(Server::default().http_password().is_none());
    }
}
