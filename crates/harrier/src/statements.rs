//! The statements of SQL that there are: what each is for, its syntax in PostgreSQL's notation, and examples.
//!
//! `\h` of the shell shows the syntax, and the page of the reference all of it. That page is made by running
//! the examples one after the other in a session with a new warehouse, so they build on one another.

/// What a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Queries,
    Tables,
    Others,
    Rows,
    Files,
    Transactions,
    Session,
    Upkeep,
    Access,
    Server,
}

impl Group {
    pub(crate) const ALL: [Self; 10] = [
        Self::Tables,
        Self::Rows,
        Self::Queries,
        Self::Files,
        Self::Others,
        Self::Transactions,
        Self::Session,
        Self::Upkeep,
        Self::Access,
        Self::Server,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Queries => "Queries",
            Self::Tables => "Tables",
            Self::Others => "Schemas, views and sequences",
            Self::Rows => "Rows",
            Self::Files => "Files",
            Self::Transactions => "Transactions",
            Self::Session => "The session",
            Self::Upkeep => "Upkeep",
            Self::Access => "Roles and privileges",
            Self::Server => "In a server only",
        }
    }
}

/// One statement.
pub(crate) struct Statement {
    pub(crate) group: Group,
    /// Its first words, by which `\h` finds it.
    pub(crate) name: &'static str,
    /// One sentence, without its full stop.
    pub(crate) about: &'static str,
    pub(crate) syntax: &'static str,
    /// Each with the tag that it ends with, numbers aside.
    pub(crate) examples: &'static [(&'static str, &'static str)],
}

const fn statement(
    group: Group,
    name: &'static str,
    about: &'static str,
    syntax: &'static str,
    examples: &'static [(&'static str, &'static str)],
) -> Statement {
    Statement { group, name, about, syntax, examples }
}

