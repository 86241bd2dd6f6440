//! Test of README.md.

/// The page that this file tests.
pub const PAGES: &[&str] = &["README.md"];

#[test]
fn readme() {
    crate::check("README.md");
}
