//! Codecs of keys and values: the trait, and implementations for numbers, text, bytes, arrays and tuples.
//!
//! # Invariants
//! - Round trip: [`Datum::decode`] accepts the bytes of [`Datum::encode`] and returns an equal value.
//! - Equal values have equal bytes, since keys are grouped by their bytes. (Floating-point numbers are equal
//!   in IEEE 754's total order: -0 and 0 are two keys.)
//! - [`Datum::compare`] orders encoded values as the values are ordered; if [`Datum::BYTE_ORDER`] is set,
//!   that is byte order, and sorts and merges decode nothing.

use std::cmp::Ordering;

/// Bytes that are not a value of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(pub String);

/// Codec of a key or value type. See the module's invariants for implementations.
pub trait Datum {
    /// View of a received value; borrows from its block.
    type View<'a>;

    /// Whether byte order is the order of values.
    const BYTE_ORDER: bool;

    /// Size of every value in bytes, if fixed.
    const WIDTH: Option<usize> = None;

    /// Returns the value's bytes: borrowed from the value, or appended to `scratch`.
    fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8];

    /// Decodes a value.
    ///
    /// Errors: the bytes are not a value.
    fn decode(bytes: &[u8]) -> Result<Self::View<'_>, Rejected>;

    /// Compares two encoded values. Invalid bytes may be ordered arbitrarily.
    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        left.cmp(right)
    }
}

fn wrong_length(what: &str, bytes: &[u8], wanted: usize) -> Rejected {
    Rejected(format!("{} bytes are no {what}, which has {wanted}", bytes.len()))
}

#[inline]
fn append_bytes(scratch: &mut Vec<u8>, bytes: impl AsRef<[u8]>) -> &[u8] {
    let from = scratch.len();
    scratch.extend_from_slice(bytes.as_ref());
    &scratch[from..]
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl Datum for $number {
            type View<'a> = $number;
            const BYTE_ORDER: bool = true;
            const WIDTH: Option<usize> = Some(size_of::<$number>());

            #[inline]
            fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
                append_bytes(scratch, self.to_be_bytes())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$number, Rejected> {
                let bytes = bytes.try_into();
                bytes.map(<$number>::from_be_bytes).map_err(|_| Rejected(format!(
                    "not the {} bytes of a {}", size_of::<$number>(), stringify!($number)
                )))
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($number:ty as $unsigned:ty),*) => {$(
        /// Big-endian with the sign bit flipped, so that negative numbers come first.
        impl Datum for $number {
            type View<'a> = $number;
            const BYTE_ORDER: bool = true;
            const WIDTH: Option<usize> = Some(size_of::<$number>());

            #[inline]
            fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
                append_bytes(scratch, (*self as $unsigned ^ <$unsigned>::MAX ^ (<$unsigned>::MAX >> 1)).to_be_bytes())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$number, Rejected> {
                let number = <$unsigned as Datum>::decode(bytes)?;
                Ok((number ^ <$unsigned>::MAX ^ (<$unsigned>::MAX >> 1)) as $number)
            }
        }
    )*};
}

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);

macro_rules! floating {
    ($($number:ty as $bits:ty),*) => {$(
        /// IEEE 754's total order: all bits of negative numbers flipped, the sign bit of others.
        impl Datum for $number {
            type View<'a> = $number;
            const BYTE_ORDER: bool = true;
            const WIDTH: Option<usize> = Some(size_of::<$number>());

            #[inline]
            fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
                let sign = <$bits>::MAX ^ (<$bits>::MAX >> 1);
                let bits = self.to_bits();
                let ordered = if bits & sign != 0 { !bits } else { bits ^ sign };
                append_bytes(scratch, ordered.to_be_bytes())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$number, Rejected> {
                let sign = <$bits>::MAX ^ (<$bits>::MAX >> 1);
                let ordered = <$bits as Datum>::decode(bytes)?;
                Ok(<$number>::from_bits(if ordered & sign != 0 { ordered ^ sign } else { !ordered }))
            }
        }
    )*};
}

floating!(f32 as u32, f64 as u64);

impl Datum for bool {
    type View<'a> = bool;
    const BYTE_ORDER: bool = true;
    const WIDTH: Option<usize> = Some(1);

    #[inline]
    fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        append_bytes(scratch, [u8::from(*self)])
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<bool, Rejected> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Rejected("neither true nor false".to_string())),
        }
    }
}

impl Datum for () {
    type View<'a> = ();
    const BYTE_ORDER: bool = true;
    const WIDTH: Option<usize> = Some(0);

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        &[]
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<(), Rejected> {
        if bytes.is_empty() { Ok(()) } else { Err(wrong_length("unit", bytes, 0)) }
    }
}

impl Datum for [u8] {
    type View<'a> = &'a [u8];
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&[u8], Rejected> {
        Ok(bytes)
    }
}

impl Datum for Vec<u8> {
    type View<'a> = &'a [u8];
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&[u8], Rejected> {
        Ok(bytes)
    }
}

impl Datum for str {
    type View<'a> = &'a str;
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.as_bytes()
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&str, Rejected> {
        std::str::from_utf8(bytes).map_err(|error| Rejected(format!("no UTF-8: {error}")))
    }
}

