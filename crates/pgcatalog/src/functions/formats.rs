//! `format`, as PostgreSQL's chapter "String Functions and Operators" describes it.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::common::exec_err;
use datafusion::error::Result;

use crate::catalog::quote_identifier;
use crate::functions::call::{Value, text};

/// A format specifier: `%[position][flags][width]type`.
#[derive(Default)]
struct Specifier {
    /// The argument's position, counted from 1; the next one if missing.
    position: Option<usize>,
    /// The width in characters.
    width: Width,
    is_left: bool,
}

#[derive(Default)]
enum Width {
    #[default]
    None,
    Is(i32),
    /// Taken from the argument at this position, counted from 1.
    At(usize),
    /// Taken from the next argument.
    Next,
}

/// `format` with `%s`, `%I`, `%L` and `%%`; the first value is the format, the others are its arguments.
///
/// Errors: the format is malformed, or has more specifiers than arguments (22023); a width is not a number
/// (22P02); a number is out of range (22003); NULL as an identifier (22004).
pub(super) fn format_values(values: &[Value]) -> Result<Value> {
    let Some(Value::Text(format)) = values.first() else { return Ok(Value::Null) };
    let (mut written, mut letters, mut next) = (String::new(), format.chars().peekable(), 1);
    while let Some(letter) = letters.next() {
        if letter != '%' {
            written.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            written.push('%');
            continue;
        }
        let mut specifier = specifier(&mut letters)?;
        let Some(kind) = letters.next() else { return exec_err!("unterminated format() type specifier") };
        if !matches!(kind, 's' | 'I' | 'L') {
            return exec_err!("unrecognized format() type specifier \"{kind}\"");
        }
        let mut argument = |position: Option<usize>| {
            let position = position.unwrap_or(next);
            next = position + 1;
            match values.get(position) {
                Some(value) => Ok(value),
                None => exec_err!("too few arguments for format()"),
            }
        };
        let width = match specifier.width {
            Width::None => 0,
            Width::Is(width) => width,
            Width::At(position) => width(argument(Some(position))?)?,
            Width::Next => width(argument(None)?)?,
        };
        specifier.is_left |= width < 0;
        let shown = match (kind, argument(specifier.position)?) {
            ('I', Value::Text(name)) => quote_identifier(name),
            ('I', _) => return exec_err!("null values cannot be formatted as an SQL identifier"),
            ('L', Value::Text(literal)) => quote_literal(literal),
            ('L', _) => "NULL".to_string(),
            (_, value) => text(value).to_string(),
        };
        let missing = (width.unsigned_abs() as usize).saturating_sub(shown.chars().count());
        let spaces = std::iter::repeat_n(' ', missing);
        match specifier.is_left {
            true => {
                written += &shown;
                written.extend(spaces);
            }
            false => {
                written.extend(spaces);
                written += &shown;
            }
        }
    }
    Ok(written.into())
}

/// Parses a specifier after its `%`.
fn specifier(letters: &mut Peekable<Chars<'_>>) -> Result<Specifier> {
    let mut specifier = Specifier::default();
    if let Some(number) = number(letters)? {
        if letters.next_if_eq(&'$').is_none() {
            specifier.width = Width::Is(number);
            return Ok(specifier);
        }
        specifier.position = Some(position(number)?);
    }
    while letters.next_if_eq(&'-').is_some() {
        specifier.is_left = true;
    }
    if letters.next_if_eq(&'*').is_none() {
        specifier.width = number(letters)?.map_or(Width::None, Width::Is);
        return Ok(specifier);
    }
    specifier.width = match number(letters)? {
        None => Width::Next,
        Some(number) if letters.next_if_eq(&'$').is_some() => Width::At(position(number)?),
        Some(_) => return exec_err!("width argument position must be ended by \"$\""),
    };
    Ok(specifier)
}

fn position(number: i32) -> Result<usize> {
    match usize::try_from(number) {
        Ok(0) | Err(_) => {
            exec_err!("format specifies argument 0, but arguments are numbered from 1")
        }
        Ok(position) => Ok(position),
    }
}

/// Parses a number.
fn number(letters: &mut Peekable<Chars<'_>>) -> Result<Option<i32>> {
    let mut number = None::<i32>;
    while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
        letters.next();
        let more = number.unwrap_or(0).checked_mul(10).and_then(|tens| tens.checked_add(digit as i32));
        number = match more {
            Some(_) => more,
            None => return exec_err!("number is out of range"),
        };
    }
    Ok(number)
}

/// The width from an argument; none if it is NULL.
fn width(value: &Value) -> Result<i32> {
    match (value, text(value).trim().parse::<i32>()) {
        (Value::Text(_), Ok(width)) if width > i32::MIN => Ok(width),
        (Value::Text(text), _) => exec_err!("invalid input syntax for type integer: \"{text}\""),
        _ => Ok(0),
    }
}

pub(super) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_string(),
        false => format!("'{quoted}'"),
    }
}
