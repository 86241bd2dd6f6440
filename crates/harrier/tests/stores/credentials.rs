//! AWS credential chain on a real server: environment, profiles, and errors without credentials.

use std::path::Path;
use std::process::Command;

use harrier_servers::{ACCESS_KEY, REGION, S3, SECRET_KEY};

/// Output of statements with a home folder whose profiles configure the server.
fn sql_output(home: &Path, environment: &[(&str, &str)], statements: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.args(["sql", "--format", "csv"]).args(statements.iter().flat_map(|statement| ["-c", statement]));
    command.env("HOME", home).env("AWS_ALLOW_HTTP", "true").env("AWS_EC2_METADATA_DISABLED", "true");
    let output =
        command.env("HARRIER_STORE_RETRIES", "0").envs(environment.iter().copied()).output().unwrap();
    let output_text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(!output_text.contains(SECRET_KEY) && !output_text.contains("hush"), "{output_text}");
    output_text
}

#[test]
fn aws_profiles_configure_s3() {
    let Some(server) = S3::shared_instance() else { return };
    let bucket = server.new_bucket();
    server.put_object(&bucket, "a.csv", b"v\n1\n2\n");
    let file = format!("s3://{bucket}/a.csv");
    let home = tempfile::tempdir().unwrap();
    let aws = home.path().join(".aws");
    std::fs::create_dir(&aws).unwrap();
    let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
    std::fs::write(
        aws.join("credentials"),
        format!("[default]\n{keys}[wrong]\n{}", keys.replace(SECRET_KEY, "hush")),
    )
    .unwrap();
    let endpoint = server.endpoint();
    let place = format!("region = {REGION}\nendpoint_url = {endpoint}\n");
    let print = format!(
        "echo '{{\"Version\": 1, \"AccessKeyId\": \"{ACCESS_KEY}\", \"SecretAccessKey\": \"{SECRET_KEY}\"}}'"
    );
    let config = format!(
        "[default]\n{place}[profile wrong]\n{place}[profile asked]\n{place}credential_process = {print}\n\
         [profile broken]\n{place}credential_process = echo no session >&2; exit 1\n"
    );
    std::fs::write(aws.join("config"), config).unwrap();

    let count = format!("SELECT count(*) FROM '{file}'");
    for profile in ["default", "asked"] {
        let output_text = sql_output(home.path(), &[("AWS_PROFILE", profile)], &[&count]);
        assert_eq!(output_text.lines().last(), Some("2"), "{output_text}");
    }
    for (profile, expected) in [
        ("wrong", "the secret access key is another's"),
        ("broken", "no session"),
        ("none", "have no profile \"none\""),
    ] {
        let environment =
            [("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_REGION", REGION)];
        let output_text = sql_output(home.path(), &environment, &[&count]);
        assert!(output_text.contains("42501") && output_text.contains(expected), "{output_text}");
    }

    // No credentials: requests are unsigned only on request.
    let nobody = tempfile::tempdir().unwrap();
    let environment = [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_REGION", REGION)];
    let unsaid = sql_output(nobody.path(), &environment, &[&count]);
    assert!(unsaid.contains("42501") && unsaid.contains("there are no credentials"), "{unsaid}");
    let unsigned_output =
        sql_output(nobody.path(), &environment, &["SET s3.skip_signature = 'true'", &count]);
    assert!(
        unsigned_output.contains("ERROR") && !unsigned_output.contains("there are no credentials"),
        "{unsigned_output}"
    );
}
