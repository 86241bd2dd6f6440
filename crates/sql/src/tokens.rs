//! The tokens of a statement, cut once from its text, of which each part of the parser takes what is its.
//!
//! ```text
//! text ─► Tokens ─► clauses taken out, words of PostgreSQL put into those of the parser ─► the parser
//! ```
//!
//! A token that stands for others has their place in the text, so that positions in errors stay right.
//!
//! Memory bound: some 200 bytes for each token of the text.

use std::ops::Range;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::{ALL_KEYWORDS, Keyword};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

pub mod adjacent_texts;
pub mod call_words;
pub mod explain_options;
pub mod frame_exclusion;
pub mod grouping_lists;
pub mod merge_nothing;
pub mod only;
pub mod operators;
pub mod postgres_words;
pub mod quantified;
pub mod table_query;
#[cfg(test)]
pub mod testing;
pub mod view_rename;

/// A statement's tokens, without whitespace and comments, which come back when they are parsed.
#[derive(Clone)]
pub struct Tokens<'t> {
    text: &'t str,
    dialect: &'t dyn Dialect,
    all: Vec<Placed>,
    /// Whitespace and comments of all of the text.
    blanks: Arc<[TokenWithSpan]>,
    /// Those at the end.
    last: Range<usize>,
    keywords: KeywordSet,
}

#[derive(Clone)]
struct Placed {
    /// Which whitespace and comments are before it.
    blanks: Range<usize>,
    token: TokenWithSpan,
    /// Where it lies in the text.
    bytes: Range<usize>,
}

/// Keywords that a text has, and others that it had before some of its tokens were taken out.
#[derive(Clone)]
struct KeywordSet([u64; KEYWORD_WORDS]);

/// Their numbers begin with that of what is no keyword.
const KEYWORD_WORDS: usize = ALL_KEYWORDS.len() / 64 + 1;

impl KeywordSet {
    fn add(&mut self, token: &Token) {
        if let Token::Word(word) = token {
            let number = word.keyword as usize;
            self.0[number / 64] |= 1 << (number % 64);
        }
    }

    fn has(&self, keyword: Keyword) -> bool {
        let number = keyword as usize;
        self.0[number / 64] & (1 << (number % 64)) != 0
    }
}

/// Tokens in the place of others; before one, where the range is empty.
pub struct Edit {
    range: Range<usize>,
    tokens: Vec<Token>,
}

impl Edit {
    pub fn remove(range: Range<usize>) -> Self {
        Self { range, tokens: vec![] }
    }

    pub fn replace(range: Range<usize>, tokens: impl Into<Vec<Token>>) -> Self {
        Self { range, tokens: tokens.into() }
    }

    pub fn insert(at: usize, tokens: impl Into<Vec<Token>>) -> Self {
        Self { range: at..at, tokens: tokens.into() }
    }
}

impl<'t> Tokens<'t> {
    /// Cuts a text.
    ///
    /// Errors: a text or an identifier in quotes, or a comment, does not end (42601).
    pub fn of(text: &'t str, dialect: &'t dyn Dialect) -> Result<Self> {
        let tokens = Tokenizer::new(dialect, text).tokenize_with_location().map_err(ParserError::from)?;
        // Locations come in their order: the text is walked through once.
        let (mut chars, mut line, mut column) = (text.char_indices(), 1, 1);
        let mut byte = |location: Location| -> usize {
            while (line, column) < (location.line, location.column) {
                match chars.next() {
                    Some((_, '\n')) => (line, column) = (line + 1, 1),
                    Some(_) => column += 1,
                    None => return text.len(),
                }
            }
            chars.offset()
        };
        let (mut all, mut blanks) = (Vec::with_capacity(tokens.len()), Vec::new());
        let mut keywords = KeywordSet([0; KEYWORD_WORDS]);
        let mut first = 0;
        for token in tokens {
            match token.token {
                Token::EOF => {}
                Token::Whitespace(_) => blanks.push(token),
                _ => {
                    let bytes = byte(token.span.start)..byte(token.span.end);
                    keywords.add(&token.token);
                    all.push(Placed { blanks: first..blanks.len(), token, bytes });
                    first = blanks.len();
                }
            }
        }
        let last = first..blanks.len();
        Ok(Self { text, dialect, all, blanks: blanks.into(), last, keywords })
    }

    /// Whether one of these words can stand anywhere, without quotes: a pass that looks for them need not
    /// walk through a text that has none.
    pub fn may_have(&self, keywords: &[Keyword]) -> bool {
        keywords.iter().any(|keyword| self.keywords.has(*keyword))
    }

