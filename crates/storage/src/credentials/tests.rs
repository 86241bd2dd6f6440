//! Tests of each credential source against a mock server.

use std::io::{Read, Write};
use std::net::TcpListener;

use tempfile::TempDir;

use super::*;

/// A home directory with these files, and these variables.
struct Home {
    folder: TempDir,
    variables: BTreeMap<String, String>,
}

impl Home {
    fn new(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        all.insert("HOME".to_string(), folder.path().display().to_string());
        all.entry("AWS_EC2_METADATA_DISABLED".to_string()).or_insert_with(|| "true".to_string());
        Self { folder, variables: all }
    }

    fn with(self, file: &str, text: &str) -> Self {
        let path = self.folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn chain(&self) -> Chain {
        Chain::new(Variables(self.variables.clone()))
    }

    async fn key(&self) -> String {
        let key = self.chain().get_credential().await;
        let key = key.unwrap_or_else(|error| panic!("{error}"));
        format!(
            "{} {}{}",
            key.key_id,
            key.secret_key,
            key.token.as_ref().map_or_else(String::new, |token| format!(" {token}"))
        )
    }

    async fn assert_error(&self, expected: &str) {
        let error = self.chain().get_credential().await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{error}");
    }
}

/// Serves the responses in turn; returns the requests.
fn server(answers: Vec<(u16, String)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let requests = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut text = Vec::new();
            let mut piece = [0; 4096];
            loop {
                let read = stream.read(&mut piece).unwrap();
                text.extend_from_slice(&piece[..read]);
                let all = String::from_utf8_lossy(&text).to_lowercase();
                let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if read == 0 || body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    break;
                }
            }
            requests.push(String::from_utf8_lossy(&text).into_owned());
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
        requests
    });
    (endpoint, requests)
}

fn sts(key: &str) -> String {
    format!(
        "<R><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>hush</SecretAccessKey><SessionToken>token</SessionToken>\
         <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>"
    )
}

fn agent(key: &str) -> String {
    format!(
        "{{\"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"hush\", \"Token\": \"token\", \"Expiration\": \"2099-01-01T00:00:00Z\"}}"
    )
}

#[tokio::test]
async fn environment_precedes_profiles() {
    let file = "[default]\naws_access_key_id = A\naws_secret_access_key = hush\n[dev]\naws_access_key_id = B\naws_secret_access_key = hush\naws_session_token = t\n";
    let home = Home::new(&[]).with(".aws/credentials", file);
    assert_eq!(home.key().await, "A hush");
    let home = Home::new(&[("AWS_PROFILE", "dev")]).with(".aws/credentials", file);
    assert_eq!(home.key().await, "B hush t");
    let keys = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_PROFILE", "dev")];
    assert_eq!(Home::new(&keys).with(".aws/credentials", file).key().await, "E hush");
    Home::new(&keys[..1]).assert_error("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY").await;
    Home::new(&[("AWS_PROFILE", "none")])
        .with(".aws/credentials", file)
        .assert_error("have no profile \"none\"")
        .await;
    let home = Home::new(&[]).with("elsewhere", file);
    let named_profile =
        Home::new(&[("AWS_SHARED_CREDENTIALS_FILE", home.folder.path().join("elsewhere").to_str().unwrap())]);
    assert_eq!(named_profile.key().await, "A hush");
    Home::new(&[]).assert_error("AWS_SKIP_SIGNATURE").await;
    // A directory in the place of a file.
    let broken = Home::new(&[]).with(".aws/config/x", "");
    broken.assert_error("could not read file").await;
    assert_eq!(Settings::of(&Variables(broken.variables.clone())), Settings::default());
    let keys = keys.into_iter().chain([("AWS_CONFIG_FILE", "/")]).collect::<Vec<_>>();
    assert_eq!(Home::new(&keys).key().await, "E hush");
    Home::new(&[]).with(".aws/credentials", "[default]\naws_access_key_id = A\n").assert_error("alone").await;
}

