//! What certificates say: the hash of their signature, and the subject's common names.
//!
//! Certificates follow RFC 5280. TLS has parsed and verified them before; anything unexpected gives `None`.

use der::asn1::AnyRef;
use der::{Decode, Reader, SliceReader, Tag, TagNumber, Tagged};

const VERSION: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };

// Object identifiers as they are encoded.
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
    let algorithm = elements(parts(certificate)?.get(1)?, Tag::Sequence)?;
    let algorithm = value(algorithm.first()?, Tag::ObjectIdentifier)?;
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
    let signed = parts(certificate).and_then(|parts| elements(parts.first()?, Tag::Sequence));
    signed.is_some_and(|signed| signed.first().is_some_and(|first| first.tag() == Tag::Integer))
}

/// All common names of the subject.
pub fn common_names(certificate: &[u8]) -> Option<Vec<String>> {
    let signed = elements(parts(certificate)?.first()?, Tag::Sequence)?;
    let signed = match signed.as_slice() {
        [version, rest @ ..] if version.tag() == VERSION => rest,
        all => all,
    };
    let [_number, _algorithm, _issuer, _validity, subject, ..] = signed else { return None };
    let mut names = Vec::new();
    for attributes in elements(subject, Tag::Sequence)? {
        for attribute in elements(&attributes, Tag::Set)? {
            let attribute = elements(&attribute, Tag::Sequence)?;
            let [kind, name, ..] = attribute.as_slice() else { return None };
            if value(kind, Tag::ObjectIdentifier)? == COMMON_NAME {
                names.push(text(name)?);
            }
        }
    }
    Some(names)
}

fn text(name: &AnyRef<'_>) -> Option<String> {
    let text = match name.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            std::str::from_utf8(name.value()).ok()?.to_string()
        }
        // Two bytes per character.
        Tag::BmpString => {
            let (pairs, rest) = name.value().as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())?
        }
        _ => return None,
    };
    // Parsers would disagree about the name.
    (!text.contains('\0')).then_some(text)
}

/// What is signed, the algorithm, and the signature.
fn parts(certificate: &[u8]) -> Option<Vec<AnyRef<'_>>> {
    elements(&AnyRef::from_der(certificate).ok()?, Tag::Sequence)
}

fn value<'a>(element: &AnyRef<'a>, tag: Tag) -> Option<&'a [u8]> {
    (element.tag() == tag).then(|| element.value())
}

/// What is in an element.
fn elements<'a>(outer: &AnyRef<'a>, tag: Tag) -> Option<Vec<AnyRef<'a>>> {
    let mut reader = SliceReader::new(value(outer, tag)?).ok()?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(found)
}
