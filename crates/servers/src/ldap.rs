//! An LDAP server: OpenLDAP's slapd.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::keeper::Keeper;

/// Startup timeout.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server. `$1` is the folder, `$2` the program, `$3` the port, `$4` the TLS port.
const KEEPER: &str = r#"
folder=$1 slapd=$2 port=$3 tls=$4
cd "$folder"
fail() { cat log >&2; exit 1; }
openssl_() { openssl "$@" >>log 2>&1 || fail; }
openssl_ req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca \
    -addext basicConstraints=critical,CA:TRUE
openssl_ req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=directory
echo subjectAltName=IP:127.0.0.1 >names
openssl_ x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days 2 -extfile names -out server.crt
for schemas in /etc/ldap/schema /etc/openldap/schema; do [ -e $schemas/core.schema ] && break; done
for schema in core cosine inetorgperson; do echo "include $schemas/$schema.schema"; done >slapd.conf
for modules in /usr/lib/ldap /usr/lib64/openldap /usr/lib/openldap; do
    ls $modules/back_mdb* >/dev/null 2>&1 && printf 'modulepath %s\nmoduleload back_mdb\n' $modules >>slapd.conf && break
done
mkdir data
cat >>slapd.conf <<END
pidfile $folder/pid
TLSCACertificateFile $folder/ca.crt
TLSCertificateFile $folder/server.crt
TLSCertificateKeyFile $folder/server.key
database mdb
suffix dc=example,dc=org
directory $folder/data
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="ou=hidden,dc=example,dc=org" by dn.exact="cn=reader,dc=example,dc=org" read by anonymous auth by * none
access to * by * read
END
"$slapd" -T add -f slapd.conf -l "$folder/entries" >>log 2>&1 || fail
"$slapd" -f slapd.conf -d 0 -h "ldap://127.0.0.1:$port ldaps://127.0.0.1:$tls" >>log 2>&1 &
server=$!
echo up
while read -r word; do echo done; done
kill $server; wait $server 2>/dev/null
cd / && rm -rf "$folder"
"#;

/// A running server with its initial entries, below `dc=example,dc=org`. Passwords are unreadable. The rest
/// is public, except `ou=hidden`, which only `cn=reader` may read. Its certificate is for 127.0.0.1.
pub struct Ldap {
    keeper: Keeper,
    port: u16,
    tls_port: u16,
}

impl Ldap {
    /// Starts a server with entries in LDIF; `None`, with a loud message, if it cannot be installed.
    pub fn start(entries: &str) -> Option<Self> {
        if crate::skip_requested() {
            return None;
        }
        match crate::install("ldap.sh") {
            Ok(program) => Some(Self::start_program(&program, entries)),
            Err(missing) => {
                crate::absent(&missing);
                None
            }
        }
    }

    fn start_program(program: &Path, entries: &str) -> Self {
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::write(folder.path().join("entries"), entries).expect("a file with the entries");
            let (port, tls_port) = (crate::free_port(), crate::free_port());
            let arguments = [program.display().to_string(), port.to_string(), tls_port.to_string()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            match Keeper::start(KEEPER, folder, &arguments, &[]) {
                // Another process may take the ports meanwhile.
                Ok(keeper) if listens(port) && listens(tls_port) => return Self { keeper, port, tls_port },
                Ok(_) => eprintln!("slapd does not listen"),
                Err(said) => eprintln!("slapd did not start: {said}"),
            }
        }
        panic!("slapd does not start");
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its port for connections that begin with TLS.
    pub fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// The CA certificate of the server, as PEM.
    pub fn authority(&self) -> PathBuf {
        self.keeper.folder().join("ca.crt")
    }
}

fn listens(port: u16) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