impl Datum for String {
    type View<'a> = &'a str;
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.as_bytes()
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&str, Rejected> {
        <str as Datum>::decode(bytes)
    }
}

impl<T: Datum + ?Sized> Datum for &T {
    type View<'a> = T::View<'a>;
    const BYTE_ORDER: bool = T::BYTE_ORDER;
    const WIDTH: Option<usize> = T::WIDTH;

    #[inline]
    fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        (**self).encode(scratch)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T::View<'_>, Rejected> {
        T::decode(bytes)
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        T::compare(left, right)
    }
}

/// An array of fixed-width values: their bytes concatenated.
impl<T: Datum, const N: usize> Datum for [T; N] {
    type View<'a> = [T::View<'a>; N];
    const BYTE_ORDER: bool = T::BYTE_ORDER;
    const WIDTH: Option<usize> = match T::WIDTH {
        Some(width) => Some(width * N),
        None => panic!("the elements of an array all have as many bytes"),
    };

    #[inline]
    fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let from = scratch.len();
        self.iter().for_each(|value| append(value, scratch));
        &scratch[from..]
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<[T::View<'_>; N], Rejected> {
        let width = T::WIDTH.expect("checked when the codec was compiled");
        if bytes.len() != width * N {
            return Err(wrong_length("array", bytes, width * N));
        }
        let mut views = Vec::with_capacity(N);
        for at in 0..N {
            views.push(T::decode(&bytes[at * width..][..width])?);
        }
        Ok(views.try_into().unwrap_or_else(|_| unreachable!("there are as many")))
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        let width = T::WIDTH.unwrap_or(1).max(1);
        let pairs = left.chunks(width).zip(right.chunks(width));
        pairs
            .map(|(left, right)| T::compare(left, right))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// Any number of fixed-width values, such as the neighbours of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

/// View of a received [`List`], decoded lazily.
pub struct ListView<'a, T> {
    bytes: &'a [u8],
    what: std::marker::PhantomData<T>,
}

impl<'a, T: Datum> ListView<'a, T> {
    pub fn len(&self) -> usize {
        self.bytes.len() / T::WIDTH.expect("checked when the list was decoded")
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Errors: bytes that are not a value.
    pub fn iter(&self) -> impl Iterator<Item = Result<T::View<'a>, Rejected>> + use<'a, T> {
        let width = T::WIDTH.expect("checked when the list was decoded");
        self.bytes.chunks_exact(width).map(T::decode)
    }
}

impl<T: Datum> Datum for List<T> {
    type View<'a> = ListView<'a, T>;
    const BYTE_ORDER: bool = T::BYTE_ORDER;

    #[inline]
    fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        assert!(T::WIDTH.is_some_and(|width| width > 0), "the elements of a list all have as many bytes");
        let from = scratch.len();
        self.0.iter().for_each(|value| append(value, scratch));
        &scratch[from..]
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<ListView<'_, T>, Rejected> {
        match T::WIDTH {
            Some(width) if width > 0 && bytes.len().is_multiple_of(width) => {
                Ok(ListView { bytes, what: std::marker::PhantomData })
            }
            _ => {
                Err(Rejected(format!("{} bytes are no list of values of {:?} bytes", bytes.len(), T::WIDTH)))
            }
        }
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        let width = T::WIDTH.unwrap_or(1).max(1);
        let pairs = left.chunks(width).zip(right.chunks(width));
        let first = pairs.map(|(left, right)| T::compare(left, right)).find(|order| order.is_ne());
        first.unwrap_or(left.len().cmp(&right.len()))
    }
}

/// Appends the encoded `value` to `out`.
#[inline]
pub fn append<T: Datum + ?Sized>(value: &T, out: &mut Vec<u8>) {
    let from = out.len();
    let own_bytes = value.encode(out).len();
    // A value that returns its own bytes leaves `out` unchanged.
    if out.len() == from && own_bytes > 0 {
        let mut unused = Vec::new();
        out.extend_from_slice(value.encode(&mut unused));
    }
}

