//! Passwords that an LDAP directory knows: OpenLDAP's server, psql and clients of Flight SQL, and all that
//! has to be refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use harrier_servers::Ldap;

use crate::auth_support::{self, Rules, Said, own_user};
use crate::test_server::{PATIENCE, Served};

/// The directory's entries. Passwords are told by their first words in [`SECRETS`].
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

/// A server with roles that asks the directory, with an audit log and Flight SQL.
struct Asked {
    directory: Ldap,
    served: Served,
    rules: Rules,
}

impl Asked {
    fn start() -> Option<Self> {
        let directory = Ldap::start(ENTRIES)?;
        let folder = tempfile::tempdir().unwrap();
        let (rules, config) =
            Rules::write(folder.path(), &before(), "audit_log = \"audit\"\naudit_statements = \"all\"\n");
        let authority = directory.authority().display().to_string();
        let served = Served::start_with(
            folder,
            &["--launcher", "none", "--flight", "127.0.0.1:0", "--config", &config],
            &[("LDAPTLS_CACERT", &authority)],
        );
        let mut admin = auth_support::admin(&served);
        for role in ["ann", "\"o,dd\"", "\"st(a)r*\"", "\"*\"", "twin", "carl", "\"ann,ou=people\""] {
            admin.query(&format!("CREATE ROLE {role} LOGIN")).unwrap();
        }
        Some(Self { directory, served, rules })
    }

    /// Has others than the server's user come in with what the directory knows; `options` are those of the
    /// rule.
    fn ask(&self, options: &str) {
        self.rules.set(&self.served, &format!("{}host all all 127.0.0.1/32 ldap {options}\n", before()));
    }

    fn psql(&self, role: &str, password: &str) -> Said {
        auth_support::psql(&self.served, role, password, "")
    }

    fn comes_in(&self, role: &str, password: &str) {
        assert_eq!(self.psql(role, password), (true, role.to_string()), "{}", self.served.log());
    }

    fn refused(&self, role: &str, password: &str) {
        let (came_in, said) = self.psql(role, password);
        let expected = format!("LDAP authentication failed for user \"{role}\"");
        assert!(!came_in && said.contains(&expected), "{role}: {said}");
    }
}

/// The rule by which tests look after the server.
fn before() -> String {
    format!("host all {} 127.0.0.1/32 peer\n", own_user())
}

const SEARCH: &str = "ldapbasedn=\"dc=example,dc=org\"";
const READER: &str = "ldapbinddn=\"cn=reader,dc=example,dc=org\" ldapbindpasswd=\"lesewort\"";

