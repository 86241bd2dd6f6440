//! LDAP authentication against OpenLDAP's server, with psql and Flight SQL clients, including every login
//! that must be refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use harrier_servers::Ldap;

use crate::auth_support::{self, LoginResult, Rules, own_user};
use crate::test_server::{PATIENCE, TestServer};

/// The directory's entries. [`SECRETS`] lists the first words of their passwords.
const ENTRIES: &str = r"dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: cn=reader,dc=example,dc=org
objectClass: person
cn: reader
sn: reader
userPassword: lesewort

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: ann
cn: ann
sn: ann
userPassword: annwort, with 'quotes'

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: bob
sn: bob
userPassword: bobwort

dn: uid=o\2cdd,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: o,dd
cn: odd
sn: odd
userPassword: kommawort

dn: uid=st(a)r*,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: st(a)r*
cn: star
sn: star
userPassword: sternwort

dn: cn=one,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
cn: one
sn: twin
userPassword: zwillingswort

dn: cn=two,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
cn: two
sn: twin
userPassword: zwillingswort

dn: ou=hidden,dc=example,dc=org
objectClass: organizationalUnit
ou: hidden

dn: uid=carl,ou=hidden,dc=example,dc=org
objectClass: inetOrgPerson
uid: carl
cn: carl
sn: carl
userPassword: carlwort
";

const SECRETS: [&str; 7] =
    ["lesewort", "annwort", "bobwort", "kommawort", "sternwort", "zwillingswort", "carlwort"];

const ANN: &str = "annwort, with 'quotes'";

/// A server with roles that authenticates by LDAP, with an audit log and Flight SQL.
struct LdapServer {
    directory: Ldap,
    test_server: TestServer,
    rules: Rules,
}

impl LdapServer {
    fn start() -> Option<Self> {
        let directory = Ldap::start(ENTRIES)?;
        let folder = tempfile::tempdir().unwrap();
        let (rules, config) =
            Rules::write(folder.path(), &admin_rule(), "audit_log = \"audit\"\naudit_statements = \"all\"\n");
        let authority = directory.authority().display().to_string();
        let test_server = TestServer::start_with(
            folder,
            &["--launcher", "none", "--flight", "127.0.0.1:0", "--config", &config],
            &[("LDAPTLS_CACERT", &authority)],
        );
        let mut admin = auth_support::admin(&test_server);
        for role in ["ann", "\"o,dd\"", "\"st(a)r*\"", "\"*\"", "twin", "carl", "\"ann,ou=people\""] {
            admin.query(&format!("CREATE ROLE {role} LOGIN")).unwrap();
        }
        Some(Self { directory, test_server, rules })
    }

    /// Sets the LDAP rule for all users except the server's own; `options` are those of the rule.
    fn set_ldap_rule(&self, options: &str) {
        self.rules
            .set(&self.test_server, &format!("{}host all all 127.0.0.1/32 ldap {options}\n", admin_rule()));
    }

    fn psql(&self, role: &str, password: &str) -> LoginResult {
        auth_support::psql(&self.test_server, role, password, "")
    }

    fn assert_login(&self, role: &str, password: &str) {
        assert_eq!(self.psql(role, password), (true, role.to_string()), "{}", self.test_server.log());
    }

    fn assert_refused(&self, role: &str, password: &str) {
        let (logged_in, message) = self.psql(role, password);
        let expected = format!("LDAP authentication failed for user \"{role}\"");
        assert!(!logged_in && message.contains(&expected), "{role}: {message}");
    }
}

/// Rule by which the tests themselves log in.
fn admin_rule() -> String {
    format!("host all {} 127.0.0.1/32 peer\n", own_user())
}

const SEARCH: &str = "ldapbasedn=\"dc=example,dc=org\"";
const READER: &str = "ldapbinddn=\"cn=reader,dc=example,dc=org\" ldapbindpasswd=\"lesewort\"";

