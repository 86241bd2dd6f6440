//! The text of a statement about roles, privileges, row filters and resource queues, as PostgreSQL and HAWQ
//! write it.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_catalog::access::{Privilege, QueueOptions, RoleOptions};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{AccessStatement, Grantees, Objects, Password, RoleName, SettingChange, Target};
use crate::dialect::SqlDialect;
use crate::limits;
use crate::names::plain;
use crate::nesting;
use crate::stored::offset;

/// The statement, if it is one about access; only those have more to them than a look at their first words.
pub(super) fn parse(text: &str) -> Result<Option<AccessStatement>> {
    if !may_be_one(text) {
        return Ok(None);
    }
    parse_within(text, limits::NESTING_MAX).map_err(|error| {
        let parses = |levels| parse_within(text, levels).is_ok();
        nesting::too_deep_or(text, error, limits::NESTING_MAX, parses)
    })
}

/// The same with a predicate that has so many levels at most.
fn parse_within(text: &str, levels: usize) -> Result<Option<AccessStatement>> {
    let parser = Parser::new(&SqlDialect).with_recursion_limit(levels);
    let Ok(parser) = parser.try_with_sql(text) else {
        // What cannot be taken to words is for the parser of all other statements to complain about.
        return Ok(None);
    };
    let mut words = StatementWords(parser);
    let Some(statement) = statement(&mut words, text)? else {
        return Ok(None);
    };
    match words.0.next_token().token {
        Token::EOF | Token::SemiColon => Ok(Some(statement)),
        other => Err(near(&other)),
    }
}

