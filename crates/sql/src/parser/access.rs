//! Parser of statements about roles, privileges, row filters and resource queues, in the syntax of PostgreSQL
//! and HAWQ.

use std::fmt;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::nesting;
use crate::tokens::{Tokens, offset};
use crate::words::{StatementWords, syntax_error_near};

/// A statement about access control.
#[derive(Debug, Clone)]
pub enum AccessStatement {
    CreateRole {
        name: String,
        options: Box<RoleOptions>,
        password: Option<Password>,
    },
    AlterRole {
        name: RoleName,
        options: Box<RoleOptions>,
        password: Option<Password>,
    },
    ChangeSetting {
        role: RoleName,
        change: SettingChange,
    },
    RenameRole {
        name: RoleName,
        to: String,
    },
    DropRoles {
        names: Vec<String>,
        if_exists: bool,
    },
    GrantRoles {
        roles: Vec<RoleName>,
        members: Vec<RoleName>,
        with_admin_option: bool,
        granted_by: Option<RoleName>,
    },
    RevokeRoles {
        roles: Vec<RoleName>,
        members: Vec<RoleName>,
        admin_option_only: bool,
        granted_by: Option<RoleName>,
    },
    Grant {
        /// Privilege names, `None` for ALL, each with its columns.
        privileges: Vec<(Option<String>, Vec<String>)>,
        objects: Objects,
        grantees: Grantees,
        with_grant_option: bool,
        granted_by: Option<RoleName>,
    },
    Revoke {
        /// Privilege names, `None` for ALL, each with its columns.
        privileges: Vec<(Option<String>, Vec<String>)>,
        objects: Objects,
        grantees: Grantees,
        grant_option_only: bool,
        cascade: bool,
        granted_by: Option<RoleName>,
    },
    SetOwner {
        target: Target,
        name: ObjectName,
        if_exists: bool,
        owner: RoleName,
    },
    ReassignOwned {
        from: RoleName,
        to: RoleName,
    },
    DropOwned {
        roles: Vec<RoleName>,
    },
    PutRowFilter {
        table: ObjectName,
        grantee: Option<RoleName>,
        /// The source text.
        predicate: String,
    },
    DropRowFilter {
        table: ObjectName,
        grantee: Option<RoleName>,
    },
    CreateQueue {
        name: String,
        options: Vec<QueueOption>,
    },
    AlterQueue {
        name: String,
        options: Vec<QueueOption>,
    },
    DropQueue {
        name: String,
        if_exists: bool,
    },
    SetRole {
        /// `None`: NONE.
        role: Option<String>,
        /// SET LOCAL: until the end of the transaction.
        is_local: bool,
    },
}

/// A role reference: a name, CURRENT_ROLE or SESSION_USER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleName {
    Named(String),
    Current,
    Session,
}

/// Roles; `None` for PUBLIC.
pub type Grantees = Vec<Option<RoleName>>;

/// A change of a role's session defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingChange {
    Set {
        name: String,
        value: String,
    },
    /// FROM CURRENT: the value in this session.
    SetToCurrent(String),
    Reset(String),
    ResetAll,
}

/// The objects of a GRANT or REVOKE.
#[derive(Debug, Clone)]
pub enum Objects {
    Relations(Vec<ObjectName>),
    TablesIn(Vec<String>),
    Sequences(Vec<ObjectName>),
    SequencesIn(Vec<String>),
    Schemas(Vec<String>),
    Warehouse,
}

/// Options of CREATE and ALTER ROLE; `None`: not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub login: Option<bool>,
    pub create_roles: Option<bool>,
    pub inherits: Option<bool>,
    /// `Some(None)`: no limit.
    pub connection_limit: Option<Option<u32>>,
    /// A time, or `infinity`.
    pub valid_until: Option<String>,
    /// `Some(None)`: NONE.
    pub queue: Option<Option<String>>,
    /// Only in CREATE ROLE: roles of which it becomes a member (IN ROLE), roles that become its members
    /// (ROLE), and members with the admin option (ADMIN).
    pub in_roles: Vec<String>,
    pub members: Vec<String>,
    pub administrators: Vec<String>,
}

/// Name and value of a resource queue option; `None`: no limit.
pub type QueueOption = (String, Option<String>);

