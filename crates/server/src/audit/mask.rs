//! Masks secrets in statements: passwords of roles, keys of object stores, logins in URLs.
//!
//! It scans words and literals, not SQL, so that unparsable statements are masked, too. It masks when in
//! doubt: an unterminated literal is masked to the end of the text.

/// The replacement of a secret.
const MASKED: &str = "***";

/// A literal after a word that contains one of these is a secret.
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

/// Words allowed between such a word and its value.
const BETWEEN: [&str; 9] = ["to", "is", "encrypted", "identified", "by", "in", "not", "like", "ilike"];

/// Signs allowed there: `=`, a dot between the parts of a name.
const SIGNS_BETWEEN: [&str; 8] = ["=", ".", ">", "<", "!", ":", "(", "&"];

/// Words that may follow a role's password.
const ROLE_WORDS: [&str; 22] = [
    "null",
    "valid",
    "superuser",
    "nosuperuser",
    "createdb",
    "nocreatedb",
    "createrole",
    "nocreaterole",
    "inherit",
    "noinherit",
    "login",
    "nologin",
    "replication",
    "noreplication",
    "bypassrls",
    "nobypassrls",
    "connection",
    "in",
    "role",
    "admin",
    "resource",
    "sysid",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    /// A string literal, with its quotes.
    Literal,
    /// A quoted identifier.
    Name,
    Other,
}

/// A token of a statement; comments and blanks are skipped.
struct Piece<'a> {
    kind: Kind,
    start: usize,
    text: &'a str,
}

impl Piece<'_> {
    fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
}

/// Masks the secrets of a statement.
pub fn mask(text: &str) -> String {
    let pieces: Vec<Piece<'_>> = pieces(text).collect();
    let mut hidden = vec![false; pieces.len()];
    for segment in pieces.split_inclusive(|piece| piece.text == ";").scan(0, |at, segment| {
        let start = *at;
        *at += segment.len();
        Some(start..*at)
    }) {
        let (pieces, hidden) = (&pieces[segment.clone()], &mut hidden[segment]);
        hide_values(pieces, hidden);
        hide_in_set(pieces, hidden);
        hide_of_role(pieces, hidden);
        hide_in_calls(pieces, hidden);
        hide_in_lists(pieces, hidden);
    }
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut was_hidden) = (0, false);
    for (piece, is_hidden) in pieces.iter().zip(hidden) {
        let end = piece.start + piece.text.len();
        let shown = match piece.kind {
            _ if is_hidden => Some(format!("'{MASKED}'")),
            Kind::Literal | Kind::Name => mask_literal(piece.text),
            Kind::Word | Kind::Other => None,
        };
        if let Some(shown) = shown {
            // Adjacent masked pieces are one value.
            if !(is_hidden && was_hidden) {
                out.push_str(&text[copied..piece.start]);
                out.push_str(&shown);
            }
            copied = end;
        }
        was_hidden = is_hidden;
    }
    out.push_str(&text[copied..]);
    out
}

/// Masks what a message quotes, unless it occurs in `shown`, the masked statement.
pub fn mask_message(message: &str, shown: &str) -> String {
    if !shown.contains(MASKED) {
        return message.to_string();
    }
    let mut masked = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(['"', '\'']) {
        let quote = &rest[start..=start];
        let quoted = &rest[start + 1..];
        // An apostrophe quotes nothing; a truncated quote may be part of a secret.
        let (end, is_closed) = quoted.find(quote).map_or((quoted.len(), false), |end| (end, true));
        masked.push_str(&rest[..=start]);
        masked.push_str(if contains_word(shown, &quoted[..end]) { &quoted[..end] } else { MASKED });
        if is_closed {
            masked.push_str(quote);
        }
        rest = &quoted[end + usize::from(is_closed)..];
    }
    masked + rest
}

/// Whether a text contains another one as whole words.
fn contains_word(text: &str, part: &str) -> bool {
    let is_in_word = |char: Option<char>| char.is_some_and(|char| char.is_alphanumeric() || char == '_');
    text.match_indices(part).any(|(at, _)| {
        !is_in_word(text[..at].chars().next_back()) && !is_in_word(text[at + part.len()..].chars().next())
    })
}

