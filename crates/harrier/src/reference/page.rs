//! Markdown page builder, for the site's MyST parser.

/// Line width of paragraphs.
const WIDTH: usize = 110;

/// One page. Text arguments may contain `code`; everything else is escaped.
pub(super) struct Page {
    text: String,
}

impl Page {
    /// `introduction`: one sentence.
    pub(super) fn new(title: &str, introduction: &str) -> Self {
        let note = "<!-- Written by `harrier reference` from the code: change that, and run the test sql::reference with\n     \
                    HARRIER_REFERENCE_UPDATE=1. -->";
        let mut page = Self { text: format!("{note}\n\n# {title}\n") };
        page.paragraph(introduction);
        page
    }

    pub(super) fn heading(&mut self, level: usize, text: &str) {
        self.text.push_str(&format!("\n{} {text}\n", "#".repeat(level)));
    }

    /// Adds a wrapped paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.text.push('\n');
        self.push_wrapped("", text);
    }

    pub(super) fn list<'t>(&mut self, items: impl IntoIterator<Item = &'t str>) {
        self.text.push('\n');
        for item in items {
            self.push_wrapped("- ", item);
        }
    }

    fn push_wrapped(&mut self, mark: &str, text: &str) {
        let indent = " ".repeat(mark.len());
        let mut line = mark.to_string();
        let mut has_words = false;
        for word in mark_code(text).split_whitespace() {
            if has_words && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                line = indent.clone();
                has_words = false;
            }
            if has_words {
                line.push(' ');
            }
            line.push_str(word);
            has_words = true;
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }

    pub(super) fn code(&mut self, language: &str, text: &str) {
        self.text.push_str(&format!("\n```{language}\n{}\n```\n", text.trim_end()));
    }

    /// Adds a table without the columns that are empty in all rows.
    pub(super) fn table<const N: usize>(&mut self, titles: [&str; N], rows: Vec<[String; N]>) {
        let used: Vec<usize> =
            (0..N).filter(|at| *at == 0 || rows.iter().any(|row| !row[*at].is_empty())).collect();
        let line = |cells: Vec<&str>| {
            let cells =
                cells.iter().map(|cell| if cell.is_empty() { " ".to_string() } else { format!(" {cell} ") });
            format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
        };
        self.text.push('\n');
        self.text.push_str(&line(used.iter().map(|at| titles[*at]).collect()));
        self.text.push_str(&format!("{}|\n", "|---".repeat(used.len())));
        for row in &rows {
            let cells: Vec<String> = used.iter().map(|at| cell(&row[*at])).collect();
            self.text.push_str(&line(cells.iter().map(String::as_str).collect()));
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Formats text as code; text with backticks gets double backticks.
pub(super) fn code(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text {
        text if text.is_empty() => text,
        text if text.contains('`') => format!("`` {text} ``"),
        text => format!("`{text}`"),
    }
}

/// Formats several words as code.
pub(super) fn codes<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

fn cell(text: &str) -> String {
    mark_code(text).split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Formats identifiers and options as code, and escapes Markdown in the rest.
fn mark_code(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            marked.push('`');
            marked.push_str(part);
            marked.push('`');
            continue;
        }
        for piece in part.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            let bare =
                word.trim_matches(|char: char| matches!(char, ',' | ';' | ':' | '.' | '(' | ')' | '[' | ']'));
            match is_code(bare) {
                true => marked.push_str(&piece.replacen(bare, &format!("`{bare}`"), 1)),
                false => marked.push_str(&escape(piece)),
            }
        }
    }
    marked
}

/// Recognizes `--option`, `-o`, `\command`, `$VARIABLE`, `VARIABLE_NAME`.
fn is_code(word: &str) -> bool {
    let letters = |text: &str| text.chars().any(|char| char.is_ascii_alphabetic());
    let is_name = word.contains('_')
        && letters(word)
        && word.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '.' | '$'));
    let is_link = word.contains("](");
    !is_link && ((word.starts_with(['-', '\\', '$', ':']) && letters(word)) || is_name)
}

fn escape(text: &str) -> String {
    let is_link = text.contains("](");
    text.chars()
        .flat_map(|char| {
            let is_mark = matches!(char, '*' | '<' | '>' | '~') && !is_link;
            is_mark.then_some('\\').into_iter().chain([char])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_is_formatted_as_code() {
        for (text, expected) in [
            ("with -f, in order", "with `-f`, in order"),
            ("as `--memory` says (see --threads)", "as `--memory` says (see `--threads`)"),
            ("[default: $TMPDIR]", "[default: `$TMPDIR`]"),
            ("a < b * c", "a \\< b \\* c"),
            ("[here](a_b.md) and x_y.z", "[here](a_b.md) and `x_y.z`"),
            ("a - b", "a - b"),
        ] {
            assert_eq!(mark_code(text), expected);
        }
        assert_eq!(cell("a | b\n c"), "a \\| b c");
        assert_eq!(code("a`b"), "`` a`b ``");
    }

    #[test]
    fn empty_table_columns_are_omitted() {
        let mut page = Page { text: String::new() };
        let row = |cells: [&str; 3]| cells.map(str::to_string);
        page.table(["a", "b", "c"], vec![row(["1", "", "x"]), row(["2", "", ""])]);
        assert_eq!(page.finish(), "\n| a | c |\n|---|---|\n| 1 | x |\n| 2 | |\n");
    }
}
