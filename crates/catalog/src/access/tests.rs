//! Access rules as scripts: actions, their results, and the resulting rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::access::changes::Change;
use crate::model::state::{Column, Location, Schema, Table, View};
use crate::model::types::ColumnType;

/// Schemas `main` and `s`; in `main` tables `t` and `u` with columns a, b, c and a view `v`.
fn state() -> State {
    let schema = |id, name: &str| {
        let (uuid, path) = (String::new(), Location::relative(format!("{name}/")));
        (id, Arc::new(Schema { id, uuid, name: name.into(), path, comment: None, options: BTreeMap::new() }))
    };
    let column = |id, name: &str| Column {
        id,
        name: name.into(),
        kind: ColumnType::Int64,
        children: Vec::new(),
        nullable: true,
        initial_default: None,
        default: None,
        comment: None,
        tags: BTreeMap::new(),
    };
    let table = |id, name: &str| {
        let table = Table {
            id,
            uuid: String::new(),
            schema: 0,
            name: name.into(),
            path: Location::relative(format!("{name}/")),
            columns: vec![column(1, "a"), column(2, "b"), column(3, "c")],
            next_column: 4,
            partition: Vec::new(),
            partition_id: None,
            sort: Vec::new(),
            comment: None,
            tags: BTreeMap::new(),
            options: BTreeMap::new(),
        };
        (id, Arc::new(table))
    };
    let view = View {
        id: 4,
        uuid: String::new(),
        schema: 0,
        name: "v".into(),
        dialect: "harrier".into(),
        sql: "SELECT 1".into(),
        column_aliases: String::new(),
        comment: None,
        columns_below: BTreeMap::new(),
    };
    State {
        snapshot: 1,
        time: 0,
        schema_version: 1,
        warehouse: None,
        data_path: "/data/".into(),
        schemas: BTreeMap::from([schema(0, "main"), schema(1, "s")]),
        tables: BTreeMap::from([table(2, "t"), table(3, "u")]),
        sequences: BTreeMap::new(),
        views: BTreeMap::from([(4, Arc::new(view))]),
        unusable: BTreeMap::new(),
        options: BTreeMap::new(),
    }
}

fn object(name: &str) -> Object {
    match name {
        "db" => Object::Warehouse,
        "main" => Object::Schema(0),
        "s" => Object::Schema(1),
        "t" => Object::Table(2),
        "u" => Object::Table(3),
        "v" => Object::View(4),
        "gone" => Object::Table(77),
        "mine" => Object::Table(-3),
        other => panic!("no object {other}"),
    }
}

fn grantee(name: &str) -> Grantee {
    if name == "public" { Grantee::Public } else { Grantee::Role(name.into()) }
}

/// `SELECT,UPDATE(a/b)`.
fn privileges(text: &str, on: &str, to: &str) -> Privileges {
    let one = |text: &str| {
        let (name, columns) = text.split_once('(').unwrap_or((text, ""));
        let column = |name: &str| match name {
            "a" => 1,
            "b" => 2,
            "c" => 3,
            _ => 99,
        };
        let columns = columns.trim_end_matches(')').split('/').filter(|name| !name.is_empty());
        (Privilege::of_name(name).unwrap(), columns.map(column).collect())
    };
    Privileges {
        objects: on.split(',').map(object).collect(),
        privileges: text.split(',').map(one).collect(),
        grantees: to.split(',').map(grantee).collect(),
    }
}

fn role_options(words: &[&str]) -> RoleOptions {
    let mut options = RoleOptions::default();
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("superuser", _) => options.superuser = Some(true),
            ("nosuperuser", _) => options.superuser = Some(false),
            ("login", _) => options.login = Some(true),
            ("createrole", _) => options.create_roles = Some(true),
            ("noinherit", _) => options.inherits = Some(false),
            ("in", role) => options.in_roles.push(role.into()),
            ("member", role) => options.members.push(role.into()),
            ("admin", role) => options.administrators.push(role.into()),
            ("until", time) => options.valid_until = Some(time.into()),
            ("queue", "") => options.queue = Some(None),
            ("queue", name) => options.queue = Some(Some(name.into())),
            ("password", _) => options.verifier = Some(None),
            other => panic!("no option {other:?}"),
        }
    }
    options
}

