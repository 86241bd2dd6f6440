//! Words of a statement's text.

/// The words and signs of a statement, without comments.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut words = Words { rest: text };
    std::iter::from_fn(move || words.next())
}

/// Iterator over the words of a statement; skips comments.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn skip(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("--") {
                self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<&'t str> {
        self.skip();
        let first = self.rest.chars().next()?;
        let end = match first {
            '"' => {
                let mut end = 1;
                loop {
                    let quote = self.rest[end..].find('"').map(|at| end + at + 1);
                    match quote {
                        None => break self.rest.len(),
                        Some(at) if self.rest[at..].starts_with('"') => end = at + 1,
                        Some(at) => break at,
                    }
                }
            }
            first if first.is_alphanumeric() || matches!(first, '_' | '-') => self
                .rest
                .char_indices()
                .find(|(at, c)| *at > 0 && !c.is_alphanumeric() && !matches!(c, '_' | '$'))
                .map_or(self.rest.len(), |(at, _)| at),
            other => other.len_utf8(),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}
