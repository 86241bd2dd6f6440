//! The copy of a catalog as a file: one JSON value a line, compressed by Zstandard.
//!
//! ```text
//!   {"table": "ducklake_table", "columns": [["table_id", "BIGINT"], …]}
//!   [1, "text", null, {"hex": "00FF"}]
//! ```

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use harrier_catalog::files::Cell;
use harrier_catalog::{CopiedTable, Line};
use serde_json::{Map, Value, json};

/// Zstandard level: as fast as rows come out of a database.
const LEVEL: i32 = 3;

pub(crate) struct CatalogWriter<W: Write>(BufWriter<zstd::Encoder<'static, W>>);

impl<W: Write> CatalogWriter<W> {
    pub fn new(to: W) -> io::Result<Self> {
        Ok(Self(BufWriter::new(zstd::Encoder::new(to, LEVEL)?)))
    }

    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, &encode(line))?;
        self.0.write_all(b"\n")
    }

    /// Flushes and ends the stream.
    pub fn finish(self) -> io::Result<W> {
        self.0.into_inner().map_err(|error| error.into_error())?.finish()
    }
}

fn encode(line: &Line) -> Value {
    let cell = |cell: &Cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(value) => json!(value),
        Cell::Text(value) => json!(value),
        Cell::Blob(bytes) => json!({"hex": crate::manifest::hex(bytes)}),
    };
    match line {
        Line::Table(table) => json!({"table": table.name, "columns": table.columns}),
        Line::Row(cells) => Value::Array(cells.iter().map(cell).collect()),
    }
}

/// Decodes a stream written by [`CatalogWriter`].
pub(crate) fn read_lines(from: impl Read) -> io::Result<impl Iterator<Item = io::Result<Line>>> {
    let lines = BufReader::new(zstd::Decoder::new(from)?).lines();
    Ok(lines.map(|line| {
        line.and_then(|line| decode(&line).ok_or_else(|| io::Error::other("a line of it makes no sense")))
    }))
}

fn decode(line: &str) -> Option<Line> {
    match serde_json::from_str(line).ok()? {
        Value::Object(table) => {
            let columns = serde_json::from_value(table.get("columns")?.clone()).ok()?;
            let name = table.get("table")?.as_str()?.to_string();
            Some(Line::Table(CopiedTable { name, columns }))
        }
        Value::Array(cells) => cells.into_iter().map(cell).collect::<Option<_>>().map(Line::Row),
        _ => None,
    }
}

fn cell(value: Value) -> Option<Cell> {
    Some(match value {
        Value::Null => Cell::Null,
        Value::Number(number) => Cell::Integer(number.as_i64()?),
        Value::String(text) => Cell::Text(text),
        Value::Object(bytes) => Cell::Blob(from_hex(&bytes)?),
        _ => return None,
    })
}

fn from_hex(bytes: &Map<String, Value>) -> Option<Vec<u8>> {
    let digits = bytes.get("hex")?.as_str()?.as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| u8::try_from(digit(pair[0])? * 16 + digit(*pair.get(1)?)?).ok();
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_lines_round_trip() {
        let columns = vec![("a \"b\"\n".to_string(), "BIGINT".to_string())];
        let lines = vec![
            Line::Table(CopiedTable { name: "t".to_string(), columns }),
            Line::Row(vec![
                Cell::Null,
                Cell::Integer(i64::MIN),
                Cell::Integer(i64::MAX),
                Cell::Text("β\0\n\\\"".to_string()),
                Cell::Blob(vec![0, 255, 16]),
                Cell::Blob(Vec::new()),
            ]),
            Line::Row(Vec::new()),
        ];
        let mut written = CatalogWriter::new(Vec::new()).unwrap();
        lines.iter().for_each(|line| written.write(line).unwrap());
        let bytes = written.finish().unwrap();
        assert_eq!(read_lines(&bytes[..]).unwrap().collect::<io::Result<Vec<_>>>().unwrap(), lines);
        let cut =
            read_lines(&bytes[..bytes.len() / 2]).and_then(|lines| lines.collect::<io::Result<Vec<_>>>());
        assert!(cut.is_err(), "{cut:?}");
        for wrong in [
            "",
            "1",
            "{}",
            "[1.5]",
            "[true]",
            "[{}]",
            "[{\"hex\": \"0\"}]",
            "[{\"hex\": \"xx\"}]",
            "[99999999999999999999]",
        ] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
