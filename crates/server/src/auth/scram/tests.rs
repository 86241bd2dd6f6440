//! Tests of SCRAM: the RFC's example, a client implemented here, and misbehaving clients.

use super::*;

const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const OWN_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn pencil() -> ScramVerifier {
    ScramVerifier::hash_with_salt("pencil", BASE64.decode(SALT).unwrap(), ITERATIONS)
}

fn mock() -> Mock {
    Mock::new(ITERATIONS).unwrap()
}

fn scram(binding: Option<&[u8]>) -> Scram {
    Scram::new("user", Some(pencil()), &mock(), binding)
}

#[test]
fn the_example_of_rfc_7677() {
    let (server_message, challenge) =
        scram(None).challenge_with(MECHANISM, CLIENT_FIRST.as_bytes(), OWN_NONCE).unwrap();
    assert_eq!(server_message, SERVER_FIRST);
    assert_eq!(challenge.verify(CLIENT_FINAL.as_bytes()).unwrap(), SERVER_FINAL);
}

/// The final message of a client with a password.
fn answer(password: &str, flag: &str, binding: &[u8], first_bare: &str, server_first: &str) -> String {
    let field = |name: &str| server_first.split(',').find_map(|one| one.strip_prefix(name)).unwrap();
    let salt = BASE64.decode(field("s=")).unwrap();
    let iterations: NonZeroU32 = field("i=").parse().unwrap();
    let password = stringprep::saslprep(password).unwrap();
    let mut salted = [0; KEY_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
    let client_key = mac(&salted, b"Client Key");
    let channel = BASE64.encode([format!("{flag},,").as_bytes(), binding].concat());
    let without_proof = format!("c={channel},r={}", field("r="));
    let server_message = format!("{first_bare},{server_first},{without_proof}");
    let signature = mac(&sha256(&client_key), server_message.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
    format!("{without_proof},p={}", BASE64.encode(proof))
}

/// Runs a whole authentication; returns the SQLSTATE of its error, or an empty text.
fn check(scram: Scram, mechanism: &str, flag: &str, binding: &[u8], password: &str) -> String {
    let first_bare = "n=,r=abc";
    let first = format!("{flag},,{first_bare}");
    let outcome = scram.challenge(mechanism, first.as_bytes()).and_then(|(server_first, challenge)| {
        challenge.verify(answer(password, flag, binding, first_bare, &server_first).as_bytes())
    });
    outcome.err().map_or(String::new(), |failure| failure.sqlstate.to_string())
}

#[test]
fn password_and_channel_binding_must_match() {
    let bound = "p=tls-server-end-point";
    for (server, mechanism, flag, client, password, expected) in [
        (None, MECHANISM, "n", "", "pencil", ""),
        (None, MECHANISM, "y", "", "pencil", ""),
        (None, MECHANISM, "n", "", "Pencil", "28P01"),
        (None, MECHANISM, "n", "x", "pencil", "28000"),
        (None, MECHANISM_PLUS, bound, "hash", "pencil", "08P01"),
        (None, "PLAIN", "n", "", "pencil", "08P01"),
        (Some("hash"), MECHANISM_PLUS, bound, "hash", "pencil", ""),
        (Some("hash"), MECHANISM_PLUS, bound, "hash", "other", "28P01"),
        (Some("hash"), MECHANISM_PLUS, bound, "another", "pencil", "28000"),
        (Some("hash"), MECHANISM_PLUS, bound, "", "pencil", "28000"),
        (Some("hash"), MECHANISM_PLUS, "p=tls-unique", "hash", "pencil", "08P01"),
        (Some("hash"), MECHANISM_PLUS, "n", "", "pencil", "08P01"),
        (Some("hash"), MECHANISM, "n", "", "pencil", ""),
        (Some("hash"), MECHANISM, "y", "", "pencil", "28000"),
        (Some("hash"), MECHANISM, bound, "hash", "pencil", "08P01"),
    ] {
        let scram = scram(server.map(str::as_bytes));
        let sqlstate = check(scram, mechanism, flag, client.as_bytes(), password);
        assert_eq!(sqlstate, expected, "{server:?} {mechanism} {flag} {client} {password}");
    }
    assert_eq!(scram(None).mechanisms(), [MECHANISM]);
    assert_eq!(scram(Some(b"hash")).mechanisms(), [MECHANISM_PLUS, MECHANISM]);
}

#[test]
fn unknown_roles_are_indistinguishable() {
    let mock = mock();
    let first = |user: &str, verifier| {
        let scram = Scram::new(user, verifier, &mock, None);
        scram.challenge_with(MECHANISM, b"n,,n=,r=abc", "def").unwrap().0
    };
    assert_eq!(first("anna", None), first("anna", None));
    assert_ne!(first("anna", None), first("bert", None));
    assert_eq!(first("anna", None).len(), first("anna", Some(pencil())).len());
    assert_eq!(check(Scram::new("anna", None, &mock, None), MECHANISM, "n", b"", "pencil"), "28P01");
    // Even the key of the mock verifier is rejected.
    let scram = Scram { is_mock: true, ..scram(None) };
    assert_eq!(check(scram, MECHANISM, "n", b"", "pencil"), "28P01");
}

#[test]
fn malformed_messages_are_refused() {
    for (first, expected) in [
        ("", "08P01"),
        ("n", "08P01"),
        ("n,,", "08P01"),
        ("n,,n=user", "08P01"),
        ("n,,n=user,r=", "08P01"),
        ("n,,n=user,r=a b", "08P01"),
        ("n,,r=abc", "08P01"),
        ("x,,n=user,r=abc", "08P01"),
        ("n,a=root,n=user,r=abc", "0A000"),
        ("n,,m=more,n=user,r=abc", "0A000"),
        ("n,,n=user,r=a\0c", "08P01"),
    ] {
        let failure = scram(None).challenge(MECHANISM, first.as_bytes()).unwrap_err();
        assert_eq!(failure.sqlstate, expected, "{first}");
    }
    let long = format!("n,,n=user,r={}", "a".repeat(MESSAGE_BYTES_MAX));
    assert!(scram(None).challenge(MECHANISM, long.as_bytes()).is_err());
    assert!(scram(None).challenge(MECHANISM, b"n,,n=\xff,r=abc").is_err());
    let nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    for (last, expected) in [
        (String::new(), "08P01"),
        (format!("c=biws,{nonce}"), "08P01"),
        (format!("c=biws,{nonce},p="), "08P01"),
        (format!("c=biws,{nonce},p=YWJj"), "08P01"),
        (format!("c=biws,{nonce},p=?"), "08P01"),
        (CLIENT_FINAL.replace("biws", "eSws"), "28000"),
        (CLIENT_FINAL.replace("c=biws", "c=?"), "08P01"),
        (CLIENT_FINAL.replace("c=biws,", ""), "08P01"),
        (CLIENT_FINAL.replace("$k0", "$k1"), "08P01"),
        (CLIENT_FINAL.replace(",p=", ",x=more,p="), "28P01"),
        (CLIENT_FINAL.replace("p=d", "p=e"), "28P01"),
    ] {
        let (_, challenge) =
            scram(None).challenge_with(MECHANISM, CLIENT_FIRST.as_bytes(), OWN_NONCE).unwrap();
        let failure = challenge.verify(last.as_bytes()).unwrap_err();
        assert_eq!(failure.sqlstate, expected, "{last}");
    }
}

#[test]
fn verifiers_are_compatible_with_postgresql() {
    let verifier = ScramVerifier::of_password("pencil", NonZeroU32::new(5000).unwrap()).unwrap();
    let text = verifier.to_text();
    assert!(text.starts_with("SCRAM-SHA-256$5000:"), "{text}");
    assert_eq!(ScramVerifier::parse(&text).unwrap(), verifier);
    assert_ne!(ScramVerifier::of_password("pencil", ITERATIONS).unwrap(), verifier);
    for (password, is_right) in [("pencil", true), ("Pencil", false), ("", false), ("pencil ", false)] {
        assert_eq!(verifier.check(password), is_right, "{password}");
    }
    assert!(!mock().verifier("anna").check("pencil"));
    assert_eq!(ScramVerifier::of_password("", ITERATIONS).unwrap_err().sqlstate, "22023");
    // Equal after SASLprep: a soft hyphen is removed, and a fullwidth I is an I.
    assert!(ScramVerifier::of_password("I\u{ad}X", ITERATIONS).unwrap().check("\u{ff29}X"));
    // Prohibited characters are left unchanged.
    assert!(ScramVerifier::of_password("a\u{7}", ITERATIONS).unwrap().check("a\u{7}"));
    assert!(!format!("{verifier:?} {:?} {:?}", mock(), scram(Some(b"x"))).contains(&text[25..40]));
    for bad in [
        "",
        "pencil",
        "SCRAM-SHA-256$",
        "SCRAM-SHA-256$0:YWJj$YWJj:YWJj",
        "SCRAM-SHA-256$4096:$YWJj:YWJj",
        "SCRAM-SHA-256$4096:YWJj$YWJj:YWJj",
        "SCRAM-SHA-256$-1:YWJj$YWJj:YWJj",
    ] {
        assert!(ScramVerifier::parse(bad).is_none(), "{bad}");
    }
}