/// The kind of object that gets a new owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Relation,
    Sequence,
    Schema,
    Warehouse,
}

/// The password clause of a role.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    None,
    /// A password or a stored verifier.
    Text(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl AccessStatement {
    /// PostgreSQL's command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::CreateRole { .. } => "CREATE ROLE",
            Self::AlterRole { .. } | Self::RenameRole { .. } | Self::ChangeSetting { .. } => "ALTER ROLE",
            Self::DropRoles { .. } => "DROP ROLE",
            Self::GrantRoles { .. } => "GRANT ROLE",
            Self::RevokeRoles { .. } => "REVOKE ROLE",
            Self::Grant { .. } => "GRANT",
            Self::Revoke { .. } => "REVOKE",
            Self::SetOwner { target: Target::Relation, .. } => "ALTER TABLE",
            Self::SetOwner { target: Target::Sequence, .. } => "ALTER SEQUENCE",
            Self::SetOwner { target: Target::Schema, .. } => "ALTER SCHEMA",
            Self::SetOwner { target: Target::Warehouse, .. } => "ALTER DATABASE",
            Self::ReassignOwned { .. } => "REASSIGN OWNED",
            Self::DropOwned { .. } => "DROP OWNED",
            Self::PutRowFilter { .. } => "CREATE ROW FILTER",
            Self::DropRowFilter { .. } => "DROP ROW FILTER",
            Self::CreateQueue { .. } => "CREATE QUEUE",
            Self::AlterQueue { .. } => "ALTER QUEUE",
            Self::DropQueue { .. } => "DROP QUEUE",
            Self::SetRole { .. } => "SET",
        }
    }

    /// The role of GRANTED BY.
    pub fn granted_by(&self) -> Option<&RoleName> {
        match self {
            Self::GrantRoles { granted_by, .. }
            | Self::RevokeRoles { granted_by, .. }
            | Self::Grant { granted_by, .. }
            | Self::Revoke { granted_by, .. } => granted_by.as_ref(),
            _ => None,
        }
    }
}

/// Parses a statement about access control; `None` for others, which its first words distinguish.
///
/// Errors: it is malformed (42601).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<AccessStatement>> {
    const BEGINNINGS: [&str; 8] = ["create", "alter", "drop", "grant", "revoke", "reassign", "set", "reset"];
    if !tokens.is_one_of(0, &BEGINNINGS) {
        return Ok(None);
    }
    parse_within(tokens, nesting::NESTING_MAX).map_err(|error| {
        let parses = |levels| parse_within(tokens, levels).is_ok();
        nesting::too_deep_or(tokens, error, nesting::NESTING_MAX, parses)
    })
}

/// Parses with a recursion limit, which bounds the predicate of a row filter.
fn parse_within(tokens: &Tokens<'_>, levels: usize) -> Result<Option<AccessStatement>> {
    let mut words = StatementWords(tokens.parser(levels));
    let Some(statement) = statement(&mut words, tokens.text())? else {
        return Ok(None);
    };
    match words.0.next_token().token {
        Token::EOF | Token::SemiColon => Ok(Some(statement)),
        other => Err(syntax_error_near(&other)),
    }
}

fn statement(words: &mut StatementWords<'_>, text: &str) -> Result<Option<AccessStatement>> {
    Ok(Some(if words.take("create") {
        // CREATE USER is CREATE ROLE … LOGIN.
        let is_user = words.is("user");
        if words.take_any(&["role", "user", "group"]) {
            return create_role(words, is_user).map(Some);
        }
        if words.take_all(&["resource", "queue"]) {
            let name = words.name()?;
            AccessStatement::CreateQueue { name, options: queue_options(words)? }
        } else if words.take_all(&["row", "filter"]) {
            row_filter(words, text)?
        } else if words.is("policy") {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "CREATE POLICY is not supported")
                .with_hint("CREATE ROW FILTER ON table TO role USING (predicate)")
                .into_datafusion());
        } else {
            return Ok(None);
        }
    } else if words.take("alter") {
        return alter(words);
    } else if words.take("drop") {
        return drop_one(words);
    } else if words.take("grant") {
        return grant(words).map(Some);
    } else if words.take("revoke") {
        return revoke(words).map(Some);
    } else if words.take_all(&["reassign", "owned"]) {
        words.expect("by")?;
        let from = role_name(words)?;
        words.expect("to")?;
        AccessStatement::ReassignOwned { from, to: role_name(words)? }
    } else if words.take("set") {
        return set_role(words);
    } else if words.take_all(&["reset", "role"]) || words.take_all(&["reset", "session", "authorization"]) {
        AccessStatement::SetRole { role: None, is_local: false }
    } else {
        return Ok(None);
    }))
}