fn queue_options(words: &[&str]) -> QueueOptions {
    let mut options = QueueOptions::default();
    for word in words {
        let (name, value) = word.split_once('=').unwrap();
        match name {
            "active" => options.active_statements = Some(value.parse().ok()),
            "memory" => options.memory_limit = Some(value.parse().ok()),
            "priority" => options.priority = Priority::of_name(value),
            "cost" => options.max_cost = Some(value.parse().ok()),
            other => panic!("no option {other}"),
        }
    }
    options
}

/// Executes a line; returns a warning, if there is one.
fn run(change: &mut Change<'_>, words: &[&str]) -> Result<Option<String>> {
    let has = |word: &str| words.contains(&word);
    let first = |warnings: Vec<String>| warnings.into_iter().next();
    match words {
        ["create", name, options @ ..] => change.create_role(name, &role_options(options)).map(|()| None),
        ["alter", name, options @ ..] => change.alter_role(name, &role_options(options)).map(|()| None),
        ["rename", name, to] => change.rename_role(name, to).map(|()| None),
        ["drop", name] => change.drop_role(name).map(|()| None),
        ["join", role, member, ..] => change.grant_role(role, member, has("admin")).map(|()| None),
        ["leave", role, member, ..] => change.revoke_role(role, member, has("adminonly")),
        ["grant", what, on, to, ..] => change.grant(&privileges(what, on, to), has("option")).map(first),
        ["revoke", what, on, from, ..] => {
            change.revoke(&privileges(what, on, from), has("optiononly"), has("cascade")).map(first)
        }
        ["revokeall", role] => change.revoke_all(role).map(|()| None),
        ["owner", of, role] => change.set_owner(object(of), role).map(|()| None),
        ["reassign", from, to] => change.reassign_owned(from, to).map(|()| None),
        ["filter", table, role, predicate] => {
            change.put_row_filter(object(table).id(), &grantee(role), predicate).map(|()| None)
        }
        ["unfilter", table, role] => {
            change.drop_row_filter(object(table).id(), &grantee(role)).map(|()| None)
        }
        ["queue", name, options @ ..] => change.create_queue(name, &queue_options(options)).map(|()| None),
        ["alterqueue", name, options @ ..] => {
            change.alter_queue(name, &queue_options(options)).map(|()| None)
        }
        ["dropqueue", name] => change.drop_queue(name).map(|()| None),
        other => panic!("no command {other:?}"),
    }
}

/// The answer to a question about an `Access`, as text.
fn ask(access: &Access, words: &[&str]) -> String {
    let yes = |value: bool| if value { "yes" } else { "no" }.to_string();
    match words {
        ["may", role, privilege, on] => {
            yes(access.rights(role).may(object(on), Privilege::of_name(privilege).unwrap()))
        }
        ["columns", role, privilege, on] => {
            match access.rights(role).columns(object(on), Privilege::of_name(privilege).unwrap()) {
                Columns::All => "all".into(),
                Columns::None => "none".into(),
                Columns::Some(columns) => {
                    columns.iter().map(|id| ["a", "b", "c"][*id as usize - 1]).collect::<Vec<_>>().join("/")
                }
            }
        }
        ["rows", role, table] => match access.rights(role).row_filter(object(table).id()) {
            RowFilter::All => "all".into(),
            RowFilter::AnyOf(filters) if filters.is_empty() => "none".into(),
            RowFilter::AnyOf(filters) => filters.join("|"),
        },
        ["owns", role, on] => yes(access.rights(role).owns(object(on))),
        ["become", role, other] => yes(access.rights(role).may_become(other)),
        ["administer", role, other] => yes(access.rights(role).may_administer(other)),
        ["member", role, of] => yes(access.is_member(role, of)),
        ["super", role] => yes(access.rights(role).is_superuser()),
        ["queueof", role] => access.queue(role).map_or("none".into(), |queue| queue.name.clone()),
        ["roles"] => access.roles.values().map(|role| role.name.clone()).collect::<Vec<_>>().join(","),
        other => panic!("no question {other:?}"),
    }
}