pub(crate) const STATEMENTS: &[Statement] = &[
    statement(
        Group::Tables,
        "CREATE TABLE",
        "Makes a table, empty or with the rows of a query",
        "CREATE [ OR REPLACE ] [ TEMPORARY | TEMP ] TABLE [ IF NOT EXISTS ] name
  ( { column type [ column_constraint [ ... ] ] | table_constraint } [, ...] )
  [ PARTITION BY ( { column | year(column) | month(column) | day(column) | hour(column)
                   | bucket(count, column) } [, ...] )
  | PARTITION BY RANGE ( column ) ( { [ PARTITION name ] START ( value ) [ INCLUSIVE | EXCLUSIVE ]
      END ( value ) [ INCLUSIVE | EXCLUSIVE ] [ EVERY ( step ) ] [ WITH ( option = value [, ...] ) ]
      | DEFAULT PARTITION name } [, ...] )
  | PARTITION BY LIST ( column ) ( { [ PARTITION name ] VALUES ( value [, ...] )
      | DEFAULT PARTITION name } [, ...] ) ]
  [ DISTRIBUTED BY ( column ) ]
  [ ORDER BY ( column [ ASC | DESC ] [, ...] ) ]
  [ WITH ( option = value [, ...] ) ]
  [ ON COMMIT { PRESERVE ROWS | DELETE ROWS | DROP } ]
CREATE [ OR REPLACE ] [ TEMPORARY | TEMP ] TABLE [ IF NOT EXISTS ] name [ clauses as above ]
  AS query [ WITH [ NO ] DATA ]
CREATE [ OR REPLACE ] [ TEMPORARY | TEMP ] TABLE [ IF NOT EXISTS ] name
  ( LIKE table [ INCLUDING { DEFAULTS | ALL } ] )

where column_constraint is
  [ CONSTRAINT name ] { NOT NULL | NULL | DEFAULT expression | CHECK ( condition ) | PRIMARY KEY | UNIQUE
  | REFERENCES table [ ( column ) ] | GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY [ ( options ) ] }
and table_constraint is
  [ CONSTRAINT name ] { CHECK ( condition ) | PRIMARY KEY ( column [, ...] ) | UNIQUE ( column [, ...] )
  | FOREIGN KEY ( column [, ...] ) REFERENCES table [ ( column [, ...] ) ] }",
        &[
            (
                "CREATE TABLE sales (id BIGINT, region TEXT NOT NULL, at TIMESTAMP, amount NUMERIC(10, 2) DEFAULT 0, \
                 CHECK (amount >= 0))",
                "CREATE TABLE",
            ),
            (
                "CREATE TABLE visits (id BIGINT, day DATE) PARTITION BY RANGE (day) (START (DATE '2026-01-01') \
                 END (DATE '2027-01-01') EVERY (INTERVAL '1 month'), DEFAULT PARTITION other)",
                "CREATE TABLE",
            ),
            (
                "CREATE TABLE people (name TEXT, gender TEXT) PARTITION BY LIST (gender) \
                 (PARTITION girls VALUES ('F'), PARTITION boys VALUES ('M'))",
                "CREATE TABLE",
            ),
            (
                "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, day DATE) \
                 PARTITION BY (year(day)) DISTRIBUTED BY (customer) ORDER BY (day) WITH (compression = zstd)",
                "CREATE TABLE",
            ),
        ],
    ),
    statement(
        Group::Tables,
        "ALTER TABLE",
        "Changes the columns, constraints, partitions, options or the name of a table",
        "ALTER TABLE [ IF EXISTS ] name
  { ADD [ COLUMN ] [ IF NOT EXISTS ] column type [ column_constraint [ ... ] ]
  | DROP [ COLUMN ] [ IF EXISTS ] column
  | RENAME [ COLUMN ] column TO new_name
  | ALTER [ COLUMN ] column { [ SET DATA ] TYPE type | SET DEFAULT expression | DROP DEFAULT
                            | SET NOT NULL | DROP NOT NULL }
  | ADD table_constraint | DROP CONSTRAINT [ IF EXISTS ] name | RENAME CONSTRAINT name TO new_name
  | RENAME TO new_name | OWNER TO role
  | SET PARTITIONED BY ( key [, ...] ) | RESET PARTITIONED BY
  | SET SORTED BY ( column [ ASC | DESC ] [, ...] ) | RESET SORTED BY
  | SET ( option = value [, ...] )
  | ADD { PARTITION [ name ] { START ( value ) END ( value ) | VALUES ( value [, ...] ) }
        | DEFAULT PARTITION name }
  | { DROP | TRUNCATE } { PARTITION { name | FOR ( value ) } | DEFAULT PARTITION }
  | RENAME PARTITION { name | FOR ( value ) } TO new_name }",
        &[
            ("ALTER TABLE sales ADD COLUMN note TEXT DEFAULT 'none'", "ALTER TABLE"),
            ("ALTER TABLE sales RENAME COLUMN note TO remark", "ALTER TABLE"),
            ("ALTER TABLE sales ALTER COLUMN amount TYPE NUMERIC(12, 2)", "ALTER TABLE"),
            ("ALTER TABLE sales SET SORTED BY (id)", "ALTER TABLE"),
            ("ALTER TABLE people ADD PARTITION others VALUES ('X')", "ALTER TABLE"),
            ("ALTER TABLE visits DROP PARTITION FOR (DATE '2026-12-24')", "ALTER TABLE"),
        ],
    ),
    statement(
        Group::Tables,
        "CREATE EXTERNAL TABLE",
        "Names files that stay where they are, so that they can be queried and written as a table",
        "CREATE [ OR REPLACE ] EXTERNAL TABLE [ IF NOT EXISTS ] name [ ( column type [, ...] ) ]
  STORED AS { PARQUET | ORC | CSV | JSON | AVRO | ARROW | TEXTFILE }
  [ PARTITIONED BY ( column [, ...] ) ] [ WITH ORDER ( column [ ASC | DESC ] [, ...] ) ]
  [ ROW FORMAT DELIMITED [ FIELDS TERMINATED BY 'c' ] [ ESCAPED BY 'c' ] [ NULL DEFINED AS 'text' ] ]
  [ OPTIONS ( key value [, ...] ) ]
  LOCATION 'file, folder or pattern'",
        &[(
            "CREATE EXTERNAL TABLE events (id BIGINT, kind TEXT) STORED AS CSV LOCATION 'events/' \
             OPTIONS (has_header true)",
            "CREATE EXTERNAL TABLE",
        )],
    ),
    statement(
        Group::Tables,
        "CREATE INDEX",
        "Remembers the definition of an index, for tools that make one; queries do not use it",
        "CREATE [ UNIQUE ] INDEX [ IF NOT EXISTS ] [ name ] ON table [ USING method ]
  ( { column | ( expression ) } [ ASC | DESC ] [, ...] ) [ WHERE condition ]",
        &[("CREATE INDEX sales_region ON sales (region)", "CREATE INDEX")],
    ),
    statement(
        Group::Tables,
        "ALTER INDEX",
        "Renames the definition of an index",
        "ALTER INDEX [ IF EXISTS ] name RENAME TO new_name",
        &[("ALTER INDEX sales_region RENAME TO sales_by_region", "ALTER INDEX")],
    ),
    statement(
        Group::Tables,
        "DROP INDEX",
        "Forgets the definition of an index",
        "DROP INDEX [ IF EXISTS ] name",
        &[("DROP INDEX sales_by_region", "DROP INDEX")],
    ),
    statement(
        Group::Tables,
        "COMMENT",
        "Says what a table, a view or a column is for",
        "COMMENT ON { TABLE | VIEW } name IS { 'text' | NULL }
COMMENT ON COLUMN table.column IS { 'text' | NULL }",
        &[
            ("COMMENT ON TABLE sales IS 'what was sold'", "COMMENT"),
            ("COMMENT ON COLUMN sales.at IS 'when it was paid'", "COMMENT"),
        ],
    ),
    statement(
        Group::Rows,
        "INSERT",
        "Adds rows to a table, or puts them in the place of those that it has",
        "INSERT INTO table [ ( column [, ...] ) ] [ OVERRIDING { SYSTEM | USER } VALUE ]
  { query | VALUES ( { expression | DEFAULT } [, ...] ) [, ...] }
  [ RETURNING { * | expression [ [ AS ] name ] } [, ...] ]
INSERT OVERWRITE [ INTO ] table { query | VALUES ... }
INSERT OVERWRITE [ INTO ] external_table PARTITION ( column [ = value ] [, ...] ) { query | VALUES ... }",
        &[
            (
                "INSERT INTO sales (id, region, at, amount) VALUES (1, 'north', '2026-05-01 12:00', 9.50), \
                 (2, 'south', '2026-05-02 08:30', DEFAULT) RETURNING id",
                "INSERT",
            ),
            ("INSERT INTO people SELECT 'Ada', 'F'", "INSERT"),
        ],
    ),
    statement(
        Group::Rows,
        "UPDATE",
        "Changes rows of a table",
        "UPDATE table [ [ AS ] alias ] SET { column = { expression | DEFAULT }
  | ( column [, ...] ) = ( expression [, ...] ) } [, ...]
  [ FROM table [, ...] ] [ WHERE condition ] [ RETURNING ... ]",
        &[
            ("UPDATE sales SET amount = amount * 2 WHERE region = 'north'", "UPDATE"),
            ("UPDATE sales SET remark = v.text FROM (VALUES (2, 'late')) v (id, text) WHERE sales.id = v.id", "UPDATE"),
        ],
    ),
    statement(
        Group::Rows,
        "DELETE",
        "Removes rows from a table",
        "DELETE FROM table [ [ AS ] alias ] [ USING table [, ...] ] [ WHERE condition ] [ RETURNING ... ]",
        &[("DELETE FROM sales WHERE amount = 0", "DELETE")],
    ),
    statement(
        Group::Rows,
        "MERGE",
        "Inserts, updates and deletes rows of a table by those of another one",
        "MERGE INTO table [ [ AS ] alias ] USING { table | ( query ) } [ [ AS ] alias ] ON condition
  { WHEN MATCHED [ AND condition ] THEN { UPDATE SET column = expression [, ...] | DELETE | DO NOTHING }
  | WHEN NOT MATCHED [ AND condition ] THEN { INSERT [ ( column [, ...] ) ] VALUES ( expression [, ...] )
                                            | DO NOTHING } } [ ... ]
  [ RETURNING ... ]",
        &[(
            "MERGE INTO sales USING (VALUES (1, 'east'), (3, 'west')) AS v (id, region) ON sales.id = v.id \
             WHEN MATCHED THEN UPDATE SET region = v.region \
             WHEN NOT MATCHED THEN INSERT (id, region) VALUES (v.id, v.region)",
            "MERGE",
        )],
    ),
    statement(
        Group::Rows,
        "TRUNCATE",
        "Removes all rows of tables, without reading them",
        "TRUNCATE [ TABLE ] name [, ...] [ RESTART IDENTITY ] [ CASCADE ]",
        &[("TRUNCATE people", "TRUNCATE TABLE")],
    ),
    statement(
        Group::Queries,
        "SELECT",
        "Gives the rows of a query over tables, files and functions",
        "[ WITH [ RECURSIVE ] name [ ( column [, ...] ) ] AS ( query ) [, ...] ]
SELECT [ ALL | DISTINCT [ ON ( expression [, ...] ) ] ] { * | expression [ [ AS ] name ] } [, ...]
  [ INTO [ TEMPORARY ] new_table ]
  [ FROM from_item [, ...] ]
  [ WHERE condition ]
  [ GROUP BY { expression | ROLLUP ( ... ) | CUBE ( ... ) | GROUPING SETS ( ... ) } [, ...] ]
  [ HAVING condition ]
  [ WINDOW name AS ( definition ) [, ...] ]
  [ { UNION | INTERSECT | EXCEPT } [ ALL | DISTINCT ] query ]
  [ ORDER BY expression [ ASC | DESC ] [ NULLS { FIRST | LAST } ] [, ...] ]
  [ LIMIT { count | ALL } ] [ OFFSET start ] [ FETCH { FIRST | NEXT } [ count ] { ROW | ROWS } ONLY ]

where from_item is
  table [ AS OF { SNAPSHOT number | TIMESTAMP 'time' } ] [ [ AS ] alias [ ( column [, ...] ) ] ]
    [ TABLESAMPLE { BERNOULLI | SYSTEM } ( percent ) [ REPEATABLE ( seed ) ] ]
| 'file, folder or pattern' [ [ AS ] alias ]
| function ( [ argument [, ...] ] ) [ WITH ORDINALITY ] [ [ AS ] alias [ ( column [, ...] ) ] ]
| [ LATERAL ] ( query ) [ AS ] alias [ ( column [, ...] ) ]
| from_item [ NATURAL ] { [ INNER ] | { LEFT | RIGHT | FULL } [ OUTER ] | CROSS } JOIN from_item
    [ ON condition | USING ( column [, ...] ) ]",
        &[
            ("SELECT region, sum(amount) FROM sales GROUP BY region ORDER BY region LIMIT 10", "SELECT"),
            ("SELECT count(*) FROM sales AS OF SNAPSHOT 1", "SELECT"),
            (
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT sum(i) FROM n",
                "SELECT",
            ),
        ],
    ),
    statement(
        Group::Queries,
        "VALUES",
        "Gives rows that are written out",
        "VALUES ( expression [, ...] ) [, ...] [ ORDER BY ... ] [ LIMIT ... ] [ OFFSET ... ]",
        &[("VALUES (1, 'one'), (2, 'two')", "SELECT")],
    ),
    statement(
        Group::Queries,
        "TABLE",
        "Gives all rows of a table",
        "TABLE name",
        &[("TABLE sales", "SELECT")],
    ),
    statement(
        Group::Queries,
        "EXPLAIN",
        "Shows the plan of a statement; with ANALYZE it runs it, and shows what every operator did",
        "EXPLAIN [ ANALYZE ] [ VERBOSE ] [ FORMAT { INDENT | TREE | PGJSON | GRAPHVIZ } ] statement
EXPLAIN ( { ANALYZE | VERBOSE | COSTS | BUFFERS | TIMING | SUMMARY } [ boolean ] [, ...]
  [, FORMAT { TEXT | JSON } ] ) statement",
        &[
            ("EXPLAIN SELECT count(*) FROM sales", "EXPLAIN"),
            ("EXPLAIN ANALYZE SELECT region, count(*) FROM sales GROUP BY region", "EXPLAIN"),
        ],
    ),
    statement(
        Group::Queries,
        "DESCRIBE",
        "Shows the columns of a table or a file",
        "{ DESCRIBE | DESC } { table | 'file' }",
        &[("DESCRIBE sales", "EXPLAIN")],
    ),
    statement(
        Group::Files,
        "COPY",
        "Writes rows into files or to the client, or reads them from there into a table",
        "COPY table [ ( column [, ...] ) ] FROM { 'file' | STDIN } [ [ WITH ] ( option [, ...] ) ]
COPY { table [ ( column [, ...] ) ] | ( query ) } TO { 'file' | STDOUT } [ [ WITH ] ( option [, ...] ) ]
COPY { table | ( query ) } TO 'file or folder' [ STORED AS format ] [ PARTITIONED BY ( column [, ...] ) ]
  [ OPTIONS ( key value [, ...] ) ]

where option is
  FORMAT { TEXT | CSV | JSON | PARQUET | ORC | AVRO | ARROW } | HEADER [ boolean | MATCH ]
| DELIMITER 'c' | NULL 'text' | QUOTE 'c' | ESCAPE 'c' | ENCODING 'name' | COMPRESSION name
| ON_ERROR { stop | ignore } | REJECT_LIMIT count",
        &[
            ("COPY sales TO 'sales.csv' WITH (FORMAT csv, HEADER)", "COPY"),
            ("COPY (SELECT region, amount FROM sales) TO 'sales.parquet'", "COPY"),
            ("COPY sales FROM 'sales.csv' WITH (FORMAT csv, HEADER)", "COPY"),
        ],
    ),
    statement(
        Group::Others,
        "CREATE SCHEMA",
        "Makes a schema, in which tables and views have names of their own",
        "CREATE SCHEMA [ IF NOT EXISTS ] name",
        &[("CREATE SCHEMA reports", "CREATE SCHEMA")],
    ),
    statement(
        Group::Others,
        "DROP SCHEMA",
        "Removes a schema; with CASCADE what is in it as well",
        "DROP SCHEMA [ IF EXISTS ] name [ CASCADE | RESTRICT ]",
        &[("DROP SCHEMA reports CASCADE", "DROP SCHEMA")],
    ),
    statement(
        Group::Others,
        "CREATE VIEW",
        "Gives a query a name",
        "CREATE [ OR REPLACE ] VIEW name [ ( column [, ...] ) ] [ WITH ( security_barrier ) ] AS query",
        &[("CREATE VIEW by_region AS SELECT region, sum(amount) AS amount FROM sales GROUP BY region", "CREATE VIEW")],
    ),
    statement(
        Group::Others,
        "ALTER VIEW",
        "Renames a view, or gives it to another role",
        "ALTER VIEW [ IF EXISTS ] name { RENAME TO new_name | OWNER TO role }",
        &[("ALTER VIEW by_region RENAME TO regions", "ALTER VIEW")],
    ),
    statement(
        Group::Others,
        "DROP VIEW",
        "Removes views",
        "DROP VIEW [ IF EXISTS ] name [, ...]",
        &[("DROP VIEW regions", "DROP VIEW")],
    ),
    statement(
        Group::Others,
        "CREATE SEQUENCE",
        "Makes a generator of numbers, for nextval",
        "CREATE SEQUENCE [ IF NOT EXISTS ] name [ AS type ] [ INCREMENT [ BY ] step ]
  [ MINVALUE value | NO MINVALUE ] [ MAXVALUE value | NO MAXVALUE ] [ START [ WITH ] value ]
  [ CACHE count ] [ [ NO ] CYCLE ] [ OWNED BY { table.column | NONE } ]",
        &[("CREATE SEQUENCE ids START 100", "CREATE SEQUENCE")],
    ),
    statement(
        Group::Others,
        "ALTER SEQUENCE",
        "Changes a generator of numbers",
        "ALTER SEQUENCE [ IF EXISTS ] name { RESTART [ [ WITH ] value ] | options as of CREATE SEQUENCE
  | RENAME TO new_name | OWNER TO role }",
        &[("ALTER SEQUENCE ids RESTART WITH 1000", "ALTER SEQUENCE")],
    ),
    statement(
        Group::Others,
        "DROP SEQUENCE",
        "Removes generators of numbers",
        "DROP SEQUENCE [ IF EXISTS ] name [, ...] [ CASCADE | RESTRICT ]",
        &[("DROP SEQUENCE ids", "DROP SEQUENCE")],
    ),
    statement(
        Group::Transactions,
        "BEGIN",
        "Opens a transaction, whose statements are committed together or not at all",
        "{ BEGIN [ WORK | TRANSACTION ] | START TRANSACTION } [ transaction_mode [, ...] ]

where transaction_mode is
  ISOLATION LEVEL { SERIALIZABLE | REPEATABLE READ | READ COMMITTED | READ UNCOMMITTED }
| READ WRITE | READ ONLY",
        &[("BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN")],
    ),
    statement(
        Group::Transactions,
        "SET TRANSACTION",
        "Says of what kind the open transaction is, before its first statement",
        "SET TRANSACTION transaction_mode [, ...]
SET SESSION CHARACTERISTICS AS TRANSACTION transaction_mode [, ...]",
        &[("SET TRANSACTION READ WRITE", "SET")],
    ),
    statement(
        Group::Transactions,
        "SAVEPOINT",
        "Marks a place in a transaction to which it can be rolled back",
        "SAVEPOINT name",
        &[("SAVEPOINT before", "SAVEPOINT")],
    ),
    statement(
        Group::Transactions,
        "ROLLBACK TO SAVEPOINT",
        "Undoes what came after a savepoint",
        "ROLLBACK [ WORK | TRANSACTION ] TO [ SAVEPOINT ] name",
        &[("ROLLBACK TO SAVEPOINT before", "ROLLBACK")],
    ),
    statement(
        Group::Transactions,
        "RELEASE SAVEPOINT",
        "Forgets a savepoint",
        "RELEASE [ SAVEPOINT ] name",
        &[("RELEASE SAVEPOINT before", "RELEASE")],
    ),
    statement(
        Group::Transactions,
        "COMMIT",
        "Makes what the transaction did visible to others",
        "{ COMMIT | END } [ WORK | TRANSACTION ] [ AND [ NO ] CHAIN ]",
        &[("COMMIT AND CHAIN", "COMMIT")],
    ),
    statement(
        Group::Transactions,
        "ROLLBACK",
        "Undoes what the transaction did",
        "{ ROLLBACK | ABORT } [ WORK | TRANSACTION ] [ AND [ NO ] CHAIN ]",
        &[("ROLLBACK", "ROLLBACK")],
    ),
    statement(
        Group::Session,
        "SET",
        "Gives a setting a value for the session or the transaction",
        "SET [ SESSION | LOCAL ] setting { TO | = } { value [, ...] | DEFAULT }
SET [ SESSION | LOCAL ] TIME ZONE { 'zone' | hours | LOCAL | DEFAULT }",
        &[("SET statement_timeout = '10min'", "SET"), ("SET TIME ZONE 'Europe/Berlin'", "SET")],
    ),
    statement(
        Group::Session,
        "SHOW",
        "Shows settings, tables, columns or functions",
        "SHOW { setting | ALL | TIME ZONE | TRANSACTION ISOLATION LEVEL }
SHOW TABLES
SHOW COLUMNS FROM table
SHOW FUNCTIONS [ LIKE 'pattern' ]",
        &[("SHOW statement_timeout", "SHOW")],
    ),
    statement(
        Group::Session,
        "RESET",
        "Gives a setting the value that the session began with",
        "RESET { setting | ALL }",
        &[("RESET statement_timeout", "RESET"), ("RESET ALL", "RESET")],
    ),
    statement(
        Group::Session,
        "PREPARE",
        "Gives a statement with parameters a name",
        "PREPARE name [ ( type [, ...] ) ] AS statement",
        &[("PREPARE cheap (NUMERIC) AS SELECT id FROM sales WHERE amount < $1", "PREPARE")],
    ),
    statement(
        Group::Session,
        "EXECUTE",
        "Runs a prepared statement",
        "EXECUTE name [ ( value [, ...] ) ]",
        &[("EXECUTE cheap (10)", "SELECT")],
    ),
    statement(
        Group::Session,
        "DEALLOCATE",
        "Forgets a prepared statement",
        "DEALLOCATE [ PREPARE ] { name | ALL }",
        &[("DEALLOCATE cheap", "DEALLOCATE")],
    ),
    statement(
        Group::Upkeep,
        "ANALYZE",
        "Finds out for the planner how values are spread",
        "ANALYZE [ ( { FULL | SAMPLE percent | VERBOSE } [, ...] ) ] [ table [ ( column [, ...] ) ] ]",
        &[("ANALYZE sales", "ANALYZE"), ("ANALYZE (SAMPLE 5) sales (amount)", "ANALYZE")],
    ),
    statement(
        Group::Upkeep,
        "OPTIMIZE",
        "Writes small files, and files with many deleted rows, anew",
        "OPTIMIZE [ TABLE ] table",
        &[("OPTIMIZE sales", "OPTIMIZE")],
    ),
    statement(
        Group::Upkeep,
        "VACUUM",
        "Removes files that no snapshot refers to",
        "VACUUM
VACUUM DRY RUN
VACUUM [ FULL ] table",
        &[("VACUUM", "VACUUM")],
    ),
    statement(
        Group::Upkeep,
        "CHECK TABLE",
        "Compares the files of a table with what the catalog says of them",
        "CHECK TABLE table",
        &[("CHECK TABLE sales", "CHECK TABLE")],
    ),
    statement(
        Group::Upkeep,
        "CALL",
        "Runs a procedure of the warehouse",
        "CALL expire_snapshots ( 'age' )
CALL adopt_data_folder ()",
        &[("CALL expire_snapshots('7 days')", "CALL")],
    ),
    statement(
        Group::Access,
        "CREATE ROLE",
        "Makes a role; USER is one that may log in",
        "CREATE { ROLE | USER | GROUP } name [ [ WITH ] option [ ... ] ]

where option is
  SUPERUSER | NOSUPERUSER | LOGIN | NOLOGIN | CREATEROLE | NOCREATEROLE | INHERIT | NOINHERIT
| CONNECTION LIMIT count | [ ENCRYPTED ] PASSWORD { 'password' | NULL } | VALID UNTIL 'time'
| IN ROLE role [, ...] | ROLE role [, ...] | ADMIN role [, ...] | RESOURCE QUEUE { queue | NONE }",
        &[
            ("CREATE ROLE maria SUPERUSER LOGIN", "CREATE ROLE"),
            ("CREATE ROLE analysts", "CREATE ROLE"),
            ("CREATE USER ann IN ROLE analysts CONNECTION LIMIT 10", "CREATE ROLE"),
        ],
    ),
    statement(
        Group::Access,
        "ALTER ROLE",
        "Changes a role, or what its sessions begin with",
        "ALTER { ROLE | USER } name [ [ WITH ] option [ ... ] ]
ALTER { ROLE | USER } name { RENAME TO new_name | SET setting { TO | = } { value | DEFAULT }
  | SET setting FROM CURRENT | RESET { setting | ALL } }
ALTER GROUP name { ADD | DROP } USER role [, ...]",
        &[("ALTER ROLE ann SET statement_timeout = '10min'", "ALTER ROLE")],
    ),
    statement(
        Group::Access,
        "GRANT",
        "Lets roles use objects, or makes them members of other roles",
        "GRANT { privilege [ ( column [, ...] ) ] [, ...] | ALL [ PRIVILEGES ] }
  ON { [ TABLE ] name [, ...] | SEQUENCE name [, ...] | SCHEMA name [, ...] | DATABASE name
     | ALL TABLES IN SCHEMA name [, ...] | ALL SEQUENCES IN SCHEMA name [, ...] }
  TO { role | PUBLIC } [, ...] [ WITH GRANT OPTION ]
GRANT role [, ...] TO role [, ...] [ WITH ADMIN OPTION ]",
        &[
            ("GRANT SELECT, UPDATE (amount) ON sales TO analysts", "GRANT"),
            ("GRANT USAGE ON SCHEMA public TO PUBLIC", "GRANT"),
            ("GRANT analysts TO ann WITH ADMIN OPTION", "GRANT ROLE"),
        ],
    ),
    statement(
        Group::Access,
        "REVOKE",
        "Takes back what was granted",
        "REVOKE [ GRANT OPTION FOR ] { privileges as of GRANT } ON objects FROM { role | PUBLIC } [, ...]
  [ CASCADE | RESTRICT ]
REVOKE [ ADMIN OPTION FOR ] role [, ...] FROM role [, ...]",
        &[("REVOKE UPDATE ON sales FROM analysts", "REVOKE")],
    ),
    statement(
        Group::Access,
        "CREATE ROW FILTER",
        "Has a role see only some rows of a table",
        "CREATE ROW FILTER ON table TO { role | PUBLIC } USING ( condition )",
        &[("CREATE ROW FILTER ON sales TO analysts USING (region = 'east')", "CREATE ROW FILTER")],
    ),
    statement(
        Group::Access,
        "DROP ROW FILTER",
        "Has a role see all rows of a table again",
        "DROP ROW FILTER ON table FROM { role | PUBLIC }",
        &[("DROP ROW FILTER ON sales FROM analysts", "DROP ROW FILTER")],
    ),
    statement(
        Group::Access,
        "CREATE RESOURCE QUEUE",
        "Limits how many statements of its roles run at a time in a server, and with how much memory",
        "CREATE RESOURCE QUEUE name WITH ( { ACTIVE_STATEMENTS = count | MEMORY_LIMIT = 'size' | MAX_COST = cost
  | PRIORITY = { MIN | LOW | MEDIUM | HIGH | MAX } } [, ...] )",
        &[("CREATE RESOURCE QUEUE nightly WITH (ACTIVE_STATEMENTS = 2, PRIORITY = LOW)", "CREATE QUEUE")],
    ),
    statement(
        Group::Access,
        "ALTER RESOURCE QUEUE",
        "Changes the limits of a resource queue",
        "ALTER RESOURCE QUEUE name { WITH ( limit = value [, ...] ) | WITHOUT ( limit [, ...] ) } [ ... ]",
        &[("ALTER RESOURCE QUEUE nightly WITH (ACTIVE_STATEMENTS = 4)", "ALTER QUEUE")],
    ),
    statement(
        Group::Access,
        "DROP RESOURCE QUEUE",
        "Removes a resource queue",
        "DROP RESOURCE QUEUE [ IF EXISTS ] name",
        &[("DROP RESOURCE QUEUE nightly", "DROP QUEUE")],
    ),
    statement(
        Group::Access,
        "ALTER OWNER",
        "Gives an object to another role",
        "ALTER { TABLE | VIEW | SEQUENCE | SCHEMA | DATABASE } [ IF EXISTS ] name OWNER TO role",
        &[("ALTER TABLE sales OWNER TO ann", "ALTER TABLE")],
    ),
    statement(
        Group::Access,
        "REASSIGN OWNED",
        "Gives all that a role owns to another one",
        "REASSIGN OWNED BY role TO role",
        &[("REASSIGN OWNED BY ann TO analysts", "REASSIGN OWNED")],
    ),
    statement(
        Group::Access,
        "DROP OWNED",
        "Removes what roles own, and what was granted to them",
        "DROP OWNED BY role [, ...] [ CASCADE | RESTRICT ]",
        &[("DROP OWNED BY ann", "DROP OWNED")],
    ),
    statement(
        Group::Access,
        "SET ROLE",
        "Has the session act as another role that it is a member of",
        "SET [ SESSION | LOCAL ] ROLE { role | NONE }
RESET ROLE",
        &[("SET ROLE NONE", "SET"), ("RESET ROLE", "SET")],
    ),
    statement(
        Group::Access,
        "DROP ROLE",
        "Removes roles that own nothing",
        "DROP { ROLE | USER | GROUP } [ IF EXISTS ] name [, ...]",
        &[("DROP ROLE ann", "DROP ROLE")],
    ),
    statement(
        Group::Tables,
        "DROP TABLE",
        "Removes tables; snapshots before still have them",
        "DROP TABLE [ IF EXISTS ] name [, ...]",
        &[("DROP TABLE visits, orders", "DROP TABLE")],
    ),
    statement(
        Group::Server,
        "DECLARE",
        "Opens a cursor over a query",
        "DECLARE name [ BINARY ] [ [ NO ] SCROLL ] CURSOR [ { WITH | WITHOUT } HOLD ] FOR query",
        &[("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT i FROM generate_series(1, 5) g (i)", "DECLARE CURSOR")],
    ),
    statement(
        Group::Server,
        "FETCH",
        "Gives the next rows of a cursor",
        "FETCH [ { NEXT | PRIOR | FIRST | LAST | ALL | [ FORWARD | BACKWARD ] [ count | ALL ]
  | { ABSOLUTE | RELATIVE } count } ] [ FROM | IN ] name",
        &[("FETCH 2 FROM c", "FETCH")],
    ),
    statement(
        Group::Server,
        "MOVE",
        "Moves a cursor without giving rows",
        "MOVE [ direction as of FETCH ] [ FROM | IN ] name",
        &[("MOVE FORWARD ALL IN c", "MOVE")],
    ),
    statement(
        Group::Server,
        "CLOSE",
        "Closes cursors",
        "CLOSE { name | ALL }",
        &[("CLOSE c", "CLOSE CURSOR")],
    ),
    statement(
        Group::Server,
        "DISCARD",
        "Forgets prepared statements, temporary tables or all that a session has",
        "DISCARD { ALL | PLANS | SEQUENCES | TEMPORARY | TEMP }",
        &[("DISCARD ALL", "DISCARD ALL")],
    ),
    statement(
        Group::Server,
        "CHECKPOINT",
        "Does nothing: every commit is on disk",
        "CHECKPOINT",
        &[("CHECKPOINT", "CHECKPOINT")],
    ),
];