fn set_role(words: &mut StatementWords<'_>) -> Result<Option<AccessStatement>> {
    let is_local = words.take("local");
    let _ = !is_local && words.take("session");
    if words.take("authorization") {
        // The session user is always the role that logged in.
        return match words.take("default") {
            true => Ok(Some(AccessStatement::SetRole { role: None, is_local })),
            false => Err(unsupported_error("SET SESSION AUTHORIZATION is not supported", "SET ROLE")),
        };
    }
    if !words.take("role") {
        return Ok(None);
    }
    // The form with an equals sign sets the parameter `role`.
    let _ = words.0.consume_token(&Token::Eq) || words.take("to");
    let role = match words.take_any(&["none", "default"]) {
        true => None,
        false => match words.optional_text() {
            // As a parameter value it is one word, quoted or not.
            Some(name) => (!name.eq_ignore_ascii_case("none")).then_some(name),
            None => Some(words.name()?),
        },
    };
    Ok(Some(AccessStatement::SetRole { role, is_local }))
}

fn create_role(words: &mut StatementWords<'_>, is_user: bool) -> Result<AccessStatement> {
    let name = words.name()?;
    let (mut options, password) = role_options(words, true)?;
    if is_user && options.login.is_none() {
        options.login = Some(true);
    }
    Ok(AccessStatement::CreateRole { name, options: Box::new(options), password })
}

/// Parses the options after the name of a role.
fn role_options(words: &mut StatementWords<'_>, is_new: bool) -> Result<(RoleOptions, Option<Password>)> {
    let mut options = RoleOptions::default();
    let mut password = None;
    let _ = words.take("with");
    loop {
        let flags: [(&str, &mut Option<bool>); 4] = [
            ("superuser", &mut options.superuser),
            ("login", &mut options.login),
            ("createrole", &mut options.create_roles),
            ("inherit", &mut options.inherits),
        ];
        let mut found = false;
        for (name, flag) in flags {
            for (word, value) in [(name.to_string(), true), (format!("no{name}"), false)] {
                if words.take(&word) {
                    if flag.replace(value).is_some() {
                        return Err(redundant_option_error());
                    }
                    found = true;
                }
            }
        }
        if found || words.take_any(&["nocreatedb", "noreplication", "nobypassrls"]) {
            continue;
        }
        for (word, why) in [
            ("createdb", "a warehouse is one database"),
            ("replication", "there is no replication protocol"),
            ("bypassrls", "owners and superusers see all rows"),
        ] {
            if words.is(word) {
                let message = format!("role attribute {} is not supported", word.to_uppercase());
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(why)
                    .into_datafusion());
            }
        }
        if words.take("connection") {
            words.expect("limit")?;
            let limit = words.integer()?;
            options.connection_limit = Some(u32::try_from(limit).ok());
        } else if words.is("encrypted") || words.is("password") {
            let _ = words.take("encrypted");
            words.expect("password")?;
            let given = match words.take("null") {
                true => Password::None,
                false => Password::Text(words.text()?),
            };
            if password.replace(given).is_some() {
                return Err(redundant_option_error());
            }
        } else if words.take("valid") {
            words.expect("until")?;
            options.valid_until = Some(words.text()?);
        } else if words.take_all(&["resource", "queue"]) {
            options.queue = Some(match words.take("none") {
                true => None,
                false => Some(words.name()?),
            });
        } else if is_new && words.take("in") {
            if !words.take_any(&["role", "group"]) {
                return Err(words.syntax_error());
            }
            options.in_roles = words.names()?;
        } else if is_new && words.take_any(&["role", "user"]) {
            options.members = words.names()?;
        } else if is_new && words.take("admin") {
            options.administrators = words.names()?;
        } else {
            return Ok((options, password));
        }
    }
}

