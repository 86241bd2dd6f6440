// hive-jdbc: what its users do every day, against a server that speaks HiveServer2's protocol.
// usage: java -cp hive-jdbc-standalone.jar CheckHiveJdbc.java HOST PORT USER [DATABASE] [--only TEXT] [--keep-going]
//
// $HIVE_AUTH says how the server on PORT asks who it is: NOSASL (the default) or NONE, which is SASL PLAIN; $HIVE_HTTP_PORT is its port for HTTP.

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.SQLTimeoutException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeSet;

public class CheckHiveJdbc {
    static final class Difference extends RuntimeException {
        Difference(String message) { super(message); }
    }

    interface Body { void run() throws Exception; }

    // What one check may take on a busy machine.
    static final int CHECK_SECONDS_MAX = 120;
    static final String NUMBERS = "(SELECT p.pos FROM (SELECT 1 one) s LATERAL VIEW posexplode(split(space(%d), ' ')) p AS pos, val)";
    // It takes minutes, so that it is still running when it is cancelled.
    static final String LONG = "SELECT count(*) FROM " + NUMBERS.formatted(99_999) + " a CROSS JOIN " + NUMBERS.formatted(99_999) + " b WHERE a.pos * 3 <> b.pos + 7";
    static final String COLUMNS = "b boolean, t tinyint, s smallint, i int, l bigint, f float, d double, n decimal(10,2), st string, vc varchar(10), "
        + "ch char(5), dt date, ts timestamp, bi binary, a array<int>, m map<string,int>, r struct<x:int,y:string>";
    static final String VALUES = "true, 1Y, 2S, 3, 4L, cast(1.5 as float), 2.5D, 12.30BD, 'text', cast('vc' as varchar(10)), cast('ch' as char(5)), "
        + "date '2020-01-02', timestamp '2020-01-02 03:04:05.678', cast('bin' as binary), array(1, 2, null), map('k', 1), named_struct('x', 1, 'y', 'z')";

    static String host, port, user, database, only;
    static boolean keepGoing, failed;

    public static void main(String[] arguments) throws Exception {
        List<String> plain = new ArrayList<>();
        for (int n = 0; n < arguments.length; n++) {
            if (arguments[n].equals("--only")) only = arguments[++n];
            else if (arguments[n].equals("--keep-going")) keepGoing = true;
            else plain.add(arguments[n]);
        }
        if (plain.size() < 3) {
            System.err.println("usage: java -cp hive-jdbc-standalone.jar CheckHiveJdbc.java HOST PORT USER [DATABASE] [--only TEXT] [--keep-going]");
            System.exit(2);
        }
        host = plain.get(0);
        port = plain.get(1);
        user = plain.get(2);
        database = plain.size() > 3 ? plain.get(3) : "default";

        Class.forName("org.apache.hive.jdbc.HiveDriver");
        try (Connection connection = connect()) {
            System.out.println("client  hive-jdbc " + connection.getMetaData().getDriverVersion());
        }
        check("connect in every way that the server has, a database that is not there, settings in the URL", CheckHiveJdbc::connecting);
        check("every type: getObject, getString and the getters, NULL with wasNull", CheckHiveJdbc::types);
        check("ResultSetMetaData of every type", CheckHiveJdbc::columns);
        check("names of columns: _c0, aliases, t.c after a star", CheckHiveJdbc::names);
        check("arrays, maps, structs, binary, intervals and odd values as text", CheckHiveJdbc::texts);
        check("the server's name and version, keywords, what it says it can", CheckHiveJdbc::product);
        check("DatabaseMetaData.getCatalogs, getSchemas, getTableTypes", CheckHiveJdbc::schemas);
        check("DatabaseMetaData.getTables with patterns and types", CheckHiveJdbc::tables);
        check("DatabaseMetaData.getColumns with patterns", CheckHiveJdbc::columnsOfTables);
        check("DatabaseMetaData.getTypeInfo", CheckHiveJdbc::typeInfo);
        check("DatabaseMetaData.getFunctions", CheckHiveJdbc::functions);
        check("DatabaseMetaData.getPrimaryKeys, getImportedKeys, getCrossReference, getProcedures: nothing there", CheckHiveJdbc::keys);
        check("execute, executeUpdate, getUpdateCount, getMoreResults; tables made, filled, dropped", CheckHiveJdbc::statements);
        check("prepared statements: every setter, quotes and backslashes, run again with other values", CheckHiveJdbc::prepared);
        check("fetch size, maxRows, scrolling back to the first row, several statements in turn, twenty thousand rows", CheckHiveJdbc::fetching);
        check("errors: SQLSTATE and code of tables, columns, functions, syntax, databases, arguments", CheckHiveJdbc::failures);
        check("Statement.cancel() from another thread", CheckHiveJdbc::cancelling);
        check("setQueryTimeout()", CheckHiveJdbc::timeouts);
        check("setSchema, getSchema, isValid, setClientInfo, autocommit, transactions, closing twice", CheckHiveJdbc::sessions);
        System.exit(failed ? 1 : 0);
    }

