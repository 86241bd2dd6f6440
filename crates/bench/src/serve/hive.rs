//! Client of HiveServer2 without SASL, as for Spark's Thrift server: one session, sequential statements,
//! columnar results.
//!
//! Cancellation: as for `wire`: a connection with a pending answer must be dropped.
//! Source: `TCLIService.thrift` of Apache Hive (the numbers of fields), protocol version 8.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::systems::Target;
use super::thrift::{DecodeError, Value, call, reply};
use super::wire::{AnswerSize, ClientError};
use crate::answers::Rows;

/// `HIVE_CLI_SERVICE_PROTOCOL_V8`: columnar results.
const PROTOCOL: i32 = 7;

/// Rows per fetch request.
const ROWS_AT_A_TIME: i64 = 10_000;

const FETCH_NEXT: i32 = 0;

/// `SUCCESS_STATUS` and `SUCCESS_WITH_INFO_STATUS`.
const SUCCESSES: [i32; 2] = [0, 1];

/// One connection with its session.
pub struct HiveClient {
    stream: TcpStream,
    input: BytesMut,
    session: Value,
    sequence: i32,
}

impl HiveClient {
    pub async fn connect(target: &Target) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(("127.0.0.1", target.port)).await.map_err(ClientError::unusable)?;
        stream.set_nodelay(true).map_err(ClientError::unusable)?;
        let mut client = Self { stream, input: BytesMut::new(), session: Value::Struct(vec![]), sequence: 0 };
        let request = Value::Struct(vec![(1, Value::I32(PROTOCOL)), (2, Value::text(&target.user))]);
        let (opened, _) = client.call("OpenSession", request).await?;
        client.session =
            opened.field(3).cloned().ok_or_else(|| ClientError::unusable("there is no session"))?;
        Ok(client)
    }

    /// Runs a statement and fetches all its rows.
    pub async fn query(&mut self, sql: &str, mut keep: Option<&mut Rows>) -> Result<AnswerSize, ClientError> {
        let request = Value::Struct(vec![(1, self.session.clone()), (2, Value::text(sql))]);
        let (executed, mut bytes) = self.call("ExecuteStatement", request).await?;
        let operation =
            executed.field(2).cloned().ok_or_else(|| ClientError::unusable("there is no operation"))?;
        let mut rows = 0;
        loop {
            let request = Value::Struct(vec![
                (1, operation.clone()),
                (2, Value::I32(FETCH_NEXT)),
                (3, Value::I64(ROWS_AT_A_TIME)),
            ]);
            let (fetched, length) = self.call("FetchResults", request).await?;
            bytes += length;
            let columns = match fetched.field(3).and_then(|set| set.field(3)) {
                Some(Value::List(columns)) => columns.as_slice(),
                _ => &[],
            };
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
        let (_, length) = self.call("CloseOperation", Value::Struct(vec![(1, operation)])).await?;
        Ok(AnswerSize { rows, bytes: (bytes + length) as u64 })
    }

    /// Calls a method; returns its result and the bytes received. Errors: its status is not a success.
    async fn call(&mut self, method: &str, request: Value) -> Result<(Value, usize), ClientError> {
        self.sequence += 1;
        let mut out = BytesMut::new();
        call(method, self.sequence, request, &mut out);
        self.stream.write_all(&out).await.map_err(ClientError::unusable)?;
        let (value, length) = loop {
            match reply(&self.input) {
                Ok(read) => break read,
                Err(DecodeError::Invalid) => {
                    return Err(ClientError::unusable("the server does not speak Thrift"));
                }
                Err(DecodeError::Incomplete) => {}
            }
            self.input.reserve(64 << 10);
            if self.stream.read_buf(&mut self.input).await.map_err(ClientError::unusable)? == 0 {
                return Err(ClientError::unusable("the server has closed the connection"));
            }
        };
        self.input.advance(length);
        let result = value
            .field(0)
            .cloned()
            .ok_or_else(|| ClientError::unusable(format!("{method} did not return")))?;
        let status = result.field(1).cloned().unwrap_or(Value::Struct(vec![]));
        if status.field(1).and_then(Value::i32).is_some_and(|code| SUCCESSES.contains(&code)) {
            return Ok((result, length));
        }
        let text = |number| status.field(number).and_then(Value::string).unwrap_or_default();
        Err(ClientError::Statement { sqlstate: text(3), message: text(5) })
    }
}

/// Returns the only field of a column's union: values and nulls.
fn inner(column: &Value) -> Option<&Value> {
    match column {
        Value::Struct(fields) => fields.first().map(|(_, value)| value),
        _ => None,
    }
}

fn values(column: &Value) -> &[Value] {
    match inner(column).and_then(|column| column.field(1)) {
        Some(Value::List(values)) => values,
        _ => &[],
    }
}

fn rows_of(column: &Value) -> usize {
    values(column).len()
}

fn texts(column: &Value) -> Vec<Option<String>> {
    let nulls = match inner(column).and_then(|column| column.field(2)) {
        Some(Value::Bytes(bits)) => bits.as_slice(),
        _ => &[],
    };
    let is_null = |row: usize| nulls.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
    let text = |value: &Value| match value {
        Value::Bool(value) => value.to_string(),
        Value::Byte(value) => value.to_string(),
        Value::I16(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
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
        let column = Value::Struct(vec![(
            5,
            Value::Struct(vec![
                (1, Value::List(vec![Value::I64(4), Value::I64(0), Value::I64(6)])),
                (2, Value::Bytes(vec![0b010])),
            ]),
        )]);
        assert_eq!(rows_of(&column), 3);
        assert_eq!(texts(&column), [Some("4".to_owned()), None, Some("6".to_owned())]);
    }
}