/// Masks literals after a secret's name: `password = '…'`, `'s3.secret_access_key' '…'`.
fn hide_values(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    let (mut is_secret, mut is_behind) = (false, false);
    for (piece, hidden) in pieces.iter().zip(hidden) {
        match piece.kind {
            Kind::Literal if is_secret => (*hidden, is_behind) = (true, true),
            Kind::Literal => (is_secret, is_behind) = (names_secret(piece.text), false),
            Kind::Word | Kind::Name => {
                let passes = is_secret && !is_behind && BETWEEN.iter().any(|word| piece.is(word));
                (is_secret, is_behind) = (names_secret(piece.text) || passes, false);
            }
            // A concatenation continues the value.
            Kind::Other if is_behind => is_secret &= piece.text == "|",
            Kind::Other => is_secret &= SIGNS_BETWEEN.contains(&piece.text),
        }
    }
}

/// Masks all values of secrets in `SET name = …` and `ALTER ROLE … SET name TO …`, bare words included.
fn hide_in_set(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    let is_alter = is_at(pieces, 0, "alter")
        && ["role", "user", "group", "database", "system"].iter().any(|word| is_at(pieces, 1, word));
    let set = match is_at(pieces, 0, "set") {
        true => Some(0),
        false if is_alter => pieces.iter().position(|piece| piece.is("set")),
        false => None,
    };
    let Some(mut at) = set.map(|set| set + 1) else { return };
    while ["local", "session", "global"].iter().any(|word| is_at(pieces, at, word)) {
        at += 1;
    }
    let (end, is_secret) = name(pieces, at);
    if is_secret {
        hide_rest(&pieces[end..], &mut hidden[end..]);
    }
}

/// Masks passwords of CREATE ROLE and ALTER ROLE in any form; masking too much does no harm.
fn hide_of_role(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    let is_role = (is_at(pieces, 0, "create") || is_at(pieces, 0, "alter"))
        && ["role", "user", "group"].iter().any(|word| is_at(pieces, 1, word));
    if !is_role {
        return;
    }
    let mut is_password = false;
    for at in 2..pieces.len() {
        let piece = &pieces[at];
        if piece.is("set") {
            return;
        }
        let begins = piece.is("password") || piece.is("by");
        let ends = ROLE_WORDS.iter().any(|word| piece.is(word)) || piece.text == ";";
        let is_value = match piece.kind {
            Kind::Literal => !is_at(pieces, at - 1, "until"),
            Kind::Word | Kind::Name | Kind::Other => is_password && !begins && !ends,
        };
        hidden[at] |= is_value;
        is_password = begins || is_password && !ends;
    }
}

/// Masks the value in `set_config` if its name is a secret's or not a literal.
fn hide_in_calls(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    for at in 0..pieces.len() {
        let is_call = pieces[at].text.trim_matches('"').eq_ignore_ascii_case("set_config")
            && matches!(pieces[at].kind, Kind::Word | Kind::Name)
            && pieces.get(at + 1).is_some_and(|piece| piece.text == "(");
        if !is_call {
            continue;
        }
        let arguments = items(pieces, at + 1);
        let is_plain = match arguments.first().map(|name| &pieces[name.clone()]) {
            Some([name]) => name.kind == Kind::Literal && !names_secret(name.text) && !has_escapes(name.text),
            _ => false,
        };
        let is_named = arguments.first().is_some_and(|name| {
            pieces[name.clone()].iter().any(|piece| matches!(piece.text, "=" | ">" | ":"))
        });
        for (number, argument) in arguments.into_iter().enumerate() {
            if !is_plain && (number > 0 || is_named) {
                hidden[argument].fill(true);
            }
        }
    }
}

