//! Extracts the requested range from full responses: servers without range support, or with occasional
//! support, send the whole object with 200 instead of 206, as RFC 9110, section 14.2, allows. The library
//! rejects that. The rest of the object crosses the network for nothing.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, StatusCode, response};
use http_body::{Body, Frame};
use object_store::client::HttpError;

/// The range of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    From(u64, Option<u64>),
    Last(u64),
}

impl RequestedRange {
    /// `None`: the whole object, or several ranges of it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let (first, last) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        match (first, last) {
            ("", last) => Some(Self::Last(last.parse().ok()?)),
            (first, "") => Some(Self::From(first.parse().ok()?, None)),
            (first, last) => {
                Some(Self::From(first.parse().ok()?, Some(last.parse::<u64>().ok()?.checked_add(1)?)))
            }
        }
    }

    fn of_length(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(start, end) => start..end.unwrap_or(length).min(length),
            Self::Last(bytes) => length.saturating_sub(bytes)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Rewrites the head of a full response to that of the requested range; returns the range.
pub(crate) fn narrow_to_range(
    requested: Option<RequestedRange>,
    head: &mut response::Parts,
) -> Option<Range<u64>> {
    if head.status != StatusCode::OK {
        return None;
    }
    let length = head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    let range = requested?.of_length(length)?;
    let told = format!("bytes {}-{}/{length}", range.start, range.end - 1);
    head.headers.insert(CONTENT_RANGE, told.parse().ok()?);
    head.headers.insert(CONTENT_LENGTH, (range.end - range.start).into());
    head.status = StatusCode::PARTIAL_CONTENT;
    Some(range)
}

/// A range of a body.
pub(crate) struct Part<B> {
    inner: B,
    skipped: u64,
    remaining: u64,
}

impl<B> Part<B> {
    pub(crate) fn new(inner: B, range: &Range<u64>) -> Self {
        Self { inner, skipped: range.start, remaining: range.end - range.start }
    }
}

impl<B: Body<Data = Bytes, Error = HttpError> + Unpin> Body for Part<B> {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        while self.remaining > 0 {
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(context)) else { break };
            let Ok(mut bytes) = frame?.into_data() else { continue };
            let skipped = self.skipped.min(bytes.len() as u64);
            self.skipped -= skipped;
            bytes.advance(skipped as usize);
            bytes.truncate(self.remaining.min(bytes.len() as u64) as usize);
            if !bytes.is_empty() {
                self.remaining -= bytes.len() as u64;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_extracted_from_full_responses() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().unwrap());
            RequestedRange::of(&headers)
        };
        for (text, length, range) in [
            ("bytes=2-4", 10, Some(2..5)),
            ("bytes=0-99", 10, Some(0..10)),
            ("bytes=7-", 10, Some(7..10)),
            ("bytes=-3", 10, Some(7..10)),
            ("bytes=-30", 10, Some(0..10)),
            ("bytes=10-11", 10, None),
        ] {
            assert_eq!(asked(text).unwrap().of_length(length), range, "{text}");
        }
        assert_eq!(asked("bytes=1-2,4-5"), None);
        assert_eq!(asked("lines=1-2"), None);
    }
}
