//! Split assignment: the part of a scan that each rank reads.
//!
//! Parquet files are cut between row groups into ranges of similar size, by the sizes in the footers, and
//! adjacent ranges go to different ranks: a filter that selects one region of a table does not load a single
//! rank. Ranges and not single row groups, because every range of a file is opened separately
//! (`docs/benchmarks.md`). Other formats are cut at equal distances if they can be cut, else whole files are
//! assigned.
//!
//! Footers come from the process's cache of file metadata, filled by planning; nothing is read here.
//! Warehouse tables are planned without footers: their files are assigned whole if that is balanced, and else
//! cut at equal distances, too.

use datafusion::common::Result;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileSource, ParquetSource};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::distribution::bucket_routing::BucketPlaces;
use crate::formats::parquet_scan::ParquetScan;

/// Assigns file groups to every task round-robin: the same number for all, some of them empty if there is
/// little to read.
///
/// A scan with a declared order is cut only if that keeps the order.
pub fn assign(
    scan: &FileScanConfig,
    groups_per_task: usize,
    tasks: usize,
    footers: &Arc<FileMetadataCache>,
) -> Result<Vec<Vec<FileGroup>>> {
    let groups = split_groups(scan, groups_per_task * tasks, footers)?;
    let per_task = groups.len().div_ceil(tasks).max(groups_per_task);
    let mut dealt = vec![Vec::with_capacity(per_task); tasks];
    for (at, group) in groups.into_iter().enumerate() {
        dealt[at % tasks].push(group);
    }
    dealt.iter_mut().for_each(|own| own.resize_with(per_task, || FileGroup::new(vec![])));
    Ok(dealt)
}

/// Assigns the buckets of a scan to tasks: each task has one group per bucket, filled for the buckets that it
/// owns, matching the routing of redistributions ([`crate::distribution::bucket_routing`]). `ranks`: the
/// expected number.
pub fn assign_buckets(buckets: &[FileGroup], tasks: usize, ranks: usize) -> Result<Vec<Vec<FileGroup>>> {
    let places = BucketPlaces::of(buckets.len() as u32, ranks as u32)?;
    let mut dealt = vec![vec![FileGroup::new(vec![]); buckets.len()]; tasks];
    for (number, bucket) in buckets.iter().enumerate() {
        dealt[places.rank(number, tasks)][number] = bucket.clone();
    }
    Ok(dealt)
}

fn split_groups(
    scan: &FileScanConfig,
    count: usize,
    footers: &Arc<FileMetadataCache>,
) -> Result<Vec<FileGroup>> {
    let ordering = scan.output_ordering.first().cloned();
    let ordered = ordering.is_some();
    if !ordered && let Some(row_groups) = row_groups(scan, footers) {
        return Ok(row_group_ranges(row_groups, count));
    }
    let files = || {
        let files = scan.file_groups.iter().flat_map(|group| group.files()).cloned();
        balance(files.map(|file| (file.effective_size(), file)).collect(), count)
    };
    // Without known row groups, a cut of a Parquet file may leave any number of row groups on either side.
    if !ordered && is_parquet(scan) {
        let whole = files();
        if is_even(&whole) {
            return Ok(whole);
        }
    }
    match scan.file_source().repartitioned(count, 0, ordering, scan)? {
        Some(cut) => Ok(cut.file_groups),
        None if ordered => Ok(scan.file_groups.clone()),
        None => Ok(files()),
    }
}

fn is_parquet(scan: &FileScanConfig) -> bool {
    let source = scan.file_source().as_ref() as &dyn FileSource;
    source.is::<ParquetSource>() || source.is::<ParquetScan>()
}

/// Whether no group exceeds the average by more than an eighth.
fn is_even(groups: &[FileGroup]) -> bool {
    let bytes = |group: &FileGroup| group.files().iter().map(PartitionedFile::effective_size).sum::<u64>();
    let sizes: Vec<u64> = groups.iter().map(bytes).collect();
    let largest = sizes.iter().copied().max().unwrap_or(0);
    largest * 8 * sizes.len() as u64 <= sizes.iter().sum::<u64>() * 9
}

/// Every row group of the scan with its size in bytes; `None` unless the footers of all files are known and
/// contain it.
fn row_groups(
    scan: &FileScanConfig,
    footers: &Arc<FileMetadataCache>,
) -> Option<Vec<(u64, PartitionedFile)>> {
    if !is_parquet(scan) {
        return None;
    }
    let mut all = Vec::new();
    for file in scan.file_groups.iter().flat_map(|group| group.files()) {
        let known = footers.get(&file.object_meta.location)?;
        if !known.is_valid_for(&file.object_meta) {
            return None;
        }
        let footer = known.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?.parquet_metadata();
        // A row group belongs to the range of its first page.
        let starts: Vec<i64> = footer
            .row_groups()
            .iter()
            .map(|group| {
                let column = group.columns().first()?;
                Some(column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset()))
            })
            .collect::<Option<_>>()?;
        // Writers may list row groups out of file order; ranges could not separate them then.
        if !starts.is_sorted_by(|one, next| one < next) {
            return None;
        }
        for (at, group) in footer.row_groups().iter().enumerate() {
            let start = starts[at];
            if file.range.as_ref().is_some_and(|range| !range.contains(start)) {
                continue;
            }
            let mut part = file.clone();
            part.range = Some(FileRange {
                start,
                end: starts.get(at + 1).copied().unwrap_or(file.object_meta.size as i64),
            });
            all.push((group.compressed_size() as u64, part));
        }
    }
    Some(all)
}

