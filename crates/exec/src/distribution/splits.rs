//! Which part of a scan each rank reads.
//!
//! Parquet files are cut between their row groups, whose sizes the footers tell, into stretches of about the
//! same number of bytes, and neighbouring stretches go to different ranks: a filter that favours one region
//! of a table does not make one rank work alone. Stretches and not single row groups, because every piece of
//! a file is opened for itself (`docs/benchmarks.md`). Other formats are cut at equal distances where they
//! can be cut at all, else whole files are dealt.
//!
//! Footers come from the process's cache of file metadata, which planning has filled; nothing is read here.
//! Tables of a warehouse are planned without: their files are dealt whole where that gives every rank about
//! as much, and else cut at equal distances, too.

use datafusion::common::Result;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileSource, ParquetSource};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::distribution::bucket_routing::Places;
use crate::formats::parquet_scan::ParquetScan;

/// The file groups of every task, dealt out in turn: the same number for all, some of them empty when there
/// is little to read.
///
/// A scan with a declared order is cut only where that keeps the order.
pub fn deal(
    scan: &FileScanConfig,
    groups_per_task: usize,
    tasks: usize,
    footers: &Arc<FileMetadataCache>,
) -> Result<Vec<Vec<FileGroup>>> {
    let groups = cut(scan, groups_per_task * tasks, footers)?;
    let per_task = groups.len().div_ceil(tasks).max(groups_per_task);
    let mut dealt = vec![Vec::with_capacity(per_task); tasks];
    for (at, group) in groups.into_iter().enumerate() {
        dealt[at % tasks].push(group);
    }
    dealt.iter_mut().for_each(|own| own.resize_with(per_task, || FileGroup::new(vec![])));
    Ok(dealt)
}

/// The file groups of every task of a scan whose groups are buckets: each task has as many groups as there
/// are buckets, and the files of those that belong to it, where redistributions bring it rows of the same
/// buckets ([`crate::distribution::bucket_routing`]). `ranks`: how many are expected.
pub fn deal_buckets(buckets: &[FileGroup], tasks: usize, ranks: usize) -> Result<Vec<Vec<FileGroup>>> {
    let places = Places::of(buckets.len() as u32, ranks as u32)?;
    let mut dealt = vec![vec![FileGroup::new(vec![]); buckets.len()]; tasks];
    for (number, bucket) in buckets.iter().enumerate() {
        dealt[places.rank(number, tasks)][number] = bucket.clone();
    }
    Ok(dealt)
}

fn cut(scan: &FileScanConfig, count: usize, footers: &Arc<FileMetadataCache>) -> Result<Vec<FileGroup>> {
    let ordering = scan.output_ordering.first().cloned();
    let ordered = ordering.is_some();
    if !ordered && let Some(row_groups) = row_groups(scan, footers) {
        return Ok(stretches(row_groups, count));
    }
    let files = || {
        let files = scan.file_groups.iter().flat_map(|group| group.files()).cloned();
        balance(files.map(|file| (file.effective_size(), file)).collect(), count)
    };
    // A cut anywhere in a Parquet file whose row groups are not known may have any number of them on either
    // side.
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

/// Whether no group has more than an eighth more bytes than there are for each.
fn is_even(groups: &[FileGroup]) -> bool {
    let bytes = |group: &FileGroup| group.files().iter().map(PartitionedFile::effective_size).sum::<u64>();
    let sizes: Vec<u64> = groups.iter().map(bytes).collect();
    let largest = sizes.iter().copied().max().unwrap_or(0);
    largest * 8 * sizes.len() as u64 <= sizes.iter().sum::<u64>() * 9
}

/// Every row group of the scan with its size in bytes; `None` unless the footers of all files are known, and
/// tell.
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
        // A row group belongs to the range that its first page lies in.
        let starts: Vec<i64> = footer
            .row_groups()
            .iter()
            .map(|group| {
                let column = group.columns().first()?;
                Some(column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset()))
            })
            .collect::<Option<_>>()?;
        // Nothing obliges a writer to list them in the order they lie in; ranges could not tell them apart
        // then.
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

/// Cuts the row groups, in their order, into at most `count` stretches of about the same number of bytes.
fn stretches(row_groups: Vec<(u64, PartitionedFile)>, count: usize) -> Vec<FileGroup> {
    let total: u64 = row_groups.iter().map(|(bytes, _)| bytes.max(&1)).sum();
    let mut stretches: Vec<Vec<PartitionedFile>> = vec![vec![]; count];
    let mut before = 0;
    for (bytes, part) in row_groups {
        // A row group belongs where its middle is.
        let bytes = bytes.max(1);
        let middle = u128::from(2 * before + bytes) * count as u128 / (2 * u128::from(total));
        before += bytes;
        let stretch = &mut stretches[middle as usize];
        match stretch.last_mut() {
            Some(last) if continues(last, &part) => last.range = joined(last, &part),
            _ => stretch.push(part),
        }
    }
    stretches.into_iter().filter(|parts| !parts.is_empty()).map(FileGroup::new).collect()
}

/// Whether `next` begins in the same file where `last` ends.
fn continues(last: &PartitionedFile, next: &PartitionedFile) -> bool {
    let end = last.range.as_ref().map(|range| range.end);
    let start = next.range.as_ref().map(|range| range.start);
    last.object_meta.location == next.object_meta.location && end.is_some() && end == start
}

fn joined(last: &PartitionedFile, next: &PartitionedFile) -> Option<FileRange> {
    let (first, then) = (last.range.as_ref()?, next.range.as_ref()?);
    Some(FileRange { start: first.start, end: then.end })
}

/// Deals files to `count` groups: the largest first, each to the group that has the fewest bytes so far.
/// Within a group they keep the order they came in.
fn balance(files: Vec<(u64, PartitionedFile)>, count: usize) -> Vec<FileGroup> {
    let mut largest_first: Vec<usize> = (0..files.len()).collect();
    largest_first.sort_by_key(|at| Reverse(files[*at].0));
    let mut dealt: Vec<(u64, Vec<usize>)> = vec![(0, vec![]); count];
    for at in largest_first {
        let least = dealt.iter_mut().min_by_key(|(bytes, _)| *bytes).expect("at least one group");
        // A file of no bytes still is one: without it all empty ones would go to the same group.
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
    fn whole_files_are_enough_where_all_get_about_as_much() {
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
    fn stretches_are_even_and_whole() {
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
        let groups = stretches(row_groups.clone(), 2);
        assert_eq!(ranges(&groups[0]), [("a".to_string(), 4, 150)]);
        assert_eq!(ranges(&groups[1]), [("b".to_string(), 4, 150)]);
        // Dealt out in turn, few row groups still go to different tasks: no stretch is empty.
        let groups = stretches(row_groups, 7);
        assert_eq!(groups.iter().map(|group| group.files().len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    }

    #[test]
    fn empty_pieces_are_spread_and_missing_ones_leave_groups_empty() {
        assert_eq!(names(&balance(pieces(&[0, 0]), 2)), [["0"], ["1"]]);
        assert_eq!(names(&balance(pieces(&[7]), 3)), [vec!["0"], vec![], vec![]]);
    }
}
