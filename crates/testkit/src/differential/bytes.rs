//! Expressions of BYTEA.

use super::maker::Maker;
use super::scope::{Kind, Scope};

pub(super) const BYTES: &[&str] =
    &[r"'\x61'::bytea", r"'\x00ff'::bytea", "''::bytea", r"'\x6162'::bytea", r"'\xdeadbeef'::bytea"];

impl Maker<'_> {
    pub(super) fn bytes_operation(&mut self, depth: usize, scope: &Scope) -> String {
        match self.choices.choose(4) {
            0 => format!("convert_to({}, 'UTF8')", self.expr(Kind::Text, depth, scope)),
            1 => format!("decode(encode({}, 'hex'), 'hex')", self.expr(Kind::Bytes, depth, scope)),
            2 => format!("({})::bytea", self.expr(Kind::Text, depth, scope)),
            _ => self.atom(Kind::Bytes, scope),
        }
    }

    pub(super) fn length_of_bytes(&mut self, depth: usize, scope: &Scope) -> String {
        let function = self.choices.one_of(&["length", "octet_length"]);
        format!("{function}({})", self.expr(Kind::Bytes, depth, scope))
    }

    pub(super) fn text_of_bytes(&mut self, depth: usize, scope: &Scope) -> String {
        let bytes = self.expr(Kind::Bytes, depth, scope);
        let form = self.choices.one_of(&["hex", "base64"]);
        format!("encode({bytes}, '{form}')")
    }
}
