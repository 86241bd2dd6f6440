//! Client of HiveServer2 without SASL, as for Spark's Thrift server: one session, sequential statements,
//! columnar results.
//!
//! Cancellation: as for `wire`: a connection with a pending answer must be dropped.
//! Source: `TCLIService.thrift` of Apache Hive (the numbers of fields), protocol version 8.

use bytes::{Buf, BytesMut};
use harrier_thrift::{DecodeError, DecodeLimits, Message, ThriftValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::systems::Target;
use super::wire::{AnswerSize, ClientError};
use crate::answers::Rows;

/// `HIVE_CLI_SERVICE_PROTOCOL_V8`: columnar results.
const PROTOCOL: i32 = 7;

/// Rows per fetch request.
const ROWS_AT_A_TIME: i64 = 10_000;

const FETCH_NEXT: i32 = 0;

/// Of an answer: rows of a fetch request.
const LIMITS: DecodeLimits = DecodeLimits { bytes: 1 << 30, values: 1 << 26 };

/// `SUCCESS_STATUS` and `SUCCESS_WITH_INFO_STATUS`.
const SUCCESSES: [i64; 2] = [0, 1];

/// One connection with its session.
pub struct HiveClient {
    stream: TcpStream,
    input: BytesMut,
    session: ThriftValue,
    sequence: i32,
}

impl HiveClient {
    pub async fn connect(target: &Target) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(("127.0.0.1", target.port)).await.map_err(ClientError::unusable)?;
        stream.set_nodelay(true).map_err(ClientError::unusable)?;
        let mut client =
            Self { stream, input: BytesMut::new(), session: ThriftValue::Struct(vec![]), sequence: 0 };
        let request =
            ThriftValue::Struct(vec![(1, ThriftValue::I32(PROTOCOL)), (2, ThriftValue::text(&target.user))]);
        let (opened, _) = client.call("OpenSession", request).await?;
        client.session =
            opened.field(3).cloned().ok_or_else(|| ClientError::unusable("there is no session"))?;
        Ok(client)
    }

    /// Runs a statement and fetches all its rows.
    pub async fn query(&mut self, sql: &str, mut keep: Option<&mut Rows>) -> Result<AnswerSize, ClientError> {
        let request = ThriftValue::Struct(vec![(1, self.session.clone()), (2, ThriftValue::text(sql))]);
        let (executed, mut bytes) = self.call("ExecuteStatement", request).await?;
        let operation =
            executed.field(2).cloned().ok_or_else(|| ClientError::unusable("there is no operation"))?;
        let mut rows = 0;
        loop {
            let request = ThriftValue::Struct(vec![
                (1, operation.clone()),
                (2, ThriftValue::I32(FETCH_NEXT)),
                (3, ThriftValue::I64(ROWS_AT_A_TIME)),
            ]);
            let (fetched, length) = self.call("FetchResults", request).await?;
            bytes += length;
            let columns = fetched.field(3).and_then(|set| set.field(3)).map_or(&[][..], ThriftValue::items);
            let count = columns.first().map_or(0, rows_of);
            if let Some(keep) = keep.as_deref_mut() {
                let values: Vec<_> = columns.iter().map(texts).collect();
                keep.extend((0..count).map(|row| values.iter().map(|column| column[row].clone()).collect()));
            }
            rows += count as u64;
            if (count as i64) < ROWS_AT_A_TIME {
                break;
            }
        }
        let (_, length) = self.call("CloseOperation", ThriftValue::Struct(vec![(1, operation)])).await?;
        Ok(AnswerSize { rows, bytes: (bytes + length) as u64 })
    }

    /// Calls a method; returns its result and the bytes received. Errors: its status is not a success.
    async fn call(
        &mut self,
        method: &str,
        request: ThriftValue,
    ) -> Result<(ThriftValue, usize), ClientError> {
        self.sequence += 1;
        let mut out = BytesMut::new();
        Message::call(method, self.sequence, request).encode(&mut out);
        self.stream.write_all(&out).await.map_err(ClientError::unusable)?;
        let (message, length) = loop {
            let needed = match Message::decode(&self.input, LIMITS) {
                Ok(read) => break read,
                Err(DecodeError::Incomplete(needed)) => needed,
                Err(_) => return Err(ClientError::unusable("the server does not speak Thrift")),
            };
            self.input.reserve(64 << 10);
            while self.input.len() < needed {
                if self.stream.read_buf(&mut self.input).await.map_err(ClientError::unusable)? == 0 {
                    return Err(ClientError::unusable("the server has closed the connection"));
                }
            }
        };
        self.input.advance(length);
        let result = message
            .result()
            .cloned()
            .ok_or_else(|| ClientError::unusable(format!("{method} did not return")))?;
        let status = result.field(1).cloned().unwrap_or(ThriftValue::Struct(vec![]));
        if status.field(1).and_then(ThriftValue::integer).is_some_and(|code| SUCCESSES.contains(&code)) {
            return Ok((result, length));
        }
        let text = |number| status.field(number).and_then(ThriftValue::string).unwrap_or_default();
        Err(ClientError::Statement { sqlstate: text(3), message: text(5) })
    }
}

/// Returns the only field of a column's union: values and nulls.
fn inner(column: &ThriftValue) -> Option<&ThriftValue> {
    match column {
        ThriftValue::Struct(fields) => fields.first().map(|(_, value)| value),
        _ => None,
    }
}

fn values(column: &ThriftValue) -> &[ThriftValue] {
    inner(column).and_then(|column| column.field(1)).map_or(&[], ThriftValue::items)
}

fn rows_of(column: &ThriftValue) -> usize {
    values(column).len()
}

fn texts(column: &ThriftValue) -> Vec<Option<String>> {
    let nulls = match inner(column).and_then(|column| column.field(2)) {
        Some(ThriftValue::Binary(bits)) => &bits[..],
        _ => &[],
    };
    let is_null = |row: usize| nulls.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
    let text = |value: &ThriftValue| match value {
        ThriftValue::Bool(value) => value.to_string(),
        ThriftValue::Byte(value) => value.to_string(),
        ThriftValue::I16(value) => value.to_string(),
        ThriftValue::I32(value) => value.to_string(),
        ThriftValue::I64(value) => value.to_string(),
        ThriftValue::Double(value) => value.to_string(),
        other => other.string().unwrap_or_default(),
    };
    let texts = values(column).iter().enumerate();
    texts.map(|(row, value)| (!is_null(row)).then(|| text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_nulls() {
        let column = ThriftValue::Struct(vec![(
            5,
            ThriftValue::Struct(vec![
                (1, ThriftValue::List(vec![ThriftValue::I64(4), ThriftValue::I64(0), ThriftValue::I64(6)])),
                (2, ThriftValue::Binary(vec![0b010].into())),
            ]),
        )]);
        assert_eq!(rows_of(&column), 3);
        assert_eq!(texts(&column), [Some("4".to_owned()), None, Some("6".to_owned())]);
    }
}