/// Appends a tuple element, prefixed with its length unless it is the last one or of fixed width.
#[inline]
fn append_part<T: Datum + ?Sized>(value: &T, last: bool, out: &mut Vec<u8>) {
    if last || T::WIDTH.is_some() {
        return append(value, out);
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    append(value, out);
    let length = u32::try_from(out.len() - at - 4).expect("a part of a tuple has less than 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Splits the first tuple element off `bytes`.
#[inline]
fn split_part<T: Datum + ?Sized>(bytes: &[u8], last: bool) -> Option<(&[u8], &[u8])> {
    if last {
        return Some((bytes, &[]));
    }
    if let Some(width) = T::WIDTH {
        return bytes.split_at_checked(width);
    }
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn short_tuple(bytes: &[u8]) -> Rejected {
    Rejected(format!("{} bytes end within a tuple", bytes.len()))
}

macro_rules! tuple {
    ($($part:ident $at:tt),*; $last:ident $last_at:tt) => {
        impl<$($part: Datum,)* $last: Datum> Datum for ($($part,)* $last,) {
            type View<'a> = ($($part::View<'a>,)* $last::View<'a>,);
            const BYTE_ORDER: bool = $($part::WIDTH.is_some() && $part::BYTE_ORDER &&)* $last::BYTE_ORDER;
            const WIDTH: Option<usize> = match ($($part::WIDTH,)* $last::WIDTH,) {
                #[allow(non_snake_case)]
                ($(Some($part),)* Some($last),) => Some($($part +)* $last),
                _ => None,
            };

            #[inline]
            fn encode<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
                let from = scratch.len();
                $(append_part(&self.$at, false, scratch);)*
                append_part(&self.$last_at, true, scratch);
                &scratch[from..]
            }

            #[allow(non_snake_case)]
            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self::View<'_>, Rejected> {
                let rest = bytes;
                $(let ($part, rest) = split_part::<$part>(rest, false).ok_or_else(|| short_tuple(bytes))?;)*
                Ok(($($part::decode($part)?,)* $last::decode(rest)?,))
            }

            fn compare(left: &[u8], right: &[u8]) -> Ordering {
                if Self::BYTE_ORDER {
                    return left.cmp(right);
                }
                let (left_rest, right_rest) = (left, right);
                $(
                    let (Some((left, left_rest)), Some((right, right_rest))) =
                        (split_part::<$part>(left_rest, false), split_part::<$part>(right_rest, false))
                    else {
                        return left.cmp(right);
                    };
                    let order = $part::compare(left, right);
                    if order.is_ne() {
                        return order;
                    }
                )*
                $last::compare(left_rest, right_rest)
            }
        }
    };
}

tuple!(; A 0);
tuple!(A 0; B 1);
tuple!(A 0, B 1; C 2);
tuple!(A 0, B 1, C 2; D 3);

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn bytes<T: Datum + ?Sized>(value: &T) -> Vec<u8> {
        let mut out = vec![7];
        append(value, &mut out);
        assert_eq!(out.remove(0), 7);
        out
    }

    fn check<T: Datum + Copy + PartialOrd + fmt::Debug>(values: &[T])
    where
        for<'a> T::View<'a>: fmt::Debug,
    {
        for left in values {
            let encoded = bytes(left);
            assert_eq!(format!("{:?}", T::decode(&encoded).unwrap()), format!("{left:?}"));
            assert!(T::WIDTH.is_none_or(|width| width == encoded.len()));
            for right in values {
                let order = T::compare(&encoded, &bytes(right));
                assert_eq!(Some(order), left.partial_cmp(right), "{left:?} {right:?}");
                assert!(!T::BYTE_ORDER || order == encoded.cmp(&bytes(right)));
            }
        }
    }

    #[test]
    fn values_round_trip_in_order() {
        check(&[0u64, 1, 255, 256, u64::MAX]);
        check(&[i32::MIN, -256, -1, 0, 1, 255, i32::MAX]);
        check(&[i128::MIN, -1, 0, 7]);
        check(&[f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::INFINITY]);
        check(&[f32::MIN, -0.5, 0.25, f32::MAX]);
        check(&[false, true]);
        check(&["", "a", "a\0", "aa", "b", "\u{fffd}"]);
        check(&[("a", "b"), ("aa", ""), ("", "aab"), ("a", "a")]);
        check(&[(1u32, "z", 2i8), (1, "zz", -2), (1, "", 100), (0, "zzz", 0)]);
        check(&[[1i64, -1], [0, 5], [-1, 9]]);
        check(&[((1u8, 2u16), "x"), ((1, 1), "y"), ((0, 3), "")]);
    }

    #[test]
    fn random_tuples_keep_their_order() {
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut text = || {
            let length = random.random_range(0..4);
            (0..length).map(|_| char::from(random.random_range(b'a'..b'd'))).collect::<String>()
        };
        let pairs: Vec<(String, String)> = (0..60).map(|_| (text(), text())).collect();
        for left in &pairs {
            assert_eq!(<(String, String)>::decode(&bytes(left)).unwrap(), (left.0.as_str(), left.1.as_str()));
            for right in &pairs {
                assert_eq!(<(String, String)>::compare(&bytes(left), &bytes(right)), left.cmp(right));
            }
        }
    }

    #[test]
    fn lists_are_read_one_by_one() {
        let list = List(vec![3u32, 1, 2]);
        let encoded = bytes(&list);
        let view = List::<u32>::decode(&encoded).unwrap();
        assert_eq!(view.len(), 3);
        assert_eq!(view.iter().collect::<Result<Vec<u32>, _>>().unwrap(), list.0);
        assert!(List::<u32>::decode(&encoded[1..]).is_err());
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        assert!(u64::decode(&[1, 2, 3]).is_err());
        assert!(bool::decode(&[2]).is_err());
        assert!(<str>::decode(&[0xff]).is_err());
        assert!(<(String, u8)>::decode(&[0, 0, 0, 9, b'x', 1]).is_err());
        assert!(<[u32; 2]>::decode(&[0; 9]).is_err());
        assert!(<()>::decode(&[0]).is_err());
    }
}
