//! Formatting and parsing of numbers by a pattern.

use harrier_error::{SqlError, SqlState};

/// A pattern of numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Pattern {
    tokens: Vec<Token>,
    /// Digits before and after the point.
    before: usize,
    after: usize,
    /// V: the number is multiplied by this power of ten.
    shift: usize,
    is_short: bool,
    is_scientific: bool,
    is_roman: bool,
    sign: Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sign {
    /// A minus, or a blank, before the first digit.
    #[default]
    Plain,
    /// S at its position.
    Locale,
    /// MI and SG at their positions, also with PL.
    Own,
    /// PR: in `<` and `>`.
    Brackets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// 9, and 0 which is always shown.
    Digit {
        is_zero: bool,
    },
    Point,
    Comma,
    Shift,
    SignS,
    Minus,
    Plus,
    Either,
    /// TH, th.
    Ordinal(bool),
    Currency,
    Text(String),
}

/// Parses a pattern.
///
/// Errors: contradictory elements (42601).
pub(super) fn pattern(text: &str) -> Result<Pattern, SqlError> {
    let wrong = |message: &str| Err(SqlError::new(SqlState::SYNTAX_ERROR, message.to_string()));
    let mut pattern = Pattern::default();
    let mut rest = text;
    let (mut has_point, mut has_shift) = (false, false);
    while let Some(first) = rest.chars().next() {
        let begins =
            |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let (length, token) = match first {
            _ if begins("FM") => {
                pattern.is_short = true;
                (2, None)
            }
            _ if begins("PR") => {
                pattern.sign = Sign::Brackets;
                (2, None)
            }
            _ if begins("MI") => (2, Some(Token::Minus)),
            _ if begins("PL") => (2, Some(Token::Plus)),
            _ if begins("SG") => (2, Some(Token::Either)),
            _ if begins("RN") => {
                pattern.is_roman = true;
                (2, None)
            }
            _ if begins("TH") => (2, Some(Token::Ordinal(rest.starts_with("TH")))),
            _ if begins("EEEE") => {
                pattern.is_scientific = true;
                (4, None)
            }
            '9' | '0' => (1, Some(Token::Digit { is_zero: first == '0' })),
            '.' | 'D' | 'd' => (1, Some(Token::Point)),
            ',' | 'G' | 'g' => (1, Some(Token::Comma)),
            'V' | 'v' => (1, Some(Token::Shift)),
            'S' | 's' => (1, Some(Token::SignS)),
            'L' | 'l' => (1, Some(Token::Currency)),
            '"' => {
                let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
                (end, Some(Token::Text(rest[1..end].trim_end_matches('"').to_string())))
            }
            other => (other.len_utf8(), Some(Token::Text(other.to_string()))),
        };
        match &token {
            Some(Token::Digit { .. }) if has_shift => pattern.shift += 1,
            Some(Token::Digit { .. }) if has_point => pattern.after += 1,
            Some(Token::Digit { .. }) => pattern.before += 1,
            Some(Token::Point) if has_point => return wrong("multiple decimal points"),
            Some(Token::Point) if has_shift => return wrong("cannot use \"V\" and decimal point together"),
            Some(Token::Point) => has_point = true,
            Some(Token::Shift) => has_shift = true,
            Some(Token::SignS) => pattern.sign = Sign::Locale,
            Some(Token::Minus | Token::Either) if pattern.sign == Sign::Plain => {
                pattern.sign = Sign::Own;
            }
            _ => {}
        }
        pattern.tokens.extend(token);
        rest = &rest[length..];
    }
    Ok(pattern)
}

impl Pattern {
    /// Scale of the numbers parsed with it.
    pub(super) fn scale(&self) -> usize {
        self.after + self.shift
    }

    /// The number of fractional digits to which a number is rounded before it is written.
    pub(super) fn rounds_to(&self) -> usize {
        self.after
    }

    pub(super) fn shift(&self) -> usize {
        self.shift
    }

    pub(super) fn is_scientific(&self) -> bool {
        self.is_scientific
    }

    pub(super) fn is_roman(&self) -> bool {
        self.is_roman
    }

