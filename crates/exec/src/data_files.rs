//! Data files of warehouse tables: reads live rows and writes new files.
//!
//! The plan contains everything about them: deleted rows, destinations and layouts of new files. Ranks ask
//! nobody.
//!
//! - [`LiveRowsExec`]: filters out the deleted rows of a scan; adds row positions for statements that change
//!   them.
//! - [`WriteFilesExec`]: writes its input to new files, at their final path or staged, and yields a record of
//!   each.
//! - [`VisibleRowsExec`]: a row-level security barrier: no filter of a statement is pushed below it.
//! - [`Barrier`]: the same in a logical plan, around the query of a view.
//! - [`Bucket`]: the hash of a bucketed table.
//! - [`TablePartitions`]: the ranges or lists of values of a partitioned table.

pub(crate) mod barrier;
mod checksum;
mod column_stats;
pub(crate) mod delete_filter;
mod destination;
mod file_bucket;
mod file_record;
mod interval_parquet;
pub mod location;
pub(crate) mod row_filter;
mod row_groups;
mod table_partition;
mod timestamp_range;
pub mod timestamp_seconds;
pub(crate) mod write_files;
pub(crate) mod write_format;
pub(crate) mod write_spec;

pub use barrier::Barrier;
pub use checksum::is_intact;
pub use column_stats::{field_id, text_of};
pub use delete_filter::{DeletedRows, FILE_COLUMN, LiveRowsExec, ROW_COLUMN, StoredDeletes, read_deleted};
pub use destination::{cannot_stage, cannot_stage_in_store, remove_objects, store_root};
pub use file_bucket::FileBucket;
pub use file_record::{FileRecord, FileStats};
pub use harrier_committer::object_store::ReplacedFiles;
pub use row_filter::VisibleRowsExec;
pub(crate) use table_partition::function as table_partition_function;
pub use table_partition::{
    Cut, DividedBy, Holds, InvalidPartitions, TABLE_PARTITIONS_MAX, TablePartition, TablePartitions,
    table_partition,
};
pub use timestamp_range::{check_catalog_years, check_years};
pub use write_files::{NULL_FOLDER, WriteFilesExec, check_compression, partition_folder, write_delete_file};
pub use write_format::WriteFormat;
pub use write_spec::{FileShape, PartitionFolder, WriteSpec};
