//! DER reader for two parts of certificates: the signature's hash and the subject's common names.
//!
//! Certificates follow RFC 5280. TLS has parsed and verified them before; anything unexpected gives `None`.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// A hash for channel binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// `None` for signatures without one hash, such as Ed25519, and for RSA-PSS, where clients differ.
pub fn signature_algorithm(certificate: &[u8]) -> Option<Hash> {
    let mut certificate = Reader(Reader(certificate).expect(SEQUENCE)?);
    certificate.expect(SEQUENCE)?;
    let algorithm = Reader(certificate.expect(SEQUENCE)?).expect(OBJECT)?;
    if let Some(scheme) = algorithm.strip_prefix(RSA) {
        return match scheme {
            // MD5 and SHA-1 are replaced by SHA-256.
            [4 | 5 | 11] => Some(Hash::Sha256),
            [12] => Some(Hash::Sha384),
            [13] => Some(Hash::Sha512),
            _ => None,
        };
    }
    match algorithm.strip_prefix(ECDSA)? {
        [1] | [3, 2] => Some(Hash::Sha256),
        [3, 3] => Some(Hash::Sha384),
        [3, 4] => Some(Hash::Sha512),
        _ => None,
    }
}

/// Whether it is an X.509 version 1 certificate, which has no extensions and which TLS libraries reject.
pub fn is_first_version(certificate: &[u8]) -> bool {
    let signed =
        Reader(certificate).expect(SEQUENCE).and_then(|certificate| Reader(certificate).expect(SEQUENCE));
    signed.is_some_and(|signed| signed.first() == Some(&INTEGER))
}

/// All common names of the subject.
pub fn common_names(certificate: &[u8]) -> Option<Vec<String>> {
    let mut certificate = Reader(Reader(certificate).expect(SEQUENCE)?);
    let mut signed = Reader(certificate.expect(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.expect(VERSION)?;
    }
    signed.expect(INTEGER)?;
    // The algorithm, the issuer and the validity.
    for _ in 0..3 {
        signed.expect(SEQUENCE)?;
    }
    let mut subject = Reader(signed.expect(SEQUENCE)?);
    let mut names = Vec::new();
    while !subject.0.is_empty() {
        let mut attributes = Reader(subject.expect(SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Reader(attributes.expect(SEQUENCE)?);
            if attribute.expect(OBJECT)? == COMMON_NAME {
                let (tag, value) = attribute.next()?;
                names.push(text(tag, value)?);
            }
        }
    }
    Some(names)
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    let text = match tag {
        // UTF8String, PrintableString, IA5String.
        0x0c | 0x13 | 0x16 => std::str::from_utf8(value).ok()?.to_string(),
        // BMPString: two bytes per character.
        0x1e => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())?
        }
        _ => return None,
    };
    // Parsers would disagree about the name.
    (!text.contains('\0')).then_some(text)
}

/// A sequence of elements, each a tag, a length and a value.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        // Tags of more than one byte do not occur here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| value)
    }
}
