//! Parser of `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use object_store::Result;

use super::{Variables, credential_error};

/// The default region.
const REGION: &str = "us-east-1";

/// The settings of one section; names are lower case. Nested settings are named `services.endpoint_url`-like:
/// `NAME.SETTING`.
#[derive(Default, Clone)]
pub(crate) struct Section(BTreeMap<String, String>);

impl Section {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Hides the keys among them.
impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Both files merged; the credentials file takes precedence.
#[derive(Debug, Default)]
pub(crate) struct ConfigFiles {
    profiles: BTreeMap<String, Section>,
    /// By kind and name: `sso-session`, `services`.
    others: BTreeMap<(String, String), Section>,
    paths: Vec<PathBuf>,
}

/// A profile's settings of the store besides credentials.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub region: Option<String>,
    pub endpoint: Option<String>,
    pub ca_bundle: Option<String>,
}

impl Settings {
    /// The settings of the profile selected by `variables`; empty if its files cannot be read, which is an
    /// error only for requests that need their credentials.
    pub(crate) fn of(variables: &Variables) -> Self {
        ConfigFiles::load(variables).map(|files| files.settings(variables)).unwrap_or_default()
    }
}

impl ConfigFiles {
    /// Errors: a file exists and cannot be read.
    pub(crate) fn load(variables: &Variables) -> Result<Self> {
        let mut files = Self::default();
        let config = variables.file("AWS_CONFIG_FILE", ".aws/config");
        let credentials = variables.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
        for (path, is_config) in [(config, true), (credentials, false)] {
            let Some(path) = path else { continue };
            if let Some(text) = text_of(&path)? {
                files.add(&text, is_config);
            }
            files.paths.push(path);
        }
        Ok(files)
    }

    fn add(&mut self, text: &str, is_config: bool) {
        let mut section: Option<&mut Section> = None;
        let mut last = String::new();
        for line in text.lines() {
            let is_below = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(head) = line.strip_prefix('[') {
                section = head.split_once(']').and_then(|(head, _)| self.section(head.trim(), is_config));
                last.clear();
                continue;
            }
            let (Some(section), Some((name, value))) = (section.as_mut(), line.split_once('=')) else {
                continue;
            };
            let (name, value) = (name.trim().to_lowercase(), without_comment(value).to_string());
            match is_below && !last.is_empty() {
                true => section.0.insert(format!("{last}.{name}"), value),
                false => {
                    last.clone_from(&name);
                    section.0.insert(name, value)
                }
            };
        }
    }

    fn section(&mut self, head: &str, is_config: bool) -> Option<&mut Section> {
        let (kind, name) = head.split_once([' ', '\t']).unwrap_or(("", head));
        let name = name.trim().trim_matches(['"', '\'']);
        match (kind, is_config) {
            ("", true) if name == "default" => Some(self.profiles.entry(name.to_string()).or_default()),
            // The credentials file has only profiles, by their names.
            (_, false) => Some(self.profiles.entry(head.trim_matches(['"', '\'']).to_string()).or_default()),
            ("profile", true) => Some(self.profiles.entry(name.to_string()).or_default()),
            ("sso-session" | "services", true) => {
                Some(self.others.entry((kind.to_string(), name.to_string())).or_default())
            }
            _ => None,
        }
    }

    pub(crate) fn profile(&self, name: &str) -> Option<&Section> {
        self.profiles.get(name)
    }

    pub(crate) fn other(&self, kind: &str, name: &str) -> Option<&Section> {
        self.others.get(&(kind.to_string(), name.to_string()))
    }

    /// The file names, for an error.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| format!("\"{}\"", path.display())).collect();
        match names.is_empty() {
            true => "~/.aws/config and ~/.aws/credentials".to_string(),
            false => names.join(" and "),
        }
    }

    fn current(&self, variables: &Variables) -> Option<&Section> {
        self.profile(variables.get("AWS_PROFILE").unwrap_or("default"))
    }

    /// The region of AWS services.
    pub(crate) fn region(&self, variables: &Variables) -> String {
        let said = variables.get("AWS_REGION").or_else(|| variables.get("AWS_DEFAULT_REGION"));
        let said = said.or_else(|| self.current(variables)?.get("region"));
        said.unwrap_or(REGION).to_string()
    }

    pub(crate) fn settings(&self, variables: &Variables) -> Settings {
        let Some(profile) = self.current(variables) else { return Settings::default() };
        let services = profile.get("services").and_then(|name| self.other("services", name));
        let endpoint = services.and_then(|services| services.get("s3.endpoint_url"));
        let endpoint = endpoint.or_else(|| profile.get("endpoint_url"));
        let is_ignored = variables.is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
        Settings {
            region: profile.get("region").map(str::to_string),
            endpoint: endpoint.filter(|_| !is_ignored).map(str::to_string),
            ca_bundle: profile.get("ca_bundle").map(str::to_string),
        }
    }
}

/// Strips a comment, which follows a blank; keys may contain any character.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"].iter().filter_map(|sign| value.find(sign)).min();
    value[..end.unwrap_or(value.len())].trim()
}

fn text_of(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(credential_error(format!("could not read file \"{}\": {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> ConfigFiles {
        let mut files = ConfigFiles::default();
        files.add(
            "# of the team\n[default]\nregion = eu-north-1\naws_access_key_id = CONFIG\n[profile dev]\nregion=eu-west-1 ; there\nservices = local\n\
             s3 =\n  max_concurrent_requests = 3\nrole_arn = arn\n[sso-session corp]\nsso_region = us-west-2\n[services local]\ns3 =\n  endpoint_url = http://here:9000\n[other]\nregion = x\n",
            true,
        );
        files.add("[default]\nAWS_ACCESS_KEY_ID = KEY\naws_secret_access_key = hush#;=/+\n[dev]\naws_access_key_id = DEV\n", false);
        files
    }

    #[test]
    fn both_files_are_one() {
        let files = files();
        let of = |profile: &str, name: &str| files.profile(profile)?.get(name).map(str::to_string);
        assert_eq!(of("default", "aws_access_key_id").unwrap(), "KEY");
        assert_eq!(of("default", "aws_secret_access_key").unwrap(), "hush#;=/+");
        assert_eq!(of("default", "region").unwrap(), "eu-north-1");
        assert_eq!(of("dev", "aws_access_key_id").unwrap(), "DEV");
        assert_eq!(of("dev", "region").unwrap(), "eu-west-1");
        assert_eq!(of("dev", "s3.max_concurrent_requests").unwrap(), "3");
        assert_eq!(of("dev", "role_arn").unwrap(), "arn");
        assert!(files.profile("other").is_none());
        assert_eq!(files.other("sso-session", "corp").unwrap().get("sso_region"), Some("us-west-2"));
        assert!(!format!("{files:?}").contains("hush"));
    }

    #[test]
    fn profiles_set_region_and_endpoint() {
        let files = files();
        let variables = |pairs: &[(&str, &str)]| {
            Variables(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
        };
        let dev = variables(&[("AWS_PROFILE", "dev")]);
        let settings = files.settings(&dev);
        assert_eq!(
            (settings.region.as_deref(), settings.endpoint.as_deref()),
            (Some("eu-west-1"), Some("http://here:9000"))
        );
        assert_eq!(files.region(&variables(&[])), "eu-north-1");
        assert_eq!(files.region(&variables(&[("AWS_DEFAULT_REGION", "there")])), "there");
        let ignored = variables(&[("AWS_PROFILE", "dev"), ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")]);
        assert_eq!(files.settings(&ignored).endpoint, None);
    }
}
