//! The data files of a warehouse's tables, on the rank's side: reads rows that are not deleted, writes new files.
//!
//! A plan tells everything about them: which rows are deleted, where new files go, what they look like. Ranks ask nobody.
//!
//! - [`LiveRowsExec`]: the rows of a scan that are not deleted, with their places where a statement is going to change them.
//! - [`WriteFilesExec`]: writes its rows into new files, at their final path or staged, and yields a record of each.
//! - [`intervals`]: columns of them, which are bytes in files.
//! - [`VisibleRowsExec`]: the rows that a role may see, which no filter of a statement gets below.
//! - [`Barrier`]: the same in a logical plan, around the query of a view.
//! - [`Bucket`]: the hash of a bucketed table.
//! - [`TablePartitions`]: the ranges or lists of values that a table is divided by.

mod barrier;
mod checksum;
pub(crate) mod codec;
mod destination;
mod format;
mod interval_files;
pub mod intervals;
mod live_rows;
pub mod location;
mod nested;
mod partitions;
pub(crate) mod plan;
mod record;
mod row_groups;
pub mod seconds;
mod stats;
mod visible_rows;
mod write;
mod years;

pub use crate::colocate::FileBucket;
pub use barrier::Barrier;
pub use checksum::is_intact;
pub use codec::TableFilesCodec;
pub use destination::{cannot_stage, cannot_stage_in_store, remove_objects, store_root};
pub use format::WriteFormat;
pub use harrier_committer::object_store::Takes;
pub use live_rows::{DeletedRows, FILE_COLUMN, LiveRowsExec, ROW_COLUMN, StoredDeletes, read_deleted};
pub(crate) use partitions::function as table_partition_function;
pub use partitions::{
    Cut, DividedBy, Fault, Holds, TABLE_PARTITIONS_MAX, TablePartition, TablePartitions, table_partition,
};
pub use plan::{WriteFiles, install};
pub use record::{FileRecord, FileStats};
pub use stats::{field_id, text_of};
pub use visible_rows::VisibleRowsExec;
pub use write::{
    FileShape, NULL_FOLDER, PartitionFolder, WriteFilesExec, WriteSpec, check_compression, partition_folder,
    write_delete_file,
};
pub use years::{check_kept_years, check_years};
