//! Which interfaces to its launcher a library of Open MPI has.

use crate::LibraryInfo;

/// Whether Open MPI's library can learn of other ranks by PMI, as under `srun --mpi=pmi2`; `true` if unknown.
/// Open MPI 5 supports PMIx alone; 4 has a plugin for each such interface, beside it or built in.
pub(crate) fn may_speak_pmi(library: &LibraryInfo) -> bool {
    let major = library.version.strip_prefix("Open MPI v").and_then(|version| version.split('.').next());
    if major.is_some_and(|major| major.parse().is_ok_and(|major: u32| major >= 5)) {
        return false;
    }
    let path = std::fs::canonicalize(&library.path).unwrap_or_else(|_| library.path.clone());
    let folder = path.parent().unwrap_or(&path);
    let plugins: Vec<String> = PLUGIN_FOLDERS
        .iter()
        .flat_map(|plugins| std::fs::read_dir(folder.join(plugins)).into_iter().flatten().flatten())
        .filter_map(|plugin| plugin.file_name().into_string().ok())
        .filter(|name| name.starts_with("mca_pmix_"))
        .collect();
    plugins.is_empty() || plugins.iter().any(|name| PMI_PLUGINS.contains(&name.as_str()))
}

/// Folders of Open MPI's plugins beside its library: as built from source, and as in Debian.
pub(crate) const PLUGIN_FOLDERS: [&str; 4] =
    ["openmpi", "openmpi3", "openmpi/lib/openmpi", "openmpi/lib/openmpi3"];

/// Plugins for PMI-1 and PMI-2 of Slurm, and of Cray.
pub(crate) const PMI_PLUGINS: [&str; 3] = ["mca_pmix_s1.so", "mca_pmix_s2.so", "mca_pmix_cray.so"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Abi;

    #[test]
    fn plugins_identify_the_process_manager_of_open_mpi() {
        let root = std::env::temp_dir().join(format!("harrier-plugins-{}", std::process::id()));
        let plugins = root.join("openmpi");
        std::fs::create_dir_all(&plugins).unwrap();
        let library = LibraryInfo {
            path: root.join("libmpi.so.40"),
            abi: Abi::OpenMpi,
            version: "Open MPI v4.1.4, package: Open MPI".into(),
        };
        assert!(may_speak_pmi(&library), "its plugins may be in it");
        std::fs::write(plugins.join("mca_pmix_ext3x.so"), "").unwrap();
        assert!(!may_speak_pmi(&library));
        std::fs::write(plugins.join("mca_pmix_s2.so"), "").unwrap();
        assert!(may_speak_pmi(&library));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
