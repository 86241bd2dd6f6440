//! Finds the MPI library that belongs to the launcher of this process, loads it, and identifies its binary
//! interface.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};

use crate::ancestry::launcher_prefixes;
use crate::environment::Launch;
use crate::ffi::{self, AnyTable};
use crate::{Abi, LibraryInfo, MpiError, Options};

/// Selects one library to load; nothing else is tried.
const LIBRARY_VARIABLE: &str = "HARRIER_MPI_LIBRARY";

/// Restricts the search to one binary interface.
const ABI_VARIABLE: &str = "HARRIER_MPI_ABI";

/// All binary interfaces.
const ABIS: [Abi; 3] = [Abi::OpenMpi, Abi::Mpich, Abi::Standard];

/// Loads the library selected by `options` and the environment.
pub(crate) fn load(options: &Options) -> Result<(LibraryInfo, AnyTable), MpiError> {
    let wanted = wanted_abi(std::env::var_os(ABI_VARIABLE).as_deref())?;
    let named = options
        .library
        .clone()
        .or_else(|| std::env::var_os(LIBRARY_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => load_named(&path, wanted),
        None => search(wanted),
    }
}

fn wanted_abi(value: Option<&OsStr>) -> Result<Option<Abi>, MpiError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let found = ABIS.into_iter().find(|abi| *value == *abi.to_string());
    found.map(Some).ok_or_else(|| MpiError::InvalidSetting {
        name: ABI_VARIABLE,
        value: value.to_string_lossy().into_owned(),
        expected: "openmpi, mpich or standard",
    })
}

fn load_named(path: &Path, wanted: Option<Abi>) -> Result<(LibraryInfo, AnyTable), MpiError> {
    let loaded = open(path).map_err(|reason| MpiError::LibraryNotFound { tried: vec![reason] })?;
    let library = loaded.path.clone();
    match (loaded.abi, wanted) {
        (None, _) => Err(MpiError::UnknownAbi { library, version: loaded.version }),
        (Some(found), Some(wanted)) if found != wanted => {
            Err(MpiError::AbiMismatch { library, found, wanted })
        }
        (Some(abi), _) => loaded.finish(abi),
    }
}

/// Searches beside the launcher first and then where the dynamic loader does, for the kinds of MPI that suit
/// the launcher. Another kind is used only if none of them is found: it may still serve a single rank.
fn search(wanted: Option<Abi>) -> Result<(LibraryInfo, AnyTable), MpiError> {
    let suitable = wanted.map_or_else(|| Launch::from_environment().abis().to_vec(), |abi| vec![abi]);
    let others = ABIS.into_iter().filter(|abi| wanted.is_none() && !suitable.contains(abi)).collect();
    let folders = launcher_folders();

    let mut tried = Vec::new();
    for abis in [suitable, others] {
        for folder in folders.iter().map(Some).chain([None]) {
            for &abi in &abis {
                for name in file_names(abi) {
                    let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
                    if folder.is_some() && !path.exists() {
                        continue;
                    }
                    match open(&path) {
                        Ok(loaded) if loaded.abi == Some(abi) => return loaded.finish(abi),
                        Ok(loaded) => tried.push(loaded.rejection(abi)),
                        Err(reason) => tried.push(reason),
                    }
                }
            }
        }
    }
    Err(MpiError::LibraryNotFound { tried })
}

/// The usual file names of a library of this kind. The last one is a development link that any kind may own.
fn file_names(abi: Abi) -> &'static [&'static str] {
    match abi {
        Abi::OpenMpi => &["libmpi.so.40", "libmpi.so"],
        Abi::Mpich => &["libmpi.so.12", "libmpich.so.12", "libmpi.so"],
        Abi::Standard => &["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"],
    }
}

/// The library folders of the launcher's installation, as far as they are known.
fn launcher_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // Set by mpirun of Open MPI when it was relocated after the build (wheels, containers).
    if let Some(folder) = std::env::var_os("OMPI_LIBDIR_LOC") {
        folders.push(PathBuf::from(folder));
    }
    if let Some(prefix) = std::env::var_os("OPAL_PREFIX") {
        folders.extend(library_folders(Path::new(&prefix)));
    }
    folders.extend(launcher_prefixes().iter().flat_map(|prefix| library_folders(prefix)));
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

