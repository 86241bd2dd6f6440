//! The first page.

/// What this file has a test for.
pub const PAGES: &[&str] = &["README.md"];

#[test]
fn readme() {
    crate::check("README.md");
}
