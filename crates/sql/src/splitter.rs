//! Splits SQL text into statements at semicolons outside of strings, identifiers and comments.
//!
//! HiveQL ([`Language::Hive`]) has other strings: a backslash escapes in all of them, `"…"` is one, names
//! stand in backquotes, and there are no dollar quotes.
//!
//! Text may arrive in chunks, so a shell or a pipe runs the first statement before the input ends.
//! Order of calls: [`Splitter::push`] and [`Splitter::next_statement`] in any mix, then [`Splitter::finish`].
//! Memory bound: one incomplete statement, plus the text pushed after it.

use crate::language::Language;

/// One statement as the user wrote it, without the semicolon and without anything before its first word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementText {
    pub text: String,
    /// The line of the input, from 1, on which `text` begins.
    pub line: usize,
}

/// The lexical context of the scanner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Inside {
    #[default]
    Nothing,
    /// `'…'`, and `E'…'` where a backslash escapes the quote after it; in HiveQL `"…"`, too.
    Quote {
        sign: u8,
        backslash: bool,
    },
    /// `"…"`, in HiveQL in backquotes.
    Identifier {
        sign: u8,
    },
    LineComment,
    /// PostgreSQL's block comments nest.
    BlockComment {
        depth: usize,
    },
    /// `$tag$…$tag$`; the tag includes both dollar signs.
    Dollar {
        tag: String,
    },
}

/// Incremental scanner; see the module's description.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: String,
    /// Bytes of `buffer` already scanned.
    scanned: usize,
    /// Offset of the statement's first word, once seen.
    start: Option<usize>,
    inside: Inside,
    /// Newlines already dropped from the front of `buffer`.
    lines_gone: usize,
    /// Scanning stops at this byte outside of strings, identifiers and comments.
    stop_byte: Option<u8>,
    /// The language of the statement that comes next.
    language: Language,
}

