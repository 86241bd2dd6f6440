//! User and password in the header `Authorization: Basic` (RFC 7617).

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Padding is optional: Go clients omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the header's value; `None` for another scheme, and for what is malformed.
pub(crate) fn credentials(value: &str) -> Option<(String, String)> {
    let (scheme, encoded) = value.split_once(' ')?;
    let decoded = BASE64.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_string(), password.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_read_with_and_without_padding() {
        let ada = Some(("ada".to_string(), "a:b".to_string()));
        assert_eq!(credentials("Basic YWRhOmE6Yg=="), ada);
        assert_eq!(credentials("basic YWRhOmE6Yg"), ada);
        let aladdin = Some(("Aladdin".to_string(), "open sesame".to_string()));
        assert_eq!(credentials("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        for wrong in [
            "Bearer YWRhOmE6Yg",
            "Basic",
            "Basic !",
            "Basic YWRh",
            "Basic YWRhOmE6Yg===",
            "Basic a",
            "Basic //8=",
        ] {
            assert_eq!(credentials(wrong), None, "{wrong}");
        }
    }
}