fn alter(words: &mut StatementWords<'_>) -> Result<Option<AccessStatement>> {
    if words.take_any(&["role", "user"]) {
        let name = role_name(words)?;
        if words.take_all(&["rename", "to"]) {
            return Ok(Some(AccessStatement::RenameRole { name, to: words.name()? }));
        }
        if words.is("in") {
            return Err(unsupported_error(
                "parameters of roles are for the one database",
                "ALTER ROLE … SET without IN DATABASE",
            ));
        }
        if let Some(change) = setting_change(words)? {
            if name == RoleName::Named("all".to_string()) {
                return Err(unsupported_error(
                    "ALTER ROLE ALL is not supported",
                    "[settings] of the server's configuration is for all roles",
                ));
            }
            return Ok(Some(AccessStatement::ChangeSetting { role: name, change }));
        }
        let (options, password) = role_options(words, false)?;
        return Ok(Some(AccessStatement::AlterRole { name, options: Box::new(options), password }));
    }
    if words.take("group") {
        let group = role_name(words)?;
        let is_added = words.take("add");
        if !is_added {
            words.expect("drop")?;
        }
        words.expect("user")?;
        let members = role_names(words)?;
        return Ok(Some(match is_added {
            true => AccessStatement::GrantRoles {
                roles: vec![group],
                members,
                with_admin_option: false,
                granted_by: None,
            },
            false => AccessStatement::RevokeRoles {
                roles: vec![group],
                members,
                admin_option_only: false,
                granted_by: None,
            },
        }));
    }
    if words.take_all(&["resource", "queue"]) {
        let name = words.name()?;
        return Ok(Some(AccessStatement::AlterQueue { name, options: queue_options(words)? }));
    }
    // ALTER … OWNER TO, among all that is altered.
    let target = if words.take_any(&["table", "view"]) {
        let _ = words.take("only");
        Target::Relation
    } else if words.take("sequence") {
        Target::Sequence
    } else if words.take("schema") {
        Target::Schema
    } else if words.take("database") {
        Target::Warehouse
    } else {
        return Ok(None);
    };
    let if_exists = words.take_all(&["if", "exists"]);
    let Ok(name) = words.0.parse_object_name(false) else {
        return Ok(None);
    };
    if !words.take_all(&["owner", "to"]) {
        return Ok(None);
    }
    let owner = role_name(words)?;
    Ok(Some(AccessStatement::SetOwner { target, name, if_exists, owner }))
}

/// Parses SET or RESET of a parameter, after the name of a role.
fn setting_change(words: &mut StatementWords<'_>) -> Result<Option<SettingChange>> {
    let is_set = words.take("set");
    if !is_set && !words.take("reset") {
        return Ok(None);
    }
    let name = match words.take_all(&["time", "zone"]) {
        true => "TimeZone".to_string(),
        false => words.object()?.to_string(),
    };
    if !is_set {
        return Ok(Some(match name.eq_ignore_ascii_case("all") {
            true => SettingChange::ResetAll,
            false => SettingChange::Reset(name),
        }));
    }
    if words.take_all(&["from", "current"]) {
        return Ok(Some(SettingChange::SetToCurrent(name)));
    }
    // Both are optional, as in SET TIME ZONE.
    let _ = words.0.consume_token(&Token::Eq) || words.take("to");
    if words.take("default") {
        return Ok(Some(SettingChange::Reset(name)));
    }
    let mut values = Vec::new();
    loop {
        let is_name = matches!(&words.0.peek_token().token, Token::Word(word) if word.quote_style.is_some());
        let value = words.value()?;
        values.push((value, is_name));
        if !words.0.consume_token(&Token::Comma) {
            break;
        }
    }
    // In lists of names, such as a search path, quotes are part of the value.
    let is_list = values.len() > 1 || name.eq_ignore_ascii_case("search_path");
    let quoted = |(value, is_name): (String, bool)| match is_list && is_name {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value,
    };
    let value = values.into_iter().map(quoted).collect::<Vec<_>>().join(", ");
    Ok(Some(SettingChange::Set { name, value }))
}