    /// The text that they were cut from.
    pub fn text(&self) -> &'t str {
        self.text
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn token(&self, at: usize) -> Option<&Token> {
        self.all.get(at).map(|placed| &placed.token.token)
    }

    pub fn is_token(&self, at: usize, expected: &Token) -> bool {
        self.token(at) == Some(expected)
    }

    /// Whether this word stands there, in small or capital letters, without quotes.
    pub fn is(&self, at: usize, word: &str) -> bool {
        matches!(self.token(at), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub fn is_one_of(&self, at: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(at, word))
    }

    /// Whether these words stand there, one after the other.
    pub fn are(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.is(at + ahead, word))
    }

    /// The word without quotes there, in small letters.
    pub fn word(&self, at: usize) -> Option<String> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    /// The name there, in small letters unless it is quoted.
    pub fn name(&self, at: usize) -> Option<String> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
            Token::Word(word) => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// Whether nothing but a semicolon stands there or behind.
    pub fn ends_at(&self, at: usize) -> bool {
        (at..self.len()).all(|at| self.is_token(at, &Token::SemiColon))
    }

    /// The token behind a name with as many parts as there are, which begins there.
    pub fn after_name(&self, mut at: usize) -> usize {
        while self.is_token(at + 1, &Token::Period) {
            at += 2;
        }
        at + 1
    }

    /// The token behind the parenthesis that closes the one at `open`.
    pub fn after_parentheses(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for at in open..self.len() {
            match self.token(at)? {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at + 1);
            }
        }
        None
    }

    /// The text of the tokens in `range`, as it was written.
    pub fn source(&self, range: Range<usize>) -> &'t str {
        if range.is_empty() { "" } else { &self.text[self.bytes(range)] }
    }

    /// Where the tokens in `range`, of which there is one at least, lie in the text.
    pub fn bytes(&self, range: Range<usize>) -> Range<usize> {
        self.all[range.start].bytes.start..self.all[range.end - 1].bytes.end
    }

    pub fn remove(&mut self, range: Range<usize>) {
        self.all.drain(range);
    }

    /// Puts tokens in the place of others, of which there is one at least.
    pub fn replace(&mut self, range: Range<usize>, tokens: impl IntoIterator<Item = Token>) {
        let placed = self.at(range.start, tokens);
        self.all.splice(range, placed);
    }

    /// Does all that is asked for, in one walk. The edits may come in any order; those of one place are done
    /// in theirs. One that begins within what an earlier one takes is left out: two patterns have matched the
    /// same tokens, and the text is as it was to the second.
    pub fn edit(&mut self, mut edits: Vec<Edit>) {
        if edits.is_empty() {
            return;
        }
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let edits: Vec<(Range<usize>, Vec<Placed>)> = edits
            .into_iter()
            .map(|Edit { range, tokens }| (range.clone(), self.at(range.start, tokens)))
            .collect();
        let mut old = std::mem::take(&mut self.all).into_iter();
        let mut at = 0;
        for (range, tokens) in edits {
            let Some(untouched) = range.start.checked_sub(at) else { continue };
            self.all.extend(old.by_ref().take(untouched));
            self.all.extend(tokens);
            at = range.end;
            old.by_ref().take(range.len()).for_each(drop);
        }
        self.all.extend(old);
    }

    /// Tokens with the place of the one at `at`, or of the last one.
    fn at(&mut self, at: usize, tokens: impl IntoIterator<Item = Token>) -> Vec<Placed> {
        let near = self.all.get(at).or_else(|| self.all.last());
        let (span, bytes) = near.map_or((Span::empty(), 0..0), |near| (near.token.span, near.bytes.clone()));
        let blanks = near.map(|near| near.blanks.clone()).unwrap_or_default();
        let placed = |(count, token): (usize, Token)| {
            self.keywords.add(&token);
            let blanks = if count == 0 { blanks.clone() } else { 0..0 };
            Placed { blanks, token: TokenWithSpan { token, span }, bytes: bytes.clone() }
        };
        tokens.into_iter().enumerate().map(placed).collect()
    }

    /// Puts a token behind all others.
    pub fn push(&mut self, token: Token) {
        let placed = self.at(self.len(), [token]);
        self.all.extend(placed);
    }

    /// Those in `range` alone.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { all: self.all[range].to_vec(), last: 0..0, ..self.with_text() }
    }

    /// None of them, of the same text.
    fn with_text(&self) -> Self {
        let (blanks, keywords) = (Arc::clone(&self.blanks), self.keywords.clone());
        Self {
            text: self.text,
            dialect: self.dialect,
            all: vec![],
            blanks,
            last: self.last.clone(),
            keywords,
        }
    }

    /// As the parser takes them, with whitespace and comments where there were some.
    pub fn to_parse(&self) -> Vec<TokenWithSpan> {
        self.with_blanks(self.all.iter().map(|placed| (placed.blanks.clone(), placed.token.clone())))
    }

    /// The same, without a copy of each.
    pub fn into_parse(mut self) -> Vec<TokenWithSpan> {
        let all = std::mem::take(&mut self.all);
        self.with_blanks(all.into_iter().map(|placed| (placed.blanks, placed.token)))
    }

    fn with_blanks(&self, tokens: impl Iterator<Item = (Range<usize>, TokenWithSpan)>) -> Vec<TokenWithSpan> {
        let mut parsed = Vec::with_capacity(tokens.size_hint().0 + self.blanks.len());
        for (blanks, token) in tokens {
            parsed.extend_from_slice(&self.blanks[blanks]);
            parsed.push(token);
        }
        parsed.extend_from_slice(&self.blanks[self.last.clone()]);
        parsed
    }

    /// A parser of them, for so many levels.
    pub fn parser(&self, levels: usize) -> Parser<'t> {
        Parser::new(self.dialect).with_recursion_limit(levels).with_tokens_with_locations(self.to_parse())
    }

    pub fn dialect(&self) -> &'t dyn Dialect {
        self.dialect
    }

    /// Those that say something.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.all.iter().map(|placed| &placed.token.token)
    }
}

