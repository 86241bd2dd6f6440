//! Quote tracking in CSV: finds the line ends that end rows, outside of quotes. Follows the reader
//! (`csv-core`): a quote opens only at the beginning of a field, and the next one closes it, unless a third
//! follows directly.

use memchr::{memchr, memchr_iter, memchr2};

/// Special bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpecialBytes {
    pub delimiter: u8,
    pub quote: u8,
    /// Escapes a byte within quotes.
    pub escape: Option<u8>,
    /// Row terminator, if not `\n` or `\r`.
    pub terminator: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Outside,
    Quoted,
    Escaped,
    /// After a closing quote, unless another one follows.
    Closing,
}

/// The state at a position in a file.
#[derive(Debug, Clone)]
pub(super) struct Quotes {
    signs: SpecialBytes,
    state: State,
    /// The previous byte.
    previous: u8,
    /// Bytes consumed.
    offset: u64,
    /// Line ends consumed, in quotes or not.
    lines: u64,
    /// Line and offset of the last opening quote.
    opened: u64,
    opened_at: u64,
}

impl Quotes {
    /// The beginning of a file.
    pub(super) fn new(signs: SpecialBytes) -> Self {
        let signs = SpecialBytes { escape: signs.escape.filter(|escape| *escape != signs.quote), ..signs };
        Self { signs, state: State::Outside, previous: b'\n', offset: 0, lines: 0, opened: 0, opened_at: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The line at the position, from 1.
    pub(super) fn line(&self) -> u64 {
        self.lines + 1
    }

    /// The line of the open quote, from 1; `None` outside of quotes.
    pub(super) fn open_since(&self) -> Option<u64> {
        matches!(self.state, State::Quoted | State::Escaped).then_some(self.opened)
    }

    /// Bytes since the open quote.
    pub(super) fn open_bytes(&self) -> u64 {
        self.open_since().map_or(0, |_| self.offset - self.opened_at)
    }

    pub(super) fn consume(&mut self, bytes: &[u8]) {
        self.advance(bytes, None);
    }

    /// Consumes bytes up to the first end of a row, and returns their number; `None`: all were consumed
    /// without one.
    pub(super) fn consume_row(&mut self, bytes: &[u8]) -> Option<usize> {
        self.advance(bytes, Some(self.signs.terminator.unwrap_or(b'\n')))
    }

    fn advance(&mut self, bytes: &[u8], end: Option<u8>) -> Option<usize> {
        let SpecialBytes { quote, escape, .. } = self.signs;
        let (mut at, mut counted) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                State::Outside => {
                    let found = match end {
                        Some(end) => memchr2(quote, end, rest),
                        None => memchr(quote, rest),
                    };
                    let Some(found) = found.map(|found| at + found) else { break };
                    at = found + 1;
                    if bytes[found] != quote {
                        self.skip(&bytes[..at], counted);
                        return Some(at);
                    }
                    let before = if found == 0 { self.previous } else { bytes[found - 1] };
                    if self.begins_field(before, self.offset + found as u64) {
                        self.state = State::Quoted;
                        self.lines += memchr_iter(b'\n', &bytes[counted..found]).count() as u64;
                        counted = found;
                        self.opened = self.lines + 1;
                        self.opened_at = self.offset + found as u64;
                    }
                }
                State::Quoted => {
                    let found = match escape {
                        Some(escape) => memchr2(quote, escape, rest),
                        None => memchr(quote, rest),
                    };
                    let Some(found) = found.map(|found| at + found) else { break };
                    self.state = if bytes[found] == quote { State::Closing } else { State::Escaped };
                    at = found + 1;
                }
                State::Escaped => {
                    self.state = State::Quoted;
                    at += 1;
                }
                State::Closing if bytes[at] == quote => {
                    self.state = State::Quoted;
                    at += 1;
                }
                State::Closing => self.state = State::Outside,
            }
        }
        self.skip(bytes, counted);
        None
    }

    /// Consumes `bytes`; line ends in the first `counted` are counted already.
    fn skip(&mut self, bytes: &[u8], counted: usize) {
        self.lines += memchr_iter(b'\n', &bytes[counted..]).count() as u64;
        self.offset += bytes.len() as u64;
        self.previous = bytes.last().copied().unwrap_or(self.previous);
    }

    /// Whether a field begins after the byte `before`, at this offset. A byte order mark may precede the
    /// first one.
    fn begins_field(&self, before: u8, place: u64) -> bool {
        let is_end = match self.signs.terminator {
            Some(end) => before == end,
            None => matches!(before, b'\n' | b'\r'),
        };
        is_end || before == self.signs.delimiter || place == 0 || (place == 3 && before == 0xbf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNS: SpecialBytes = SpecialBytes { delimiter: b',', quote: b'"', escape: None, terminator: None };

    /// The starts of all rows, with the text in pieces of `size` bytes.
    fn starts(text: &str, signs: SpecialBytes, size: usize) -> Vec<usize> {
        let mut quotes = Quotes::new(signs);
        let mut found = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            let mut rest = piece;
            while let Some(taken) = quotes.consume_row(rest) {
                found.push(quotes.offset() as usize);
                rest = &rest[taken..];
            }
        }
        found
    }

    #[test]
    fn quoted_newlines_do_not_end_rows() {
        for (text, signs, expected) in [
            ("1,a\n2,b\n", SIGNS, vec![4, 8]),
            ("1,\"a\nb\"\n2,\"\n\"\n", SIGNS, vec![8, 14]),
            ("\"a\"\"\n\"\nx\n", SIGNS, vec![7, 9]),
            // In the middle of a field a quote is an ordinary byte.
            ("5\" pipe\n6\" pipe\n", SIGNS, vec![8, 16]),
            ("\"a\"b\"\nc\n", SIGNS, vec![6, 8]),
            ("\u{feff}\"a\nb\"\nc\n", SIGNS, vec![9, 11]),
            ("\"a\\\"\n\"\nb\n", SpecialBytes { escape: Some(b'\\'), ..SIGNS }, vec![7, 9]),
            ("'a\n'|\"\nb\n", SpecialBytes { quote: b'\'', delimiter: b'|', ..SIGNS }, vec![7, 9]),
            ("a;\";\";b;", SpecialBytes { terminator: Some(b';'), ..SIGNS }, vec![2, 6, 8]),
        ] {
            for size in [1, 2, 3, 100] {
                assert_eq!(starts(text, signs, size), expected, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn unterminated_quotes_name_their_line() {
        for (text, expected) in [
            ("1,a\n2,b\n", None),
            ("1,a\n2,\"b\n3\n", Some(2)),
            ("\"a\n\"\n\"b\"\n\"c", Some(4)),
            ("\"a\"", None),
        ] {
            for size in [1, 100] {
                let mut quotes = Quotes::new(SIGNS);
                text.as_bytes().chunks(size).for_each(|piece| quotes.consume(piece));
                assert_eq!(quotes.open_since(), expected, "{text:?}");
                assert_eq!(quotes.open_bytes() > 0, expected.is_some(), "{text:?}");
            }
        }
    }
}
