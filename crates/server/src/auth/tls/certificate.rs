//! What is read out of certificates (X.509, RFC 5280): the hash they are signed with, and the common names of whom they are of.
//!
//! TLS has parsed and checked them before; what is odd all the same gives `None`.

use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::oid_registry::{
    OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
    OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    Oid,
};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Version};

/// A hash for channel binding (RFC 5929: MD5 and SHA-1 stand for SHA-256).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

const HASHES: [(Oid<'static>, Hash); 8] = [
    (OID_PKCS1_MD5WITHRSAENC, Hash::Sha256),
    (OID_PKCS1_SHA1WITHRSA, Hash::Sha256),
    (OID_PKCS1_SHA256WITHRSA, Hash::Sha256),
    (OID_PKCS1_SHA384WITHRSA, Hash::Sha384),
    (OID_PKCS1_SHA512WITHRSA, Hash::Sha512),
    (OID_SIG_ECDSA_WITH_SHA256, Hash::Sha256),
    (OID_SIG_ECDSA_WITH_SHA384, Hash::Sha384),
    (OID_SIG_ECDSA_WITH_SHA512, Hash::Sha512),
];

fn parsed(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    parse_x509_certificate(certificate).ok().map(|(_, certificate)| certificate)
}

/// `None` for signatures without one hash, such as Ed25519, and for RSA-PSS, where clients differ.
pub fn signature_algorithm(certificate: &[u8]) -> Option<Hash> {
    let algorithm = parsed(certificate)?.signature_algorithm.algorithm;
    HASHES.iter().find(|(oid, _)| *oid == algorithm).map(|(_, hash)| *hash)
}

/// Whether it is of X.509's first version, which has no extensions and which TLS libraries do not take any more.
pub fn is_first_version(certificate: &[u8]) -> bool {
    parsed(certificate).is_some_and(|certificate| certificate.version == X509Version::V1)
}

/// All common names of the subject.
pub fn common_names(certificate: &[u8]) -> Option<Vec<String>> {
    parsed(certificate)?.subject().iter_common_name().map(text).collect()
}

fn text(name: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = name.attr_value();
    let text = match value.tag() {
        // Two bytes a character.
        Tag::BmpString => {
            let (pairs, rest) = value.data.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())?
        }
        _ => name.as_str().ok()?.to_string(),
    };
    // Some would see another name than others.
    (!text.contains('\0')).then_some(text)
}