#[tokio::test]
async fn credential_process_and_expiry() {
    let home = |command: &str| {
        Home::new(&[]).with(".aws/config", &format!("[default]\ncredential_process = {command}\n"))
    };
    let print = |end: &str| {
        format!(
            "echo x >> count; echo '{{\"Version\": 1, \"AccessKeyId\": \"P\", \"SecretAccessKey\": \"hush\", \"SessionToken\": \"t\", \"Expiration\": \"{end}\"}}'"
        )
    };
    for (end, times) in [("2099-01-01T00:00:00Z", 1), ("2020-01-01T00:00:00+00:00", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let home = home(&format!("cd {}; {}", folder.path().display(), print(end)));
        let chain = home.chain();
        for _ in 0..2 {
            assert_eq!(chain.get_credential().await.unwrap().key_id, "P");
        }
        let count = std::fs::read_to_string(folder.path().join("count")).unwrap();
        assert_eq!(count.lines().count(), times, "{end}");
    }
    home("echo no such session >&2; exit 3").assert_error("no such session").await;
    home("echo hush").assert_error("is not JSON").await;
    home("echo '{\"Version\": 2}'").assert_error("another version").await;
}

#[tokio::test]
async fn assume_role_chains() {
    let (endpoint, requests) = server(vec![(200, sts("ONE")), (200, sts("TWO"))]);
    let config = "[profile two]\nrole_arn = arn:two\nsource_profile = one\nregion = eu-west-1\nexternal_id = x&y\n\
                  [profile one]\nrole_arn = arn:one\nsource_profile = one\naws_access_key_id = BASE\naws_secret_access_key = hush\n";
    let variables = [("AWS_PROFILE", "two"), ("AWS_ENDPOINT_URL_STS", endpoint.as_str())];
    let home = Home::new(&variables).with(".aws/config", config);
    assert_eq!(home.key().await, "TWO hush token");
    let requests = requests.join().unwrap();
    assert!(
        requests[0].contains("Credential=BASE/") && requests[0].contains("RoleArn=arn%3Aone"),
        "{}",
        requests[0]
    );
    assert!(
        requests[1].contains("Credential=ONE/") && requests[1].contains("/eu-west-1/sts/"),
        "{}",
        requests[1]
    );
    assert!(requests[1].contains("ExternalId=x%26y"), "{}", requests[1]);

    let (endpoint, _) = server(vec![(403, "<Error><Message>not for you</Message></Error>".to_string())]);
    let variables = [("AWS_PROFILE", "one"), ("AWS_ENDPOINT_URL_STS", endpoint.as_str())];
    Home::new(&variables)
        .with(".aws/config", config)
        .assert_error("could not take on role \"arn:one\": 403 Forbidden: not for you")
        .await;
    for (profile, expected) in [
        ("role_arn = r\n", "neither source_profile"),
        ("role_arn = r\nsource_profile = none\n", "source_profile \"none\""),
        ("role_arn = r\nsource_profile = default\n", "has no keys"),
        ("role_arn = r\nmfa_serial = m\nsource_profile = default\n", "mfa_serial"),
        (
            "role_arn = r\nsource_profile = b\n[profile b]\nrole_arn = s\nsource_profile = default\n",
            "refer to each other",
        ),
        ("role_arn = r\ncredential_source = Moon\n", "unknown credential_source Moon"),
    ] {
        Home::new(&[]).with(".aws/config", &format!("[default]\n{profile}")).assert_error(expected).await;
    }
}

#[tokio::test]
async fn assume_role_with_web_identity() {
    let (endpoint, requests) = server(vec![(503, String::new()), (200, sts("WEB"))]);
    let home = Home::new(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "~/token"),
        ("AWS_ROLE_ARN", "arn:web"),
        ("AWS_ENDPOINT_URL_STS", &endpoint),
    ]);
    let home = home.with("token", "signed\n");
    assert_eq!(home.key().await, "WEB hush token");
    let requests = requests.join().unwrap();
    assert!(
        requests[1].contains("WebIdentityToken=signed") && !requests[1].contains("authorization"),
        "{}",
        requests[1]
    );
    Home::new(&[("AWS_WEB_IDENTITY_TOKEN_FILE", "/x")]).assert_error("without AWS_ROLE_ARN").await;
}

