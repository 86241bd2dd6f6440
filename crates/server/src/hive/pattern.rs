//! Patterns of names in calls for metadata: `%` and `_` of SQL with `\` as escape, and `*`, `.*` and `|` of
//! Hive, which Hue and impyla send.

/// What a name is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// A name that fits one of them fits.
    alternatives: Vec<Vec<Part>>,
    is_case_sensitive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Character(char),
    Any,
    AnyNumber,
}

impl Pattern {
    /// A pattern of schemas and tables.
    pub fn new(text: &str) -> Self {
        Self {
            alternatives: text.split('|').map(|text| parts(text, true)).collect(),
            is_case_sensitive: false,
        }
    }

    /// A pattern of functions or columns, without `*` and `|`. Names of columns differ by case.
    pub fn sql(text: &str, is_case_sensitive: bool) -> Self {
        Self { alternatives: vec![parts(text, false)], is_case_sensitive }
    }

    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = match self.is_case_sensitive {
            true => name.chars().collect(),
            false => name.to_lowercase().chars().collect(),
        };
        self.alternatives.iter().any(|parts| match self.is_case_sensitive {
            true => fits(parts, &name),
            false => fits(&parts.iter().map(|part| part.lower()).collect::<Vec<_>>(), &name),
        })
    }
}

impl Part {
    fn lower(self) -> Self {
        match self {
            Self::Character(character) => {
                Self::Character(character.to_lowercase().next().unwrap_or(character))
            }
            other => other,
        }
    }
}

fn parts(text: &str, has_hive: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        parts.push(match character {
            '%' => Part::AnyNumber,
            '_' => Part::Any,
            '*' if has_hive => Part::AnyNumber,
            '.' if characters.peek() == Some(&'*') => {
                characters.next();
                Part::AnyNumber
            }
            '\\' => Part::Character(characters.next().unwrap_or('\\')),
            other => Part::Character(other),
        });
    }
    parts
}

/// Compares greedily: after a mismatch the last [`Part::AnyNumber`] takes one character more.
fn fits(parts: &[Part], name: &[char]) -> bool {
    let (mut at, mut row) = (0, 0);
    let mut retry = None;
    while row < name.len() {
        match parts.get(at) {
            Some(Part::AnyNumber) => {
                retry = Some((at, row));
                at += 1;
            }
            Some(Part::Any) => (at, row) = (at + 1, row + 1),
            Some(Part::Character(character)) if *character == name[row] => (at, row) = (at + 1, row + 1),
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    (at, row) = (star + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    parts[at..].iter().all(|part| *part == Part::AnyNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Hive 4.0.1 answers.
    #[test]
    fn names_of_tables_fit_as_in_hive() {
        for pattern in ["w_%", "w*", "w.*", "w\\_types", "W_TYPES", "%", "*", "w_types|w_none", "none|w%"] {
            assert!(Pattern::new(pattern).matches("w_types"), "{pattern}");
        }
        for pattern in ["", "w?types", "nosuch", "w\\_x", "w_type", "types", "w_types_"] {
            assert!(!Pattern::new(pattern).matches("w_types"), "{pattern}");
        }
        assert!(!Pattern::new("w\\_types").matches("wxtypes"));
    }

    #[test]
    fn names_of_columns_fit_as_in_sql() {
        let fits = |pattern, name| Pattern::sql(pattern, true).matches(name);
        assert!(
            fits("s%", "st")
                && fits(".*", "st")
                && fits("s_", "st")
                && fits("st", "st")
                && fits("%t%", "start")
        );
        assert!(!fits("S", "s") && !fits("s*", "st") && !fits("", "s"));
        assert!(Pattern::sql("ABS", false).matches("abs") && Pattern::sql("a%s", false).matches("abs"));
    }

    #[test]
    fn many_wildcards_take_no_exponential_time() {
        let pattern = Pattern::new(&"%a".repeat(50));
        assert!(!pattern.matches(&"a".repeat(40)));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(5000))));
    }
}
