//! Unix sockets at paths of any length: a socket path is limited to 107 bytes, and temporary folders of
//! clusters have long names.
//!
//! Longer paths are reached through the descriptor of their folder, as `/proc/self/fd/7/name`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The system's limit on a path, without the terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// Listens at `path`. Call it inside a tokio runtime.
///
/// Errors: of the folder, or the path is already in use.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let (_folder, path) = short(path)?;
    UnixListener::bind(path)
}

/// Connects to the listener at `path`.
///
/// Errors: of the folder, or there is no listener.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_folder, path) = short(path)?;
    UnixStream::connect(path).await
}

/// `path`, or an equivalent one that is valid while the file is open.
fn short(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((None, path.to_owned()));
    };
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return Ok((None, path.to_owned()));
    }
    let folder = File::open(folder)?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok((Some(folder), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_socket_paths_are_supported() {
        let folder = tempfile::tempdir().unwrap();
        for length in [10, 100, 200] {
            let folder = folder.path().join("x".repeat(length));
            std::fs::create_dir(&folder).unwrap();
            let path = folder.join("desk");
            let listener = bind(&path).unwrap();
            assert!(path.exists());
            let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
            assert!(connected.is_ok() && accepted.is_ok());
            assert!(bind(&path).is_err());
        }
        assert!(connect(Path::new("/nowhere/desk")).await.is_err());
    }
}