impl Splitter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the language of statements from the next one on.
    pub fn set_language(&mut self, language: Language) {
        self.language = language;
    }

    /// Appends text without scanning it.
    pub fn push(&mut self, text: &str) {
        self.buffer.push_str(text);
    }

    /// The next statement that a semicolon completes. Skips empty ones.
    pub fn next_statement(&mut self) -> Option<StatementText> {
        self.scan(false)
    }

    /// The last statement, which needs no semicolon. Call it until it returns `None`.
    pub fn finish(&mut self) -> Option<StatementText> {
        if let Some(statement) = self.scan(true) {
            return Some(statement);
        }
        let end = self.buffer.len();
        let statement = self.take_statement(end);
        self.drop_front(end);
        self.inside = Inside::Nothing;
        statement
    }

    /// Whether only blanks and comments followed the last statement. Valid after [`Self::next_statement`] has
    /// returned `None`.
    pub fn is_between_statements(&self) -> bool {
        self.start.is_none()
            && !matches!(self.inside, Inside::BlockComment { .. })
            && self.buffer[self.scanned..].trim().is_empty()
    }

    /// Whether the text so far ends inside a quoted string.
    pub fn is_in_quote(&self) -> bool {
        matches!(self.inside, Inside::Quote { .. })
    }

    /// The offset in `text`, the next chunk, of the first `stop_byte` outside of strings, identifiers and
    /// comments. Valid after [`Self::next_statement`] has returned `None`.
    pub fn first_unquoted(&self, text: &str, stop_byte: u8) -> Option<usize> {
        if !text.as_bytes().contains(&stop_byte) {
            return None;
        }
        let held = &self.buffer[self.scanned..];
        let buffer = format!("{held}{text}");
        let length = buffer.len();
        let mut probe =
            Self { buffer, inside: self.inside.clone(), language: self.language, ..Self::default() };
        probe.stop_byte = Some(stop_byte);
        while probe.scan(false).is_some() {}
        let rest = &probe.buffer.as_bytes()[probe.scanned..];
        let is_found = probe.inside == Inside::Nothing && rest.first() == Some(&stop_byte);
        is_found.then(|| (length - rest.len()).checked_sub(held.len())).flatten()
    }

    /// The text so far of the incomplete statement.
    pub fn incomplete_text(&self) -> &str {
        self.start.map_or("", |start| self.buffer[start..].trim_end())
    }

    /// Discards the incomplete statement.
    pub fn clear(&mut self) {
        let end = self.buffer.len();
        self.drop_front(end);
        self.inside = Inside::Nothing;
    }

    /// Scans until a statement is complete. All significant bytes are ASCII, and no byte of a multi-byte
    /// character equals an ASCII one, so characters need no decoding.
    fn scan(&mut self, is_final: bool) -> Option<StatementText> {
        loop {
            let bytes = self.buffer.as_bytes();
            let at = self.scanned;
            let byte = *bytes.get(at)?;
            let next = bytes.get(at + 1).copied();
            // A byte that may begin a pair waits for the next one, unless the input has ended.
            let wait = next.is_none() && !is_final;
            let mut step = 1;
            match &mut self.inside {
                Inside::Nothing => match byte {
                    _ if self.stop_byte == Some(byte) => return None,
                    b';' => {
                        let statement = self.take_statement(at);
                        self.drop_front(at + 1);
                        if statement.is_some() {
                            return statement;
                        }
                        continue;
                    }
                    b'-' | b'/' if wait => return None,
                    b'-' if next == Some(b'-') => {
                        self.inside = Inside::LineComment;
                        step = 2;
                    }
                    b'/' if next == Some(b'*') => {
                        self.inside = Inside::BlockComment { depth: 1 };
                        step = 2;
                    }
                    _ if byte.is_ascii_whitespace() => {}
                    _ => {
                        self.start.get_or_insert(at);
                        let after_word = at > 0 && is_word(bytes[at - 1]);
                        let is_hive = self.language == Language::Hive;
                        match byte {
                            b'\'' => {
                                let backslash = is_hive
                                    || after_word
                                        && matches!(bytes[at - 1], b'e' | b'E')
                                        && (at < 2 || !is_word(bytes[at - 2]));
                                self.inside = Inside::Quote { sign: byte, backslash };
                            }
                            b'"' if is_hive => self.inside = Inside::Quote { sign: byte, backslash: true },
                            b'`' if is_hive => self.inside = Inside::Identifier { sign: byte },
                            b'"' => self.inside = Inside::Identifier { sign: byte },
                            b'$' if is_hive => {}
                            b'$' if !after_word => match dollar_tag(&bytes[at..], is_final) {
                                Tag::Yes(length) => {
                                    let tag = self.buffer[at..at + length].to_string();
                                    self.inside = Inside::Dollar { tag };
                                    step = length;
                                }
                                Tag::No => {}
                                Tag::Wait => return None,
                            },
                            _ => {}
                        }
                    }
                },
                Inside::Quote { sign, backslash } => match byte {
                    b'\\' if *backslash && wait => return None,
                    b'\\' if *backslash => step = 2,
                    _ if byte != *sign => {}
                    _ if wait => return None,
                    _ if next == Some(byte) => step = 2,
                    _ => self.inside = Inside::Nothing,
                },
                // A doubled quote closes and reopens the identifier, which has the same effect.
                Inside::Identifier { sign } if byte == *sign => self.inside = Inside::Nothing,
                Inside::LineComment if byte == b'\n' => self.inside = Inside::Nothing,
                Inside::Identifier { .. } | Inside::LineComment => {}
                Inside::BlockComment { depth } => match (byte, next) {
                    (b'*' | b'/', None) if wait => return None,
                    (b'*', Some(b'/')) => {
                        *depth -= 1;
                        step = 2;
                        if *depth == 0 {
                            self.inside = Inside::Nothing;
                        }
                    }
                    (b'/', Some(b'*')) => {
                        *depth += 1;
                        step = 2;
                    }
                    _ => {}
                },
                Inside::Dollar { tag } => {
                    if bytes[at..].starts_with(tag.as_bytes()) {
                        step = tag.len();
                        self.inside = Inside::Nothing;
                    } else if !is_final && tag.as_bytes().starts_with(&bytes[at..]) {
                        return None;
                    }
                }
            }
            self.scanned = (at + step).min(self.buffer.len());
        }
    }

    /// Takes the statement up to `end`, unless it is empty.
    fn take_statement(&mut self, end: usize) -> Option<StatementText> {
        let start = self.start.take()?;
        let line = self.lines_gone + newlines(&self.buffer[..start]) + 1;
        let text = self.buffer[start..end].trim_end().to_string();
        Some(StatementText { text, line })
    }

    fn drop_front(&mut self, end: usize) {
        self.lines_gone += newlines(&self.buffer[..end]);
        self.buffer.drain(..end);
        self.scanned = 0;
        self.start = None;
    }
}

/// Splits a complete text into its statements, the first of them in `language`.
pub fn split_in(sql: &str, language: Language) -> Vec<StatementText> {
    let mut splitter = Splitter::new();
    splitter.set_language(language);
    splitter.push(sql);
    let next = || {
        let statement = splitter.finish()?;
        if let Some(language) = Language::set_by(&statement.text) {
            splitter.set_language(language);
        }
        Some(statement)
    };
    std::iter::from_fn(next).collect()
}