    /// Writes a number given by its digits: rounded, with as many fractional digits as the pattern has.
    pub(super) fn write(&self, is_negative: bool, whole: &str, fraction: &str, out: &mut String) {
        let whole = whole.trim_start_matches('0');
        let width = self.before + self.shift;
        let is_over = whole.len() > width;
        let is_zero = whole.is_empty() && fraction.bytes().all(|digit| digit == b'0');
        let is_negative = is_negative && !is_zero;
        // Start of the number, counted in digits before the point: its own first digit, or the first 0 of the
        // pattern.
        let places: Vec<bool> = self
            .tokens
            .iter()
            .take_while(|token| **token != Token::Point)
            .filter_map(|token| match token {
                Token::Digit { is_zero } => Some(*is_zero),
                _ => None,
            })
            .collect();
        let first_zero = places.iter().position(|is_zero| *is_zero).unwrap_or(width);
        let own_first = width.saturating_sub(whole.len());
        let mut begin = own_first.min(first_zero);
        let has_point = self.tokens.contains(&Token::Point);
        // Writes a single zero if there would be no digit otherwise.
        if begin == width && width > 0 && (!has_point || self.after == 0) {
            begin = width - 1;
        }
        let digit_at = |place: usize| match (is_over, place.checked_sub(own_first)) {
            (true, _) => b'#',
            (false, Some(at)) => whole.as_bytes().get(at).copied().unwrap_or(b'0'),
            (false, None) => b'0',
        };
        let sign = match (self.sign, is_negative) {
            (Sign::Plain, true) => "-",
            (Sign::Plain, false) if !self.is_short => " ",
            (Sign::Brackets, true) => "<",
            (Sign::Brackets, false) if !self.is_short => " ",
            (Sign::Locale, true) => "-",
            (Sign::Locale, false) => "+",
            _ => "",
        };
        // S at the end stays there; at the beginning it is moved before the first digit.
        let first_digit = self.tokens.iter().position(|token| matches!(token, Token::Digit { .. }));
        let is_behind = |at: usize| first_digit.is_some_and(|first| at > first);
        let mut is_signed = matches!(self.sign, Sign::Own)
            || self.tokens.iter().enumerate().any(|(at, token)| *token == Token::SignS && is_behind(at));
        let mut sign_if_due = |out: &mut String| {
            if !is_signed {
                out.push_str(sign);
                is_signed = true;
            }
        };
        let kept = match self.is_short {
            true => {
                let zeros = self.tokens.iter().skip_while(|token| **token != Token::Point);
                let last_zero = zeros
                    .filter(|token| matches!(token, Token::Digit { .. }))
                    .enumerate()
                    .filter(|(_, token)| matches!(token, Token::Digit { is_zero: true }))
                    .map(|(at, _)| at + 1)
                    .last()
                    .unwrap_or(0);
                fraction.trim_end_matches('0').len().max(last_zero)
            }
            false => fraction.len(),
        };
        let (mut place, mut decimal, mut is_behind_point) = (0, 0, false);
        for (at, token) in self.tokens.iter().enumerate() {
            match token {
                Token::Digit { .. } if is_behind_point => {
                    if decimal < kept {
                        let digit = fraction.as_bytes().get(decimal).copied().unwrap_or(b'0');
                        out.push(if is_over { '#' } else { char::from(digit) });
                    }
                    decimal += 1;
                }
                Token::Digit { .. } => {
                    if place >= begin || is_over {
                        sign_if_due(out);
                        out.push(char::from(digit_at(place)));
                    } else if !self.is_short {
                        out.push(' ');
                    }
                    place += 1;
                }
                Token::Point => {
                    sign_if_due(out);
                    if self.after > 0 || !self.is_short {
                        out.push('.');
                    }
                    is_behind_point = true;
                }
                Token::Comma => match place > begin || is_over {
                    true => out.push(','),
                    false if !self.is_short => out.push(' '),
                    false => {}
                },
                Token::SignS if is_behind(at) => out.push_str(if is_negative { "-" } else { "+" }),
                Token::Minus => match is_negative {
                    true => out.push('-'),
                    false if !self.is_short => out.push(' '),
                    false => {}
                },
                Token::Plus => match is_negative {
                    false => out.push('+'),
                    true if !self.is_short => out.push(' '),
                    true => {}
                },
                Token::Either => out.push(if is_negative { '-' } else { '+' }),
                Token::Ordinal(is_upper) if !is_negative && fraction.is_empty() => {
                    let suffix = ordinal(whole);
                    out.push_str(&if *is_upper { suffix.to_uppercase() } else { suffix.to_string() });
                }
                Token::Currency if !self.is_short => out.push(' '),
                Token::Text(text) => out.push_str(text),
                Token::Ordinal(_) | Token::Currency | Token::Shift | Token::SignS => {}
            }
        }
        if self.sign == Sign::Brackets {
            match is_negative {
                true => out.push('>'),
                false if !self.is_short => out.push(' '),
                false => {}
            }
        }
    }

    /// Parses a text into digits with at most [`Self::scale`] fractional ones.
    ///
    /// Errors: not a number (22P02).
    pub(super) fn parse(&self, text: &str) -> Result<String, SqlError> {
        let wrong = || {
            let message = format!("invalid input syntax for type numeric: \"{text}\"");
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        let (mut whole, mut fraction) = (String::new(), String::new());
        let mut is_negative = false;
        let mut is_behind = false;
        for letter in text.chars() {
            match letter {
                '-' | '<' => is_negative = true,
                '.' if self.after > 0 || self.tokens.contains(&Token::Point) => is_behind = true,
                '.' => break,
                digit if !digit.is_ascii_digit() => {}
                digit if is_behind && fraction.len() < self.after => fraction.push(digit),
                digit if !is_behind && whole.len() < self.before + self.shift => whole.push(digit),
                _ => {}
            }
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        if self.shift > 0 {
            let at = whole.len().saturating_sub(self.shift);
            fraction = format!("{:0>width$}", &whole[at..], width = self.shift);
            whole.truncate(at);
        }
        let sign = if is_negative { "-" } else { "" };
        let whole = if whole.is_empty() { "0" } else { &whole };
        Ok(match fraction.is_empty() {
            true => format!("{sign}{whole}"),
            false => format!("{sign}{whole}.{fraction}"),
        })
    }
}

fn ordinal(number: &str) -> &'static str {
    let mut digits = number.bytes().rev();
    match (digits.next(), digits.next()) {
        (_, Some(b'1')) => "th",
        (Some(b'1'), _) => "st",
        (Some(b'2'), _) => "nd",
        (Some(b'3'), _) => "rd",
        _ => "th",
    }
}

/// A number in Roman numerals, in a field of fifteen; overflow marks if out of range.
pub(super) fn roman(number: i64, is_short: bool) -> String {
    const DIGITS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..=3999).contains(&number) {
        return "#".repeat(15);
    }
    let (mut rest, mut text) = (number, String::new());
    for (value, digits) in DIGITS {
        while rest >= value {
            text.push_str(digits);
            rest -= value;
        }
    }
    if is_short { text } else { format!("{text:>15}") }
}

impl Pattern {
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }
}
