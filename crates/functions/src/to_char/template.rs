//! Parser of date and time patterns into pieces.

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Field {
        field: Field,
        /// FM: no padding blanks and zeros.
        is_short: bool,
        /// A TH or th suffix: whether in capital letters.
        ordinal: Option<bool>,
        case: Case,
    },
    /// Quoted, or after a backslash: written as is; in parsing, as many letters are skipped.
    Text(String),
    /// A sign or a blank, which matches any separator in parsing.
    Sign(char),
}

/// Letter case of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Title,
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Hour12,
    Hour24,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// FF1 to FF6.
    Fraction(u8),
    SecondOfDay,
    /// AM or PM; with points.
    Half(bool),
    /// With a comma after thousands.
    YearComma,
    /// The last so many digits; 4: all.
    Year(u8),
    IsoYear(u8),
    /// BC or AD; with points.
    Era(bool),
    MonthName,
    MonthShort,
    Month,
    MonthRoman,
    DayName,
    DayShort,
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    Zone,
    ZoneHours,
    ZoneMinutes,
    ZoneOffset,
}

impl Field {
    /// Maximum number of digits in parsing; `None` for non-numeric fields.
    pub(super) fn digits(self) -> Option<usize> {
        Some(match self {
            Self::Hour12 | Self::Hour24 | Self::Minute | Self::Second | Self::Month | Self::Day => 2,
            Self::WeekOfYear | Self::IsoWeek | Self::Century => 2,
            Self::Millisecond | Self::DayOfYear | Self::IsoDayOfYear => 3,
            Self::Microsecond => 6,
            Self::Fraction(digits) | Self::Year(digits) | Self::IsoYear(digits) => digits.into(),
            Self::SecondOfDay => 5,
            Self::Julian => 7,
            Self::DayOfWeek | Self::IsoDayOfWeek | Self::WeekOfMonth | Self::Quarter => 1,
            Self::ZoneMinutes => 2,
            _ => return None,
        })
    }
}

/// Longer names before their prefixes.
const FIELDS: [(&str, Field); 53] = [
    ("A.D.", Field::Era(true)),
    ("A.M.", Field::Half(true)),
    ("AD", Field::Era(false)),
    ("AM", Field::Half(false)),
    ("B.C.", Field::Era(true)),
    ("BC", Field::Era(false)),
    ("CC", Field::Century),
    ("DAY", Field::DayName),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("I", Field::IsoYear(1)),
    ("J", Field::Julian),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MS", Field::Millisecond),
    ("OF", Field::ZoneOffset),
    ("P.M.", Field::Half(true)),
    ("PM", Field::Half(false)),
    ("Q", Field::Quarter),
    ("RM", Field::MonthRoman),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("TZ", Field::Zone),
    ("US", Field::Microsecond),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
];

/// The pieces of a pattern.
pub(super) fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = pattern;
    let mut is_short = false;
    while let Some(first) = rest.chars().next() {
        let begins =
            |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        if begins("FM") {
            is_short = true;
            rest = &rest[2..];
            continue;
        }
        // Ignores FX (exact field order) and TM (localized names: the session's language is always English).
        if begins("FX") || begins("TM") {
            rest = &rest[2..];
            continue;
        }
        let known = FIELDS.iter().find(|(word, _)| begins(word));
        if let Some((word, field)) = known {
            let written = &rest[..word.len()];
            rest = &rest[word.len()..];
            let ordinal =
                rest.get(..2).filter(|next| next.eq_ignore_ascii_case("th")).map(|next| next == "TH");
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            pieces.push(Piece::Field { field: *field, is_short, ordinal, case: case_of(written) });
            is_short = false;
            continue;
        }
        match first {
            '"' => {
                let mut text = String::new();
                let mut letters = rest[1..].char_indices();
                let mut end = rest.len();
                while let Some((at, letter)) = letters.next() {
                    match letter {
                        '"' => {
                            end = 1 + at + 1;
                            break;
                        }
                        '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
                        _ => text.push(letter),
                    }
                }
                rest = &rest[end..];
                pieces.push(Piece::Text(text));
            }
            '\\' if rest[1..].starts_with('"') => {
                rest = &rest[2..];
                pieces.push(Piece::Text("\"".to_string()));
            }
            letter if letter.is_alphanumeric() => {
                rest = &rest[letter.len_utf8()..];
                pieces.push(Piece::Text(letter.to_string()));
            }
            sign => {
                rest = &rest[sign.len_utf8()..];
                pieces.push(Piece::Sign(sign));
            }
        }
    }
    pieces
}

fn case_of(word: &str) -> Case {
    let mut letters = word.chars().filter(|letter| letter.is_alphabetic());
    match (letters.next().is_some_and(char::is_uppercase), letters.next().is_some_and(char::is_uppercase)) {
        (false, _) => Case::Lower,
        (true, false) if word.chars().filter(|letter| letter.is_alphabetic()).count() > 1 => Case::Title,
        (true, _) => Case::Upper,
    }
}
