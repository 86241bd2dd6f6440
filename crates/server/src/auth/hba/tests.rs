//! Tests of HBA rules: rules, connections, and the matching rule.

use super::*;

/// `user@database from ADDRESS [tls] [member of ROLE]…`; the expected result is `METHOD LINE`, or `none`.
fn check(rules: &Rules, connection: &str, expected: &str) {
    let words: Vec<&str> = connection.split(' ').collect();
    let (user, database) = words[0].split_once('@').unwrap();
    let origin = match words[1] {
        "local" => Origin::Local,
        address => Origin::Tcp(address.parse().unwrap()),
    };
    let is_tls = words.contains(&"tls");
    let rule = rules.find(&Connection { origin, is_tls, database, user }, |role| {
        words[2..].contains(&format!("+{role}").as_str())
    });
    let rule = rule.map_or("none".to_string(), |rule| format!("{} {}", rule.method.name(), rule.line));
    assert_eq!(rule, expected, "{connection}");
}

const TEXT: &str = r#"
# TYPE  DATABASE        USER            ADDRESS                 METHOD
local   all             all                                     peer
host    all             evil            all                     reject   # wherever it is
hostssl secret          +trusted        10.1.0.0/16             cert
host    all             all             127.0.0.1/32            scram-sha-256
host    all             all             ::1/128                 scram-sha-256
hostssl sales,"all"     anna, bert      192.168.0.0  255.255.255.0  password clientcert=verify-ca
hostssl sameuser        all             2001:db8::/32           scram-sha-256
hostnossl samerole      all             172.16.0.0/12           scram-sha-256
host    odd             "+plus"         \
        0.0.0.0/0                       scram-sha-256
host    home            all             samehost                trust
"#;

#[test]
fn first_matching_rule_wins() {
    let rules = Rules::parse(TEXT).unwrap();
    for (connection, expected) in [
        ("anna@sales local", "peer 3"),
        ("evil@sales local", "peer 3"),
        ("evil@sales 127.0.0.1", "reject 4"),
        ("evil@sales ::1", "reject 4"),
        ("anna@sales 127.0.0.1", "scram-sha-256 6"),
        ("anna@sales ::ffff:127.0.0.1", "scram-sha-256 6"),
        ("anna@sales 127.0.0.2", "none"),
        ("anna@sales ::1 tls", "scram-sha-256 7"),
        ("anna@secret 10.1.255.255 tls +trusted", "cert 5"),
        ("anna@secret 10.1.255.255 +trusted", "none"),
        ("anna@secret 10.2.0.0 tls +trusted", "none"),
        ("anna@secret 10.1.2.3 tls", "none"),
        ("anna@sales 192.168.0.77 tls", "password 8"),
        ("bert@all 192.168.0.77 tls", "password 8"),
        ("bert@other 192.168.0.77 tls", "none"),
        ("carl@sales 192.168.0.77 tls", "none"),
        ("bert@sales 192.168.0.77", "none"),
        ("bert@bert 2001:db8:ffff::1 tls", "scram-sha-256 9"),
        ("bert@anna 2001:db8:ffff::1 tls", "none"),
        ("bert@bert 2001:db9::1 tls", "none"),
        ("bert@team 172.31.0.1 +team", "scram-sha-256 10"),
        ("bert@team 172.31.0.1 tls +team", "none"),
        ("bert@team 172.31.0.1", "none"),
        ("+plus@odd 8.8.8.8", "scram-sha-256 11"),
        ("anna@odd 8.8.8.8 +plus", "none"),
        ("anna@home 127.0.0.9", "trust 13"),
        ("anna@home 192.0.2.1", "none"),
    ] {
        check(&rules, connection, expected);
    }
    assert_eq!(rules.rules()[2].client_certificate, ClientCertificate::OfRole);
    assert_eq!(rules.rules()[5].client_certificate, ClientCertificate::Signed);
    let remote: Vec<usize> =
        rules.rules().iter().filter(|rule| rule.is_remote()).map(|rule| rule.line).collect();
    assert_eq!(remote, [4, 5, 8, 9, 10, 11]);
}

#[test]
fn default_rules_admit_only_local_connections() {
    let rules = Rules::default();
    for (connection, expected) in [
        ("a@a local", "peer 0"),
        ("a@a 127.0.0.1", "peer 0"),
        ("a@a ::1 tls", "peer 0"),
        ("a@a ::ffff:127.0.0.1", "peer 0"),
        ("a@a 10.0.0.1 tls", "none"),
        ("a@a fe80::1", "none"),
    ] {
        check(&rules, connection, expected);
    }
}

