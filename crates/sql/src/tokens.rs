//! Token list of one statement: lexed once, edited by the rewrites, then parsed.
//!
//! ```text
//! text ─► Tokens ─► clauses taken out, PostgreSQL syntax rewritten to the parser's ─► the parser
//! ```
//!
//! An inserted token has the position of those that it replaces, so positions in errors stay right.
//!
//! Memory bound: about 200 bytes per token.

use std::ops::Range;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::{ALL_KEYWORDS, Keyword};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

pub mod call_keywords;
pub mod explain_options;
pub mod frame_exclusion;
pub mod grouping_lists;
pub mod key_storage;
pub mod merge_do_nothing;
pub mod only_keyword;
pub mod operators;
pub mod postgres_synonyms;
pub mod quantified_query;
pub mod string_continuation;
pub mod subscript_targets;
pub mod table_query;
#[cfg(test)]
pub mod testing;
pub mod unicode_escapes;
pub mod view_rename;

/// A statement's tokens without whitespace and comments, which [`Tokens::to_parse`] puts back.
#[derive(Clone)]
pub struct Tokens<'t> {
    text: &'t str,
    dialect: &'t dyn Dialect,
    all: Vec<PositionedToken>,
    /// Whitespace and comments of the whole text.
    blanks: Arc<[TokenWithSpan]>,
    /// Trailing whitespace and comments.
    trailing: Range<usize>,
    keywords: KeywordSet,
}

#[derive(Clone)]
struct PositionedToken {
    /// Whitespace and comments before it, as a range of `Tokens::blanks`.
    blanks: Range<usize>,
    token: TokenWithSpan,
    /// Byte range in the text.
    bytes: Range<usize>,
}

/// Bit set of the keywords of a text. Keywords of removed tokens stay in it.
#[derive(Clone)]
struct KeywordSet([u64; KEYWORD_WORDS]);

/// Bits are keyword discriminants, whose first is `NoKeyword`.
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

