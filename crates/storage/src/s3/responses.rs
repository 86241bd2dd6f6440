//! Responses of S3: elements of their XML, and the errors that they mean.

use object_store::Error;

use crate::store_error;

/// The store's name in errors.
pub(crate) const STORE: &str = "S3";

/// Shortens the server's message in an error and corrects its kind: errors of listings have no kind.
pub(crate) fn explain(bucket: &str, error: Error) -> Error {
    let text = match &error {
        Error::Generic { source, .. }
        | Error::NotFound { source, .. }
        | Error::PermissionDenied { source, .. }
        | Error::Unauthenticated { source, .. } => source.to_string(),
        _ => return error,
    };
    let Some(code) = element(&text, "Code") else { return error };
    let message = element(&text, "Message").unwrap_or_default();
    // The full response repeats the request, including its signature.
    let before =
        text.split_once('<').map_or(text.as_str(), |(before, _)| before).trim_end_matches([':', ' ']);
    let path = match &error {
        Error::NotFound { path, .. }
        | Error::PermissionDenied { path, .. }
        | Error::Unauthenticated { path, .. } => path.clone(),
        _ => String::new(),
    };
    let source = match advice(code) {
        Some(advice) => format!("{before}: {message} ({code}); {advice}"),
        None => format!("{before}: {message} ({code})"),
    };
    let source = source.into();
    match (code, error) {
        ("NoSuchBucket", _) => store_error(STORE, format!("bucket \"{bucket}\" does not exist")),
        (
            "AccessDenied"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "RequestExpired"
            | "RequestTimeTooSkewed",
            _,
        ) => Error::PermissionDenied { path, source },
        // Other missing things are not objects.
        (code, Error::NotFound { .. }) if code.starts_with("NoSuch") => Error::NotFound { path, source },
        (_, Error::PermissionDenied { .. }) => Error::PermissionDenied { path, source },
        (_, Error::Unauthenticated { .. }) => Error::Unauthenticated { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}

/// The hint for a server's error code.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "ExpiredToken" | "TokenRefreshRequired" | "RequestExpired" => {
            "the credentials have expired: new ones are taken from the profile or service that they come from, and AWS_SESSION_TOKEN and s3.session_token have to be set anew"
        }
        "AccessDenied" => "the credentials that the request was signed with may not do this",
        "InvalidToken" => "the session token does not belong to the access key",
        "InvalidAccessKeyId" => "the store does not know the access key",
        "SignatureDoesNotMatch" => "the secret access key is another's",
        "RequestTimeTooSkewed" => "the clock of this host is wrong",
        "AuthorizationHeaderMalformed"
        | "PermanentRedirect"
        | "TemporaryRedirect"
        | "IllegalLocationConstraintException" => {
            "the bucket is in another region: AWS_REGION or s3.region names it"
        }
        _ => return None,
    })
}

/// The text of an element in a response of S3: `<Code>NoSuchKey</Code>`.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_responses_are_shortened() {
        let answer = "Error performing GET http://here/b in 3 ms - 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
                      <Message>Access Denied.</Message><StringToSign>much</StringToSign></Error>";
        let error = explain("b", Error::Generic { store: STORE, source: answer.into() });
        let said = error.to_string();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{said}");
        assert!(
            said.contains("Forbidden: Access Denied. (AccessDenied)") && !said.contains("much"),
            "{said}"
        );
        let error = explain("b", Error::Generic { store: STORE, source: "<Code>NoSuchBucket</Code>".into() });
        assert!(error.to_string().contains("bucket \"b\" does not exist"), "{error}");
        assert_eq!(element("404", "Code"), None);
    }
}
