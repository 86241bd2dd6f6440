#!/bin/sh
# Installs the clients that the tests connect with: of Debian, and of PyPI, Maven Central and npm into
# .harrier/clients.
#
# usage: scripts/clients.sh [--packages]
#
# Prints the folder, with python/, dbt/ and hive/ (environments of Python), java/ (jars) and node/ (modules). psql,
# pgbench, isql, psqlODBC, Java and Node.js are packages of the system, installed with apt-get where they are missing and it may. What
# is there already is kept; where there is a folder ~/.cache/harrier the jars are kept there too, for other
# checkouts. Exit status: 0 if all clients are there, 1 if not.
# --packages: prints the packages that it would install, and installs nothing.

set -eu

pgjdbc_version=42.7.7
sqlline_version=1.12.0
hive_jdbc_version=4.0.1

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/clients
. "$checkout/scripts/packages.sh"
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"
. "$checkout/scripts/jars.sh"

# What the tests import, by themselves or by the programs that they start.
python_modules="adbc_driver_flightsql.dbapi adbc_driver_postgresql.dbapi alembic.operations asyncpg
 django.db.models IPython pandas peewee pexpect pgcli.main psycopg_pool psycopg.types.json psycopg2.extras
 pyarrow pyodbc pyorc sql sqlalchemy.dialects.postgresql sqlalchemy.ext.asyncio sqlalchemy.orm
 tortoise.backends.asyncpg"
dbt_modules="dbt.adapters.postgres dbt.cli.main psycopg2.extras"
hive_modules="impala.dbapi impala.sqlalchemy pyhive.hive pyhive.sqlalchemy_hive thrift_sasl"

# Of these there are no wheels.
hive_sources="pure-sasl==0.6.2 PyHive==0.7.0"