fn drop_one(words: &mut StatementWords<'_>) -> Result<Option<AccessStatement>> {
    if words.take_any(&["role", "user", "group"]) {
        let if_exists = words.take_all(&["if", "exists"]);
        return Ok(Some(AccessStatement::DropRoles { names: words.names()?, if_exists }));
    }
    if words.take_all(&["resource", "queue"]) {
        let if_exists = words.take_all(&["if", "exists"]);
        return Ok(Some(AccessStatement::DropQueue { name: words.name()?, if_exists }));
    }
    if words.take_all(&["owned", "by"]) {
        let roles = role_names(words)?;
        let _ = cascade(words);
        return Ok(Some(AccessStatement::DropOwned { roles }));
    }
    if words.take_all(&["row", "filter"]) {
        words.expect("on")?;
        let table = words.object()?;
        words.expect("from")?;
        return Ok(Some(AccessStatement::DropRowFilter { table, grantee: grantee(words)? }));
    }
    Ok(None)
}

fn row_filter(words: &mut StatementWords<'_>, text: &str) -> Result<AccessStatement> {
    words.expect("on")?;
    let table = words.object()?;
    words.expect("to")?;
    let grantee = grantee(words)?;
    words.expect("using")?;
    words.0.expect_token(&Token::LParen)?;
    let start = words.0.peek_token().span.start;
    words.0.parse_expr()?;
    let end = words.0.get_current_token().span.end;
    words.0.expect_token(&Token::RParen)?;
    let predicate =
        text.get(offset(text, start)..offset(text, end)).unwrap_or_default().trim_end().to_string();
    Ok(AccessStatement::PutRowFilter { table, grantee, predicate })
}

fn grant(words: &mut StatementWords<'_>) -> Result<AccessStatement> {
    match privileges(words)? {
        GrantList::Roles(roles) => {
            words.expect("to")?;
            let members = role_names(words)?;
            let with_admin_option = words.take("with") && {
                words.expect("admin")?;
                // PostgreSQL 16 accepts WITH ADMIN TRUE.
                words.take("option") || words.take("true")
            };
            let granted_by = granted_by(words)?;
            Ok(AccessStatement::GrantRoles { roles, members, with_admin_option, granted_by })
        }
        GrantList::Privileges(privileges) => {
            let objects = objects(words)?;
            words.expect("to")?;
            let grantees = grantees(words)?;
            let with_grant_option = words.take_all(&["with", "grant", "option"]);
            let granted_by = granted_by(words)?;
            Ok(AccessStatement::Grant { privileges, objects, grantees, with_grant_option, granted_by })
        }
    }
}

fn revoke(words: &mut StatementWords<'_>) -> Result<AccessStatement> {
    let grant_option_only = words.take_all(&["grant", "option", "for"]);
    let admin_option_only = !grant_option_only && words.take_all(&["admin", "option", "for"]);
    match privileges(words)? {
        GrantList::Roles(roles) => {
            words.expect("from")?;
            let members = role_names(words)?;
            let granted_by = granted_by(words)?;
            let _ = cascade(words);
            Ok(AccessStatement::RevokeRoles { roles, members, admin_option_only, granted_by })
        }
        GrantList::Privileges(privileges) => {
            let objects = objects(words)?;
            words.expect("from")?;
            let grantees = grantees(words)?;
            let granted_by = granted_by(words)?;
            let cascade = cascade(words);
            Ok(AccessStatement::Revoke {
                privileges,
                objects,
                grantees,
                grant_option_only,
                cascade,
                granted_by,
            })
        }
    }
}

enum GrantList {
    Roles(Vec<RoleName>),
    Privileges(Vec<(Option<String>, Vec<String>)>),
}

/// Parses a list of privileges if ON follows it, or else of roles.
fn privileges(words: &mut StatementWords<'_>) -> Result<GrantList> {
    let mut items: Vec<(RoleName, Vec<String>)> = Vec::new();
    loop {
        let name = role_name(words)?;
        let is_all = matches!(&name, RoleName::Named(name) if name == "all");
        let _ = is_all && words.take("privileges");
        let mut columns = Vec::new();
        if words.0.consume_token(&Token::LParen) {
            loop {
                columns.push(words.name()?);
                if words.0.consume_token(&Token::RParen) {
                    break;
                }
                words.0.expect_token(&Token::Comma)?;
            }
        }
        items.push((name, columns));
        if !words.0.consume_token(&Token::Comma) {
            break;
        }
    }
    if !words.take("on") {
        return match items.iter().all(|(_, columns)| columns.is_empty()) {
            true => Ok(GrantList::Roles(items.into_iter().map(|(name, _)| name).collect())),
            false => Err(words.syntax_error()),
        };
    }
    let mut privileges = Vec::with_capacity(items.len());
    for (name, columns) in items {
        let RoleName::Named(name) = name else {
            return Err(words.syntax_error());
        };
        let privilege = (name != "all").then_some(name);
        privileges.push((privilege, columns));
    }
    Ok(GrantList::Privileges(privileges))
}