/// The bytes of `text` before a place that the parser tells.
pub fn offset(text: &str, place: Location) -> usize {
    let (mut line, mut column) = (1, 1);
    for (at, char) in text.char_indices() {
        if (line, column) >= (place.line, place.column) {
            return at;
        }
        match char {
            '\n' => (line, column) = (line + 1, 1),
            _ => column += 1,
        }
    }
    text.len()
}

/// A word as the parser has it.
pub fn word(text: &str) -> Token {
    Token::make_word(text, None)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS_INDEX;

    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn whitespace_and_places_stay() {
        let text = "SELECT a, -- one\n 'é'  FROM t";
        let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
        assert_eq!(tokens.source(3..6), "'é'  FROM t");
        tokens.replace(5..6, [word("u"), Token::Period, word("v")]);
        let parsed: String = tokens.to_parse().iter().map(|token| token.token.to_string()).collect();
        assert_eq!(parsed, "SELECT a, -- one\n 'é'  FROM u.v");
        assert_eq!(tokens.source(5..6), "t");
        tokens.remove(1..3);
        assert_eq!(
            tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            "SELECT 'é' FROM u . v"
        );
    }
    #[test]
    fn keywords_are_known_without_a_walk() {
        let mut tokens = Tokens::of("select \"only\" FROM t -- merge", &SqlDialect).unwrap();
        assert!(tokens.may_have(&[Keyword::SELECT]) && tokens.may_have(&[Keyword::ONLY, Keyword::FROM]));
        assert!(!tokens.may_have(&[Keyword::ONLY, Keyword::MERGE, Keyword::ABORT, Keyword::ZONE]));
        tokens.edit(vec![Edit::insert(3, [word("only")])]);
        assert!(tokens.may_have(&[Keyword::ONLY]));
        // All of them have a place in the set.
        let written = ALL_KEYWORDS_INDEX.iter().zip(ALL_KEYWORDS).filter(|(_, text)| !text.contains('-'));
        for (keyword, text) in written {
            let tokens = Tokens::of(text, &SqlDialect).unwrap();
            assert!(tokens.may_have(&[*keyword]), "{text}");
        }
    }

    #[test]
    fn edits_that_overlap_earlier_ones_are_left_out() {
        let edited = |edits: Vec<Edit>| {
            let mut tokens = Tokens::of("a b c d e", &SqlDialect).unwrap();
            tokens.edit(edits);
            tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let x = || [word("x")];
        for (edits, expected) in [
            (vec![Edit::replace(0..3, x()), Edit::remove(2..4)], "x d e"),
            (vec![Edit::remove(2..4), Edit::replace(0..3, x())], "x d e"),
            (vec![Edit::remove(0..4), Edit::insert(2, x()), Edit::insert(4, [word("y")])], "y e"),
            (vec![Edit::replace(1..2, x()), Edit::replace(1..3, [word("y")])], "a x c d e"),
            (vec![Edit::insert(1, x()), Edit::remove(1..2), Edit::insert(2, x())], "a x x c d e"),
            (vec![Edit::remove(3..5), Edit::insert(5, x())], "a b c x"),
        ] {
            assert_eq!(edited(edits), expected);
        }
    }
}