    static void check(String line, Body body) {
        if (failed && !keepGoing || only != null && !line.contains(only)) return;
        long started = System.nanoTime();
        Throwable[] error = new Throwable[1];
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable thrown) {
                error[0] = thrown;
            }
        });
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(CHECK_SECONDS_MAX * 1000L);
        } catch (InterruptedException interrupted) {
            error[0] = interrupted;
        }
        if (thread.isAlive()) {
            error[0] = new Difference("no answer after " + CHECK_SECONDS_MAX + " s");
            error[0].setStackTrace(thread.getStackTrace());
        }
        if (error[0] == null) {
            System.out.printf("ok      %s (%.2f s)%n", line, (System.nanoTime() - started) / 1e9);
            return;
        }
        failed = true;
        System.out.println("FAILED  " + line);
        for (StackTraceElement place : error[0].getStackTrace()) {
            if (place.getClassName().equals("CheckHiveJdbc") && !place.getMethodName().matches("equal|holds|fails|check")) {
                System.out.println("        CheckHiveJdbc.java:" + place.getLineNumber() + ": in " + place.getMethodName());
                break;
            }
        }
        String text = error[0] instanceof Difference ? error[0].getMessage() : error[0].toString();
        if (error[0] instanceof SQLException thrown) text += " (SQLSTATE " + thrown.getSQLState() + ", code " + thrown.getErrorCode() + ")";
        System.out.println("        " + text.replace("\n", "\n        "));
    }

    static void equal(Object got, Object expected, String what) {
        if (!Objects.deepEquals(got, expected)) throw new Difference(what + "\n- expected: " + show(expected) + "\n+ got:      " + show(got));
    }

    static String show(Object value) {
        String text = value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
        return value == null ? text : text + " (" + value.getClass().getSimpleName() + ")";
    }

    static void holds(boolean condition, String what) {
        if (!condition) throw new Difference(what);
    }

    static SQLException fails(String state, int code, Body body) throws Exception {
        try {
            body.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), state, "the SQLSTATE of " + error.getMessage());
            equal(error.getErrorCode(), code, "the code of " + error.getMessage());
            return error;
        }
        throw new Difference("expected an error with SQLSTATE " + state + ", got none");
    }

    static Connection connect() throws SQLException {
        return connect(database, "", "");
    }

    /** `settings` stand in front of the question mark of Hive's URLs, `configuration` behind it. */
    static Connection connect(String name, String settings, String configuration) throws SQLException {
        String authentication = Objects.requireNonNullElse(System.getenv("HIVE_AUTH"), "NOSASL");
        return open(port, name, (authentication.equals("NOSASL") ? ";auth=noSasl" : "") + settings + configuration);
    }

    static Connection open(String at, String name, String rest) throws SQLException {
        String password = System.getenv("PGPASSWORD");
        return DriverManager.getConnection("jdbc:hive2://" + host + ":" + at + "/" + name + rest, user, password == null ? "none" : password);
    }

    static void run(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String text : statements) statement.execute(text);
        }
    }

    static List<List<Object>> all(ResultSet rows) throws SQLException {
        List<List<Object>> result = new ArrayList<>();
        int width = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            List<Object> row = new ArrayList<>();
            for (int n = 1; n <= width; n++) row.add(rows.getObject(n));
            result.add(row);
        }
        rows.close();
        return result;
    }

    static List<List<Object>> ask(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return all(statement.executeQuery(query));
        }
    }

    static List<Object> column(ResultSet rows, String name) throws SQLException {
        List<Object> result = new ArrayList<>();
        while (rows.next()) result.add(rows.getObject(name));
        rows.close();
        return result;
    }

    static List<String> labels(ResultSet rows) throws SQLException {
        ResultSetMetaData data = rows.getMetaData();
        List<String> result = new ArrayList<>();
        for (int n = 1; n <= data.getColumnCount(); n++) result.add(data.getColumnName(n));
        return result;
    }

    static void connecting() throws Exception {
        List<Connection> connections = new ArrayList<>(List.of(connect()));
        String http = System.getenv("HIVE_HTTP_PORT");
        if (http != null) connections.add(open(http, database, ";transportMode=http;httpPath=cliservice"));
        for (Connection connection : connections) {
            equal(ask(connection, "SELECT 1, 'a', current_database()"), List.of(List.of(1, "a", database)), "a row");
            connection.close();
            holds(connection.isClosed(), "closed");
        }
        // The driver's own SQLSTATE has a space in front.
        SQLException error = fails(" 08S01", 0, () -> connect("no_such_database", "", ""));
        holds(error.getMessage().contains("no_such_database"), error.getMessage());
        try (Connection connection = connect(database, ";fetchSize=7", "?my.own.setting=5#who=world")) {
            equal(ask(connection, "SET my.own.setting"), List.of(List.of("my.own.setting=5")), "a setting of the URL");
            equal(ask(connection, "SELECT '${hivevar:who}'"), List.of(List.of("world")), "a variable of the URL");
        }
    }

    static void types() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            run(connection, "DROP TABLE IF EXISTS j_types", "CREATE TABLE j_types (" + COLUMNS + ")", "INSERT INTO j_types SELECT " + VALUES, "INSERT INTO j_types (i) VALUES (4)");
            ResultSet rows = statement.executeQuery("SELECT * FROM j_types ORDER BY i");
            holds(rows.next(), "a row");
            Object[] expected = {true, (byte) 1, (short) 2, 3, 4L, 1.5, 2.5, new BigDecimal("12.30"), "text", "vc", "ch   ",
                Date.valueOf("2020-01-02"), Timestamp.valueOf("2020-01-02 03:04:05.678"), "bin".getBytes(), "[1,2,null]", "{\"k\":1}", "{\"x\":1,\"y\":\"z\"}"};
            for (int n = 1; n <= 17; n++) {
                Object value = rows.getObject(n);
                // A float is a double on the way.
                if (n == 6) value = ((Number) value).doubleValue();
                equal(value, expected[n - 1], "column " + n);
                holds(!rows.wasNull(), "column " + n + " is not NULL");
            }
            equal(rows.getBoolean(1), true, "getBoolean");
            equal(rows.getByte(2), (byte) 1, "getByte");
            equal(rows.getShort(3), (short) 2, "getShort");
            equal(rows.getInt("j_types.i"), 3, "getInt by name");
            equal(rows.getInt("i"), 3, "getInt by the short name");
            equal(rows.getLong(5), 4L, "getLong");
            equal(rows.getFloat(6), 1.5f, "getFloat");
            equal(rows.getDouble(7), 2.5, "getDouble");
            equal(rows.getBigDecimal(8), new BigDecimal("12.30"), "getBigDecimal");
            equal(rows.getDate(12), Date.valueOf("2020-01-02"), "getDate");
            equal(rows.getTimestamp(13), Timestamp.valueOf("2020-01-02 03:04:05.678"), "getTimestamp");
            String[] texts = {"true", "1", "2", "3", "4", "1.5", "2.5", "12.30", "text", "vc", "ch   ", "2020-01-02", "2020-01-02 03:04:05.678", "bin"};
            for (int n = 1; n <= texts.length; n++) equal(rows.getString(n), texts[n - 1], "getString of column " + n);
            holds(rows.next(), "a second row");
            for (int n = 1; n <= 17; n++) {
                equal(rows.getObject(n), n == 4 ? (Object) 4 : null, "NULL in column " + n);
                equal(rows.wasNull(), n != 4, "wasNull of column " + n);
            }
            equal(rows.getInt(5), 0, "a NULL as a number");
            holds(!rows.next(), "no third row");
            run(connection, "DROP TABLE j_types");
        }
    }

    static void columns() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            run(connection, "DROP TABLE IF EXISTS j_types", "CREATE TABLE j_types (" + COLUMNS + ")");
            ResultSetMetaData data = statement.executeQuery("SELECT * FROM j_types").getMetaData();
            Object[][] expected = {
                // name, java.sql.Types, precision, scale, display size, case sensitive
                {"boolean", Types.BOOLEAN, 1, 0, 1, false}, {"tinyint", Types.TINYINT, 3, 0, 4, false}, {"smallint", Types.SMALLINT, 5, 0, 6, false},
                {"int", Types.INTEGER, 10, 0, 11, false}, {"bigint", Types.BIGINT, 19, 0, 20, false}, {"float", Types.FLOAT, 7, 7, 24, false},
                {"double", Types.DOUBLE, 15, 15, 25, false}, {"decimal", Types.DECIMAL, 10, 2, 12, false},
                {"string", Types.VARCHAR, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, true}, {"varchar", Types.VARCHAR, 10, 0, 10, false},
                {"char", Types.CHAR, 5, 0, 5, false}, {"date", Types.DATE, 10, 0, 10, false}, {"timestamp", Types.TIMESTAMP, 29, 9, 29, false},
                {"binary", Types.BINARY, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, false}, {"array", Types.ARRAY, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, false},
                {"map", Types.JAVA_OBJECT, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, false}, {"struct", Types.STRUCT, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, false},
            };
            equal(data.getColumnCount(), expected.length, "columns");
            for (int n = 1; n <= expected.length; n++) {
                List<Object> got = List.of(data.getColumnTypeName(n), data.getColumnType(n), data.getPrecision(n), data.getScale(n), data.getColumnDisplaySize(n), data.isCaseSensitive(n));
                equal(got, Arrays.asList(expected[n - 1]), "column " + n);
                equal(data.isNullable(n), ResultSetMetaData.columnNullable, "column " + n);
            }
            data = statement.executeQuery("SELECT cast(1 as decimal(38,10)), NULL, 12.345, 1 / 3, 10000000000, cast('a' as char(255))").getMetaData();
            equal(List.of(data.getPrecision(1), data.getScale(1), data.getColumnDisplaySize(1)), List.of(38, 10, 40), "decimal(38,10)");
            equal(List.of(data.getColumnTypeName(2), data.getColumnType(2)), List.of("void", Types.NULL), "NULL");
            equal(List.of(data.getColumnTypeName(3), data.getPrecision(3), data.getScale(3)), List.of("decimal", 5, 3), "12.345");
            equal(List.of(data.getColumnTypeName(4), data.getColumnTypeName(5), data.getPrecision(6)), List.of("double", "bigint", 255), "the others");
            run(connection, "DROP TABLE j_types");
        }
    }

    static void names() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            run(connection, "DROP TABLE IF EXISTS j_names", "CREATE TABLE j_names (id int, name string)", "INSERT INTO j_names VALUES (1, 'a')");
            equal(labels(statement.executeQuery("SELECT 1, 2 AS x, 'a' b, 1 + 1")), List.of("_c0", "x", "b", "_c3"), "without a table");
            equal(labels(statement.executeQuery("SELECT id, upper(name), Name AS NaMe FROM j_names")), List.of("id", "_c1", "name"), "of a table");
            equal(labels(statement.executeQuery("SELECT * FROM j_names")), List.of("j_names.id", "j_names.name"), "a star");
            equal(labels(statement.executeQuery("SELECT e.*, 1 one FROM j_names e")), List.of("e.id", "e.name", "one"), "a star of an alias");
            ResultSet rows = statement.executeQuery("SELECT * FROM j_names");
            rows.next();
            equal(rows.findColumn("name"), 2, "findColumn");
            equal(rows.getString("NAME"), "a", "by name in another case");
            run(connection, "DROP TABLE j_names");
        }
    }

    static void texts() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            ResultSet rows = statement.executeQuery("SELECT array('a', 'b\"c', null), map('k', array(1, 2)), named_struct('x', null, 'y', named_struct('z', 1.50)), "
                + "array(date '2020-01-02'), array(true), array(1.5D), map(1, 'one'), array(timestamp '2020-01-02 03:04:05')");
            rows.next();
            String[] expected = {"[\"a\",\"b\\\"c\",null]", "{\"k\":[1,2]}", "{\"x\":null,\"y\":{\"z\":1.5}}", "[\"2020-01-02\"]", "[true]", "[1.5]", "{1:\"one\"}", "[\"2020-01-02 03:04:05\"]"};
            for (int n = 1; n <= expected.length; n++) equal(rows.getString(n), expected[n - 1], "column " + n);
            rows = statement.executeQuery("SELECT interval '1-2' year to month, interval '1 02:03:04.5' day to second, cast('a b' as char(5)), '', 'tab\\tnew\\nline', 'ä€😀', 1e20D, cast('NaN' as double), -0.5D");
            rows.next();
            String[] others = {"1-2", "1 02:03:04.500000000", "a b  ", "", "tab\tnew\nline", "ä€😀", "1.0E20", "NaN", "-0.5"};
            for (int n = 1; n <= others.length; n++) equal(rows.getString(n), others[n - 1], "column " + n);
        }
    }

    static void product() throws Exception {
        try (Connection connection = connect()) {
            DatabaseMetaData data = connection.getMetaData();
            // Drivers and tools decide by the name and the major version.
            equal(data.getDatabaseProductName(), "Apache Hive", "name");
            equal(data.getDatabaseMajorVersion(), 4, "major version");
            holds(data.getDatabaseProductVersion().startsWith("4."), data.getDatabaseProductVersion());
            holds(data.getSQLKeywords().contains("LATERAL"), data.getSQLKeywords());
            equal(List.of(data.getIdentifierQuoteString(), data.getSearchStringEscape(), data.getCatalogSeparator(), data.getSchemaTerm()), List.of("`", "\\", ".", "database"), "words");
            equal(List.of(data.supportsTransactions(), data.supportsBatchUpdates(), data.supportsGroupBy(), data.supportsOuterJoins()), List.of(false, false, true, true), "what it can");
        }
    }

    static void schemas() throws Exception {
        try (Connection connection = connect()) {
            DatabaseMetaData data = connection.getMetaData();
            ResultSet rows = data.getCatalogs();
            equal(labels(rows), List.of("TABLE_CAT"), "getCatalogs");
            rows = data.getSchemas();
            equal(labels(rows), List.of("TABLE_SCHEM", "TABLE_CATALOG"), "getSchemas");
            holds(column(rows, "TABLE_SCHEM").contains(database), "the database is among the schemas");
            equal(column(data.getSchemas(null, database), "TABLE_SCHEM"), List.of(database), "getSchemas of one");
            equal(column(data.getSchemas(null, "no_such_%"), "TABLE_SCHEM"), List.of(), "getSchemas of none");
            rows = data.getTableTypes();
            equal(labels(rows), List.of("TABLE_TYPE"), "getTableTypes");
            List<Object> types = column(rows, "TABLE_TYPE");
            holds(types.containsAll(List.of("TABLE", "VIEW")), types.toString());
        }
    }

    static void tables() throws Exception {
        try (Connection connection = connect()) {
            run(connection, "DROP VIEW IF EXISTS j_meta_v", "DROP TABLE IF EXISTS j_meta_a", "DROP TABLE IF EXISTS j_meta_b");
            run(connection, "CREATE TABLE j_meta_a (i int) COMMENT 'first'", "CREATE TABLE j_meta_b (i int)", "CREATE VIEW j_meta_v AS SELECT i FROM j_meta_a");
            DatabaseMetaData data = connection.getMetaData();
            ResultSet rows = data.getTables(null, database, "j_meta_%", null);
            equal(labels(rows), List.of("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS", "TYPE_CAT", "TYPE_SCHEM", "TYPE_NAME", "SELF_REFERENCING_COL_NAME", "REF_GENERATION"), "columns");
            List<List<Object>> tables = all(rows);
            equal(tables.stream().map(row -> row.subList(1, 4)).sorted((a, b) -> a.toString().compareTo(b.toString())).toList(),
                List.of(List.of(database, "j_meta_a", "TABLE"), List.of(database, "j_meta_b", "TABLE"), List.of(database, "j_meta_v", "VIEW")), "tables and views");
            equal(tables.stream().filter(row -> row.get(2).equals("j_meta_a")).map(row -> row.get(4)).toList(), List.of("first"), "the comment");
            Object[][] cases = {
                {null, "j_meta_%", new String[] {"TABLE"}, List.of("j_meta_a", "j_meta_b")}, {database, "j_meta_%", new String[] {"VIEW"}, List.of("j_meta_v")},
                {database, "j_meta__", null, List.of("j_meta_a", "j_meta_b", "j_meta_v")}, {"%", "j\\_meta\\_a", null, List.of("j_meta_a")},
                {database, "J_META_A", null, List.of("j_meta_a")}, {database, "no_such_%", null, List.of()}, {"no_such_database", "%", null, List.of()},
                {database, "j_meta_*", null, List.of("j_meta_a", "j_meta_b", "j_meta_v")}, {database, "", null, List.of()},
            };
            for (Object[] one : cases) {
                List<Object> got = column(data.getTables(null, (String) one[0], (String) one[1], (String[]) one[2]), "TABLE_NAME");
                equal(new ArrayList<>(new TreeSet<>(got)), one[3], "getTables " + one[0] + ", " + one[1] + ", " + Arrays.toString((String[]) one[2]));
            }
            run(connection, "DROP VIEW j_meta_v", "DROP TABLE j_meta_a", "DROP TABLE j_meta_b");
        }
    }

    static void columnsOfTables() throws Exception {
        try (Connection connection = connect()) {
            run(connection, "DROP TABLE IF EXISTS j_columns", "CREATE TABLE j_columns (" + COLUMNS.replaceFirst("t tinyint", "t tinyint COMMENT 'small'") + ")");
            DatabaseMetaData data = connection.getMetaData();
            ResultSet rows = data.getColumns(null, database, "j_columns", "%");
            equal(labels(rows), List.of("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "BUFFER_LENGTH", "DECIMAL_DIGITS", "NUM_PREC_RADIX",
                "NULLABLE", "REMARKS", "COLUMN_DEF", "SQL_DATA_TYPE", "SQL_DATETIME_SUB", "CHAR_OCTET_LENGTH", "ORDINAL_POSITION", "IS_NULLABLE", "SCOPE_CATALOG", "SCOPE_SCHEMA",
                "SCOPE_TABLE", "SOURCE_DATA_TYPE", "IS_AUTO_INCREMENT"), "columns");
            Object[][] expected = {
                // name, java.sql.Types, type, size, digits, radix, remarks
                {"b", Types.BOOLEAN, "BOOLEAN", null, 0, null, null}, {"t", Types.TINYINT, "TINYINT", 3, 0, 10, "small"}, {"s", Types.SMALLINT, "SMALLINT", 5, 0, 10, null},
                {"i", Types.INTEGER, "INT", 10, 0, 10, null}, {"l", Types.BIGINT, "BIGINT", 19, 0, 10, null}, {"f", Types.FLOAT, "FLOAT", 7, 7, 10, null},
                {"d", Types.DOUBLE, "DOUBLE", 15, 15, 10, null}, {"n", Types.DECIMAL, "DECIMAL", 10, 2, 10, null}, {"st", Types.VARCHAR, "STRING", Integer.MAX_VALUE, null, null, null},
                {"vc", Types.VARCHAR, "VARCHAR", 10, null, null, null}, {"ch", Types.CHAR, "CHAR", 5, null, null, null}, {"dt", Types.DATE, "DATE", 10, null, null, null},
                {"ts", Types.TIMESTAMP, "TIMESTAMP", 29, 9, null, null}, {"bi", Types.BINARY, "BINARY", Integer.MAX_VALUE, null, null, null},
                {"a", Types.ARRAY, "array<int>", null, null, null, null}, {"m", Types.JAVA_OBJECT, "map<string,int>", null, null, null, null},
                {"r", Types.STRUCT, "struct<x:int,y:string>", null, null, null, null},
            };
            int count = 0;
            while (rows.next()) {
                List<Object> got = new ArrayList<>();
                for (String name : List.of("COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NUM_PREC_RADIX", "REMARKS")) got.add(rows.getObject(name));
                equal(got, Arrays.asList(expected[count]), "column " + count);
                count++;
                equal(List.of(rows.getString("TABLE_SCHEM"), rows.getString("TABLE_NAME"), rows.getInt("ORDINAL_POSITION"), rows.getInt("NULLABLE"), rows.getString("IS_NULLABLE"), rows.getString("IS_AUTO_INCREMENT")),
                    List.of(database, "j_columns", count, 1, "YES", "NO"), "column " + count);
            }
            equal(count, expected.length, "columns");
            equal(column(data.getColumns(null, database, "j_columns", "s%"), "COLUMN_NAME"), List.of("s", "st"), "s%");
            equal(column(data.getColumns(null, null, "j_columns", "_t"), "COLUMN_NAME"), List.of("st", "dt"), "_t");
            equal(column(data.getColumns(null, database, "j_colum%", "n"), "COLUMN_NAME"), List.of("n"), "n");
            equal(column(data.getColumns(null, database, "no_such_table", "%"), "COLUMN_NAME"), List.of(), "no such table");
            equal(column(data.getColumns(null, database, "j_columns", null), "COLUMN_NAME").size(), expected.length, "every column");
            run(connection, "DROP TABLE j_columns");
        }
    }

    static void typeInfo() throws Exception {
        try (Connection connection = connect()) {
            ResultSet rows = connection.getMetaData().getTypeInfo();
            equal(labels(rows), List.of("TYPE_NAME", "DATA_TYPE", "PRECISION", "LITERAL_PREFIX", "LITERAL_SUFFIX", "CREATE_PARAMS", "NULLABLE", "CASE_SENSITIVE", "SEARCHABLE",
                "UNSIGNED_ATTRIBUTE", "FIXED_PREC_SCALE", "AUTO_INCREMENT", "LOCAL_TYPE_NAME", "MINIMUM_SCALE", "MAXIMUM_SCALE", "SQL_DATA_TYPE", "SQL_DATETIME_SUB", "NUM_PREC_RADIX"), "columns");
            List<String> got = new ArrayList<>();
            while (rows.next()) got.add(rows.getString("TYPE_NAME") + " " + rows.getInt("DATA_TYPE") + " " + rows.getObject("PRECISION"));
            for (String one : List.of("BOOLEAN 16 null", "TINYINT -6 3", "SMALLINT 5 5", "INT 4 10", "BIGINT -5 19", "FLOAT 6 7", "DOUBLE 8 15", "STRING 12 null", "CHAR 1 null",
                "VARCHAR 12 null", "DATE 91 null", "TIMESTAMP 93 null", "BINARY -2 null", "DECIMAL 3 38", "ARRAY 2003 null", "MAP 2000 null", "STRUCT 2002 null")) {
                holds(got.contains(one), one + " is in " + got);
            }
        }
    }

    static void functions() throws Exception {
        try (Connection connection = connect()) {
            DatabaseMetaData data = connection.getMetaData();
            ResultSet rows = data.getFunctions(null, null, "conc%");
            equal(labels(rows), List.of("FUNCTION_CAT", "FUNCTION_SCHEM", "FUNCTION_NAME", "REMARKS", "FUNCTION_TYPE", "SPECIFIC_NAME"), "columns");
            holds(new TreeSet<>(column(rows, "FUNCTION_NAME").stream().map(Object::toString).toList()).containsAll(List.of("concat", "concat_ws")), "concat and concat_ws");
            equal(column(data.getFunctions(null, null, "abs"), "FUNCTION_NAME"), List.of("abs"), "abs");
            equal(column(data.getFunctions(null, null, "no_such_function"), "FUNCTION_NAME"), List.of(), "none");
        }
    }

    static void keys() throws Exception {
        try (Connection connection = connect()) {
            run(connection, "DROP TABLE IF EXISTS j_keys", "CREATE TABLE j_keys (i int)");
            DatabaseMetaData data = connection.getMetaData();
            ResultSet rows = data.getPrimaryKeys(null, database, "j_keys");
            equal(labels(rows), List.of("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME"), "getPrimaryKeys");
            equal(all(rows), List.of(), "no key");
            equal(all(data.getImportedKeys(null, database, "j_keys")), List.of(), "getImportedKeys");
            rows = data.getCrossReference(null, database, "j_keys", null, database, "j_keys");
            equal(labels(rows), List.of("PKTABLE_CAT", "PKTABLE_SCHEM", "PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_CAT", "FKTABLE_SCHEM", "FKTABLE_NAME", "FKCOLUMN_NAME", "KEQ_SEQ",
                "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME", "DEFERRABILITY"), "getCrossReference");
            equal(all(rows), List.of(), "no reference");
            equal(all(data.getProcedures(null, null, "%")), List.of(), "getProcedures");
            run(connection, "DROP TABLE j_keys");
        }
    }

    static void statements() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            equal(statement.execute("DROP TABLE IF EXISTS j_writes"), false, "DROP has no rows");
            equal(statement.execute("CREATE TABLE j_writes (i int, s string)"), false, "CREATE has no rows");
            equal(statement.getUpdateCount(), 0, "rows written by CREATE");
            equal(statement.executeUpdate("INSERT INTO j_writes VALUES (1, 'a'), (2, NULL)"), 2, "rows written by INSERT");
            equal(statement.executeUpdate("INSERT INTO j_writes SELECT i + 10, upper(s) FROM j_writes"), 2, "rows written by INSERT of a query");
            equal(statement.execute("SELECT * FROM j_writes ORDER BY i"), true, "SELECT has rows");
            equal(all(statement.getResultSet()), List.of(List.of(1, "a"), Arrays.asList(2, null), List.of(11, "A"), Arrays.asList(12, null)), "the rows");
            equal(statement.getMoreResults(), false, "no second result");
            equal(statement.executeUpdate("INSERT OVERWRITE TABLE j_writes SELECT i, s FROM j_writes WHERE i = 1"), 1, "rows written by INSERT OVERWRITE");
            equal(ask(connection, "SELECT count(*), max(s) FROM j_writes"), List.of(List.of(1L, "a")), "the rows afterwards");
            equal(ask(connection, "DESCRIBE j_writes").stream().map(row -> row.subList(0, 2)).toList(), List.of(List.of("i", "int"), List.of("s", "string")), "DESCRIBE");
            fails(null, 0, () -> statement.executeQuery("DROP TABLE IF EXISTS j_no_such_table"));
            run(connection, "DROP TABLE j_writes");
            equal(ask(connection, "SHOW TABLES LIKE 'j_writes'"), List.of(), "SHOW TABLES");
        }
    }

    static void prepared() throws Exception {
        try (Connection connection = connect()) {
            try (PreparedStatement statement = connection.prepareStatement("SELECT ?, ?, ?, ?, ?, ?, ?, ?")) {
                statement.setInt(1, 5);
                statement.setString(2, "it's \"quoted\"");
                statement.setNull(3, Types.INTEGER);
                statement.setDate(4, Date.valueOf("2020-01-02"));
                statement.setLong(5, 10_000_000_000L);
                statement.setDouble(6, 2.5);
                statement.setBoolean(7, true);
                statement.setTimestamp(8, Timestamp.valueOf("2020-01-02 03:04:05.5"));
                ResultSet rows = statement.executeQuery();
                holds(rows.next(), "a row");
                List<String> got = new ArrayList<>();
                for (int n = 1; n <= 8; n++) got.add(rows.getString(n));
                equal(got, Arrays.asList("5", "it's \"quoted\"", null, "2020-01-02", "10000000000", "2.5", "true", "2020-01-02 03:04:05.5"), "the values");
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT 'a?b', ? + 1 -- ?\n WHERE ? > 0")) {
                for (int n = 1; n <= 3; n++) {
                    statement.setInt(1, n);
                    statement.setInt(2, 1);
                    equal(all(statement.executeQuery()), List.of(List.of("a?b", n + 1)), "run " + n);
                }
            } catch (SQLException error) {
                // The client counts the question mark of the comment; that it says so is all that is asked of it.
                holds(error.getMessage().contains("arameter"), error.getMessage());
            }
            run(connection, "DROP TABLE IF EXISTS j_prepared", "CREATE TABLE j_prepared (i int, s string)");
            try (PreparedStatement statement = connection.prepareStatement("INSERT INTO j_prepared VALUES (?, ?)")) {
                statement.setInt(1, 1);
                statement.setString(2, "eins");
                equal(statement.executeUpdate(), 1, "rows written");
            }
            equal(ask(connection, "SELECT * FROM j_prepared"), List.of(List.of(1, "eins")), "what was written");
            run(connection, "DROP TABLE j_prepared");
        }
    }

    static void fetching() throws Exception {
        String many = "SELECT pos, concat('row ', pos) FROM " + NUMBERS.formatted(19_999) + " n ORDER BY pos";
        try (Connection connection = connect(); Statement statement = connection.createStatement(); Statement other = connection.createStatement()) {
            for (int size : new int[] {7, 1000, 50_000}) {
                statement.setFetchSize(size);
                equal(statement.getFetchSize(), size, "getFetchSize");
                ResultSet rows = statement.executeQuery(size == 7 ? many + " LIMIT 500" : many);
                int count = 0;
                while (rows.next()) {
                    equal(rows.getInt(1), count, "row " + count);
                    if (count % 5_000 == 0) equal(ask(connection, "SELECT 'between'"), List.of(List.of("between")), "another statement");
                    count++;
                }
                equal(count, size == 7 ? 500 : 20_000, "rows with fetch size " + size);
            }
            statement.setMaxRows(3);
            equal(all(statement.executeQuery(many)).size(), 3, "maxRows");
            ResultSet rows = other.executeQuery("SELECT pos FROM " + NUMBERS.formatted(9) + " n ORDER BY pos");
            equal(rows.getType(), ResultSet.TYPE_FORWARD_ONLY, "the type of a result");
            fails(null, 0, rows::beforeFirst);
            try (Statement scrolling = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
                scrolling.setFetchSize(4);
                ResultSet again = scrolling.executeQuery("SELECT pos FROM " + NUMBERS.formatted(9) + " n ORDER BY pos");
                for (int n = 0; n < 6; n++) again.next();
                equal(again.getInt(1), 5, "the sixth row");
                again.beforeFirst();
                equal(all(again).size(), 10, "all rows again");
            }
            equal(all(statement.executeQuery("SELECT 1 WHERE 1 = 0")), List.of(), "no rows");
        }
    }

    static void failures() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            run(connection, "DROP TABLE IF EXISTS j_errors", "CREATE TABLE j_errors (i int, s string)");
            Object[][] cases = {
                {"SELECT * FROM no_such_table", "42S02", 10001, "Table not found 'no_such_table'"},
                {"SELECT no_such_column FROM j_errors", "42000", 10004, "no_such_column"},
                {"SELECT no_such_function(1)", "42000", 10011, "no_such_function"},
                {"SELEC 1", "42000", 40000, "ParseException"},
                {"SELECT (1", "42000", 40000, "ParseException"},
                {"", "42000", 40000, "ParseException"},
                {"USE no_such_database", "42000", 10072, "Database does not exist: no_such_database"},
                {"SELECT i, count(*) FROM j_errors", "42000", 10025, "Expression not in GROUP BY key 'i'"},
                {"INSERT INTO j_errors VALUES (1)", "42000", 10044, "j_errors"},
                {"SELECT abs(1, 2)", "21000", 10015, "Arguments length mismatch"},
                {"DESCRIBE no_such_table", "42S02", 10001, "no_such_table"},
                {"CREATE TABLE j_errors (i int)", "08S01", 40000, "already exists"},
            };
            for (Object[] one : cases) {
                SQLException error = fails((String) one[1], (int) one[2], () -> statement.execute((String) one[0]));
                holds(error.getMessage().contains((String) one[3]), one[0] + ": " + error.getMessage());
            }
            equal(ask(connection, "SELECT 1"), List.of(List.of(1)), "the session goes on");
            run(connection, "DROP TABLE j_errors");
        }
    }

    static void cancelling() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            Thread thread = new Thread(() -> {
                try {
                    Thread.sleep(1500);
                    statement.cancel();
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            thread.start();
            long started = System.nanoTime();
            SQLException error = fails("01000", 0, () -> statement.executeQuery(LONG).next());
            holds(error.getMessage().contains("cancelled"), error.getMessage());
            holds(System.nanoTime() - started < 60e9, "cancelled within a minute");
            thread.join();
            equal(ask(connection, "SELECT 1"), List.of(List.of(1)), "the session goes on");
        }
    }

    static void timeouts() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(2);
            long started = System.nanoTime();
            SQLException error = fails(null, 0, () -> statement.executeQuery(LONG).next());
            holds(error instanceof SQLTimeoutException, error.toString());
            holds(System.nanoTime() - started > 1.5e9 && System.nanoTime() - started < 60e9, "the time it took");
            statement.setQueryTimeout(0);
            equal(ask(connection, "SELECT 1"), List.of(List.of(1)), "the session goes on");
        }
    }

    static void sessions() throws Exception {
        try (Connection connection = connect()) {
            equal(connection.getSchema(), database, "getSchema");
            run(connection, "DROP DATABASE IF EXISTS j_session CASCADE", "CREATE DATABASE j_session");
            connection.setSchema("j_session");
            equal(connection.getSchema(), "j_session", "setSchema");
            run(connection, "CREATE TABLE here (i int)");
            equal(ask(connection, "SHOW TABLES"), List.of(List.of("here")), "its tables");
            connection.setSchema(database);
            equal(ask(connection, "SELECT count(*) FROM j_session.here"), List.of(List.of(0L)), "from the other database");
            run(connection, "DROP DATABASE j_session CASCADE");
            equal(connection.isValid(10), true, "isValid");
            Properties client = new Properties();
            client.setProperty("ApplicationName", "the matrix");
            connection.setClientInfo(client);
            equal(connection.getAutoCommit(), true, "getAutoCommit");
            connection.setAutoCommit(true);
            equal(connection.isReadOnly(), false, "isReadOnly");
            try {
                connection.rollback();
                throw new Difference("rollback is not supported");
            } catch (SQLFeatureNotSupportedException expected) {
                // As the driver says it.
            }
            Statement statement = connection.createStatement();
            statement.close();
            statement.close();
            connection.close();
            connection.close();
        }
    }
}
