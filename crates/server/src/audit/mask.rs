//! Statements without the secrets in them: passwords of roles, keys of stores, logins in addresses.
//!
//! It reads words and literals, not SQL: a statement that cannot be parsed has its secrets left out as well. What it does not know it leaves
//! out rather than in: a literal that does not end is masked to the end of the text.

/// What stands for a secret.
const MASKED: &str = "***";

/// A literal behind a word with one of these in it is a secret.
const SECRETS: [&str; 10] = [
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "credential",
    "access_key",
    "private_key",
    "customer_key",
    "passphrase",
];

/// Words that may stand between such a word and its value.
const BETWEEN: [&str; 3] = ["to", "is", "encrypted"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    /// Of text; with its quotes.
    Literal,
    /// A name in double quotes.
    Name,
    Other,
}

/// A piece of a statement; comments and blanks are none.
struct Piece<'a> {
    kind: Kind,
    start: usize,
    text: &'a str,
}

/// The statement with its secrets replaced.
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut is_secret) = (0, false);
    for piece in pieces(text) {
        match piece.kind {
            Kind::Literal => {
                if let Some(shown) = shown(piece.text, is_secret) {
                    out.push_str(&text[copied..piece.start]);
                    out.push_str(&shown);
                    copied = piece.start + piece.text.len();
                }
                // The name of an option: `'s3.secret_access_key' '…'`.
                is_secret = !is_secret && names_secret(&piece.text.to_ascii_lowercase());
            }
            Kind::Word | Kind::Name => {
                let word = piece.text.to_ascii_lowercase();
                is_secret = names_secret(&word) || (is_secret && BETWEEN.contains(&word.as_str()));
            }
            // `=`, or a dot between the parts of a name.
            Kind::Other => is_secret = is_secret && matches!(piece.text, "=" | "." | ">" | ":"),
        }
    }
    out.push_str(&text[copied..]);
    out
}

fn names_secret(word: &str) -> bool {
    SECRETS.iter().any(|secret| word.contains(secret))
}

/// The words of a statement, without comments, literals and signs.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter(|piece| piece.kind == Kind::Word).map(|piece| piece.text)
}

/// A literal as it may be shown, if that is not as it is.
fn shown(literal: &str, is_secret: bool) -> Option<String> {
    if is_secret {
        return Some(format!("'{MASKED}'"));
    }
    // scheme://user:password@host
    let (scheme, rest) = literal.split_once("://")?;
    let (login, place) = rest.split_once('@')?;
    let (user, _) = login.split_once(':')?;
    (!login.contains('/')).then(|| format!("{scheme}://{user}:{MASKED}@{place}"))
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[at..];
            let first = rest.chars().next()?;
            let (kind, length) = piece(rest, first);
            let start = at;
            at += length;
            if let Some(kind) = kind {
                return Some(Piece { kind, start, text: &text[start..at] });
            }
        }
    })
}

/// What a text begins with, and how long that is in bytes.
fn piece(text: &str, first: char) -> (Option<Kind>, usize) {
    let second = text[first.len_utf8()..].chars().next();
    match (first, second) {
        (blank, _) if blank.is_whitespace() => (None, first.len_utf8()),
        ('-', Some('-')) => (None, text.find('\n').unwrap_or(text.len())),
        ('/', Some('*')) => (None, comment(text)),
        ('e' | 'E', Some('\'')) => (Some(Kind::Literal), 1 + quoted(&text[1..], '\'', true)),
        ('\'', _) => (Some(Kind::Literal), quoted(text, '\'', false)),
        ('"', _) => (Some(Kind::Name), quoted(text, '"', false)),
        ('$', _) => match dollar(text) {
            Some(length) => (Some(Kind::Literal), length),
            None => (Some(Kind::Other), 1),
        },
        (letter, _) if letter.is_alphanumeric() || letter == '_' => {
            let is_end = |char: char| !(char.is_alphanumeric() || matches!(char, '_' | '$'));
            (Some(Kind::Word), text.find(is_end).unwrap_or(text.len()))
        }
        _ => (Some(Kind::Other), first.len_utf8()),
    }
}

/// Comments may stand in comments.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// To the closing quote; two of them are one inside.
fn quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char == '\\' && has_escapes {
            chars.next();
        } else if char == quote {
            match chars.peek() {
                Some((_, next)) if *next == quote => drop(chars.next()),
                _ => return at + quote.len_utf8(),
            }
        }
    }
    text.len()
}

/// A literal between `$tag$`; `None` if that is no such thing.
fn dollar(text: &str) -> Option<usize> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    let name = &tag[1..end - 1];
    let is_name = name.chars().all(|char| char.is_alphanumeric() || char == '_')
        && !name.starts_with(|first: char| first.is_ascii_digit());
    is_name.then(|| text[end..].find(tag).map_or(text.len(), |at| end + at + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_and_nothing_else() {
        let cases = [
            ("SELECT 'password', 1", "SELECT 'password', 1"),
            ("CREATE ROLE a LOGIN PASSWORD 'x''y' VALID", "CREATE ROLE a LOGIN PASSWORD '***' VALID"),
            ("alter user a with encrypted password e'x\\'y'", "alter user a with encrypted password '***'"),
            ("ALTER ROLE a PASSWORD $$x'y$$;", "ALTER ROLE a PASSWORD '***';"),
            ("ALTER ROLE a PASSWORD $q$x$$y$q$ b", "ALTER ROLE a PASSWORD '***' b"),
            ("ALTER ROLE a PASSWORD /* 'c' */ 'x' -- 'y'", "ALTER ROLE a PASSWORD /* 'c' */ '***' -- 'y'"),
            ("ALTER ROLE a PASSWORD 'x", "ALTER ROLE a PASSWORD '***'"),
            ("ALTER ROLE a PASSWORD NULL", "ALTER ROLE a PASSWORD NULL"),
            ("SET s3.secret_access_key = 'k'", "SET s3.secret_access_key = '***'"),
            ("SET \"aws.session_token\" TO 'k'", "SET \"aws.session_token\" TO '***'"),
            (
                "COPY t FROM 'f' (access_key_id 'a', secret => 'b')",
                "COPY t FROM 'f' (access_key_id '***', secret => '***')",
            ),
            (
                "CREATE EXTERNAL TABLE t … OPTIONS ('s3.secret_access_key' 'k', 's3.region' 'r')",
                "CREATE EXTERNAL TABLE t … OPTIONS ('s3.secret_access_key' '***', 's3.region' 'r')",
            ),
            ("SELECT * FROM 'postgres://me:pw@h/d'", "SELECT * FROM 'postgres://me:***@h/d'"),
            ("SELECT 's3://bucket/a@b', 'a:b@c'", "SELECT 's3://bucket/a@b', 'a:b@c'"),
            ("SELECT password FROM t WHERE a = 'x'", "SELECT password FROM t WHERE a = 'x'"),
            ("SELECT * FROM t WHERE password = 'x'", "SELECT * FROM t WHERE password = '***'"),
            ("SELECT $1, 'ü' /* /* */ ' */, 'ß'", "SELECT $1, 'ü' /* /* */ ' */, 'ß'"),
        ];
        for (text, expected) in cases {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        for text in
            ["$", "$$", "'", "\"", "e'", "e'\\", "/*", "--", "$a", "ä$ö$", "PASSWORD $x$ü", "'''", "/*/"]
        {
            let masked = mask(text);
            assert!(!masked.is_empty(), "{text}");
        }
    }
}
