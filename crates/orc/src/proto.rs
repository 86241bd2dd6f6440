//! Protobuf messages of a file, with the field numbers of the specification. Fields that are not written are
//! omitted.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IntegerStatistics {
    #[prost(sint64, optional, tag = "1")]
    pub minimum: Option<i64>,
    #[prost(sint64, optional, tag = "2")]
    pub maximum: Option<i64>,
    #[prost(sint64, optional, tag = "3")]
    pub sum: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DoubleStatistics {
    #[prost(double, optional, tag = "1")]
    pub minimum: Option<f64>,
    #[prost(double, optional, tag = "2")]
    pub maximum: Option<f64>,
    #[prost(double, optional, tag = "3")]
    pub sum: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StringStatistics {
    #[prost(string, optional, tag = "1")]
    pub minimum: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub maximum: Option<String>,
    /// Bytes of all values.
    #[prost(sint64, optional, tag = "3")]
    pub sum: Option<i64>,
    /// Instead of a minimum that is too long.
    #[prost(string, optional, tag = "4")]
    pub lower_bound: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub upper_bound: Option<String>,
}

/// For booleans: the number of true values.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketStatistics {
    #[prost(uint64, repeated, packed = "true", tag = "1")]
    pub count: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecimalStatistics {
    #[prost(string, optional, tag = "1")]
    pub minimum: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub maximum: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub sum: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DateStatistics {
    #[prost(sint32, optional, tag = "1")]
    pub minimum: Option<i32>,
    #[prost(sint32, optional, tag = "2")]
    pub maximum: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BinaryStatistics {
    /// Bytes of all values.
    #[prost(sint64, optional, tag = "1")]
    pub sum: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimestampStatistics {
    /// Milliseconds, rounded down.
    #[prost(sint64, optional, tag = "3")]
    pub minimum_utc: Option<i64>,
    #[prost(sint64, optional, tag = "4")]
    pub maximum_utc: Option<i64>,
    /// Nanoseconds within that millisecond, plus one.
    #[prost(int32, optional, tag = "5")]
    pub minimum_nanos: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    pub maximum_nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ColumnStatistics {
    #[prost(uint64, optional, tag = "1")]
    pub number_of_values: Option<u64>,
    #[prost(message, optional, tag = "2")]
    pub int_statistics: Option<IntegerStatistics>,
    #[prost(message, optional, tag = "3")]
    pub double_statistics: Option<DoubleStatistics>,
    #[prost(message, optional, tag = "4")]
    pub string_statistics: Option<StringStatistics>,
    #[prost(message, optional, tag = "5")]
    pub bucket_statistics: Option<BucketStatistics>,
    #[prost(message, optional, tag = "6")]
    pub decimal_statistics: Option<DecimalStatistics>,
    #[prost(message, optional, tag = "7")]
    pub date_statistics: Option<DateStatistics>,
    #[prost(message, optional, tag = "8")]
    pub binary_statistics: Option<BinaryStatistics>,
    #[prost(message, optional, tag = "9")]
    pub timestamp_statistics: Option<TimestampStatistics>,
    #[prost(bool, optional, tag = "10")]
    pub has_null: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RowIndexEntry {
    #[prost(uint64, repeated, packed = "true", tag = "1")]
    pub positions: Vec<u64>,
    #[prost(message, optional, tag = "2")]
    pub statistics: Option<ColumnStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RowIndex {
    #[prost(message, repeated, tag = "1")]
    pub entry: Vec<RowIndexEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum StreamKind {
    Present = 0,
    Data = 1,
    Length = 2,
    DictionaryData = 3,
    Secondary = 5,
    RowIndex = 6,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stream {
    #[prost(enumeration = "StreamKind", optional, tag = "1")]
    pub kind: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub column: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    pub length: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum EncodingKind {
    Direct = 0,
    DirectV2 = 2,
    DictionaryV2 = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ColumnEncoding {
    #[prost(enumeration = "EncodingKind", optional, tag = "1")]
    pub kind: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub dictionary_size: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StripeFooter {
    #[prost(message, repeated, tag = "1")]
    pub streams: Vec<Stream>,
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnEncoding>,
    #[prost(string, optional, tag = "3")]
    pub writer_timezone: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum TypeKind {
    Boolean = 0,
    Byte = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Float = 5,
    Double = 6,
    String = 7,
    Binary = 8,
    Timestamp = 9,
    List = 10,
    Map = 11,
    Struct = 12,
    Decimal = 14,
    Date = 15,
    TimestampInstant = 18,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Type {
    #[prost(enumeration = "TypeKind", optional, tag = "1")]
    pub kind: Option<i32>,
    #[prost(uint32, repeated, packed = "true", tag = "2")]
    pub subtypes: Vec<u32>,
    #[prost(string, repeated, tag = "3")]
    pub field_names: Vec<String>,
    #[prost(uint32, optional, tag = "5")]
    pub precision: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub scale: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StripeInformation {
    #[prost(uint64, optional, tag = "1")]
    pub offset: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub index_length: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub data_length: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub footer_length: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub number_of_rows: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StripeStatistics {
    #[prost(message, repeated, tag = "1")]
    pub col_stats: Vec<ColumnStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(message, repeated, tag = "1")]
    pub stripe_stats: Vec<StripeStatistics>,
}

/// Dates and times use the proleptic Gregorian calendar.
pub(crate) const PROLEPTIC_GREGORIAN: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Footer {
    #[prost(uint64, optional, tag = "1")]
    pub header_length: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub content_length: Option<u64>,
    #[prost(message, repeated, tag = "3")]
    pub stripes: Vec<StripeInformation>,
    #[prost(message, repeated, tag = "4")]
    pub types: Vec<Type>,
    #[prost(uint64, optional, tag = "6")]
    pub number_of_rows: Option<u64>,
    #[prost(message, repeated, tag = "7")]
    pub statistics: Vec<ColumnStatistics>,
    #[prost(uint32, optional, tag = "8")]
    pub row_index_stride: Option<u32>,
    #[prost(int32, optional, tag = "11")]
    pub calendar: Option<i32>,
    #[prost(string, optional, tag = "12")]
    pub software_version: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PostScript {
    #[prost(uint64, optional, tag = "1")]
    pub footer_length: Option<u64>,
    /// A number of [`crate::Codec`].
    #[prost(int32, optional, tag = "2")]
    pub compression: Option<i32>,
    #[prost(uint64, optional, tag = "3")]
    pub compression_block_size: Option<u64>,
    #[prost(uint32, repeated, packed = "true", tag = "4")]
    pub version: Vec<u32>,
    #[prost(uint64, optional, tag = "5")]
    pub metadata_length: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub writer_version: Option<u32>,
    #[prost(string, optional, tag = "8000")]
    pub magic: Option<String>,
}