/// Replaces a range of tokens; inserts before a token if the range is empty.
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
    /// Tokenizes a text.
    ///
    /// Errors: unterminated string literal, quoted identifier or comment (42601).
    pub fn of(text: &'t str, dialect: &'t dyn Dialect) -> Result<Self> {
        let tokens = Tokenizer::new(dialect, text).tokenize_with_location().map_err(ParserError::from)?;
        // Locations are ascending: the text is walked once.
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
                    all.push(PositionedToken { blanks: first..blanks.len(), token, bytes });
                    first = blanks.len();
                }
            }
        }
        let trailing = first..blanks.len();
        Ok(Self { text, dialect, all, blanks: blanks.into(), trailing, keywords })
    }

    /// Whether any of these words may occur unquoted. A rewrite that looks for them can skip a text that has
    /// none.
    pub fn may_have(&self, keywords: &[Keyword]) -> bool {
        keywords.iter().any(|keyword| self.keywords.has(*keyword))
    }

    /// The text that was tokenized.
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

    /// Whether this word stands at `at`, in any case, unquoted.
    pub fn is(&self, at: usize, word: &str) -> bool {
        matches!(self.token(at), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub fn is_one_of(&self, at: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(at, word))
    }

    /// Whether these words stand at `at`, in sequence.
    pub fn are(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.is(at + ahead, word))
    }

    /// The unquoted word at `at`, in lower case.
    pub fn word(&self, at: usize) -> Option<String> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    /// The name at `at`, in lower case unless quoted.
    pub fn name(&self, at: usize) -> Option<String> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
            Token::Word(word) => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// Whether only semicolons follow from `at` on.
    pub fn ends_at(&self, at: usize) -> bool {
        (at..self.len()).all(|at| self.is_token(at, &Token::SemiColon))
    }

    /// The index after the possibly qualified name at `at`.
    pub fn after_name(&self, mut at: usize) -> usize {
        while self.is_token(at + 1, &Token::Period) {
            at += 2;
        }
        at + 1
    }

    /// The index after the parenthesis that closes the one at `open`.
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

    /// The source text of the tokens in `range`.
    pub fn source(&self, range: Range<usize>) -> &'t str {
        if range.is_empty() { "" } else { &self.text[self.bytes(range)] }
    }

    /// The byte range of the tokens in `range`, which is not empty.
    pub fn bytes(&self, range: Range<usize>) -> Range<usize> {
        self.all[range.start].bytes.start..self.all[range.end - 1].bytes.end
    }

    pub fn remove(&mut self, range: Range<usize>) {
        self.all.drain(range);
    }

    /// Replaces the tokens in `range`, which is not empty.
    pub fn replace(&mut self, range: Range<usize>, tokens: impl IntoIterator<Item = Token>) {
        let placed = self.position_at(range.start, tokens);
        self.all.splice(range, placed);
    }

    /// Applies all edits in one pass. They may come in any order; edits of the same position keep theirs. An
    /// edit that begins inside an earlier one's range is dropped: two patterns matched the same tokens, and
    /// the second one saw the text as it was.
    pub fn edit(&mut self, mut edits: Vec<Edit>) {
        if edits.is_empty() {
            return;
        }
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let edits: Vec<(Range<usize>, Vec<PositionedToken>)> = edits
            .into_iter()
            .map(|Edit { range, tokens }| (range.clone(), self.position_at(range.start, tokens)))
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

    /// Gives new tokens the position of the token at `at`, or of the last one.
    fn position_at(&mut self, at: usize, tokens: impl IntoIterator<Item = Token>) -> Vec<PositionedToken> {
        let near = self.all.get(at).or_else(|| self.all.last());
        let (span, bytes) = near.map_or((Span::empty(), 0..0), |near| (near.token.span, near.bytes.clone()));
        let blanks = near.map(|near| near.blanks.clone()).unwrap_or_default();
        let placed = |(count, token): (usize, Token)| {
            self.keywords.add(&token);
            let blanks = if count == 0 { blanks.clone() } else { 0..0 };
            PositionedToken { blanks, token: TokenWithSpan { token, span }, bytes: bytes.clone() }
        };
        tokens.into_iter().enumerate().map(placed).collect()
    }

    /// Appends a token.
    pub fn push(&mut self, token: Token) {
        let placed = self.position_at(self.len(), [token]);
        self.all.extend(placed);
    }

    /// A copy of the tokens in `range`.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { all: self.all[range].to_vec(), trailing: 0..0, ..self.empty_copy() }
    }

    /// An empty list over the same text.
    fn empty_copy(&self) -> Self {
        let (blanks, keywords) = (Arc::clone(&self.blanks), self.keywords.clone());
        Self {
            text: self.text,
            dialect: self.dialect,
            all: vec![],
            blanks,
            trailing: self.trailing.clone(),
            keywords,
        }
    }

    /// The tokens for the parser, with whitespace and comments put back.
    pub fn to_parse(&self) -> Vec<TokenWithSpan> {
        self.with_blanks(self.all.iter().map(|placed| (placed.blanks.clone(), placed.token.clone())))
    }

    /// Like [`Self::to_parse`], without copying tokens.
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
        parsed.extend_from_slice(&self.blanks[self.trailing.clone()]);
        parsed
    }

    /// A parser of the tokens, with a recursion limit of `levels`.
    pub fn parser(&self, levels: usize) -> Parser<'t> {
        Parser::new(self.dialect).with_recursion_limit(levels).with_tokens_with_locations(self.to_parse())
    }

    pub fn dialect(&self) -> &'t dyn Dialect {
        self.dialect
    }

    /// Iterates over the tokens without whitespace and comments.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.all.iter().map(|placed| &placed.token.token)
    }
}

/// The byte offset in `text` of a location of the parser.
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

/// A word token, unquoted.
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
    fn keywords_are_found_without_parsing() {
        let mut tokens = Tokens::of("select \"only\" FROM t -- merge", &SqlDialect).unwrap();
        assert!(tokens.may_have(&[Keyword::SELECT]) && tokens.may_have(&[Keyword::ONLY, Keyword::FROM]));
        assert!(!tokens.may_have(&[Keyword::ONLY, Keyword::MERGE, Keyword::ABORT, Keyword::ZONE]));
        tokens.edit(vec![Edit::insert(3, [word("only")])]);
        assert!(tokens.may_have(&[Keyword::ONLY]));
        // Every keyword has a bit in the set.
        let written = ALL_KEYWORDS_INDEX.iter().zip(ALL_KEYWORDS).filter(|(_, text)| !text.contains('-'));
        for (keyword, text) in written {
            let tokens = Tokens::of(text, &SqlDialect).unwrap();
            assert!(tokens.may_have(&[*keyword]), "{text}");
        }
    }

    #[test]
    fn overlapping_edits_are_dropped() {
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
