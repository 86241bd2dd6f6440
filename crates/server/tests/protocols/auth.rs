//! Authentication of real clients: psql with libpq's SCRAM, TLS, channel binding and certificates, against a
//! listener that only authenticates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use harrier_error::{SqlError, SqlState};
use harrier_server::auth::hba::{ClientCertificate, Connection, Method, Origin, Rules};
use harrier_server::auth::peer::{self, RoleExistence};
use harrier_server::auth::scram::{self, Mock, Scram, ScramVerifier};
use harrier_server::auth::tls::{self, Tls, TlsFiles};
use harrier_server::auth::wrong_certificate;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const PASSWORD: &str = "p\u{e4}ss w'ord";

/// Configuration of the listener.
struct ListenerConfig {
    rules: Rules,
    tls: Option<Tls>,
    mock: Mock,
    verifier: ScramVerifier,
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Client and server addresses, whether there is TLS, and the client's certificate.
struct ConnectionInfo {
    client: SocketAddr,
    server: SocketAddr,
    is_tls: bool,
    binding: Option<Vec<u8>>,
    certificate: Option<CertificateDer<'static>>,
}

async fn read_message(stream: &mut dyn Stream, has_kind: bool) -> Option<Vec<u8>> {
    if has_kind {
        stream.read_u8().await.ok()?;
    }
    let bytes = stream.read_u32().await.ok()?.checked_sub(4)?;
    let mut message = vec![0; usize::try_from(bytes).ok().filter(|bytes| *bytes < 1 << 16)?];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

async fn send(stream: &mut dyn Stream, kind: u8, body: &[u8]) {
    let mut message = vec![kind];
    message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    message.extend(body);
    let _ = stream.write_all(&message).await;
    let _ = stream.flush().await;
}

async fn authentication(stream: &mut dyn Stream, number: u32, body: &[u8]) {
    send(stream, b'R', &[&number.to_be_bytes(), body].concat()).await;
}

async fn serve(socket: TcpStream, config: Arc<ListenerConfig>) {
    let mut connection_info = ConnectionInfo {
        client: socket.peer_addr().unwrap(),
        server: socket.local_addr().unwrap(),
        is_tls: false,
        binding: None,
        certificate: None,
    };
    let mut stream: Box<dyn Stream> = Box::new(socket);
    let startup = loop {
        let Some(message) = read_message(&mut *stream, false).await else { return };
        match u32::from_be_bytes(message[..4].try_into().unwrap()) {
            80877103 => match &config.tls {
                None => stream.write_all(b"N").await.unwrap(),
                Some(tls) => {
                    stream.write_all(b"S").await.unwrap();
                    let loaded = tls.current();
                    let acceptor = TlsAcceptor::from(loaded.with_alpn(&[b"postgresql"]));
                    let Ok(encrypted) = acceptor.accept(stream).await else { return };
                    let certificates_sent = encrypted.get_ref().1.peer_certificates();
                    connection_info.certificate =
                        certificates_sent.and_then(|chain| chain.first()).map(|one| one.clone().into_owned());
                    connection_info.is_tls = true;
                    connection_info.binding.clone_from(&loaded.binding);
                    stream = Box::new(encrypted);
                }
            },
            80877104 => stream.write_all(b"N").await.unwrap(),
            196608 => break message,
            other => panic!("startup with {other}"),
        }
    };
    let text = String::from_utf8(startup[4..].to_vec()).unwrap();
    let words: Vec<&str> = text.split('\0').collect();
    let named = |name: &str| words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].to_string());
    let user = named("user").unwrap();
    let database = named("database").unwrap_or_else(|| user.clone());
    match admit(&mut *stream, &config, &connection_info, &user, &database).await {
        Ok(()) => {
            authentication(&mut *stream, 0, b"").await;
            send(&mut *stream, b'Z', b"I").await;
            while let Some(query) = read_message(&mut *stream, true).await {
                if query.is_empty() {
                    return;
                }
                send(&mut *stream, b'C', b"SELECT 0\0").await;
                send(&mut *stream, b'Z', b"I").await;
            }
        }
        Err(failure) => {
            let SqlError { sqlstate, message, .. } = failure;
            let body = format!("SFATAL\0VFATAL\0C{sqlstate}\0M{message}\0\0");
            send(&mut *stream, b'E', body.as_bytes()).await;
        }
    }
}