/// Parses the objects after ON.
fn objects(words: &mut StatementWords<'_>) -> Result<Objects> {
    if words.take_all(&["all", "tables", "in", "schema"]) {
        return Ok(Objects::TablesIn(words.names()?));
    }
    if words.take_all(&["all", "sequences", "in", "schema"]) {
        return Ok(Objects::SequencesIn(words.names()?));
    }
    if words.take("sequence") {
        let mut names = vec![words.object()?];
        while words.0.consume_token(&Token::Comma) {
            names.push(words.object()?);
        }
        return Ok(Objects::Sequences(names));
    }
    for other in ["function", "procedure", "routine", "language", "type", "domain", "tablespace"] {
        if words.is(other) {
            let message = format!("there are no privileges on a {other}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
    }
    if words.take_all(&["all", "functions"]) {
        return Err(unsupported_error("there are no functions to grant on", "ALL TABLES IN SCHEMA"));
    }
    if words.take("schema") {
        return Ok(Objects::Schemas(words.names()?));
    }
    if words.take("database") {
        words.names()?;
        return Ok(Objects::Warehouse);
    }
    let _ = words.take("table");
    let mut names = vec![words.object()?];
    while words.0.consume_token(&Token::Comma) {
        names.push(words.object()?);
    }
    Ok(Objects::Relations(names))
}

fn grantees(words: &mut StatementWords<'_>) -> Result<Grantees> {
    let mut all = Vec::new();
    loop {
        let _ = words.take("group");
        all.push(grantee(words)?);
        if !words.0.consume_token(&Token::Comma) {
            return Ok(all);
        }
    }
}

/// Parses a grantee; `None` for PUBLIC.
fn grantee(words: &mut StatementWords<'_>) -> Result<Option<RoleName>> {
    match words.take("public") {
        true => Ok(None),
        false => role_name(words).map(Some),
    }
}

fn granted_by(words: &mut StatementWords<'_>) -> Result<Option<RoleName>> {
    words.take_all(&["granted", "by"]).then(|| role_name(words)).transpose()
}

fn cascade(words: &mut StatementWords<'_>) -> bool {
    words.take("cascade") || {
        let _ = words.take("restrict");
        false
    }
}

/// Parses `WITH (name = value, …)` and `WITHOUT (name, …)`, at least one of them.
fn queue_options(words: &mut StatementWords<'_>) -> Result<Vec<QueueOption>> {
    let mut options = Vec::new();
    let mut found = false;
    loop {
        let with = if words.take("with") {
            true
        } else if words.take("without") {
            false
        } else if found {
            return Ok(options);
        } else {
            return Err(words.syntax_error());
        };
        found = true;
        words.0.expect_token(&Token::LParen)?;
        loop {
            let name = words.name()?;
            let value = match with {
                true => {
                    words.0.expect_token(&Token::Eq)?;
                    Some(words.value()?)
                }
                false => None,
            };
            options.push((name, value));
            if words.0.consume_token(&Token::RParen) {
                break;
            }
            words.0.expect_token(&Token::Comma)?;
        }
    }
}

fn unsupported_error(what: &str, hint: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what).with_hint(hint).into_datafusion()
}

fn redundant_option_error() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").into_datafusion()
}

fn role_name(words: &mut StatementWords<'_>) -> Result<RoleName> {
    if words.take_any(&["current_user", "current_role"]) {
        return Ok(RoleName::Current);
    }
    match words.take("session_user") {
        true => Ok(RoleName::Session),
        false => words.name().map(RoleName::Named),
    }
}

fn role_names(words: &mut StatementWords<'_>) -> Result<Vec<RoleName>> {
    let mut roles = vec![role_name(words)?];
    while words.0.consume_token(&Token::Comma) {
        roles.push(role_name(words)?);
    }
    Ok(roles)
}