/// Masks values of secrets in parenthesized options, bare words included: `OPTIONS (…)`, `WITH (…)`, those of
/// COPY.
fn hide_in_lists(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    const LISTS: [&str; 5] = ["options", "with", "tblproperties", "serdeproperties", "set"];
    let is_copy = is_at(pieces, 0, "copy");
    for at in 1..pieces.len() {
        let before = &pieces[at - 1];
        if pieces[at].text != "(" || !(is_copy || LISTS.iter().any(|word| before.is(word))) {
            continue;
        }
        for item in items(pieces, at) {
            let (end, is_secret) = name(pieces, item.start);
            if is_secret && end < item.end {
                hide_rest(&pieces[end..item.end], &mut hidden[end..item.end]);
            }
        }
    }
}

/// Masks all but the first sign or word.
fn hide_rest(pieces: &[Piece<'_>], hidden: &mut [bool]) {
    let is_sign = |piece: &Piece<'_>| matches!(piece.text, "=" | ">" | ":") || piece.is("to");
    let start = pieces.iter().position(|piece| !is_sign(piece)).unwrap_or(pieces.len());
    for (piece, hidden) in pieces.iter().zip(hidden).skip(start) {
        *hidden |= piece.text != ";";
    }
}

/// The end of the name that begins at `at`, and whether it names a secret.
fn name(pieces: &[Piece<'_>], at: usize) -> (usize, bool) {
    let mut end = at;
    let mut is_secret = false;
    while let Some(piece) = pieces.get(end).filter(|piece| piece.kind != Kind::Other) {
        is_secret |= names_secret(piece.text);
        end += 1;
        match pieces.get(end) {
            Some(dot) if dot.text == "." => end += 1,
            _ => break,
        }
    }
    (end, is_secret)
}

/// The comma-separated items after the parenthesis at `open`, up to the closing one or the end.
fn items(pieces: &[Piece<'_>], open: usize) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0_usize, open + 1);
    for (at, piece) in pieces.iter().enumerate().skip(open) {
        match piece.text {
            "(" | "[" => depth += 1,
            ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    found.push(start..at);
                    return found;
                }
            }
            "," if depth == 1 => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(start..pieces.len());
    found
}

fn is_at(pieces: &[Piece<'_>], at: usize, word: &str) -> bool {
    pieces.get(at).is_some_and(|piece| piece.is(word))
}

/// Whether a literal contains escapes.
fn has_escapes(literal: &str) -> bool {
    literal.starts_with(['e', 'E', 'u', 'U']) && literal.contains('\\')
}

fn names_secret(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    SECRETS.iter().any(|secret| word.contains(secret))
}

/// The words of a statement, without comments, literals and signs.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter(|piece| piece.kind == Kind::Word).map(|piece| piece.text)
}

/// Masks inside a literal or quoted identifier: passwords in URLs and values of secrets. `None` if nothing
/// changes.
fn mask_literal(literal: &str) -> Option<String> {
    let address = without_login(literal);
    let masked = without_pairs(address.as_deref().unwrap_or(literal));
    masked.or(address)
}

/// Masks `scheme://user:password@host`, whatever characters the password has.
fn without_login(literal: &str) -> Option<String> {
    let (scheme, rest) = literal.split_once("://")?;
    let user = rest.find([':', '/', '@', '?', '#'])?;
    let end = rest.rfind('@')?;
    // Without a user, a colon belongs to the port.
    (rest[user..].starts_with(':') && user < end)
        .then(|| format!("{scheme}://{}:{MASKED}{}", &rest[..user], &rest[end..]))
}

/// Masks `password=…`, as in connection options or a URL's query, and `"password": "…"`.
fn without_pairs(literal: &str) -> Option<String> {
    let mut masked = String::new();
    let mut copied = 0;
    for (sign, _) in literal.match_indices(['=', ':']) {
        if sign < copied {
            continue;
        }
        let before = literal[..sign].trim_end_matches([' ', '"', '\'']);
        let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.');
        let word = before.rsplit(|char| !is_part(char)).next().unwrap_or_default();
        let rest = &literal[sign + 1..];
        let value = rest.trim_start_matches([' ', '"', '\'']);
        // The literal's closing quote is not part of a value.
        if !names_secret(word) || value.is_empty() {
            continue;
        }
        let start = literal.len() - value.len();
        let quote = literal[..start].chars().next_back().filter(|char| matches!(char, '"' | '\''));
        let end = match quote {
            Some(quote) => value.find(quote),
            None => value.find([' ', '&', ';', ',', '}', '\'', '"', '$']),
        };
        masked.push_str(&literal[copied..start]);
        masked.push_str(MASKED);
        copied = start + end.unwrap_or(value.len());
    }
    (copied > 0).then(|| masked + &literal[copied..])
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

/// The kind and byte length of the token at the start of a text.
fn piece(text: &str, first: char) -> (Option<Kind>, usize) {
    let second = text[first.len_utf8()..].chars().next();
    match (first, second) {
        (blank, _) if blank.is_whitespace() => (None, first.len_utf8()),
        ('-', Some('-')) => (None, text.find('\n').unwrap_or(text.len())),
        ('/', Some('*')) => (None, comment(text)),
        ('e' | 'E', Some('\'')) => (Some(Kind::Literal), 1 + quoted_length(&text[1..], '\'', true)),
        ('n' | 'N' | 'b' | 'B' | 'x' | 'X', Some('\'')) => {
            (Some(Kind::Literal), 1 + quoted_length(&text[1..], '\'', false))
        }
        ('u' | 'U', Some('&')) if text[2..].starts_with('\'') => {
            (Some(Kind::Literal), 2 + quoted_length(&text[2..], '\'', false))
        }
        ('u' | 'U', Some('&')) if text[2..].starts_with('"') => {
            (Some(Kind::Name), 2 + quoted_length(&text[2..], '"', false))
        }
        ('\'', _) => (Some(Kind::Literal), quoted_length(text, '\'', false)),
        ('"', _) => (Some(Kind::Name), quoted_length(text, '"', false)),
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

/// Comments may be nested.
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

/// The length up to the closing quote; a doubled quote is a literal one.
fn quoted_length(text: &str, quote: char, has_escapes: bool) -> usize {
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

/// The length of a literal between `$tag$`; `None` if it is not one.
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
    fn only_secrets_are_masked() {
        let cases = [
            ("SELECT 'password', 1", "SELECT 'password', 1"),
            ("CREATE ROLE a LOGIN PASSWORD 'x''y' VALID", "CREATE ROLE a LOGIN PASSWORD '***' VALID"),
            ("alter user a with encrypted password e'x\\'y'", "alter user a with encrypted password '***'"),
            ("ALTER ROLE a PASSWORD $$x'y$$;", "ALTER ROLE a PASSWORD '***';"),
            ("ALTER ROLE a PASSWORD $q$x$$y$q$ LOGIN", "ALTER ROLE a PASSWORD '***' LOGIN"),
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
            ("COPY t FROM 'postgres://me:p/w@x@h/d?a'", "COPY t FROM 'postgres://me:***@h/d?a'"),
            ("SELECT * FROM \"http://a:b@c\"", "SELECT * FROM \"http://a:***@c\""),
            ("SELECT 'https://h:80/a'", "SELECT 'https://h:80/a'"),
            ("SELECT 'http://h/?token=a&b=c'", "SELECT 'http://h/?token=***&b=c'"),
            ("SELECT 'host=h password=a user=b'", "SELECT 'host=h password=*** user=b'"),
            ("SELECT 'host=h password=a'", "SELECT 'host=h password=***'"),
            ("SELECT '{\"secret\": \"a\", \"b\": 1}'", "SELECT '{\"secret\": \"***\", \"b\": 1}'"),
            ("SET s3.secret_access_key = word", "SET s3.secret_access_key = '***'"),
            (
                "SET s3.secret_access_key TO a/b+c = 1; SELECT 1",
                "SET s3.secret_access_key TO '***'; SELECT 1",
            ),
            ("set local \"S3\".\"Session_Token\" = 5", "set local \"S3\".\"Session_Token\" = '***'"),
            ("SET s3.secret_access_key word", "SET s3.secret_access_key '***'"),
            ("SET s3.secret_access_key = U&'a' UESCAPE '!'", "SET s3.secret_access_key = '***'"),
            ("SET s3.secret_access_key = 'a' 'b'", "SET s3.secret_access_key = '***'"),
            ("SET s3.region = word", "SET s3.region = word"),
            ("ALTER ROLE a SET s3.session_token TO word", "ALTER ROLE a SET s3.session_token TO '***'"),
            (
                "ALTER ROLE a IN DATABASE d SET work_mem = '4MB'",
                "ALTER ROLE a IN DATABASE d SET work_mem = '4MB'",
            ),
            (
                "SELECT set_config('s3.secret_access_key', 'k' || f(1, 2), false)",
                "SELECT set_config('s3.secret_access_key', '***', '***')",
            ),
            (
                "SELECT pg_catalog.set_config('a' || 'b', $$k$$, false)",
                "SELECT pg_catalog.set_config('a' || 'b', '***', '***')",
            ),
            ("SELECT set_config(E's3.secr\\x65t', 'k'", "SELECT set_config(E's3.secr\\x65t', '***'"),
            ("SELECT set_config(new_value => 'k', is_local => true)", "SELECT set_config('***', '***')"),
            ("SELECT set_config('TimeZone', 'UTC', false)", "SELECT set_config('TimeZone', 'UTC', false)"),
            ("CREATE USER a IDENTIFIED BY 'x'", "CREATE USER a IDENTIFIED BY '***'"),
            ("CREATE USER a PASSWORD hunter2! LOGIN", "CREATE USER a PASSWORD '***' LOGIN"),
            (
                "CREATE ROLE a PASSWORD ('x') VALID UNTIL '2030-01-01'",
                "CREATE ROLE a PASSWORD '***' VALID UNTIL '2030-01-01'",
            ),
            ("ALTER ROLE a PASSWORD U&'x'", "ALTER ROLE a PASSWORD '***'"),
            ("ALTER ROLE a PASSWORD N'x' LOGIN", "ALTER ROLE a PASSWORD '***' LOGIN"),
            ("ALTER ROLE a WITH 'x'", "ALTER ROLE a WITH '***'"),
            ("COPY t FROM 'f' (secret key, header)", "COPY t FROM 'f' (secret '***', header)"),
            (
                "CREATE EXTERNAL TABLE t OPTIONS (s3.secret_access_key a+b, x y)",
                "CREATE EXTERNAL TABLE t OPTIONS (s3.secret_access_key '***', x y)",
            ),
            ("CREATE TABLE t (password text, token int)", "CREATE TABLE t (password text, token int)"),
            (
                "SELECT 1 WHERE password IN ('x') OR token <> 'y'",
                "SELECT 1 WHERE password IN ('***') OR token <> '***'",
            ),
            ("SELECT password FROM t WHERE a = 'x'", "SELECT password FROM t WHERE a = 'x'"),
            ("SELECT * FROM t WHERE password = 'x'", "SELECT * FROM t WHERE password = '***'"),
            ("SELECT $1, 'ü' /* /* */ ' */, 'ß'", "SELECT $1, 'ü' /* /* */ ' */, 'ß'"),
        ];
        for (text, expected) in cases {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn messages_quote_no_secret() {
        let check =
            |message: &str, shown: &str, expected: &str| assert_eq!(mask_message(message, shown), expected);
        let shown = "SET s3.secret_access_key = '***'";
        check(
            "invalid value for \"s3.secret_access_key\": \"k\"",
            shown,
            "invalid value for \"s3.secret_access_key\": \"***\"",
        );
        check("syntax error at or near \"'k'\"", shown, "syntax error at or near \"***\"");
        check("syntax error at or near \"'k", shown, "syntax error at or near \"***");
        check("syntax error at or near \"'k'\"", "SELECT 'k'", "syntax error at or near \"'k'\"");
        check("no quotes", shown, "no quotes");
    }

    #[test]
    fn arbitrary_texts_are_masked_without_panic() {
        for text in
            ["$", "$$", "'", "\"", "e'", "e'\\", "/*", "--", "$a", "ä$ö$", "PASSWORD $x$ü", "'''", "/*/"]
        {
            let masked = mask(text);
            assert!(!masked.is_empty(), "{text}");
        }
    }
}
