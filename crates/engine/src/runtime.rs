//! Limits and monitoring of running statements: memory sizes, spill folders, progress, panics.

pub(crate) mod explain_text;
pub mod limits;
pub mod locked_folder;
pub mod memory_size;
pub(crate) mod panic_guard;
pub(crate) mod progress;
pub(crate) mod spill_folder;