/// Splits a complete text into its statements.
pub fn split(sql: &str) -> Vec<StatementText> {
    split_in(sql, Language::default())
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

enum Tag {
    /// Length of the tag with both dollar signs.
    Yes(usize),
    No,
    /// More text is needed to decide.
    Wait,
}

/// Whether `bytes`, which begin with a dollar sign, open a dollar quote rather than a parameter like `$1`.
fn dollar_tag(bytes: &[u8], is_final: bool) -> Tag {
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'$' => return Tag::Yes(at + 1),
            b'0'..=b'9' if at == 1 => return Tag::No,
            b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => {}
            _ => return Tag::No,
        }
    }
    if is_final { Tag::No } else { Tag::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(statements: &[StatementText]) -> Vec<&str> {
        statements.iter().map(|s| s.text.as_str()).collect()
    }

    #[test]
    fn statements_are_split_as_in_postgresql() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            (" ;; ; ", &[]),
            ("select 1", &["select 1"]),
            ("select 1; select 2;", &["select 1", "select 2"]),
            ("select ';'; select 2", &["select ';'", "select 2"]),
            ("select 'it''s;'; x", &["select 'it''s;'", "x"]),
            ("select '\\'; x", &["select '\\'", "x"]),
            ("select E'\\';'; x", &["select E'\\';'", "x"]),
            ("select e'a''\\';'; x", &["select e'a''\\';'", "x"]),
            ("select name'\\'; x", &["select name'\\'", "x"]),
            ("select \";\" from \"a\"\"b;\"; x", &["select \";\" from \"a\"\"b;\"", "x"]),
            ("-- a;b\nselect 1; x", &["select 1", "x"]),
            ("select 1 -- a;b\n; x", &["select 1 -- a;b", "x"]),
            ("/* ; /* ; */ ; */ select 1; x", &["select 1", "x"]),
            ("select 4/2; x", &["select 4/2", "x"]),
            ("select 4-2; x", &["select 4-2", "x"]),
            ("select $$;$$; x", &["select $$;$$", "x"]),
            ("select $t$;$$;$t$; x", &["select $t$;$$;$t$", "x"]),
            ("select $1; x", &["select $1", "x"]),
            ("select a$b; x$y; z", &["select a$b", "x$y", "z"]),
            ("select 'é;ü'; x", &["select 'é;ü'", "x"]),
            ("select 'open; x", &["select 'open; x"]),
            ("-- only a comment", &[]),
        ];
        for (sql, expected) in cases {
            assert_eq!(&texts(&split(sql)), expected, "{sql:?}");
            // The same in chunks of one character, as from a slow pipe.
            let mut splitter = Splitter::new();
            let mut got = Vec::new();
            for c in sql.chars() {
                splitter.push(c.encode_utf8(&mut [0; 4]));
                got.extend(std::iter::from_fn(|| splitter.next_statement()));
            }
            got.extend(std::iter::from_fn(|| splitter.finish()));
            assert_eq!(&texts(&got), expected, "{sql:?} in pieces");
        }
    }

    #[test]
    fn hive_has_other_strings() {
        for (sql, expected) in [
            (r"select 'it\'s;'; x", vec![r"select 'it\'s;'", "x"]),
            (r#"select "a;\";'"; x"#, vec![r#"select "a;\";'""#, "x"]),
            ("select `a;b` from `c\\`; x", vec!["select `a;b` from `c\\`", "x"]),
            ("select $$; x", vec!["select $$", "x"]),
            (
                "SET harrier.dialect = postgres; select '\\'; x",
                vec!["SET harrier.dialect = postgres", "select '\\'", "x"],
            ),
        ] {
            assert_eq!(texts(&split_in(sql, Language::Hive)), expected, "{sql:?}");
        }
    }

    #[test]
    fn lines_count_over_the_whole_input() {
        let lines: Vec<_> =
            split("-- x\nselect\n1;\n\nselect 2; select 3;\nselect 4").iter().map(|s| s.line).collect();
        assert_eq!(lines, [2, 5, 5, 6]);
    }

    #[test]
    fn incomplete_statements_are_detected() {
        for (sql, expected) in [
            ("", true),
            ("  -- note\n", true),
            ("/* open", false),
            ("select", false),
            ("select 1;", true),
            ("select 1; '", false),
        ] {
            let mut splitter = Splitter::new();
            splitter.push(sql);
            while splitter.next_statement().is_some() {}
            assert_eq!(splitter.is_between_statements(), expected, "{sql:?}");
        }
    }

    #[test]
    fn bytes_are_found_outside_of_quotes_and_comments() {
        let check = |before: &str, text: &str, stop_byte: u8, expected: Option<usize>| {
            let mut splitter = Splitter::new();
            splitter.push(before);
            while splitter.next_statement().is_some() {}
            assert_eq!(splitter.first_unquoted(text, stop_byte), expected, "{before:?} {text:?}");
        };
        check("", "select 1 \\g", b'\\', Some(9));
        check("", "select 1; select 2; \\x", b'\\', Some(20));
        check("", "select '\\', \"\\\", E'\\'\\' -- \\", b'\\', None);
        check("select '", "\\ ' \\q", b'\\', Some(4));
        check("select $x$", "\\ $x$ \\q", b'\\', Some(6));
        check("/* ", "\\ */ \\q", b'\\', Some(5));
        check("select 1 -", "- \\q\n\\q", b'\\', Some(5));
        check("", "select ':a', :b", b':', Some(13));
        check("", "select 1", b':', None);
    }
}
