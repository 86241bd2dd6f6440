//! Statistics of one column in many files, in columnar form: a few bytes per file and no allocation.

use crate::model::files::ColumnStats;

/// Represents an unknown number. No stored number is negative.
const UNKNOWN: i64 = i64::MIN;

/// Statistics of one column in the files of a table, ascending by file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileStats {
    files: Vec<i64>,
    bytes: Vec<i64>,
    values: Vec<i64>,
    nulls: Vec<i64>,
    nan: Vec<Option<bool>>,
    min: Texts,
    max: Texts,
}

/// Statistics of a column in one file: a borrowed [`ColumnStats`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StatsRef<'a> {
    pub bytes: Option<i64>,
    pub values: Option<i64>,
    pub nulls: Option<i64>,
    pub min: Option<&'a str>,
    pub max: Option<&'a str>,
    pub nan: Option<bool>,
}

impl<'a> From<&'a ColumnStats> for StatsRef<'a> {
    fn from(stats: &'a ColumnStats) -> Self {
        let ColumnStats { bytes, values, nulls, min, max, nan } = stats;
        Self {
            bytes: *bytes,
            values: *values,
            nulls: *nulls,
            min: min.as_deref(),
            max: max.as_deref(),
            nan: *nan,
        }
    }
}

impl From<StatsRef<'_>> for ColumnStats {
    fn from(stats: StatsRef<'_>) -> Self {
        let StatsRef { bytes, values, nulls, min, max, nan } = stats;
        Self { bytes, values, nulls, min: min.map(str::to_string), max: max.map(str::to_string), nan }
    }
}

/// Concatenated texts.
#[derive(Debug, Clone, Default, PartialEq)]
struct Texts {
    all: String,
    /// End offsets.
    ends: Vec<usize>,
    is_known: Vec<bool>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        self.all.push_str(text.unwrap_or_default());
        self.ends.push(self.all.len());
        self.is_known.push(text.is_some());
    }

    fn get(&self, at: usize) -> Option<&str> {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.is_known[at].then(|| &self.all[from..self.ends[at]])
    }
}

impl FileStats {
    /// The statistics of a file.
    pub fn get(&self, file: i64) -> Option<StatsRef<'_>> {
        self.files.binary_search(&file).ok().map(|at| self.at(at))
    }

    /// All files with their statistics, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (i64, StatsRef<'_>)> {
        self.files.iter().enumerate().map(|(at, file)| (*file, self.at(at)))
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn at(&self, at: usize) -> StatsRef<'_> {
        let known = |number: i64| (number != UNKNOWN).then_some(number);
        StatsRef {
            bytes: known(self.bytes[at]),
            values: known(self.values[at]),
            nulls: known(self.nulls[at]),
            min: self.min.get(at),
            max: self.max.get(at),
            nan: self.nan[at],
        }
    }

    pub(crate) fn push(&mut self, file: i64, stats: StatsRef<'_>) {
        self.files.push(file);
        self.bytes.push(stats.bytes.unwrap_or(UNKNOWN));
        self.values.push(stats.values.unwrap_or(UNKNOWN));
        self.nulls.push(stats.nulls.unwrap_or(UNKNOWN));
        self.nan.push(stats.nan);
        self.min.push(stats.min);
        self.max.push(stats.max);
    }

    /// Appends statistics of files that all come after these.
    pub(crate) fn append(&mut self, newer: &Self) {
        for (file, stats) in newer.iter() {
            self.push(file, stats);
        }
    }

    /// Sorts by file; entries arrive in order unless rows were moved in the database.
    pub(crate) fn into_sorted(self) -> Self {
        if self.files.is_sorted_by(|one, next| one < next) {
            return self;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|at| self.files[*at]);
        let mut sorted = Self::default();
        for (place, at) in order.iter().enumerate() {
            // Of two rows for one file the later one wins.
            if order.get(place + 1).is_none_or(|next| self.files[*next] != self.files[*at]) {
                sorted.push(self.files[*at], self.at(*at));
            }
        }
        sorted
    }

    /// Approximate memory size, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_file = 4 * size_of::<i64>() + 2 * size_of::<usize>() + 3;
        size_of::<Self>() + self.files.len() * of_file + self.min.all.len() + self.max.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(min: Option<&str>, nulls: Option<i64>) -> StatsRef<'_> {
        StatsRef { min, nulls, ..StatsRef::default() }
    }

    #[test]
    fn file_statistics_are_found_in_any_order() {
        let mut all = FileStats::default();
        for (file, min) in [(5, Some("e")), (1, None), (3, Some("")), (5, Some("later"))] {
            all.push(file, stats(min, Some(file)));
        }
        let all = all.into_sorted();
        assert_eq!(all.iter().map(|(file, _)| file).collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!(all.get(5), Some(stats(Some("later"), Some(5))));
        assert_eq!(all.get(3), Some(stats(Some(""), Some(3))));
        assert_eq!(all.get(1), Some(stats(None, Some(1))));
        assert_eq!(all.get(2), None);
    }
}