async fn admit(
    stream: &mut dyn Stream,
    config: &ListenerConfig,
    connection_info: &ConnectionInfo,
    user: &str,
    database: &str,
) -> Result<(), SqlError> {
    let origin = Origin::Tcp(connection_info.client.ip());
    let rule = config
        .rules
        .admit(&Connection { origin, is_tls: connection_info.is_tls, database, user }, |_| false)?;
    match (rule.client_certificate, &connection_info.certificate) {
        (ClientCertificate::None, _) | (ClientCertificate::Signed, Some(_)) => {}
        (ClientCertificate::OfRole, Some(certificate)) if tls::is_of(certificate, user) => {}
        _ => return Err(wrong_certificate(user)),
    }
    let verifier = (user == "anna").then(|| config.verifier.clone());
    let client_gone = || SqlError::fatal(SqlState::CONNECTION_FAILURE, "the client is gone");
    match rule.method {
        Method::Trust | Method::Cert => Ok(()),
        Method::Reject => unreachable!("admit has refused it"),
        Method::Peer => {
            let peer = peer::find(connection_info.client, connection_info.server).await.unwrap();
            let existence = if user == "anna" { RoleExistence::Exists } else { RoleExistence::Missing };
            peer::check(peer.as_ref(), peer::own_uid().unwrap(), user, existence)
        }
        Method::Ldap => unreachable!("no rule here asks a directory"),
        Method::Password => {
            authentication(stream, 3, b"").await;
            let answer = read_message(stream, true).await.ok_or_else(client_gone)?;
            let password = String::from_utf8(answer).unwrap();
            scram::check_password(user, verifier.as_ref(), &config.mock, password.trim_end_matches('\0'))
        }
        Method::ScramSha256 => {
            let scram = Scram::new(user, verifier, &config.mock, connection_info.binding.as_deref());
            let list: String = scram.mechanisms().iter().map(|name| format!("{name}\0")).collect();
            authentication(stream, 10, format!("{list}\0").as_bytes()).await;
            let answer = read_message(stream, true).await.ok_or_else(client_gone)?;
            let end = answer.iter().position(|byte| *byte == 0).unwrap();
            let mechanism = std::str::from_utf8(&answer[..end]).unwrap();
            let (first, challenge) = scram.challenge(mechanism, &answer[end + 5..])?;
            authentication(stream, 11, first.as_bytes()).await;
            let answer = read_message(stream, true).await.ok_or_else(client_gone)?;
            let last = challenge.verify(&answer)?;
            authentication(stream, 12, last.as_bytes()).await;
            Ok(())
        }
    }
}

async fn start_listener(rules: &str, tls: Option<TlsFiles>) -> u16 {
    let verifier = ScramVerifier::of_password(PASSWORD, 5000.try_into().unwrap()).unwrap();
    // The verifier's stored form.
    let verifier = ScramVerifier::parse(&verifier.to_text()).unwrap();
    let mock = Mock::new(scram::ITERATIONS).unwrap();
    let tls = tls.map(|files| Tls::load(files).unwrap());
    let config = Arc::new(ListenerConfig { rules: Rules::parse(rules).unwrap(), tls, mock, verifier });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&config)));
        }
    });
    port
}