fn library_folders(prefix: &Path) -> [PathBuf; 2] {
    [prefix.join("lib"), prefix.join("lib64")]
}

/// A loaded library; never unloaded.
struct Loaded {
    library: &'static Library,
    path: PathBuf,
    abi: Option<Abi>,
    version: String,
}

/// Loads `path`, or returns the reason for the failure.
fn open(path: &Path) -> Result<Loaded, String> {
    // SAFETY: loading runs the library's own start-up code, as the person who installed or named it intends.
    // RTLD_LOCAL, so that a library of the wrong kind shadows no symbol of the right one.
    let library =
        unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.map_err(|error| reason(path, &error))?;
    let library: &'static Library = Box::leak(Box::new(library));
    let (abi, version) = ffi::identify(library);
    let path = resolved_path(library).unwrap_or_else(|| path.to_owned());
    Ok(Loaded { library, path, abi, version })
}

impl Loaded {
    /// The reason why this library is not of the kind `wanted`.
    fn rejection(&self, wanted: Abi) -> String {
        match self.abi {
            Some(found) => format!("{} (is of kind {found}, not {wanted})", self.path.display()),
            None => format!("{} (unknown kind {:?})", self.path.display(), first_line(&self.version)),
        }
    }

    /// Builds the function table of this library, which is of the kind `abi`.
    fn finish(self, abi: Abi) -> Result<(LibraryInfo, AnyTable), MpiError> {
        let mut library = self.library;
        if abi == Abi::OpenMpi {
            // The plugins of Open MPI 4 use its symbols without linking to it, so they must be global.
            // SAFETY: the library is loaded already; opening it again only widens the visibility of its
            // symbols.
            let global = unsafe { Library::open(Some(&self.path), RTLD_LAZY | RTLD_GLOBAL) };
            library =
                Box::leak(Box::new(global.map_err(|error| MpiError::LibraryNotFound {
                    tried: vec![reason(&self.path, &error)],
                })?));
        }
        let table = ffi::table(library, &self.path, abi)?;
        Ok((LibraryInfo { path: self.path, abi, version: first_line(&self.version) }, table))
    }
}

/// The file that the dynamic loader found.
fn resolved_path(library: &Library) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let symbol = ffi::find(library, "MPI_Get_library_version")?;
    // SAFETY: `dladdr` only looks the address up; it fills `info` when it returns non-zero, with a file name
    // that stays valid as long as the library is loaded, which is for ever.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        if libc::dladdr(symbol, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = std::ffi::CStr::from_ptr(info.dli_fname);
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}

/// The dynamic loader's message, with the name of the file once.
fn reason(path: &Path, error: &libloading::Error) -> String {
    use std::error::Error;
    let text = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
    let name = path.display().to_string();
    match text.strip_prefix(&format!("{name}: ")) {
        Some(rest) => format!("{name} ({rest})"),
        None => format!("{name} ({text})"),
    }
}

/// The first line, with runs of white space collapsed.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_tidied() {
        assert_eq!(first_line("MPICH Version:\t4.0.2\nMPICH Release date:"), "MPICH Version: 4.0.2");
        assert_eq!(first_line(""), "");
    }

    #[test]
    fn a_kind_is_named_exactly() {
        assert_eq!(wanted_abi(None), Ok(None));
        assert_eq!(wanted_abi(Some(OsStr::new(""))), Ok(None));
        assert_eq!(wanted_abi(Some(OsStr::new("mpich"))), Ok(Some(Abi::Mpich)));
        assert!(matches!(
            wanted_abi(Some(OsStr::new("lam"))),
            Err(MpiError::InvalidSetting { name: ABI_VARIABLE, .. })
        ));
    }

    #[test]
    fn missing_and_foreign_libraries_are_errors() {
        let missing = load_named(Path::new("/nowhere/libmpi.so"), None).err();
        assert!(
            matches!(&missing, Some(MpiError::LibraryNotFound { tried }) if tried.len() == 1),
            "{missing:?}"
        );
        let other = load_named(Path::new("libc.so.6"), None).err();
        assert!(
            matches!(&other, Some(MpiError::UnknownAbi { version, .. }) if version.is_empty()),
            "{other:?}"
        );
    }
}
