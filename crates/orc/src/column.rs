//! Column writers: encode Arrow arrays into the streams of a stripe.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeListArray, GenericListArray,
    MapArray, OffsetSizeTrait,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::{
    DataType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::chunks::{Mark, Stream};
use crate::error::{Error, Result};
use crate::proto::{ColumnEncoding, ColumnStatistics, EncodingKind, StreamKind};
use crate::rle::{Bits, Bytes, Integers};
use crate::statistics::{Statistics, Values};
use crate::texts::Texts;

/// 2015-01-01 in UTC, the epoch of ORC timestamps in seconds.
const EPOCH_SECONDS: i64 = 1_420_070_400;

/// A column and its children.
#[derive(Debug)]
pub(crate) struct Column {
    pub id: u32,
    /// Qualified by the parent columns.
    name: String,
    content: Content,
    pub children: Vec<Column>,
    /// A bit for each row: not null.
    present: Bits,
    /// Whether `present` is written for this stripe.
    has_null: bool,
    groups: Vec<Group>,
    group_statistics: Statistics,
    stripe_statistics: Statistics,
    file_statistics: Statistics,
}

#[derive(Debug)]
struct Group {
    present: Mark,
    /// Of all content except texts, which record their own.
    marks: Vec<(StreamKind, Mark)>,
    statistics: ColumnStatistics,
}

/// Streams of the non-null values.
#[derive(Debug)]
pub(crate) enum Content {
    Booleans(Bits),
    Bytes(Bytes),
    Integers(Integers),
    Floats(Stream),
    Decimals { digits: Stream, scales: Integers, scale: u32 },
    Texts(Box<Texts>),
    Binaries { bytes: Stream, lengths: Integers },
    Days(Integers),
    Times { seconds: Integers, nanos: Integers, unit: TimeUnit },
    Struct,
    Lists(Integers),
    Maps(Integers),
}

impl Content {
    pub fn booleans() -> Self {
        Self::Booleans(Bits::default())
    }

    pub fn bytes() -> Self {
        Self::Bytes(Bytes::default())
    }

    pub fn integers() -> Self {
        Self::Integers(Integers::of_signed())
    }

    pub fn floats() -> Self {
        Self::Floats(Stream::default())
    }

    pub fn decimals(scale: u32) -> Self {
        Self::Decimals { digits: Stream::default(), scales: Integers::of_signed(), scale }
    }

    pub fn texts() -> Self {
        Self::Texts(Box::new(Texts::new()))
    }

    pub fn binaries() -> Self {
        Self::Binaries { bytes: Stream::default(), lengths: Integers::of_unsigned() }
    }

    pub fn days() -> Self {
        Self::Days(Integers::of_signed())
    }

    pub fn times(unit: TimeUnit) -> Self {
        Self::Times { seconds: Integers::of_signed(), nanos: Integers::of_unsigned(), unit }
    }

    pub fn lists() -> Self {
        Self::Lists(Integers::of_unsigned())
    }

    pub fn maps() -> Self {
        Self::Maps(Integers::of_unsigned())
    }

    fn statistics(&self) -> Statistics {
        Statistics::new(match self {
            Self::Booleans(_) => Values::Booleans { set: 0 },
            Self::Bytes(_) | Self::Integers(_) => Values::integers(),
            Self::Floats(_) => Values::floats(),
            Self::Decimals { scale, .. } => Values::decimals(*scale),
            Self::Texts(_) => Values::texts(),
            Self::Binaries { .. } => Values::Binaries { bytes: Some(0) },
            Self::Days(_) => Values::Days { range: None },
            Self::Times { .. } => Values::times(),
            Self::Struct | Self::Lists(_) | Self::Maps(_) => Values::Counted,
        })
    }

    fn encoding(&self) -> EncodingKind {
        match self {
            Self::Booleans(_) | Self::Bytes(_) | Self::Floats(_) | Self::Struct => EncodingKind::Direct,
            _ => EncodingKind::DirectV2,
        }
    }

    /// The positions of the next value, in the order in which readers expect them.
    fn marks(&self) -> Vec<(StreamKind, Mark)> {
        match self {
            Self::Booleans(bits) => vec![(StreamKind::Data, bits.mark())],
            Self::Bytes(bytes) => vec![(StreamKind::Data, bytes.mark())],
            Self::Integers(integers) | Self::Days(integers) => vec![(StreamKind::Data, integers.mark())],
            Self::Floats(stream) => vec![(StreamKind::Data, stream.mark())],
            Self::Decimals { digits, scales, .. } => {
                vec![(StreamKind::Data, digits.mark()), (StreamKind::Secondary, scales.mark())]
            }
            Self::Binaries { bytes, lengths } => {
                vec![(StreamKind::Data, bytes.mark()), (StreamKind::Length, lengths.mark())]
            }
            Self::Times { seconds, nanos, .. } => {
                vec![(StreamKind::Data, seconds.mark()), (StreamKind::Secondary, nanos.mark())]
            }
            Self::Lists(lengths) | Self::Maps(lengths) => vec![(StreamKind::Length, lengths.mark())],
            Self::Texts(_) | Self::Struct => Vec::new(),
        }
    }

    /// Bytes in memory.
    fn size(&self) -> usize {
        match self {
            Self::Booleans(bits) => bits.size(),
            Self::Bytes(bytes) => bytes.size(),
            Self::Floats(stream) => stream.len(),
            Self::Decimals { digits, scales, .. } => digits.len() + scales.size(),
            Self::Texts(texts) => texts.size(),
            Self::Binaries { bytes, lengths } => bytes.len() + lengths.size(),
            Self::Times { seconds, nanos, .. } => seconds.size() + nanos.size(),
            Self::Integers(integers)
            | Self::Days(integers)
            | Self::Lists(integers)
            | Self::Maps(integers) => integers.size(),
            Self::Struct => 0,
        }
    }

    /// Ends the streams of a stripe, except for texts.
    fn finish(&mut self) -> Vec<(StreamKind, Stream)> {
        match self {
            Self::Booleans(bits) => vec![(StreamKind::Data, bits.finish())],
            Self::Bytes(bytes) => vec![(StreamKind::Data, bytes.finish())],
            Self::Integers(integers) | Self::Days(integers) => vec![(StreamKind::Data, integers.finish())],
            Self::Floats(stream) => vec![(StreamKind::Data, std::mem::take(stream))],
            Self::Decimals { digits, scales, .. } => {
                vec![(StreamKind::Data, std::mem::take(digits)), (StreamKind::Secondary, scales.finish())]
            }
            Self::Binaries { bytes, lengths } => {
                vec![(StreamKind::Data, std::mem::take(bytes)), (StreamKind::Length, lengths.finish())]
            }
            Self::Times { seconds, nanos, .. } => {
                vec![(StreamKind::Data, seconds.finish()), (StreamKind::Secondary, nanos.finish())]
            }
            Self::Lists(lengths) | Self::Maps(lengths) => vec![(StreamKind::Length, lengths.finish())],
            Self::Texts(_) | Self::Struct => Vec::new(),
        }
    }
}

/// An encoded column of a stripe.
pub(crate) struct FinishedColumn {
    pub id: u32,
    pub encoding: ColumnEncoding,
    pub streams: Vec<(StreamKind, Stream)>,
    pub groups: Vec<(Vec<(StreamKind, Mark)>, ColumnStatistics)>,
    /// Of the stripe.
    pub statistics: ColumnStatistics,
}

impl Column {
    pub fn new(id: u32, name: String, content: Content, children: Vec<Self>) -> Self {
        let statistics = content.statistics();
        Self {
            id,
            name,
            content,
            children,
            present: Bits::default(),
            has_null: false,
            groups: Vec::new(),
            group_statistics: statistics.clone(),
            stripe_statistics: statistics.clone(),
            file_statistics: statistics,
        }
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        let children: usize = self.children.iter().map(Self::size).sum();
        let groups = self.groups.len() * size_of::<Group>();
        self.present.size() + self.content.size() + groups + children
    }

    pub fn begin_group(&mut self) {
        let marks = self.content.marks();
        if let Content::Texts(texts) = &mut self.content {
            texts.begin_group();
        }
        let statistics = ColumnStatistics::default();
        self.groups.push(Group { present: self.present.mark(), marks, statistics });
        self.children.iter_mut().for_each(Self::begin_group);
    }

    pub fn end_group(&mut self) {
        let statistics = self.group_statistics.take();
        self.stripe_statistics.merge(&statistics);
        if let Some(group) = self.groups.last_mut() {
            group.statistics = statistics.message();
        }
        self.children.iter_mut().for_each(Self::end_group);
    }

    /// Ends a stripe and begins the next one; appends this column and its descendants.
    pub fn finish(&mut self, columns: &mut Vec<FinishedColumn>) {
        let mut encoding =
            ColumnEncoding { kind: Some(self.content.encoding().into()), dictionary_size: None };
        let mut streams = vec![(StreamKind::Present, self.present.finish())];
        let mut groups: Vec<_> = std::mem::take(&mut self.groups)
            .into_iter()
            .map(|group| {
                let mut marks = vec![(StreamKind::Present, group.present)];
                marks.extend(group.marks);
                (marks, group.statistics)
            })
            .collect();
        match &mut self.content {
            Content::Texts(texts) => {
                let encoded = texts.finish();
                encoding = encoded.encoding;
                streams.extend(encoded.streams);
                for ((marks, _), own) in groups.iter_mut().zip(encoded.marks) {
                    marks.extend(own);
                }
            }
            content => streams.extend(content.finish()),
        }
        if !std::mem::take(&mut self.has_null) {
            streams.remove(0);
            for (marks, _) in &mut groups {
                marks.remove(0);
            }
        }
        let statistics = self.stripe_statistics.take();
        self.file_statistics.merge(&statistics);
        columns.push(FinishedColumn {
            id: self.id,
            encoding,
            streams,
            groups,
            statistics: statistics.message(),
        });
        for child in &mut self.children {
            child.finish(columns);
        }
    }

    /// Appends the file statistics of this column and its descendants.
    pub fn statistics(&self, all: &mut Vec<ColumnStatistics>) {
        all.push(self.file_statistics.message());
        for child in &self.children {
            child.statistics(all);
        }
    }

    /// Writes rows of the root struct, which has no values of its own.
    pub fn write_rows(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        self.present.fill(rows);
        self.group_statistics.count += rows as u64;
        for (child, column) in self.children.iter_mut().zip(columns) {
            child.write(column)?;
        }
        Ok(())
    }

    fn write(&mut self, array: &ArrayRef) -> Result<()> {
        let unpacked;
        let array = match array.data_type() {
            DataType::Dictionary(_, value) => {
                unpacked = cast(array, value)?;
                // Dictionaries of dictionaries.
                return self.write(&unpacked);
            }
            _ => array,
        };
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        match nulls {
            Some(nulls) => {
                nulls.iter().for_each(|is_valid| self.present.push(is_valid));
                self.has_null = true;
                self.group_statistics.has_null = true;
            }
            None => self.present.fill(array.len()),
        }
        self.group_statistics.count += (array.len() - nulls.map_or(0, NullBuffer::null_count)) as u64;
        match array.data_type() {
            DataType::Boolean => self.booleans(array.as_boolean(), nulls),
            DataType::Int8 => self.bytes(array, nulls),
            DataType::Int16 => self.integers::<Int16Type>(array, nulls),
            DataType::Int32 => self.integers::<Int32Type>(array, nulls),
            DataType::Int64 => self.integers::<Int64Type>(array, nulls),
            DataType::UInt8 => self.integers::<UInt8Type>(array, nulls),
            DataType::UInt16 => self.integers::<UInt16Type>(array, nulls),
            DataType::UInt32 => self.integers::<UInt32Type>(array, nulls),
            DataType::UInt64 => self.integers::<UInt64Type>(array, nulls),
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                self.floats(values.len(), nulls, |at| (values[at].into(), values[at].to_le_bytes()))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>().values();
                self.floats(values.len(), nulls, |at| (values[at], values[at].to_le_bytes()))
            }
            DataType::Decimal32(..) => self.decimals::<Decimal32Type>(array, nulls),
            DataType::Decimal64(..) => self.decimals::<Decimal64Type>(array, nulls),
            DataType::Decimal128(..) => self.decimals::<Decimal128Type>(array, nulls),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>();
                self.texts(texts.len(), nulls, |at| texts.value(at).as_bytes())
            }
            DataType::LargeUtf8 => {
                let texts = array.as_string::<i64>();
                self.texts(texts.len(), nulls, |at| texts.value(at).as_bytes())
            }
            DataType::Utf8View => {
                let texts = array.as_string_view();
                self.texts(texts.len(), nulls, |at| texts.value(at).as_bytes())
            }
            DataType::Binary => {
                let binaries = array.as_binary::<i32>();
                self.binaries(binaries.len(), nulls, |at| binaries.value(at))
            }
            DataType::LargeBinary => {
                let binaries = array.as_binary::<i64>();
                self.binaries(binaries.len(), nulls, |at| binaries.value(at))
            }
            DataType::BinaryView => {
                let binaries = array.as_binary_view();
                self.binaries(binaries.len(), nulls, |at| binaries.value(at))
            }
            DataType::FixedSizeBinary(_) => {
                let binaries = array.as_fixed_size_binary();
                self.binaries(binaries.len(), nulls, |at| binaries.value(at))
            }
            DataType::Date32 => self.days(array, nulls),
            DataType::Timestamp(..) => self.times(array, nulls),
            DataType::Struct(_) => self.structs(array, nulls),
            DataType::List(_) => self.lists(array.as_list::<i32>(), nulls),
            DataType::LargeList(_) => self.lists(array.as_list::<i64>(), nulls),
            DataType::FixedSizeList(..) => self.fixed_lists(array.as_fixed_size_list(), nulls),
            DataType::Map(..) => self.maps(array.as_map(), nulls),
            other => Err(Error::Type { column: self.name.clone(), kind: other.clone() }),
        }
    }

    fn booleans(&mut self, array: &BooleanArray, nulls: Option<&NullBuffer>) -> Result<()> {
        let Content::Booleans(bits) = &mut self.content else { return Ok(()) };
        for_valid(array.len(), nulls, |at| {
            bits.push(array.value(at));
            self.group_statistics.values.boolean(array.value(at));
        });
        Ok(())
    }

    fn bytes(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let Content::Bytes(bytes) = &mut self.content else { return Ok(()) };
        let values = array.as_primitive::<Int8Type>().values();
        for_valid(values.len(), nulls, |at| {
            bytes.push(values[at] as u8);
            self.group_statistics.values.integer(values[at].into());
        });
        Ok(())
    }

    fn integers<T: ArrowPrimitiveType>(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()>
    where
        T::Native: TryInto<i64> + std::fmt::Display,
    {
        let Content::Integers(integers) = &mut self.content else { return Ok(()) };
        let values = array.as_primitive::<T>().values();
        let mut too_large = None;
        for_valid(values.len(), nulls, |at| match values[at].try_into() {
            Ok(value) => {
                integers.push(value);
                self.group_statistics.values.integer(value);
            }
            Err(_) => too_large = Some(values[at]),
        });
        too_large.map_or(Ok(()), |value| {
            Err(Error::Number { column: self.name.clone(), value: value.to_string() })
        })
    }

    fn floats<const N: usize>(
        &mut self,
        rows: usize,
        nulls: Option<&NullBuffer>,
        value: impl Fn(usize) -> (f64, [u8; N]),
    ) -> Result<()> {
        let Content::Floats(stream) = &mut self.content else { return Ok(()) };
        for_valid(rows, nulls, |at| {
            let (value, bytes) = value(at);
            stream.extend(&bytes);
            self.group_statistics.values.float(value);
        });
        Ok(())
    }

    fn decimals<T: ArrowPrimitiveType>(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()>
    where
        T::Native: Into<i128>,
    {
        let Content::Decimals { digits, scales, scale } = &mut self.content else { return Ok(()) };
        let values = array.as_primitive::<T>().values();
        for_valid(values.len(), nulls, |at| {
            let value: i128 = values[at].into();
            digits.varint((value << 1 ^ value >> 127) as u128);
            scales.push((*scale).into());
            self.group_statistics.values.decimal(value);
        });
        Ok(())
    }

    fn texts<'a>(
        &mut self,
        rows: usize,
        nulls: Option<&NullBuffer>,
        value: impl Fn(usize) -> &'a [u8],
    ) -> Result<()> {
        let Content::Texts(texts) = &mut self.content else { return Ok(()) };
        for_valid(rows, nulls, |at| {
            texts.push(value(at));
            self.group_statistics.values.text(value(at));
        });
        Ok(())
    }

    fn binaries<'a>(
        &mut self,
        rows: usize,
        nulls: Option<&NullBuffer>,
        value: impl Fn(usize) -> &'a [u8],
    ) -> Result<()> {
        let Content::Binaries { bytes, lengths } = &mut self.content else { return Ok(()) };
        for_valid(rows, nulls, |at| {
            bytes.extend(value(at));
            lengths.push(value(at).len() as i64);
            self.group_statistics.values.binary(value(at));
        });
        Ok(())
    }

    fn days(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let Content::Days(days) = &mut self.content else { return Ok(()) };
        let values = array.as_primitive::<Date32Type>().values();
        for_valid(values.len(), nulls, |at| {
            days.push(values[at].into());
            self.group_statistics.values.day(values[at]);
        });
        Ok(())
    }

    /// Encodes times as the first writers did, as readers expect: before 1970, seconds are rounded up, not
    /// down, if there is a millisecond or more beside them. So the last second before 1970 has no number of
    /// its own (ORC-763).
    fn times(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let Content::Times { seconds, nanos, unit } = &mut self.content else { return Ok(()) };
        let (units, unit_nanos) = match unit {
            TimeUnit::Second => (1, 1_000_000_000),
            TimeUnit::Millisecond => (1_000, 1_000_000),
            TimeUnit::Microsecond => (1_000_000, 1_000),
            TimeUnit::Nanosecond => (1_000_000_000, 1),
        };
        let data = array.to_data();
        let values = &data.buffer::<i64>(0)[data.offset()..][..data.len()];
        let mut fits = true;
        for_valid(values.len(), nulls, |at| {
            let (whole, part) = (values[at].div_euclid(units), values[at].rem_euclid(units) * unit_nanos);
            let is_rounded_up = whole < 0 && part > 999_999;
            let stored = (whole + i64::from(is_rounded_up)).checked_sub(EPOCH_SECONDS);
            match stored {
                Some(stored) if !(is_rounded_up && whole == -1) => {
                    seconds.push(stored);
                    nanos.push(strip_zeros(part));
                    self.group_statistics.values.time(whole, part);
                }
                _ => fits = false,
            }
        });
        if fits { Ok(()) } else { Err(Error::Time { column: self.name.clone() }) }
    }

    fn structs(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let columns = array.as_struct().columns();
        // Children have values only where the struct is not null.
        let is_there = nulls.map(|nulls| BooleanArray::new(nulls.inner().clone(), None));
        for (child, column) in self.children.iter_mut().zip(columns) {
            match &is_there {
                Some(is_there) => {
                    child.write(&filter(column, is_there)?)?;
                    child.record_null();
                }
                None => child.write(column)?,
            }
        }
        Ok(())
    }

    /// Records a null because the parent is null. Readers that prune by IS NULL use the statistics of the
    /// child.
    fn record_null(&mut self) {
        self.group_statistics.has_null = true;
        if let Content::Struct = self.content {
            self.children.iter_mut().for_each(Self::record_null);
        }
    }

    fn lists<O: OffsetSizeTrait>(
        &mut self,
        list: &GenericListArray<O>,
        nulls: Option<&NullBuffer>,
    ) -> Result<()> {
        let offsets = list.value_offsets();
        let range = |at: usize| (offsets[at].as_usize(), offsets[at + 1].as_usize());
        self.ranges(list.len(), nulls, range, &[list.values()])
    }

    fn fixed_lists(&mut self, list: &FixedSizeListArray, nulls: Option<&NullBuffer>) -> Result<()> {
        let range = |at: usize| (list.value_offset(at) as usize, list.value_offset(at + 1) as usize);
        self.ranges(list.len(), nulls, range, &[list.values()])
    }

    fn maps(&mut self, map: &MapArray, nulls: Option<&NullBuffer>) -> Result<()> {
        let offsets = map.value_offsets();
        let range = |at: usize| (offsets[at] as usize, offsets[at + 1] as usize);
        self.ranges(map.len(), nulls, range, &[map.keys(), map.values()])
    }

    /// Writes the values of lists; adjacent ones at once.
    fn ranges(
        &mut self,
        rows: usize,
        nulls: Option<&NullBuffer>,
        range: impl Fn(usize) -> (usize, usize),
        values: &[&ArrayRef],
    ) -> Result<()> {
        let (Content::Lists(lengths) | Content::Maps(lengths)) = &mut self.content else { return Ok(()) };
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for_valid(rows, nulls, |at| {
            let (start, end) = range(at);
            lengths.push((end - start) as i64);
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ if start == end => {}
                _ => ranges.push((start, end)),
            }
        });
        for (start, end) in ranges {
            for (child, values) in self.children.iter_mut().zip(values) {
                child.write(&values.slice(start, end - start))?;
            }
        }
        Ok(())
    }
}

fn for_valid(rows: usize, nulls: Option<&NullBuffer>, each: impl FnMut(usize)) {
    match nulls {
        Some(nulls) => nulls.valid_indices().for_each(each),
        None => (0..rows).for_each(each),
    }
}

/// Strips trailing zeros from nanoseconds; the last three bits hold the number stripped, less one, if two or
/// more.
fn strip_zeros(nanos: i64) -> i64 {
    if nanos == 0 || nanos % 100 != 0 {
        return nanos << 3;
    }
    let (mut nanos, mut zeros) = (nanos / 100, 1);
    while nanos % 10 == 0 && zeros < 7 {
        nanos /= 10;
        zeros += 1;
    }
    nanos << 3 | zeros
}