/// Each line is `actor: command`, with `=> SQLSTATE` or `=> "a warning"` if it does not simply succeed, or `?
/// question => answer`. A failed command changes nothing. `system` is not a role.
fn check(script: &str) {
    let state = state();
    let mut access = Access { next: 1, ..Access::default() };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (line, expected) = line.split_once(" => ").unwrap_or((line, ""));
        if let Some(question) = line.strip_prefix("? ") {
            let words: Vec<&str> = question.split(' ').collect();
            assert_eq!(ask(&access, &words), expected, "{line}\n{access:#?}");
            continue;
        }
        let (actor, command) = line.split_once(": ").unwrap();
        let actor = if actor == "system" { Actor::System } else { Actor::Role(actor) };
        let words: Vec<&str> = command.split(' ').collect();
        let mut change = match Change::new(access.clone(), actor, &state) {
            Ok(change) => change,
            Err(error) => panic!("{line}: {error}"),
        };
        let outcome = match run(&mut change, &words) {
            Ok(warning) => {
                access = change.access;
                warning.map_or(String::new(), |warning| format!("\"{warning}\""))
            }
            Err(Error::Refused(refusal)) => refusal.sqlstate.to_string(),
            Err(error) => panic!("{line}: {error}"),
        };
        assert_eq!(outcome, expected, "{line}");
    }
}

#[test]
fn without_roles_everything_is_allowed() {
    check(
        "? may anybody DELETE t => yes
         ? columns anybody SELECT t => all
         ? rows anybody t => all
         ? super anybody => yes
         ? owns anybody t => yes",
    );
}

#[test]
fn first_role_does_not_lock_out_its_creator() {
    check(
        "boss: create alice login
         ? roles => boss,alice
         ? super boss => yes
         ? super alice => no
         ? may alice SELECT t => no
         ? may nobody SELECT t => no",
    );
    check("boss: create boss\n? super boss => yes\n? roles => boss");
    check("boss: create root superuser login\n? roles => root\n? super root => yes\n? super boss => no");
    check("system: create alice login\n? roles => alice\n? super alice => no");
    check("public: create alice => 42939");
}

#[test]
fn create_alter_and_drop_role() {
    check(
        "root: create root superuser login
         root: create alice login until=2026-01-01 createrole
         root: create alice => 42710
         root: create public => 42939
         root: create pg_read => 42939
         root: create x until=someday => 22007
         root: create x in=nobody => 42704
         ? roles => root,alice
         root: alter nobody login => 42704
         root: drop nobody => 42704
         root: drop root => 55006
         root: alter root nosuperuser => 55006
         alice: create bob login
         alice: create eve superuser => 42501
         alice: alter bob superuser => 42501
         alice: alter root login => 42501
         alice: drop root => 42501
         bob: create x => 42501
         bob: drop alice => 42501
         bob: alter bob password
         bob: alter bob password login => 42501
         bob: alter alice password => 42501
         root: create stranger
         alice: drop stranger => 42501
         alice: rename bob bert
         alice: rename alice alicia => 42501
         root: rename bert root => 42710
         alice: drop bert
         ? roles => root,alice,stranger",
    );
}

#[test]
fn memberships_inherit_privileges() {
    check(
        "root: create root superuser login
         root: create readers
         root: create team in=readers
         root: create alice login in=team
         root: create proud login noinherit in=team
         root: grant SELECT t readers
         ? may alice SELECT t => yes
         ? may alice INSERT t => no
         ? may proud SELECT t => no
         ? become alice readers => yes
         ? become proud team => yes
         ? become alice root => no
         ? become root alice => yes
         ? member proud readers => yes
         ? member root readers => no
         root: join alice readers => 0LP01
         root: join alice alice => 0LP01
         alice: join team proud => 42501
         root: join team alice admin
         alice: join team proud
         alice: join readers proud => 42501
         ? administer alice team => yes
         ? administer alice readers => no
         root: leave team alice adminonly
         alice: join team proud => 42501
         ? may alice SELECT t => yes
         alice: leave team alice
         ? may alice SELECT t => no
         root: leave team alice => \"role \"alice\" has not been granted membership in role \"team\"\"
         root: create chief admin=alice
         alice: join chief proud
         alice: join root alice => 42501
         root: drop team
         ? member proud readers => no",
    );
}

