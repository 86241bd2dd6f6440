//! Command line options of the warehouse's location, shared by several commands.

use std::path::PathBuf;

use harrier_engine::WarehouseOptions;

use crate::option_values::memory_size;

/// Value of `--warehouse` for no warehouse.
const IN_MEMORY: &str = ":memory:";

#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct WarehouseArgs {
    /// Folder of the warehouse, where tables stay; `:memory:` for tables that end with the session
    #[arg(long, value_name = "DIR", default_value = "warehouse", conflicts_with = "catalog")]
    warehouse: PathBuf,
    /// Database of the warehouse's catalog, instead of one in its folder: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    catalog: Option<String>,
    /// Where a new warehouse puts its data files: a folder, s3://… or hdfs://…
    #[arg(long, value_name = "URL")]
    data: Option<String>,
    /// Memory for what is kept of the catalog between statements: files of tables, and bounds of their
    /// columns [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    catalog_memory: Option<u64>,
}

impl WarehouseArgs {
    /// The location as text, without secrets.
    pub(crate) fn describe(&self) -> String {
        match &self.catalog {
            Some(catalog) => match catalog.split_once('@') {
                // The part before it may contain a password.
                Some((before, place)) => {
                    let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
                    format!("{scheme}://…@{place}")
                }
                None => catalog.clone(),
            },
            None => self.warehouse.display().to_string(),
        }
    }

    /// The identity of the warehouse, including secrets.
    pub(crate) fn identity(&self) -> String {
        format!("{:?} {:?}", self.catalog, self.data)
    }

    /// Creates the folder of a warehouse, if it has one.
    ///
    /// Errors: it cannot be created; a message for the user.
    pub(crate) fn make_folder(&self) -> Result<(), String> {
        if self.catalog.is_some() || self.warehouse.as_os_str() == IN_MEMORY {
            return Ok(());
        }
        std::fs::create_dir_all(&self.warehouse)
            .map_err(|error| format!("cannot make the folder \"{}\": {error}", self.warehouse.display()))
    }

    /// The database of the catalog, if one was named.
    pub(crate) fn catalog(&self) -> Option<&str> {
        self.catalog.as_deref()
    }

    /// Warehouse options; `None` for tables in memory.
    pub(crate) fn options(&self) -> Option<WarehouseOptions> {
        if let Some(catalog) = &self.catalog {
            return Some(WarehouseOptions {
                catalog: catalog.clone(),
                data: self.data.clone(),
                cache_bytes_max: self.catalog_memory,
            });
        }
        if self.warehouse.as_os_str() == IN_MEMORY {
            return None;
        }
        let mut options = WarehouseOptions::folder(&self.warehouse);
        options.cache_bytes_max = self.catalog_memory;
        if self.data.is_some() {
            options.data = self.data.clone();
        }
        Some(options)
    }
}
