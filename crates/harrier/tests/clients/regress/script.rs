//! Splits a psql script into statements and meta-commands, as psql does.

/// A part of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Statement(Statement),
    /// A meta-command of psql without the end of its line.
    Command(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Line of its first word, from 1.
    pub line: usize,
    /// Text with its semicolon, or with the meta-command that ends it (`\gset`).
    pub text: String,
    /// Lines that follow `COPY … FROM stdin`, with the terminator.
    pub data: String,
}

impl Statement {
    /// Identifies the statement in its file independently of its line: FNV-1a over its words.
    pub fn hash(&self) -> String {
        let mut hash = 0x811c_9dc5_u32;
        for word in self.text.split_whitespace() {
            for byte in word.bytes().chain([b' ']) {
                hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            }
        }
        format!("{hash:08x}")
    }
}

/// Parts of a script in order. Comments between statements are left out.
pub fn parts(script: &str) -> Vec<Part> {
    let mut cutter = Cutter { rest: script, line: 1, parts: Vec::new() };
    while cutter.next() {}
    cutter.parts
}

struct Cutter<'a> {
    rest: &'a str,
    line: usize,
    parts: Vec<Part>,
}

impl Cutter<'_> {
    /// Cuts off one part; `false` at the end.
    fn next(&mut self) -> bool {
        self.skip_space();
        if self.rest.is_empty() {
            return false;
        }
        if self.rest.starts_with('\\') {
            let line = self.take(line_end(self.rest));
            self.parts.push(Part::Command(line.trim_end().to_string()));
            return true;
        }
        let line = self.line;
        let text = self.take(statement_end(self.rest)).trim_end().to_string();
        let mut data = String::new();
        if reads_stdin(&text) {
            self.take(line_end(self.rest));
            while !self.rest.is_empty() {
                let row = self.take(line_end(self.rest));
                let is_last = row.trim_end() == "\\.";
                data.push_str(&row);
                if is_last {
                    break;
                }
            }
        }
        self.parts.push(Part::Statement(Statement { line, text, data }));
        true
    }

    fn skip_space(&mut self) {
        loop {
            let space = self.rest.len() - self.rest.trim_start().len();
            let comment = comment_end(&self.rest[space..]);
            if space + comment == 0 {
                return;
            }
            self.take(space + comment);
        }
    }

    fn take(&mut self, bytes: usize) -> String {
        let (part_text, rest) = self.rest.split_at(bytes);
        self.line += part_text.matches('\n').count();
        self.rest = rest;
        part_text.to_string()
    }
}

/// End of the statement at the beginning of `text`.
fn statement_end(text: &str) -> usize {
    let mut at = 0;
    let mut depth = 0_usize;
    while at < text.len() {
        let rest = &text[at..];
        let skipped = comment_end(rest).max(quoted_end(text, at));
        if skipped > 0 {
            at += skipped;
            continue;
        }
        match rest.as_bytes()[0] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return at + 1,
            // `\;` does not end the statement.
            b'\\' if rest.starts_with("\\;") => at += 1,
            // `\g`, `\gset` and similar end it, with the rest of their line.
            b'\\' => return at + line_end(rest),
            _ => {}
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    text.len()
}

/// Length of the comment at the beginning of `text`; 0 without one.
fn comment_end(text: &str) -> usize {
    if text.starts_with("--") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let (mut at, mut depth) = (0, 0_usize);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Length of the quoted text or name at `at`; 0 without one.
fn quoted_end(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    match rest.as_bytes()[0] {
        quote @ (b'\'' | b'"') => {
            let before = &text.as_bytes()[..at];
            let escapes = quote == b'\''
                && matches!(before.last(), Some(b'e' | b'E'))
                && !before.len().checked_sub(2).is_some_and(|at| is_word(before[at]));
            let bytes = rest.as_bytes();
            let mut at = 1;
            while at < bytes.len() {
                match bytes[at] {
                    b'\\' if escapes => at += 2,
                    byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
                    byte if byte == quote => return at + 1,
                    _ => at += 1,
                }
            }
            rest.len()
        }
        b'$' if at == 0 || !is_word(text.as_bytes()[at - 1]) => {
            let Some(end) = rest[1..].find('$') else { return 0 };
            let tag = &rest[..end + 2];
            let name = &tag[1..tag.len() - 1];
            if name.bytes().any(|byte| !is_word(byte)) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return 0;
            }
            rest[tag.len()..].find(tag).map_or(rest.len(), |end| end + 2 * tag.len())
        }
        _ => 0,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Length of the first line, with its end.
fn line_end(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

fn reads_stdin(text: &str) -> bool {
    let words: Vec<String> = text
        .split(|c: char| c.is_whitespace() || c == ';')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    // For psql, COPY FROM stdout also reads rows from the script.
    let is_stdin = |pair: &[String]| pair[0] == "from" && (pair[1] == "stdin" || pair[1] == "stdout");
    words.first().is_some_and(|word| word == "copy") && words.windows(2).any(is_stdin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(script: &str) -> Vec<(usize, String)> {
        let parts = parts(script).into_iter();
        parts
            .map(|part| match part {
                Part::Statement(statement) => (statement.line, statement.text),
                Part::Command(command) => (0, command),
            })
            .collect()
    }

    #[test]
    fn scripts_are_split_as_by_psql() {
        let check = |script: &str, expected: &[(usize, &str)]| {
            let expected: Vec<_> = expected.iter().map(|(line, text)| (*line, text.to_string())).collect();
            assert_eq!(statements(script), expected, "{script}");
        };
        check(
            "select 1;\n-- no; statement\nselect\n2; select 3",
            &[(1, "select 1;"), (3, "select\n2;"), (4, "select 3")],
        );
        check(
            "select ';', E'a\\';', \"b;\", $$c;$$, $t$ $$;$t$;",
            &[(1, "select ';', E'a\\';', \"b;\", $$c;$$, $t$ $$;$t$;")],
        );
        check("/* a; /* b; */ c; */ select '\\';", &[(1, "select '\\';")]);
        check("create rule r as on x do (a; b);", &[(1, "create rule r as on x do (a; b);")]);
        check(
            "\\pset null x\nselect 1 as a \\gset\nselect 1\\; select 2;",
            &[(0, "\\pset null x"), (2, "select 1 as a \\gset"), (3, "select 1\\; select 2;")],
        );
    }

    #[test]
    fn copy_rows_belong_to_their_statement() {
        let actual = parts("COPY t FROM stdin;\n1\t2\n\\.\nselect 1;");
        let Part::Statement(copy) = &actual[0] else { panic!("a statement") };
        assert_eq!((copy.text.as_str(), copy.data.as_str()), ("COPY t FROM stdin;", "1\t2\n\\.\n"));
        assert_eq!(actual.len(), 2);
    }
}