#[test]
fn role_creator_gets_admin_option_only() {
    check(
        "root: create root superuser login
         root: create alice login createrole
         alice: create bob login
         root: grant SELECT t bob
         ? may alice SELECT t => no
         ? become alice bob => no
         ? administer alice bob => yes
         root: join alice bob => 0LP01
         alice: join bob alice
         ? may alice SELECT t => yes",
    );
}

#[test]
fn privileges_on_objects_and_columns() {
    check(
        "root: create root superuser login
         root: create alice login
         root: create bob login
         root: grant SELECT,INSERT(a/b) t alice
         ? columns alice SELECT t => all
         ? columns alice INSERT t => a/b
         ? may alice INSERT t => no
         ? columns bob SELECT t => none
         root: grant SELECT t,u,v public
         ? may bob SELECT u => yes
         ? may bob SELECT v => yes
         ? may stranger SELECT v => no
         root: revoke INSERT t alice
         ? columns alice INSERT t => none
         root: grant SELECT(a) u bob
         root: revoke SELECT u public
         ? columns bob SELECT u => a
         root: revoke SELECT(b) u bob
         root: revoke SELECT(a) u bob
         ? columns bob SELECT u => none
         root: grant USAGE t bob => 0LP01
         root: grant SELECT s bob => 0LP01
         root: grant DELETE(a) t bob => 0LP01
         root: grant USAGE(a) s bob => 0LP01
         root: grant SELECT(z) t bob => 42703
         root: grant SELECT gone bob => 42704
         root: grant SELECT t nobody => 42704
         root: grant CREATE,CONNECT db bob
         ? may bob CREATE db => yes
         ? may bob CREATE s => no
         root: grant USAGE,CREATE s bob
         ? may bob CREATE s => yes
         ? may bob SELECT s => no
         ? owns bob mine => yes
         ? owns bob db => no",
    );
}

#[test]
fn grant_options_and_dependent_privileges() {
    check(
        "root: create root superuser login
         root: create alice login
         root: create bob login
         root: create carol login
         root: grant SELECT t public option => 0LP01
         alice: grant SELECT t bob => 42501
         root: grant SELECT t alice
         alice: grant SELECT t bob => \"no privileges were granted for table t\"
         root: grant SELECT t alice option
         alice: grant SELECT,INSERT t bob => \"not all privileges were granted for table t\"
         ? may bob SELECT t => yes
         ? may bob INSERT t => no
         alice: grant SELECT(a) t carol
         ? columns carol SELECT t => a
         bob: revoke SELECT t alice => \"no privileges were revoked for table t\"
         carol: revoke SELECT t alice => \"no privileges were revoked for table t\"
         root: revoke SELECT t alice => 2BP01
         root: revoke SELECT t alice optiononly => 2BP01
         root: revoke SELECT t alice cascade
         ? may bob SELECT t => no
         ? columns carol SELECT t => none
         root: grant SELECT t alice option
         alice: grant SELECT t bob option
         bob: grant SELECT t alice option
         bob: grant SELECT t carol
         root: revoke SELECT t alice => 2BP01
         alice: revoke SELECT t bob cascade
         ? may carol SELECT t => no
         ? may alice SELECT t => yes
         alice: grant SELECT t bob option
         bob: grant SELECT t carol
         root: revoke SELECT t alice optiononly cascade
         ? may alice SELECT t => yes
         ? may bob SELECT t => no
         ? may carol SELECT t => no
         root: grant SELECT(a) t alice option
         alice: grant SELECT(a) t bob
         alice: grant SELECT(b) t bob => \"no privileges were granted for table t\"
         ? columns bob SELECT t => a
         root: revokeall alice
         ? columns bob SELECT t => none
         bob: revokeall alice => 42501",
    );
}

#[test]
fn members_grant_with_the_options_of_their_group() {
    check(
        "root: create root superuser login
         root: create group
         root: create alice login in=group
         root: create bob login
         root: grant SELECT t group option
         alice: grant SELECT t bob
         ? may bob SELECT t => yes
         root: leave group alice
         ? may bob SELECT t => yes
         root: revoke SELECT t group => 2BP01
         root: revoke SELECT t bob
         root: revoke SELECT t group",
    );
}