fn may_be_one(text: &str) -> bool {
    const BEGINNINGS: [&str; 8] = ["create", "alter", "drop", "grant", "revoke", "reassign", "set", "reset"];
    let begins = |word: &&str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    // A comment may stand before the first word.
    text.starts_with(|c: char| !c.is_alphabetic()) || BEGINNINGS.iter().any(begins)
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
        let from = words.role()?;
        words.expect("to")?;
        AccessStatement::ReassignOwned { from, to: words.role()? }
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
        // Nobody but who has logged in is ever the session's.
        return match words.take("default") {
            true => Ok(Some(AccessStatement::SetRole { role: None, is_local })),
            false => Err(unsupported("SET SESSION AUTHORIZATION is not supported", "SET ROLE")),
        };
    }
    if !words.take("role") {
        return Ok(None);
    }
    // The form with an equals sign is how a parameter is set.
    let _ = words.0.consume_token(&Token::Eq) || words.take("to");
    let role = match words.take_any(&["none", "default"]) {
        true => None,
        false => match words.quoted() {
            // As the value of a parameter it is one word, quoted or not.
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

/// What stands after the name of a role.
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
                        return Err(twice());
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
                false => Password::Given(words.text()?),
            };
            if password.replace(given).is_some() {
                return Err(twice());
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
                return Err(words.unexpected());
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
        let name = words.role()?;
        if words.take_all(&["rename", "to"]) {
            return Ok(Some(AccessStatement::RenameRole { name, to: words.name()? }));
        }
        if words.is("in") {
            return Err(unsupported(
                "parameters of roles are for the one database",
                "ALTER ROLE … SET without IN DATABASE",
            ));
        }
        if let Some(change) = setting_change(words)? {
            if name == RoleName::Named("all".to_string()) {
                return Err(unsupported(
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
        let group = words.role()?;
        let is_added = words.take("add");
        if !is_added {
            words.expect("drop")?;
        }
        words.expect("user")?;
        let members = words.roles()?;
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
    let owner = words.role()?;
    Ok(Some(AccessStatement::SetOwner { target, name, if_exists, owner }))
}

/// SET or RESET of a parameter, after the name of a role.
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
    // As in SET TIME ZONE, neither need be there.
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
    // Of several names, as in a search path, quotes belong to the value.
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
        let roles = words.roles()?;
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
        Granted::Roles(roles) => {
            words.expect("to")?;
            let members = words.roles()?;
            let with_admin_option = words.take("with") && {
                words.expect("admin")?;
                // PostgreSQL 16 has WITH ADMIN TRUE.
                words.take("option") || words.take("true")
            };
            let granted_by = granted_by(words)?;
            Ok(AccessStatement::GrantRoles { roles, members, with_admin_option, granted_by })
        }
        Granted::Privileges(privileges) => {
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
        Granted::Roles(roles) => {
            words.expect("from")?;
            let members = words.roles()?;
            let granted_by = granted_by(words)?;
            let _ = cascade(words);
            Ok(AccessStatement::RevokeRoles { roles, members, admin_option_only, granted_by })
        }
        Granted::Privileges(privileges) => {
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

enum Granted {
    Roles(Vec<RoleName>),
    Privileges(Vec<(Option<Privilege>, Vec<String>)>),
}

/// A list that ends before ON is one of privileges, another one of roles.
fn privileges(words: &mut StatementWords<'_>) -> Result<Granted> {
    let mut items: Vec<(RoleName, Vec<String>)> = Vec::new();
    loop {
        let name = words.role()?;
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
            true => Ok(Granted::Roles(items.into_iter().map(|(name, _)| name).collect())),
            false => Err(words.unexpected()),
        };
    }
    let mut privileges = Vec::with_capacity(items.len());
    for (name, columns) in items {
        let RoleName::Named(name) = name else {
            return Err(words.unexpected());
        };
        let privilege = match name.as_str() {
            "all" => None,
            name => Some(Privilege::of_name(name).ok_or_else(|| {
                let message = format!("unrecognized privilege type \"{name}\"");
                harrier_sqlstate::external(SqlError::new(SqlState::SYNTAX_ERROR, message))
            })?),
        };
        privileges.push((privilege, columns));
    }
    Ok(Granted::Privileges(privileges))
}

/// What stands after ON.
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
        return Err(unsupported("there are no functions to grant on", "ALL TABLES IN SCHEMA"));
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

/// `None`: PUBLIC.
fn grantee(words: &mut StatementWords<'_>) -> Result<Option<RoleName>> {
    match words.take("public") {
        true => Ok(None),
        false => words.role().map(Some),
    }
}

fn granted_by(words: &mut StatementWords<'_>) -> Result<Option<RoleName>> {
    words.take_all(&["granted", "by"]).then(|| words.role()).transpose()
}

fn cascade(words: &mut StatementWords<'_>) -> bool {
    words.take("cascade") || {
        let _ = words.take("restrict");
        false
    }
}

/// `WITH (name = value, …)` and `WITHOUT (name, …)`; one of them at least.
fn queue_options(words: &mut StatementWords<'_>) -> Result<QueueOptions> {
    let mut options = QueueOptions::default();
    let mut found = false;
    loop {
        let with = if words.take("with") {
            true
        } else if words.take("without") {
            false
        } else if found {
            return Ok(options);
        } else {
            return Err(words.unexpected());
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
            super::queue_option(&mut options, &name, value.as_deref())?;
            if words.0.consume_token(&Token::RParen) {
                break;
            }
            words.0.expect_token(&Token::Comma)?;
        }
    }
}

fn unsupported(what: &str, hint: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what).with_hint(hint).into_datafusion()
}

fn twice() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").into_datafusion()
}

fn near(token: &Token) -> datafusion::error::DataFusionError {
    let message = match token {
        Token::EOF => "syntax error at end of input".to_string(),
        other => format!("syntax error at or near \"{other}\""),
    };
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

/// A statement's tokens, one after the other. Words are meant in any case, and never quoted.
pub(crate) struct StatementWords<'a>(pub(crate) Parser<'a>);

impl StatementWords<'_> {
    pub(crate) fn is_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.0.peek_nth_token(ahead).token, Token::Word(found)
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.is_at(0, word)
    }

    pub(crate) fn take(&mut self, word: &str) -> bool {
        let found = self.is(word);
        if found {
            self.0.next_token();
        }
        found
    }

    pub(crate) fn take_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.take(word))
    }

    /// All of them, or none.
    pub(crate) fn take_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(ahead, word)| self.is_at(ahead, word));
        if found {
            words.iter().for_each(|_| drop(self.0.next_token()));
        }
        found
    }

    pub(crate) fn expect(&mut self, word: &str) -> Result<()> {
        match self.take(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    pub(crate) fn unexpected(&self) -> datafusion::error::DataFusionError {
        near(&self.0.peek_token().token)
    }

    /// A text in quotes, if there is one.
    pub(crate) fn quoted(&mut self) -> Option<String> {
        let text = match self.0.peek_token().token {
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text) => text,
            Token::DollarQuotedString(text) => text.value,
            _ => return None,
        };
        self.0.next_token();
        Some(text)
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        match self.0.peek_token().token {
            Token::Word(_) => Ok(plain(&self.0.parse_identifier()?)),
            other => Err(near(&other)),
        }
    }

    pub(crate) fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.0.consume_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn role(&mut self) -> Result<RoleName> {
        if self.take_any(&["current_user", "current_role"]) {
            return Ok(RoleName::Current);
        }
        match self.take("session_user") {
            true => Ok(RoleName::Session),
            false => self.name().map(RoleName::Named),
        }
    }

    fn roles(&mut self) -> Result<Vec<RoleName>> {
        let mut roles = vec![self.role()?];
        while self.0.consume_token(&Token::Comma) {
            roles.push(self.role()?);
        }
        Ok(roles)
    }

    pub(crate) fn object(&mut self) -> Result<ObjectName> {
        Ok(self.0.parse_object_name(false)?)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        match self.0.next_token().token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
            other => Err(near(&other)),
        }
    }

    pub(crate) fn integer(&mut self) -> Result<i64> {
        let is_negative = self.0.consume_token(&Token::Minus);
        let token = self.0.next_token().token;
        let number = match &token {
            Token::Number(number, _) => number.parse::<i64>().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| near(&token))?;
        Ok(if is_negative { -number } else { number })
    }

    /// A text, a word or a number.
    pub(crate) fn value(&mut self) -> Result<String> {
        let is_negative = self.0.consume_token(&Token::Minus);
        match self.0.next_token().token {
            Token::Number(number, _) if is_negative => Ok(format!("-{number}")),
            Token::Number(number, _) => Ok(number),
            Token::SingleQuotedString(text) if !is_negative => Ok(text),
            Token::Word(word) if !is_negative => Ok(word.value),
            other => Err(near(&other)),
        }
    }
}