#[test]
fn passwords_are_those_of_the_directory() {
    let Some(asked) = Asked::start() else { return };
    let server = format!("ldapserver=127.0.0.1 ldapport={}", asked.directory.port());
    let direct = format!("{server} ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"");
    let plain = format!("{server} {SEARCH}");

    // The name of the entry is made of the role's.
    asked.ask(&direct);
    asked.comes_in("ann", ANN);
    asked.comes_in("o,dd", "kommawort");
    for (role, password) in
        [("ann", "wrong"), ("ann", "bobwort"), ("nobody", "x"), ("carl", "carlwort"), ("ann,ou=people", ANN)]
    {
        asked.refused(role, password);
    }
    // Right, but no role of the warehouse.
    let (came_in, said) = asked.psql("bob", "bobwort");
    assert!(!came_in && said.contains("role \"bob\" does not exist"), "{said}");
    // A directory lets in whoever has no password, as nobody.
    assert_eq!(empty_password(&asked.served, "ann"), "28P01 empty password returned by client");

    // The entry is searched for, by anybody.
    asked.ask(&plain);
    asked.comes_in("ann", ANN);
    asked.comes_in("st(a)r*", "sternwort");
    for (role, password) in [("ann", "wrong"), ("*", ANN), ("twin", "zwillingswort"), ("carl", "carlwort")] {
        asked.refused(role, password);
    }

    // By an account that may see more, and among some only.
    asked.ask(&format!("{plain} {READER}"));
    asked.comes_in("carl", "carlwort");
    asked.comes_in("ann", ANN);
    asked.refused("carl", "lesewort");
    asked.ask(&format!("{plain} {READER} ldapsearchfilter=\"(&(uid=$username)(ou:dn:=hidden))\""));
    asked.comes_in("carl", "carlwort");
    asked.refused("ann", ANN);
    asked.ask(&format!("{plain} {READER} ldapsearchattribute=sn"));
    asked.comes_in("ann", ANN);
    let url = format!("\"ldapurl=ldap://127.0.0.1:{}/ou=people,dc=example,dc=org", asked.directory.port());
    asked.ask(&format!("{url}?uid?one\""));
    asked.comes_in("ann", ANN);
    // Only the entry itself.
    asked.ask(&format!("{url}?uid\""));
    asked.refused("ann", ANN);
    asked.ask(&format!("{plain} {}", READER.replace("lesewort", "verlesen")));
    asked.refused("carl", "carlwort");

    let audit = fs::read_to_string(asked.served.folder.path().join("audit")).unwrap();
    let told = asked.served.log();
    assert!(told.contains("it refuses ldapbinddn"), "{told}");
    for secret in SECRETS.iter().chain(&["verlesen"]) {
        assert!(!told.contains(secret), "the log tells {secret}: {told}");
        assert!(!audit.contains(secret), "the audit log tells {secret}: {audit}");
    }
    assert!(audit.contains("LDAP authentication failed"), "{audit}");
}

#[test]
fn directories_are_asked_over_tls_and_in_turn() {
    let Some(asked) = Asked::start() else { return };
    let (port, tls_port) = (asked.directory.port(), asked.directory.tls_port());
    let people = "ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"";
    for options in [
        format!("ldapserver=127.0.0.1 ldapport={port} ldaptls=1 {people}"),
        format!("ldapserver=127.0.0.1 ldapport={tls_port} ldapscheme=ldaps {people}"),
        format!("ldapserver=127.0.0.1 ldapport={port} ldaptls=1 {SEARCH} {READER}"),
        // Nobody listens at the first.
        format!("ldapserver=\"127.0.0.2 127.0.0.1\" ldapport={port} {people}"),
    ] {
        asked.ask(&options);
        asked.comes_in("ann", ANN);
        asked.refused("ann", "wrong");
    }
    // One that listens and says nothing is waited for only so long.
    let silent = TcpListener::bind(("127.0.0.3", port)).unwrap();
    asked.ask(&format!("ldapserver=\"127.0.0.3 127.0.0.1\" ldapport={port} {people}"));
    asked.comes_in("ann", ANN);
    drop(silent);
    // The certificate is not for this name; and nobody is there at all.
    asked.ask(&format!("ldapserver=localhost ldapport={port} ldaptls=1 {people}"));
    asked.refused("ann", ANN);
    asked.ask(&format!("ldapserver=127.0.0.2 ldapport={port} {people}"));
    asked.refused("ann", ANN);
    let told = asked.served.log();
    assert!(told.contains("TLS: ") && told.contains("cannot be reached"), "{told}");
}

#[test]
fn flight_asks_the_same_directory() {
    let Some(asked) = Asked::start() else { return };
    asked.ask(&format!("ldapserver=127.0.0.1 ldapport={} {SEARCH} {READER}", asked.directory.port()));
    let uri = format!("grpc://127.0.0.1:{}", asked.served.flight);
    let login = |user: &str, password: &str, more: &[&str]| {
        let given = ["--user", user, "--password", password, &uri, "SELECT current_user"];
        auth_support::flight(&[more, &given].concat())
    };
    for more in [&[][..], &["--pyarrow"]] {
        let Some(came_in) = login("carl", "carlwort", more) else { return };
        assert_eq!(came_in, (true, "[[\"carl\"]]".to_string()));
        for (user, password, why) in [
            ("carl", "wrong", "LDAP authentication failed"),
            ("bob", "bobwort", "does not exist"),
            ("carl", "", "empty password"),
        ] {
            let (came_in, said) = login(user, password, more).unwrap();
            assert!(!came_in && said.contains(why), "{user} {password}: {said}");
        }
    }
}

#[test]
fn nobody_is_let_in_by_a_directory_before_there_are_roles() {
    let Some(directory) = Ldap::start(ENTRIES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "host all all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={} ldapbasedn=\"dc=example,dc=org\"\n",
        directory.port()
    );
    let (_, config) = Rules::write(folder.path(), &text, "");
    let served = Served::start_in(folder, &["--launcher", "none", "--config", &config]);
    let (came_in, said) = auth_support::psql(&served, "ann", ANN, "");
    assert!(!came_in && said.contains("role \"ann\" does not exist"), "{said}");
}

#[test]
fn the_doctor_asks_directories_and_tells_no_passwords() {
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
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("lesewort") && !said.contains("verlesen"), "{said}");
        said
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
    let gone = doctor("local all all ldap ldapserver=127.0.0.2 ldapport=1 ldapprefix=a\n", "");
    assert!(gone.contains("127.0.0.2:1 of the rule in line 1: it cannot be reached"), "{gone}");
    let plain = doctor(&format!("host all all all ldap {server} {SEARCH}\n"), "");
    assert!(plain.contains("would send passwords as they are"), "{plain}");
    // And the server refuses what the doctor calls wrong.
    let (_, config) = Rules::write(path, &format!("host all all 0.0.0.0/0 ldap {server} {SEARCH}\n"), "");
    let output = Command::new(env!("CARGO_BIN_EXE_harrier"))
        .args(["serve", "--config", &config, "--listen", "127.0.0.1:0", "--http", "off"])
        .current_dir(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("would send passwords as they are"), "{said}");
}

/// What the server says to an empty password, which psql would not send.
fn empty_password(served: &Served, role: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut body = 196_608_i32.to_be_bytes().to_vec();
    body.extend(format!("user\0{role}\0database\0warehouse\0\0").as_bytes());
    stream.write_all(&(body.len() as i32 + 4).to_be_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut asked = [0; 9];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(asked, *b"R\0\0\0\x08\0\0\0\x03", "it does not ask for the password");
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