#[tokio::test]
async fn sso_uses_the_login_cache() {
    let answer = "{\"roleCredentials\": {\"accessKeyId\": \"SSO\", \"secretAccessKey\": \"hush\", \"sessionToken\": \"t\", \"expiration\": 4070908800000}}";
    let (endpoint, requests) = server(vec![(200, answer.to_string())]);
    let config = "[default]\nsso_session = corp\nsso_account_id = 12\nsso_role_name = read er\n[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp\n";
    let home = Home::new(&[("AWS_ENDPOINT_URL_SSO", &endpoint)]).with(".aws/config", config);
    home.assert_error("aws sso login --profile default").await;
    let hash: String = sha1_of("corp");
    let home = home.with(
        &format!(".aws/sso/cache/{hash}.json"),
        "{\"accessToken\": \"hush\", \"expiresAt\": \"2020-01-01T00:00:00Z\"}",
    );
    home.assert_error("its session has expired").await;
    let home = home.with(
        &format!(".aws/sso/cache/{hash}.json"),
        "{\"accessToken\": \"bearer\", \"expiresAt\": \"2099-01-01T00:00:00Z\"}",
    );
    assert_eq!(home.key().await, "SSO hush t");
    let requests = requests.join().unwrap();
    assert!(
        requests[0].contains("role_name=read+er&account_id=12") && requests[0].contains("bearer"),
        "{}",
        requests[0]
    );
}

fn sha1_of(text: &str) -> String {
    use sha1::Digest;
    sha1::Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn container_and_instance_roles() {
    let (endpoint, requests) = server(vec![(200, agent("BOX"))]);
    let url = format!("{endpoint}/creds");
    let home = Home::new(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass"),
    ]);
    assert_eq!(home.key().await, "BOX hush token");
    assert!(requests.join().unwrap()[0].contains("authorization: pass"));

    let (endpoint, requests) =
        server(vec![(200, "session".to_string()), (200, "role".to_string()), (200, agent("HOST"))]);
    let variables =
        [("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.as_str()), ("AWS_EC2_METADATA_DISABLED", "false")];
    assert_eq!(Home::new(&variables).key().await, "HOST hush token");
    let requests = requests.join().unwrap();
    assert!(requests[0].starts_with("PUT /latest/api/token"), "{}", requests[0]);
    assert!(
        requests[2].contains("security-credentials/role")
            && requests[2].contains("x-aws-ec2-metadata-token: session"),
        "{}",
        requests[2]
    );
    let variables =
        [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9"), ("AWS_EC2_METADATA_DISABLED", "false")];
    Home::new(&variables).assert_error("refused").await;
}

#[tokio::test]
async fn keys_are_refreshed_before_expiry() {
    let now = SystemTime::now();
    let cached = |age: u64, lifetime_seconds: u64| {
        let mut issued = IssuedCredentials::new("K", "hush", None);
        issued.expires = Some(now + Duration::from_secs(lifetime_seconds));
        CachedCredentials { issued, since: now - Duration::from_secs(age) }.is_fresh(now)
    };
    assert!(cached(3000, 301) && cached(5, 100));
    assert!(!cached(3000, 299) && !cached(11, 100) && !cached(1, 0));
    let mut file = IssuedCredentials::new("K", "hush", None);
    file.looked_up_after = Some(FILE_READ_AFTER);
    let of_file = |age: u64| {
        CachedCredentials { issued: file.clone(), since: now - Duration::from_secs(age) }.is_fresh(now)
    };
    assert!(of_file(9) && !of_file(11));
    assert!(!format!("{:?}", Home::new(&[("AWS_SECRET_ACCESS_KEY", "hush")]).chain()).contains("hush"));
}