#[test]
fn ldap_passwords_log_in() {
    let Some(fixture) = LdapServer::start() else { return };
    let server = format!("ldapserver=127.0.0.1 ldapport={}", fixture.directory.port());
    let direct = format!("{server} ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"");
    let plain = format!("{server} {SEARCH}");

    // The DN of the entry is built from the role name.
    fixture.set_ldap_rule(&direct);
    fixture.assert_login("ann", ANN);
    fixture.assert_login("o,dd", "kommawort");
    for (role, password) in
        [("ann", "wrong"), ("ann", "bobwort"), ("nobody", "x"), ("carl", "carlwort"), ("ann,ou=people", ANN)]
    {
        fixture.assert_refused(role, password);
    }
    // Correct password, but no such role in the warehouse.
    let (logged_in, message) = fixture.psql("bob", "bobwort");
    assert!(!logged_in && message.contains("role \"bob\" does not exist"), "{message}");
    // LDAP accepts a bind with an empty password as anonymous.
    assert_eq!(empty_password(&fixture.test_server, "ann"), "28P01 empty password returned by client");

    // Searches for the entry with an anonymous bind.
    fixture.set_ldap_rule(&plain);
    fixture.assert_login("ann", ANN);
    fixture.assert_login("st(a)r*", "sternwort");
    for (role, password) in [("ann", "wrong"), ("*", ANN), ("twin", "zwillingswort"), ("carl", "carlwort")] {
        fixture.assert_refused(role, password);
    }

    // Searches with an account that sees more, and with a filter.
    fixture.set_ldap_rule(&format!("{plain} {READER}"));
    fixture.assert_login("carl", "carlwort");
    fixture.assert_login("ann", ANN);
    fixture.assert_refused("carl", "lesewort");
    fixture
        .set_ldap_rule(&format!("{plain} {READER} ldapsearchfilter=\"(&(uid=$username)(ou:dn:=hidden))\""));
    fixture.assert_login("carl", "carlwort");
    fixture.assert_refused("ann", ANN);
    fixture.set_ldap_rule(&format!("{plain} {READER} ldapsearchattribute=sn"));
    fixture.assert_login("ann", ANN);
    let url = format!("\"ldapurl=ldap://127.0.0.1:{}/ou=people,dc=example,dc=org", fixture.directory.port());
    fixture.set_ldap_rule(&format!("{url}?uid?one\""));
    fixture.assert_login("ann", ANN);
    // The entry itself is the base of the search.
    fixture.set_ldap_rule(&format!("{url}?uid\""));
    fixture.assert_refused("ann", ANN);
    fixture.set_ldap_rule(&format!("{plain} {}", READER.replace("lesewort", "verlesen")));
    fixture.assert_refused("carl", "carlwort");

    let audit = fs::read_to_string(fixture.test_server.folder.path().join("audit")).unwrap();
    let log_text = fixture.test_server.log();
    assert!(log_text.contains("it refuses ldapbinddn"), "{log_text}");
    for secret in SECRETS.iter().chain(&["verlesen"]) {
        assert!(!log_text.contains(secret), "the log tells {secret}: {log_text}");
        assert!(!audit.contains(secret), "the audit log tells {secret}: {audit}");
    }
    assert!(audit.contains("LDAP authentication failed"), "{audit}");
}

#[test]
fn ldap_servers_are_tried_in_order_over_tls() {
    let Some(fixture) = LdapServer::start() else { return };
    let (port, tls_port) = (fixture.directory.port(), fixture.directory.tls_port());
    let people = "ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"";
    for options in [
        format!("ldapserver=127.0.0.1 ldapport={port} ldaptls=1 {people}"),
        format!("ldapserver=127.0.0.1 ldapport={tls_port} ldapscheme=ldaps {people}"),
        format!("ldapserver=127.0.0.1 ldapport={port} ldaptls=1 {SEARCH} {READER}"),
        // Nothing listens at the first address.
        format!("ldapserver=\"127.0.0.2 127.0.0.1\" ldapport={port} {people}"),
    ] {
        fixture.set_ldap_rule(&options);
        fixture.assert_login("ann", ANN);
        fixture.assert_refused("ann", "wrong");
    }
    // A server that accepts and does not answer is given up after a timeout.
    let silent = TcpListener::bind(("127.0.0.3", port)).unwrap();
    fixture.set_ldap_rule(&format!("ldapserver=\"127.0.0.3 127.0.0.1\" ldapport={port} {people}"));
    fixture.assert_login("ann", ANN);
    drop(silent);
    // The certificate is for another name; and nothing listens at all.
    fixture.set_ldap_rule(&format!("ldapserver=localhost ldapport={port} ldaptls=1 {people}"));
    fixture.assert_refused("ann", ANN);
    fixture.set_ldap_rule(&format!("ldapserver=127.0.0.2 ldapport={port} {people}"));
    fixture.assert_refused("ann", ANN);
    let log_text = fixture.test_server.log();
    assert!(log_text.contains("TLS: ") && log_text.contains("cannot be reached"), "{log_text}");
}

#[test]
fn flight_logins_use_ldap() {
    let Some(fixture) = LdapServer::start() else { return };
    fixture.set_ldap_rule(&format!(
        "ldapserver=127.0.0.1 ldapport={} {SEARCH} {READER}",
        fixture.directory.port()
    ));
    let uri = format!("grpc://127.0.0.1:{}", fixture.test_server.flight);
    let login = |user: &str, password: &str, more: &[&str]| {
        let login_options = ["--user", user, "--password", password, &uri, "SELECT current_user"];
        auth_support::flight(&[more, &login_options].concat())
    };
    for more in [&[][..], &["--pyarrow"]] {
        let Some(logged_in) = login("carl", "carlwort", more) else { return };
        assert_eq!(logged_in, (true, "[[\"carl\"]]".to_string()));
        for (user, password, why) in [
            ("carl", "wrong", "LDAP authentication failed"),
            ("bob", "bobwort", "does not exist"),
            ("carl", "", "empty password"),
        ] {
            let (logged_in, message) = login(user, password, more).unwrap();
            assert!(!logged_in && message.contains(why), "{user} {password}: {message}");
        }
    }
}

#[test]
fn ldap_is_refused_before_roles_exist() {
    let Some(directory) = Ldap::start(ENTRIES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "host all all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={} ldapbasedn=\"dc=example,dc=org\"\n",
        directory.port()
    );
    let (_, config) = Rules::write(folder.path(), &text, "");
    let test_server = TestServer::start_in(folder, &["--launcher", "none", "--config", &config]);
    let (logged_in, message) = auth_support::psql(&test_server, "ann", ANN, "");
    assert!(!logged_in && message.contains("role \"ann\" does not exist"), "{message}");
}

#[test]
fn doctor_checks_ldap_and_prints_no_passwords() {
    let Some(directory) = Ldap::start(ENTRIES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, authority) = (folder.path(), directory.authority());
    let doctor = |rules: &str, server: &str| {
        let (_, config) = Rules::write(path, rules, server);
        let output = Command::new(env!("CARGO_BIN_EXE_harrier"))
            .args(["doctor", "--config", &config])
            .env("LDAPTLS_CACERT", &authority)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!message.contains("lesewort") && !message.contains("verlesen"), "{message}");
        message
    };
    let server = format!("ldapserver=127.0.0.1 ldapport={}", directory.port());
    let open = doctor(&format!("host all all 127.0.0.1/32 ldap {server} {SEARCH} {READER}\n"), "");
    assert!(open.contains("others can read") && !open.contains("the LDAP server"), "{open}");
    let wrong = READER.replace("lesewort", "verlesen");
    let wrong = doctor(&format!("host all all 127.0.0.1/32 ldap {server} {SEARCH} {wrong} ldaptls=1\n"), "");
    assert!(
        wrong.contains("in line 1: it refuses ldapbinddn") && wrong.contains("invalid credentials"),
        "{wrong}"
    );
    let unreachable = doctor("local all all ldap ldapserver=127.0.0.2 ldapport=1 ldapprefix=a\n", "");
    assert!(unreachable.contains("127.0.0.2:1 of the rule in line 1: it cannot be reached"), "{unreachable}");
    let plain = doctor(&format!("host all all all ldap {server} {SEARCH}\n"), "");
    assert!(plain.contains("would send passwords as they are"), "{plain}");
    // The server refuses what the doctor reports as wrong.
    let (_, config) = Rules::write(path, &format!("host all all 0.0.0.0/0 ldap {server} {SEARCH}\n"), "");
    let output = Command::new(env!("CARGO_BIN_EXE_harrier"))
        .args(["serve", "--config", &config, "--listen", "127.0.0.1:0", "--http", "off"])
        .current_dir(path)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("would send passwords as they are"), "{message}");
}

/// Sends an empty password, which psql would not send, and returns the server's error.
fn empty_password(test_server: &TestServer, role: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", test_server.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut body = 196_608_i32.to_be_bytes().to_vec();
    body.extend(format!("user\0{role}\0database\0warehouse\0\0").as_bytes());
    stream.write_all(&(body.len() as i32 + 4).to_be_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut request = [0; 9];
    stream.read_exact(&mut request).unwrap();
    assert_eq!(request, *b"R\0\0\0\x08\0\0\0\x03", "it does not ask for the password");
    stream.write_all(b"p\0\0\0\x05\0").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&b'E'));
    let fields: Vec<String> = answer[5..]
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .collect();
    let field = |code: char| fields.iter().find_map(|field| field.strip_prefix(code)).unwrap_or_default();
    format!("{} {}", field('C'), field('M'))
}