/// The error of psql for a connection with these options; empty if it succeeds.
async fn psql(port: u16, user: &str, password: &str, options: &str) -> String {
    let connection = format!("host=127.0.0.1 port={port} user={user} dbname=d connect_timeout=20 {options}");
    let output = tokio::process::Command::new("psql")
        .args(["-X", "-w", "-c", "SELECT", &connection])
        .env("PGPASSWORD", password)
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("PGSSLMODE")
        .output()
        .await
        .unwrap();
    match output.status.success() {
        true => String::new(),
        false => String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether psql and openssl are installed.
fn has_programs() -> bool {
    let has = |program: &str, flag: &str| Command::new(program).arg(flag).output().is_ok();
    let all = has("psql", "--version") && has("openssl", "version");
    if !all {
        eprintln!("skipped: there is no psql or no openssl");
    }
    all
}

/// A certificate authority, a server's certificate, and one of the client `anna`.
fn certificates() -> TempDir {
    let folder = TempDir::new().unwrap();
    let openssl = |arguments: &str| {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca \
         -addext basicConstraints=critical,CA:TRUE",
    );
    std::fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    for (name, key, hash) in [
        ("server", "ec -pkeyopt ec_paramgen_curve:P-256", "sha384"),
        ("rsa", "rsa:2048", "sha256"),
        ("anna", "ec -pkeyopt ec_paramgen_curve:P-256", "sha256"),
    ] {
        openssl(&format!("req -newkey {key} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -{hash} -days 2 -extfile names -out {name}.crt"
        ));
    }
    folder
}

fn files(folder: &Path, name: &str) -> TlsFiles {
    let path = |name: String| -> PathBuf { folder.join(name) };
    TlsFiles {
        certificate: path(format!("{name}.crt")),
        key: path(format!("{name}.key")),
        client_authority: Some(path("ca.crt".to_string())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_accepts_only_the_right_password() {
    if !has_programs() {
        return;
    }
    let port = start_listener("host all all localhost scram-sha-256", None).await;
    assert_eq!(psql(port, "anna", PASSWORD, "").await, "");
    for (user, password) in [("anna", "wrong"), ("nobody", PASSWORD), ("anna", "pass w'ord")] {
        let output = psql(port, user, password, "").await;
        let expected = format!("password authentication failed for user \"{user}\"");
        assert!(output.contains(&expected), "{user}: {output}");
    }
    // Without TLS there is no channel to bind to.
    assert!(psql(port, "anna", PASSWORD, "channel_binding=require").await.contains("channel binding"));
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_channel_binding() {
    if !has_programs() {
        return;
    }
    let folder = certificates();
    let authority = folder.path().join("ca.crt");
    let full = format!("sslmode=verify-full sslrootcert={}", authority.display());
    let rules = "hostssl plain all localhost password\nhostssl all all localhost scram-sha-256";
    for name in ["server", "rsa"] {
        let port = start_listener(rules, Some(files(folder.path(), name))).await;
        for binding in ["require", "prefer", "disable"] {
            let options = format!("{full} channel_binding={binding}");
            assert_eq!(psql(port, "anna", PASSWORD, &options).await, "", "{name} {binding}");
            let output = psql(port, "anna", "wrong", &options).await;
            assert!(output.contains("password authentication failed"), "{name} {binding}: {output}");
        }
        let output = psql(port, "anna", PASSWORD, "sslmode=disable").await;
        assert!(output.contains("no hba rule") && output.contains("no encryption"), "{output}");
        assert_eq!(psql(port, "anna", PASSWORD, &format!("{full} dbname=plain")).await, "");
        for (user, password) in [("anna", "wrong"), ("nobody", PASSWORD)] {
            let output = psql(port, user, password, &format!("{full} dbname=plain")).await;
            assert!(output.contains("password authentication failed"), "{output}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_authenticate_their_role_only() {
    if !has_programs() {
        return;
    }
    let folder = certificates();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rules =
        "hostssl both all localhost scram-sha-256 clientcert=verify-full\nhostssl all all localhost cert";
    let port = start_listener(rules, Some(files(folder.path(), "server"))).await;
    let none = format!("sslmode=verify-full sslrootcert={}", path("ca.crt"));
    let own = format!("{none} sslcert={} sslkey={}", path("anna.crt"), path("anna.key"));
    assert_eq!(psql(port, "anna", "", &own).await, "");
    assert_eq!(psql(port, "anna", PASSWORD, &format!("{own} dbname=both")).await, "");
    for (user, options) in
        [("anna", none.clone()), ("bert", own.clone()), ("anna", format!("{none} dbname=both"))]
    {
        let output = psql(port, user, PASSWORD, &options).await;
        assert!(output.contains("certificate authentication failed"), "{user} {options}: {output}");
    }
    let output = psql(port, "anna", "wrong", &format!("{own} dbname=both")).await;
    assert!(output.contains("password authentication failed"), "{output}");
    // Signed by another authority.
    let stranger = certificates();
    let theirs = |name: &str| stranger.path().join(name).display().to_string();
    let forged = format!("{none} sslcert={} sslkey={}", theirs("anna.crt"), theirs("anna.key"));
    let output = psql(port, "anna", PASSWORD, &forged).await;
    assert!(!output.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_authentication() {
    if !has_programs() {
        return;
    }
    let port = start_listener("host all all localhost peer", None).await;
    // The same operating system user as the server's: may log in as any existing role.
    assert_eq!(psql(port, "anna", "", "").await, "");
    assert!(psql(port, "bert", "", "").await.contains("role \"bert\" does not exist"));
    // Another operating system user, if the tests may switch to one.
    let connection = format!("host=127.0.0.1 port={port} dbname=d connect_timeout=20");
    if peer::own_uid().unwrap() != 0 {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let other = async |user: &str| {
        let output = tokio::process::Command::new("runuser")
            .args(["-u", "daemon", "--", "psql", "-X", "-w", "-c", "SELECT"])
            .arg(format!("{connection} user={user}"))
            .output()
            .await
            .unwrap();
        assert!(!output.status.success(), "{user}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for user in ["anna", "bert", "root"] {
        let output = other(user).await;
        assert!(output.contains("peer authentication failed"), "{user}: {output}");
    }
    // Its own name, so the error may say that there is no such role.
    assert!(other("daemon").await.contains("role \"daemon\" does not exist"));
}