#[test]
fn errors_name_their_line() {
    for (text, line, says) in [
        ("", 1, "there is no rule"),
        ("# only\n\n", 1, "there is no rule"),
        ("local all all peer\nbogus all all peer", 2, "\"bogus\" is no connection type"),
        ("hostgssenc all all all gss", 1, "no GSSAPI"),
        ("include other.conf", 1, "\"include\" is not supported"),
        ("local", 1, "ends before its database"),
        ("local all", 1, "ends before its user"),
        ("host all all", 1, "ends before its address"),
        ("host all all 10.0.0.0/8", 1, "ends before its method"),
        ("local,host all all peer", 1, "one connection type"),
        ("local all, all\nlocal all all,", 1, "ends before its user"),
        ("local all all,", 1, "after it"),
        ("local ,all all peer", 1, "one connection type"),
        (", local all all peer", 1, "before it"),
        ("local \"all all peer", 1, "not closed"),
        ("local @file all peer", 1, "names from a file"),
        ("local all /^a peer", 1, "regular expressions"),
        ("local replication all peer", 1, "no replication"),
        ("host all all example.org scram-sha-256", 1, "is no address"),
        ("host all all samenet scram-sha-256", 1, "samenet"),
        ("host all all 10.0.0.0/33 scram-sha-256", 1, "from 0 to 32"),
        ("host all all 10.0.0.0/ scram-sha-256", 1, "from 0 to 32"),
        ("host all all ::ffff:10.0.0.0/104 scram-sha-256", 1, "IPv4"),
        ("host all all ::/129 scram-sha-256", 1, "from 0 to 128"),
        ("host all all 10.0.0.1/8 scram-sha-256", 1, "10.0.0.0/8 is that network"),
        ("host all all 10.0.0.1 scram-sha-256", 1, "is no mask"),
        ("host all all 10.0.0.0 255.0.255.0 scram-sha-256", 1, "is no mask"),
        ("host all all 10.0.0.0 ffff:: scram-sha-256", 1, "is no mask"),
        ("host all all 10.0.0.0/8 md5", 1, "use scram-sha-256"),
        ("host all all 10.0.0.0/8 radius", 1, "not supported"),
        ("hostssl all all all ldap ldapserver=h", 1, "needs ldapbasedn"),
        ("hostssl all all all ldap ldapserver=h ldapprefix=\"a=\" map=x", 1, "option \"map\""),
        ("hostssl all all all ldap ldapserver=h ldapprefix hidden", 1, "name=value"),
        ("host all all all ldap ldapserver=h ldapprefix=a", 1, "loopback"),
        ("hostnossl all all samehost ldap ldapserver=h ldapprefix=a", 1, "loopback"),
        ("hostssl all all all trust ldapserver=h", 1, "for method \"ldap\" only"),
        ("local all all ident", 1, "use peer"),
        ("local all all magic", 1, "is no method"),
        ("host all all 10.0.0.0/8 peer", 1, "another machine"),
        ("host all all samehost peer", 1, "another machine"),
        ("host all all 127.0.0.0/7 peer", 1, "126.0.0.0/7"),
        ("host all all 127.0.0.1/32 password", 1, "hostssl and local"),
        ("hostnossl all all 127.0.0.1/32 password", 1, "hostssl and local"),
        ("host all all all cert", 1, "hostssl rules only"),
        ("local all all peer map=x", 1, "option \"map\""),
        ("local all all peer why", 1, "name=value"),
        ("host all all all trust clientcert=verify-ca", 1, "hostssl rules only"),
        ("hostssl all all all trust clientcert=1", 1, "no value of clientcert"),
    ] {
        let errors = Rules::parse(text).unwrap_err();
        let (at, message) = &errors.0[0];
        assert_eq!(*at, line, "{text}: {errors}");
        assert!(message.contains(says), "{text}: {errors}");
        assert!(!message.contains("hidden"), "{text}: {errors}");
    }
    let both = Rules::parse("x\nlocal all all peer\n\\\ny").unwrap_err();
    assert_eq!(both.to_string().lines().count(), 2);
    assert_eq!(both.0[1].0, 3);
}

#[test]
fn refusals_name_only_the_connection() {
    let rules = Rules::parse("host all evil all reject\nlocal all all peer").unwrap();
    let origin = Origin::Tcp("10.0.0.1".parse().unwrap());
    let connection = Connection { origin, is_tls: true, database: "d", user: "u" };
    let failure = rules.admit(&connection, |_| false).unwrap_err();
    assert_eq!(failure.sqlstate, "28000");
    assert_eq!(
        failure.message,
        "no hba rule for host \"10.0.0.1\", user \"u\", database \"d\", SSL encryption"
    );
    let evil = rules.admit(&Connection { user: "evil", is_tls: false, ..connection }, |_| false).unwrap_err();
    assert!(evil.message.starts_with("an hba rule rejects connection"), "{evil}");
    assert!(evil.is_fatal);
    assert!(rules.admit(&Connection { origin: Origin::Local, ..connection }, |_| false).is_ok());
}

#[test]
fn ldap_rules_need_tls_loopback_or_sockets() {
    let text = "hostssl all all all ldap ldapserver=\"one two\" ldapprefix=\"uid=\" ldapsuffix=\", dc=org\" clientcert=verify-ca\n\
                host all all 127.0.0.1/32 ldap \"ldapurl=ldap://h/dc=org?uid?sub\" ldapbinddn=\"cn=a,dc=org\" ldapbindpasswd=\"hid den\"\n\
                local all all ldap ldapserver=h ldapbasedn=dc=org";
    let rules = Rules::parse(text).unwrap();
    assert!(rules.rules().iter().all(|rule| rule.method == Method::Ldap && rule.ldap.is_some()));
    assert_eq!(rules.rules()[0].client_certificate, ClientCertificate::Signed);
    assert!(!format!("{rules:?}").contains("hid den"));
    assert_eq!(rules, Rules::parse(text).unwrap());
}