#[test]
fn owners_have_all_privileges_and_transfer_ownership() {
    check(
        "root: create root superuser login
         root: create alice login
         root: create bob login
         root: create team in=alice
         alice: owner t alice => 42501
         root: owner t alice
         ? owns alice t => yes
         ? owns team t => yes
         ? may alice TRUNCATE t => yes
         ? may alice SELECT u => no
         alice: grant SELECT t bob
         alice: owner t bob => 42501
         root: drop alice => 2BP01
         root: join bob alice
         alice: owner t bob
         ? may alice SELECT t => yes
         ? owns alice t => yes
         root: leave bob alice
         ? owns alice t => no
         root: drop alice
         root: drop bob => 2BP01
         bob: reassign bob root => 42501
         root: reassign bob root
         root: drop bob => 2BP01
         root: revokeall bob
         root: drop bob
         root: owner gone root => 42704",
    );
}

#[test]
fn row_filters_are_combined_and_deny_others() {
    check(
        "root: create root superuser login
         root: create eu
         root: create us
         root: create alice login in=eu
         root: create both login in=eu in=us
         root: create bob login
         root: owner t bob
         root: grant SELECT t public
         ? rows alice t => all
         alice: filter t eu region='EU' => 42501
         bob: filter t eu region='EU'
         bob: filter t us region='US'
         ? rows alice t => region='EU'
         ? rows both t => region='EU'|region='US'
         ? rows us t => region='US'
         ? rows bob t => all
         ? rows root t => all
         ? rows stranger t => none
         root: create late login
         ? rows late t => none
         bob: filter t public open
         ? rows late t => open
         ? rows alice t => open|region='EU'
         ? rows stranger t => none
         root: drop eu => 2BP01
         bob: unfilter t eu
         bob: unfilter t eu => 42704
         root: drop eu
         bob: filter gone us true => 42P01
         bob: filter v us true => 42P01
         bob: filter u us true => 42501",
    );
}

#[test]
fn resource_queues() {
    check(
        "root: queue pg_default active=20
         root: queue etl active=2 memory=1000000 priority=low cost=1e9
         root: queue etl => 42710
         root: create root superuser login
         root: create alice login queue=etl
         root: create bob login queue=nothing => 42704
         root: create bob login createrole
         ? queueof alice => etl
         ? queueof bob => pg_default
         bob: create carl queue=etl => 42501
         bob: queue mine => 42501
         bob: alterqueue etl active=99 => 42501
         bob: dropqueue etl => 42501
         root: alterqueue etl active=0 => 22023
         root: alterqueue etl cost=-1 => 22023
         root: alterqueue etl memory=0 => 22023
         root: alterqueue etl active=none priority=max
         root: alterqueue missing active=1 => 42704
         root: dropqueue etl => 2BP01
         root: alter alice queue
         root: dropqueue etl
         root: dropqueue etl => 42704
         ? queueof alice => pg_default
         root: queue none => 42939",
    );
}

#[test]
fn verifiers_are_not_passwords_and_are_not_printed() {
    let good = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let verifier = Verifier::new(good).unwrap();
    assert_eq!(verifier.as_str(), good);
    assert_eq!(format!("{verifier:?}"), "Verifier");
    for bad in [
        "",
        "secret",
        "md5d8578edf8458ce06fbc5bb76a58c5ca4",
        "SCRAM-SHA-256$0:YWE=$YWE=:YWE=",
        "SCRAM-SHA-256$4096:$YWE=:YWE=",
        "SCRAM-SHA-256$4096:c2FsdA==$c2hvcnQ=:c2hvcnQ=",
    ] {
        assert!(Verifier::new(bad).is_none(), "{bad}");
    }
}

#[test]
fn privilege_names_round_trip() {
    for privilege in Privilege::ALL {
        assert_eq!(Privilege::of_name(&privilege.name().to_lowercase()), Some(privilege));
    }
    for priority in Priority::ALL {
        assert_eq!(Priority::of_name(&priority.name().to_lowercase()), Some(priority));
    }
    assert_eq!(Privilege::of_name("temp"), Some(Privilege::Temporary));
    assert_eq!(Privilege::of_name("all"), None);
}