main() {
    if [ "${1-}" = --packages ]; then
        missing_packages
        return
    fi
    # Each of the three has been installed as these files ask for: another word in them is another set of
    # clients.
    python_version=$(echo "$python_modules" | cat - "$checkout/scripts/clients/python.txt" | cksum)
    hive_version=$(echo "$hive_modules $hive_sources" | cat - "$checkout/scripts/clients/hive.txt" | cksum)
    dbt_version=$(echo "$dbt_modules" | cat - "$checkout/scripts/clients/dbt.txt" | cksum)
    java_version="$pgjdbc_version $sqlline_version $hive_jdbc_version $(cksum <"$checkout/scripts/clients/pom.xml")"
    node_version=$(cksum <"$checkout/scripts/clients/package-lock.json")
    if [ -n "$(missing_parts)" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$folder"
        (
            flock 9
            install_parts
        ) 9>"$checkout/.harrier/clients.lock"
    fi
    need_packages
    missing="$(missing_parts) $(missing_programs)"
    if [ "$missing" != " " ]; then
        # shellcheck disable=SC2086 # on one line
        echo "clients: not installed and could not be:" $missing >&2
        exit 1
    fi
    echo "$folder"
}

missing_parts() {
    is_version "$folder/python" "$python_version" || echo python
    is_version "$folder/dbt" "$dbt_version" || echo dbt
    is_version "$folder/hive" "$hive_version" || echo hive
    is_version "$folder/java" "$java_version" || echo java
    is_version "$folder/node" "$node_version" || echo node
}

# is_version FOLDER VERSION
is_version() {
    [ "$(cat "$1/.version" 2>/dev/null)" = "$2" ]
}

# The jars and modules beside the environments. Packages come before them if Maven or npm is one, else last:
# they may take long.
install_parts() {
    install_environment python "$python_modules" "$python_version" &
    python=$!
    install_environment dbt "$dbt_modules" "$dbt_version" &
    dbt=$!
    install_hive &
    hive=$!
    { command -v mvn && command -v npm; } >/dev/null 2>&1 || need_packages
    install_jars
    install_modules
    wait "$python" "$dbt" "$hive"
}

# install_environment NAME MODULES VERSION
install_environment() {
    is_version "$folder/$1" "$3" && return 0
    if environment "$folder/$1" "$2" --requirement "$checkout/scripts/clients/$1.txt"; then
        echo "$3" >"$folder/$1/.version"
    else
        rm -rf "${folder:?}/$1"
        echo "clients: what scripts/clients/$1.txt lists could not be installed" >&2
    fi
}

# Hive's clients in Python: an environment of wheels, and two packages that are built.
install_hive() {
    is_version "$folder/hive" "$hive_version" && return 0
    # shellcheck disable=SC2086 # one word for each package
    if environment "$folder/hive" six --no-deps --requirement "$checkout/scripts/clients/hive.txt" &&
        build "$folder/hive" --no-deps $hive_sources &&
        import "$folder/hive" "$hive_modules"; then
        echo "$hive_version" >"$folder/hive/.version"
    else
        rm -rf "${folder:?}/hive"
        echo "clients: what scripts/clients/hive.txt lists could not be installed" >&2
    fi
}

install_jars() {
    is_version "$folder/java" "$java_version" && return 0
    name=clients-$(echo "$java_version" | cksum | tr ' ' -)
    take "$name" "$folder/java" && return 0
    rm -rf "$folder/java"
    command -v mvn >/dev/null 2>&1 || return 0
    if jars clients -Dpgjdbc.version="$pgjdbc_version" -Dsqlline.version="$sqlline_version" \
        -Dhive.jdbc.version="$hive_jdbc_version" -Dharrier.folder="$folder"; then
        echo "$java_version" >"$folder/java/.version"
        keep "$name" "$folder/java"
    else
        rm -rf "$folder/java"
        echo "clients: Maven could not get pgjdbc $pgjdbc_version, sqlline $sqlline_version and hive-jdbc $hive_jdbc_version" >&2
    fi
}

install_modules() {
    is_version "$folder/node" "$node_version" && return 0
    name=clients-node-$(echo "$node_version" | tr ' ' -)
    take "$name" "$folder/node" && return 0
    rm -rf "$folder/node"
    command -v npm >/dev/null 2>&1 || return 0
    mkdir -p "$folder/node"
    cp "$checkout/scripts/clients/package.json" "$checkout/scripts/clients/package-lock.json" "$folder/node"
    if (cd "$folder/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel error) >&2; then
        echo "$node_version" >"$folder/node/.version"
        keep "$name" "$folder/node"
    else
        rm -rf "$folder/node"
        echo "clients: npm could not get what scripts/clients/package-lock.json lists" >&2
    fi
}

need_packages() {
    # shellcheck disable=SC2046 # one word for each package
    set -- $(missing_packages)
    [ $# -eq 0 ] || install_packages "$@" >&2 || true
}

missing_packages() {
    for program in $(missing_programs); do
        case $program in
            javac) echo openjdk-17-jdk-headless ;;
            mvn) echo maven ;;
            node) echo nodejs ;;
            npm) echo npm ;;
            isql) echo unixodbc ;;
            psqlODBC) echo odbc-postgresql ;;
            psql) echo postgresql-client ;;
            pgbench) echo postgresql-contrib ;;
        esac
    done
}

missing_programs() {
    for program in javac mvn isql psql node npm; do
        command -v "$program" >/dev/null 2>&1 || echo "$program"
    done
    find_driver || echo psqlODBC
    find_pgbench || echo pgbench
}

find_driver() {
    ls /usr/lib/*/odbc/psqlodbcw.so /usr/lib64/psqlodbcw.so /usr/lib/odbc/psqlodbcw.so 2>/dev/null | grep -q .
}

find_pgbench() {
    command -v pgbench >/dev/null 2>&1 ||
        ls /usr/lib/postgresql/*/bin/pgbench /usr/pgsql-*/bin/pgbench 2>/dev/null | grep -q .
}

main "$@"