/// Cuts the ordered row groups into at most `count` ranges of similar size.
fn row_group_ranges(row_groups: Vec<(u64, PartitionedFile)>, count: usize) -> Vec<FileGroup> {
    let total: u64 = row_groups.iter().map(|(bytes, _)| bytes.max(&1)).sum();
    let mut ranges: Vec<Vec<PartitionedFile>> = vec![vec![]; count];
    let mut before = 0;
    for (bytes, part) in row_groups {
        // A row group belongs to the range of its midpoint.
        let bytes = bytes.max(1);
        let middle = u128::from(2 * before + bytes) * count as u128 / (2 * u128::from(total));
        before += bytes;
        let range = &mut ranges[middle as usize];
        match range.last_mut() {
            Some(last) if continues(last, &part) => last.range = joined_range(last, &part),
            _ => range.push(part),
        }
    }
    ranges.into_iter().filter(|parts| !parts.is_empty()).map(FileGroup::new).collect()
}

/// Whether `next` begins in the same file where `last` ends.
fn continues(last: &PartitionedFile, next: &PartitionedFile) -> bool {
    let end = last.range.as_ref().map(|range| range.end);
    let start = next.range.as_ref().map(|range| range.start);
    last.object_meta.location == next.object_meta.location && end.is_some() && end == start
}

fn joined_range(last: &PartitionedFile, next: &PartitionedFile) -> Option<FileRange> {
    let (first, then) = (last.range.as_ref()?, next.range.as_ref()?);
    Some(FileRange { start: first.start, end: then.end })
}

/// Assigns files to `count` groups: the largest first, each to the group with the fewest bytes so far. Within
/// a group they keep their order.
fn balance(files: Vec<(u64, PartitionedFile)>, count: usize) -> Vec<FileGroup> {
    let mut largest_first: Vec<usize> = (0..files.len()).collect();
    largest_first.sort_by_key(|at| Reverse(files[*at].0));
    let mut dealt: Vec<(u64, Vec<usize>)> = vec![(0, vec![]); count];
    for at in largest_first {
        let least = dealt.iter_mut().min_by_key(|(bytes, _)| *bytes).expect("at least one group");
        // An empty file counts as one byte: otherwise all empty files would go to the same group.
        least.0 += files[at].0.max(1);
        least.1.push(at);
    }
    dealt
        .into_iter()
        .map(|(_, mut own)| {
            own.sort_unstable();
            FileGroup::new(own.into_iter().map(|at| files[at].1.clone()).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(sizes: &[u64]) -> Vec<(u64, PartitionedFile)> {
        sizes
            .iter()
            .enumerate()
            .map(|(at, size)| (*size, PartitionedFile::new(at.to_string(), *size)))
            .collect()
    }

    fn names(groups: &[FileGroup]) -> Vec<Vec<String>> {
        let name = |file: &PartitionedFile| file.object_meta.location.to_string();
        groups.iter().map(|group| group.files().iter().map(name).collect()).collect()
    }

    #[test]
    fn bytes_are_balanced_and_order_is_kept() {
        let groups = balance(pieces(&[262, 138, 262, 138]), 2);
        assert_eq!(names(&groups), [["0", "1"], ["2", "3"]]);
        let groups = balance(pieces(&[5, 5, 5, 5, 5]), 2);
        assert_eq!(names(&groups), [vec!["0", "2", "4"], vec!["1", "3"]]);
    }

    #[test]
    fn balanced_files_are_not_cut() {
        assert!(is_even(&balance(pieces(&[100; 16]), 4)));
        assert!(is_even(&balance(pieces(&[100, 100, 105, 110]), 4)));
        assert!(!is_even(&balance(pieces(&[100, 100, 100]), 2)));
        assert!(!is_even(&balance(pieces(&[100]), 2)));
        assert!(!is_even(&balance(pieces(&[400, 20, 30]), 3)));
        assert!(is_even(&balance(pieces(&[]), 3)));
    }

    fn part(file: &str, start: i64, end: i64) -> PartitionedFile {
        let mut part = PartitionedFile::new(file, 1000);
        part.range = Some(FileRange { start, end });
        part
    }

    #[test]
    fn ranges_are_balanced() {
        let row_groups = vec![
            (262, part("a", 4, 100)),
            (138, part("a", 100, 150)),
            (262, part("b", 4, 100)),
            (138, part("b", 100, 150)),
        ];
        let ranges = |group: &FileGroup| -> Vec<(String, i64, i64)> {
            let range = |file: &PartitionedFile| file.range.clone().expect("every part has one");
            let files = group.files().iter();
            files.map(|f| (f.object_meta.location.to_string(), range(f).start, range(f).end)).collect()
        };
        let groups = row_group_ranges(row_groups.clone(), 2);
        assert_eq!(ranges(&groups[0]), [("a".to_string(), 4, 150)]);
        assert_eq!(ranges(&groups[1]), [("b".to_string(), 4, 150)]);
        // Few row groups still go to different tasks: no range is empty.
        let groups = row_group_ranges(row_groups, 7);
        assert_eq!(groups.iter().map(|group| group.files().len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    }

    #[test]
    fn empty_pieces_are_spread_and_missing_ones_leave_groups_empty() {
        assert_eq!(names(&balance(pieces(&[0, 0]), 2)), [["0"], ["1"]]);
        assert_eq!(names(&balance(pieces(&[7]), 3)), [vec!["0"], vec![], vec![]]);
    }
}
