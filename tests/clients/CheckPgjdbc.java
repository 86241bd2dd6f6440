// pgjdbc: what its users do every day. usage: java -cp postgresql.jar CheckPgjdbc.java HOST PORT USER [DATABASE] [--only TEXT] [--keep-going]

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.PGStatement;
import org.postgresql.copy.CopyManager;

public class CheckPgjdbc {
    interface Body {
        void run() throws Exception;
    }

    static class Difference extends RuntimeException {
        Difference(String text) {
            super(text);
        }
    }

    // What one check may take, a million rows on a busy machine included.
    static final int CHECK_SECONDS_MAX = 120;
    static final String LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7";

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
            System.err.println("usage: java -cp postgresql.jar CheckPgjdbc.java HOST PORT USER [DATABASE] [--only TEXT] [--keep-going]");
            System.exit(2);
        }
        host = plain.get(0);
        port = plain.get(1);
        user = plain.get(2);
        database = plain.size() > 3 ? plain.get(3) : user;

        System.out.println("client  pgjdbc " + org.postgresql.util.DriverInfo.DRIVER_VERSION);
        check("connect with sslmode disable and prefer, in every preferQueryMode, with options", CheckPgjdbc::connecting);
        check("every scalar type set and got, in text, and in binary by a statement prepared on the server", CheckPgjdbc::types);
        check("java.time, java.sql and strings for dates, times and zones", CheckPgjdbc::dates);
        check("float specials, large numbers, BigDecimal with and without scale", CheckPgjdbc::numbers);
        check("arrays: createArrayOf, = ANY, getArray", CheckPgjdbc::arrays);
        check("prepared on the server after prepareThreshold runs; changed types; ParameterMetaData; ResultSetMetaData", CheckPgjdbc::prepared);
        check("batches: addBatch of statements and of parameters, reWriteBatchedInserts, BatchUpdateException", CheckPgjdbc::batches);
        check("fetch size: portals with row limits, maxRows, several open result sets, scrolling", CheckPgjdbc::fetching);
        check("transactions: commit, rollback, savepoints, 25P02, autosave, isolation, read only", CheckPgjdbc::transactions);
        check("errors: SQLSTATE, position, hint, severity", CheckPgjdbc::failures);
        check("Statement.cancel(), setQueryTimeout(), statement_timeout, abort()", CheckPgjdbc::cancelling);
        check("CopyManager in and out, in text, CSV and binary, and a copy that is cancelled", CheckPgjdbc::copying);
        check("several statements in one, getMoreResults, update counts", CheckPgjdbc::manyStatements);
        check("DatabaseMetaData: tables, columns, schemas, catalogs, types, functions, and empty keys and indexes", CheckPgjdbc::metadata);
        check("setSchema, setClientInfo, getNetworkTimeout, isValid, SET and SHOW, warnings", CheckPgjdbc::settings);
        check("10 000 and 65 535 parameters", CheckPgjdbc::manyParameters);
        check("a million rows by pieces of 10 000", CheckPgjdbc::largeResults);
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
            if (place.getClassName().equals("CheckPgjdbc") && !place.getMethodName().matches("equal|holds|fails|check")) {
                System.out.println("        CheckPgjdbc.java:" + place.getLineNumber() + ": in " + place.getMethodName());
                break;
            }
        }
        String text = error[0] instanceof Difference ? error[0].getMessage() : error[0].toString();
        if (error[0] instanceof SQLException thrown) text += " (SQLSTATE " + thrown.getSQLState() + ")";
        System.out.println("        " + text.replace("\n", "\n        "));
    }

    static void equal(Object got, Object expected, String what) {
        boolean same = expected instanceof byte[] bytes && got instanceof byte[] others ? Arrays.equals(bytes, others)
            : expected instanceof BigDecimal one && got instanceof BigDecimal other ? one.compareTo(other) == 0
            // Whether 1 is an int or a bigint is the server's to say; where it matters, getColumnType() is asked.
            : expected instanceof Integer one && got instanceof Long other ? other == one.longValue()
            : expected instanceof Long one && got instanceof Integer other ? other.longValue() == one
            : Objects.equals(got, expected);
        if (!same) throw new Difference(what + "\n- expected: " + show(expected) + "\n+ got:      " + show(got));
    }

    static String show(Object value) {
        String text = value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : String.valueOf(value);
        return value == null ? text : text + " (" + value.getClass().getSimpleName() + ")";
    }

    static void holds(boolean condition, String what) {
        if (!condition) throw new Difference(what);
    }

    static SQLException fails(String state, Body body) throws Exception {
        try {
            body.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), state, "the SQLSTATE of " + error.getMessage());
            return error;
        }
        throw new Difference("expected an error with SQLSTATE " + state + ", got none");
    }

    static Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", user);
        if (System.getenv("PGPASSWORD") != null) properties.setProperty("password", System.getenv("PGPASSWORD"));
        for (int n = 0; n < options.length; n += 2) properties.setProperty(options[n], options[n + 1]);
        return DriverManager.getConnection("jdbc:postgresql://" + host + ":" + port + "/" + database, properties);
    }

    static void run(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String text : statements) statement.execute(text);
        }
    }

    static Object one(Connection connection, String query, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(query)) {
            for (int n = 0; n < parameters.length; n++) statement.setObject(n + 1, parameters[n]);
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getObject(1) : "no row";
            }
        }
    }

    static List<List<Object>> all(ResultSet rows) throws SQLException {
        List<List<Object>> result = new ArrayList<>();
        while (rows.next()) {
            List<Object> row = new ArrayList<>();
            for (int n = 1; n <= rows.getMetaData().getColumnCount(); n++) row.add(rows.getObject(n));
            result.add(row);
        }
        rows.close();
        return result;
    }

    static void connecting() throws Exception {
        for (String mode : System.getenv("CLIENTS_TLS") == null ? List.of("disable", "allow", "prefer") : List.of("disable", "allow", "prefer", "require")) {
            try (Connection connection = connect("sslmode", mode)) {
                equal(one(connection, "SELECT 1"), 1, "sslmode " + mode);
            }
        }
        for (String mode : List.of("simple", "extended", "extendedForPrepared", "extendedCacheEverything")) {
            try (Connection connection = connect("preferQueryMode", mode)) {
                equal(one(connection, "SELECT ? || 'x'", "it's"), "it'sx", "preferQueryMode " + mode);
                equal(one(connection, "SELECT ? + 1", 41), 42, "preferQueryMode " + mode);
                for (int n = 0; n < 7; n++) equal(one(connection, "SELECT 1"), 1, "preferQueryMode " + mode);
            }
        }
        try (Connection connection = connect("ApplicationName", "the matrix", "options", "-c statement_timeout=45s", "currentSchema", "public", "readOnly", "true")) {
            equal(one(connection, "SHOW application_name"), "the matrix", "ApplicationName");
            equal(one(connection, "SHOW statement_timeout"), "45s", "options");
            equal(one(connection, "SHOW search_path"), "public", "currentSchema");
        }
        try (Connection connection = connect()) {
            equal(one(connection, "SHOW DateStyle"), "ISO, MDY", "DateStyle");
            equal(one(connection, "SHOW TimeZone"), TimeZone.getDefault().getID(), "the zone of the client");
            holds(connection.unwrap(PGConnection.class).getBackendPID() > 0, "a backend has a number");
        }
        String kept = database;
        database = "no such database";
        fails("3D000", CheckPgjdbc::connect);
        database = kept;
    }

    record Kind(String name, int type, String typeName, Object... values) {}

    static final List<Kind> KINDS = List.of(
        new Kind("boolean", Types.BIT, "bool", true, false),
        new Kind("smallint", Types.SMALLINT, "int2", -32768, 32767),
        new Kind("integer", Types.INTEGER, "int4", -2147483648, 0, 2147483647),
        new Kind("bigint", Types.BIGINT, "int8", Long.MIN_VALUE, Long.MAX_VALUE),
        new Kind("real", Types.REAL, "float4", 1.5f, -1.5e-20f, Float.POSITIVE_INFINITY, Float.NaN),
        new Kind("double precision", Types.DOUBLE, "float8", 0.1, -1.7976931348623157e308, 4.9e-324, Double.NEGATIVE_INFINITY, Double.NaN),
        new Kind("numeric(20,4)", Types.NUMERIC, "numeric", new BigDecimal("1234567890123456.7891"), new BigDecimal("-0.0001"), new BigDecimal("0.0000"), new BigDecimal("10000.0000")),
        new Kind("text", Types.VARCHAR, "text", "", "it's \"quoted\" \\ back", "Grüße, 世界 🎉", "tab\tline\n", "? ?? $1 :x", "x".repeat(100_000)),
        new Kind("varchar(30)", Types.VARCHAR, "varchar", "abc", "dreißig"),
        new Kind("bytea", Types.BINARY, "bytea", new byte[0], new byte[] {0, -1, 92, 39, 34}),
        new Kind("date", Types.DATE, "date", java.sql.Date.valueOf("2024-02-29"), java.sql.Date.valueOf("1969-12-31"), java.sql.Date.valueOf("1900-01-01"), java.sql.Date.valueOf("9999-12-31")),
        new Kind("time", Types.TIME, "time", Time.valueOf("00:00:00"), Time.valueOf("23:59:59")),
        new Kind("timestamp", Types.TIMESTAMP, "timestamp", Timestamp.valueOf("2024-02-29 23:59:59.999999"), Timestamp.valueOf("1969-12-31 23:59:59.000001"), Timestamp.valueOf("1900-01-01 00:00:00")),
        new Kind("timestamptz", Types.TIMESTAMP, "timestamptz", Timestamp.from(Instant.parse("2024-02-29T12:00:00Z")), Timestamp.from(Instant.parse("1969-12-31T23:59:59.5Z")))
    );

    static void types() throws Exception {
        for (String threshold : List.of("5", "1", "-1")) {
            // -1 is binary from the first run on.
            try (Connection connection = connect("prepareThreshold", threshold)) {
                StringBuilder columns = new StringBuilder("id int"), marks = new StringBuilder("?");
                for (int n = 0; n < KINDS.size(); n++) {
                    columns.append(", c").append(n).append(' ').append(KINDS.get(n).name);
                    marks.append(", ?");
                }
                run(connection, "DROP TABLE IF EXISTS pgjdbc_types", "CREATE TABLE pgjdbc_types (" + columns + ")");
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO pgjdbc_types VALUES (" + marks + ")")) {
                    for (int row = 0; row < 7; row++) {
                        insert.setInt(1, row);
                        for (int n = 0; n < KINDS.size(); n++) {
                            Kind kind = KINDS.get(n);
                            if (row == 6) insert.setNull(n + 2, kind.type);
                            else insert.setObject(n + 2, kind.values[row % kind.values.length]);
                        }
                        equal(insert.executeUpdate(), 1, "rows inserted");
                    }
                }
                try (PreparedStatement select = connection.prepareStatement("SELECT * FROM pgjdbc_types WHERE id >= ? ORDER BY id")) {
                    for (int round = 0; round < 7; round++) {
                        select.setInt(1, 0);
                        try (ResultSet rows = select.executeQuery()) {
                            ResultSetMetaData meta = rows.getMetaData();
                            for (int n = 0; n < KINDS.size(); n++) {
                                equal(meta.getColumnType(n + 2), KINDS.get(n).type, "the type of " + KINDS.get(n).name);
                                equal(meta.getColumnTypeName(n + 2), KINDS.get(n).typeName, "the name of the type");
                            }
                            equal(meta.getScale(8), 4, "scale");
                            equal(meta.getPrecision(8), 20, "precision");
                            for (int row = 0; row < 7; row++) {
                                holds(rows.next(), "row " + row);
                                for (int n = 0; n < KINDS.size(); n++) {
                                    Kind kind = KINDS.get(n);
                                    Object expected = row == 6 ? null : kind.values[row % kind.values.length];
                                    String what = kind.name + ", row " + row + ", round " + round + ", prepareThreshold " + threshold;
                                    equal(rows.getObject(n + 2), expected, what);
                                    equal(rows.wasNull(), expected == null, what);
                                    if (expected instanceof String) equal(rows.getString(n + 2), expected, what);
                                    if (expected instanceof byte[]) equal(rows.getBytes(n + 2), expected, what);
                                    if (expected instanceof Boolean yes) equal(rows.getString(n + 2), yes ? "t" : "f", what);
                                    if (kind.name.equals("bigint") && expected != null) equal(rows.getString(n + 2), expected.toString(), what);
                                }
                            }
                            holds(!rows.next(), "no more rows");
                        }
                    }
                }
                for (int n = 0; n < KINDS.size(); n++) {
                    if (KINDS.get(n).name.equals("real") || KINDS.get(n).name.startsWith("timestamptz")) continue;
                    String count = "SELECT count(*) FROM pgjdbc_types WHERE c" + n + " = ?";
                    holds((Long) one(connection, count, KINDS.get(n).values[0]) > 0, "rows are found by " + KINDS.get(n).name);
                }
                run(connection, "DROP TABLE pgjdbc_types");
            }
        }
    }

    static void dates() throws Exception {
        for (String threshold : List.of("5", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                for (String zone : List.of("UTC", "Asia/Tokyo", "America/New_York")) {
                    run(connection, "SET TimeZone = '" + zone + "'");
                    for (Object value : List.of(LocalDate.of(2024, 2, 29), LocalDate.of(1582, 10, 4), LocalDate.of(1, 1, 1))) {
                        try (PreparedStatement statement = connection.prepareStatement("SELECT CAST(? AS date)")) {
                            statement.setObject(1, value);
                            ResultSet rows = statement.executeQuery();
                            rows.next();
                            equal(rows.getObject(1, LocalDate.class), value, "LocalDate, zone " + zone);
                            equal(rows.getString(1), value.toString(), "as a string");
                        }
                    }
                    for (Object value : List.of(LocalDateTime.of(1969, 12, 31, 23, 59, 59, 999999000), LocalDateTime.of(2024, 3, 31, 2, 30))) {
                        try (PreparedStatement statement = connection.prepareStatement("SELECT CAST(? AS timestamp)")) {
                            statement.setObject(1, value);
                            ResultSet rows = statement.executeQuery();
                            rows.next();
                            equal(rows.getObject(1, LocalDateTime.class), value, "LocalDateTime, zone " + zone);
                        }
                    }
                    OffsetDateTime moment = OffsetDateTime.parse("2024-07-01T00:00:00.123456+05:30");
                    try (PreparedStatement statement = connection.prepareStatement("SELECT CAST(? AS timestamptz), CAST(? AS time)")) {
                        statement.setObject(1, moment);
                        statement.setObject(2, LocalTime.of(1, 2, 3, 4000));
                        ResultSet rows = statement.executeQuery();
                        rows.next();
                        equal(rows.getObject(1, OffsetDateTime.class).toInstant(), moment.toInstant(), "OffsetDateTime, zone " + zone);
                        equal(rows.getTimestamp(1).toInstant(), moment.toInstant(), "Timestamp, zone " + zone);
                        equal(rows.getObject(2, LocalTime.class), LocalTime.of(1, 2, 3, 4000), "LocalTime");
                    }
                }
                equal(one(connection, "SELECT CAST(CAST(? AS text) AS date)", "2024-02-29").toString(), "2024-02-29", "a string as a date");
                try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM generate_series(1, 3) AS g(x) WHERE CAST('2024-01-01' AS timestamp) < ?")) {
                    statement.setTimestamp(1, Timestamp.valueOf("2024-01-02 00:00:00"));
                    ResultSet rows = statement.executeQuery();
                    rows.next();
                    equal(rows.getLong(1), 3L, "a timestamp whose type the server has to choose");
                }
                try (ResultSet rows = connection.createStatement().executeQuery("SELECT INTERVAL '1 day 02:03:04.5'")) {
                    rows.next();
                    equal(rows.getObject(1).toString(), "0 years 0 mons 1 days 2 hours 3 mins 4.5 secs", "an interval");
                }
            }
        }
    }

    static void numbers() throws Exception {
        for (String threshold : List.of("5", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                for (String text : List.of("0", "-1", "12345678901234567890.123456789", "0.000000001", "10000", "1000000000000", "-9999.9999")) {
                    equal(one(connection, "SELECT CAST(? AS numeric(38,10))", new BigDecimal(text)), new BigDecimal(text), "numeric " + text);
                }
                equal(one(connection, "SELECT CAST(? AS double precision)", Double.NaN), Double.NaN, "NaN");
                equal(one(connection, "SELECT CAST(? AS bigint)", 5), 5L, "an int as a bigint");
                equal(one(connection, "SELECT CAST(? AS smallint)", 5), 5, "an int as a smallint");
                equal(one(connection, "SELECT CAST(? AS double precision)", 5), 5.0, "an int as a double");
                equal(one(connection, "SELECT CAST(sum(x) AS bigint) FROM generate_series(1, ?) AS g(x)", 10), 55L, "a parameter of a function");
            }
        }
    }

    static void arrays() throws Exception {
        for (String threshold : List.of("5", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                Array names = connection.createArrayOf("text", new Object[] {"a", null, "b\"c,d", "", "NULL"});
                Array result = (Array) one(connection, "SELECT CAST(? AS text[])", names);
                equal(Arrays.asList((Object[]) result.getArray()), Arrays.asList("a", null, "b\"c,d", "", "NULL"), "text[]");
                Array numbers = connection.createArrayOf("int4", new Object[] {3, 7, 99});
                equal(one(connection, "SELECT count(*) FROM generate_series(1, 9) AS g(x) WHERE x = ANY(?)", numbers), 2L, "= ANY");
                result = (Array) one(connection, "SELECT ARRAY[1.5, NULL, -0.25]::double precision[]");
                equal(Arrays.asList((Object[]) result.getArray()), Arrays.asList(1.5, null, -0.25), "double precision[]");
                equal(result.getBaseTypeName(), "float8", "the type of the elements");
            }
        }
    }

    static void prepared() throws Exception {
        try (Connection connection = connect("prepareThreshold", "3")) {
            try (PreparedStatement statement = connection.prepareStatement("SELECT CAST(CAST(? AS int) + 1 AS int) AS n, CAST(? AS text) AS t")) {
                ParameterMetaData parameters = statement.getParameterMetaData();
                equal(parameters.getParameterCount(), 2, "parameters");
                equal(parameters.getParameterTypeName(1), "int4", "the type of the first parameter");
                equal(parameters.getParameterTypeName(2), "text", "the type of the second parameter");
                ResultSetMetaData columns = statement.getMetaData();
                equal(columns.getColumnCount() + columns.getColumnLabel(1) + columns.getColumnTypeName(2), "2ntext", "columns before the first run");
                for (int n = 0; n < 10; n++) {
                    statement.setInt(1, n);
                    statement.setString(2, "v" + n);
                    try (ResultSet rows = statement.executeQuery()) {
                        rows.next();
                        equal(rows.getInt(1) + rows.getString("t"), n + 1 + "v" + n, "run " + n);
                    }
                    if (n >= 3) holds(statement.unwrap(PGStatement.class).isUseServerPrepare(), "prepared on the server in run " + n);
                }
                statement.setLong(1, 7);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    equal(rows.getInt(1), 8, "with another type");
                }
            }
            holds((Long) one(connection, "SELECT count(*) FROM pg_prepared_statements") >= 1, "pg_prepared_statements lists it");
            // A table that changes below a prepared statement.
            run(connection, "DROP TABLE IF EXISTS pgjdbc_change", "CREATE TABLE pgjdbc_change (a int)", "INSERT INTO pgjdbc_change VALUES (1)");
            try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM pgjdbc_change")) {
                for (int n = 0; n < 5; n++) equal(all(statement.executeQuery()), List.of(List.of(1)), "before the change");
                run(connection, "DROP TABLE pgjdbc_change", "CREATE TABLE pgjdbc_change (a int, b text)", "INSERT INTO pgjdbc_change VALUES (2, 'x')");
                equal(all(statement.executeQuery()), List.of(List.of(2, "x")), "after the change");
            }
            run(connection, "DROP TABLE pgjdbc_change", "DEALLOCATE ALL");
            equal(one(connection, "SELECT 1"), 1, "after DEALLOCATE ALL");
            // More statements than the cache keeps.
            for (int n = 0; n < 300; n++) {
                for (int round = 0; round < 4; round++) if (n % 50 == 0 || round == 0) equal(one(connection, "SELECT " + n + " + ?", 1), n + 1, "statement " + n);
            }
        }
    }

    static void batches() throws Exception {
        for (String rewrite : List.of("false", "true")) {
            try (Connection connection = connect("reWriteBatchedInserts", rewrite)) {
                run(connection, "DROP TABLE IF EXISTS pgjdbc_batch", "CREATE TABLE pgjdbc_batch (id int, name text, day date)");
                connection.setAutoCommit(false);
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO pgjdbc_batch (id, name, day) VALUES (?, ?, ?)")) {
                    for (int n = 0; n < 500; n++) {
                        insert.setInt(1, n);
                        insert.setString(2, n % 7 == 0 ? null : "name " + n);
                        insert.setObject(3, LocalDate.of(1969, 1, 1).plusDays(n));
                        insert.addBatch();
                    }
                    equal(insert.executeBatch().length, 500, "counts");
                }
                connection.commit();
                equal(one(connection, "SELECT count(*) FROM pgjdbc_batch WHERE name IS NOT NULL"), 428L, "rows, rewritten: " + rewrite);
                try (Statement statement = connection.createStatement()) {
                    statement.addBatch("UPDATE pgjdbc_batch SET name = 'x' WHERE id < 10");
                    statement.addBatch("DELETE FROM pgjdbc_batch WHERE id >= 400");
                    statement.addBatch("INSERT INTO pgjdbc_batch VALUES (1000, 'y', NULL)");
                    equal(Arrays.toString(statement.executeBatch()), "[10, 100, 1]", "counts");
                }
                connection.commit();
                try (Statement statement = connection.createStatement()) {
                    statement.addBatch("INSERT INTO pgjdbc_batch VALUES (2000, 'y', NULL)");
                    statement.addBatch("INSERT INTO pgjdbc_batch SELECT 1 / 0, 'z', NULL");
                    statement.addBatch("INSERT INTO pgjdbc_batch VALUES (2001, 'y', NULL)");
                    fails("22012", statement::executeBatch);
                }
                connection.rollback();
                equal(one(connection, "SELECT count(*) FROM pgjdbc_batch"), 401L, "rows after a batch that failed");
                run(connection, "DROP TABLE pgjdbc_batch");
                connection.commit();
            }
        }
    }

    static void fetching() throws Exception {
        for (String threshold : List.of("5", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                connection.setAutoCommit(false);
                String query = "SELECT x FROM generate_series(1, ?) AS g(x) ORDER BY x";
                try (PreparedStatement first = connection.prepareStatement(query); PreparedStatement second = connection.prepareStatement(query)) {
                    first.setFetchSize(100);
                    second.setFetchSize(7);
                    first.setInt(1, 1000);
                    second.setInt(1, 50);
                    long sum = 0;
                    try (ResultSet rows = first.executeQuery()) {
                        while (rows.next()) {
                            sum += rows.getInt(1);
                            if (rows.getInt(1) % 250 == 0) {
                                // Another portal while the first is open.
                                equal(all(second.executeQuery()).size(), 50, "rows of the second portal");
                            }
                        }
                    }
                    equal(sum, 500500L, "the sum over 10 pieces");
                    first.setMaxRows(150);
                    equal(all(first.executeQuery()).size(), 150, "maxRows");
                    first.setMaxRows(0);
                    first.setFetchSize(1000);
                    equal(all(first.executeQuery()).size(), 1000, "as many rows as the fetch size");
                    try (ResultSet rows = first.executeQuery()) {
                        rows.next();
                        // Closed with rows left.
                    }
                }
                connection.commit();
                try (Statement statement = connection.createStatement()) {
                    statement.setFetchSize(10);
                    ResultSet rows = statement.executeQuery("SELECT x FROM generate_series(1, 100) AS g(x)");
                    rows.next();
                    connection.commit();
                    fails("34000", () -> {
                        while (rows.next()) {}
                    });
                }
                connection.rollback();
                try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
                    ResultSet rows = statement.executeQuery("SELECT x FROM generate_series(1, 9) AS g(x) ORDER BY x");
                    rows.last();
                    equal(rows.getInt(1), 9, "the last row");
                    rows.absolute(3);
                    equal(rows.getInt(1), 3, "the third row");
                }
                try (Statement statement = connection.createStatement()) {
                    statement.execute("DECLARE c CURSOR FOR SELECT x FROM generate_series(1, 9) AS g(x) ORDER BY x");
                    equal(all(statement.executeQuery("FETCH 3 FROM c")).toString(), "[[1], [2], [3]]", "FETCH");
                    statement.execute("CLOSE c");
                }
                connection.commit();
            }
        }
    }

    static void transactions() throws Exception {
        try (Connection connection = connect(); Connection other = connect()) {
            run(connection, "DROP TABLE IF EXISTS pgjdbc_t", "CREATE TABLE pgjdbc_t (id int)");
            String count = "SELECT count(*) FROM pgjdbc_t";
            connection.setAutoCommit(false);
            run(connection, "INSERT INTO pgjdbc_t VALUES (1)");
            equal(one(other, count), 0L, "others do not see it yet");
            connection.commit();
            equal(one(other, count), 1L, "others see it");
            run(connection, "DELETE FROM pgjdbc_t");
            connection.rollback();
            equal(one(connection, count), 1L, "rolled back");
            run(connection, "INSERT INTO pgjdbc_t VALUES (2)");
            Savepoint named = connection.setSavepoint("a name"), unnamed = connection.setSavepoint();
            run(connection, "INSERT INTO pgjdbc_t VALUES (3)");
            fails("22012", () -> run(connection, "SELECT 1/0"));
            fails("25P02", () -> run(connection, "SELECT 1"));
            connection.rollback(unnamed);
            connection.releaseSavepoint(named);
            connection.commit();
            equal(one(other, count), 2L, "what stood before the savepoint");
            fails("42P01", () -> run(connection, "SELECT * FROM pgjdbc_nosuch"));
            connection.rollback();
            for (int level : new int[] {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE}) {
                connection.setTransactionIsolation(level);
                equal(connection.getTransactionIsolation(), level, "the isolation");
                connection.commit();
            }
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setReadOnly(true);
            fails("25006", () -> run(connection, "INSERT INTO pgjdbc_t VALUES (9)"));
            connection.rollback();
            connection.setReadOnly(false);
            run(connection, "DROP TABLE pgjdbc_t");
            connection.commit();
        }
        try (Connection connection = connect("autosave", "always")) {
            connection.setAutoCommit(false);
            fails("22012", () -> run(connection, "SELECT 1/0"));
            equal(one(connection, "SELECT 1"), 1, "autosave keeps the transaction");
            connection.commit();
        }
    }

    static void failures() throws Exception {
        try (Connection connection = connect()) {
            Object[][] cases = {
                {"SELEC 1", "42601", 1}, {"SELECT * FROM pgjdbc_nosuch", "42P01", 15}, {"SELECT nosuch FROM generate_series(1, 2) AS g(x)", "42703", 8},
                {"SELECT nosuch(1)", "42883", 8}, {"SELECT 1 / 0", "22012", 0}, {"SELECT CAST('x' AS int)", "22P02", null},
            };
            for (Object[] each : cases) {
                SQLException error = fails((String) each[1], () -> run(connection, (String) each[0]));
                org.postgresql.util.ServerErrorMessage message = ((org.postgresql.util.PSQLException) error).getServerErrorMessage();
                if (each[2] != null) equal(message.getPosition(), each[2], "the position in " + each[0]);
                equal(message.getSeverity(), "ERROR", "the severity");
                equal(one(connection, "SELECT 1"), 1, "the session goes on");
            }
            SQLException error = fails("42883", () -> run(connection, "SELECT pgjdbc_nosuch(1)"));
            holds(((org.postgresql.util.PSQLException) error).getServerErrorMessage().getHint() != null, "a hint");
            fails("22P02", () -> one(connection, "SELECT CAST(CAST(? AS text) AS int)", "x"));
        }
    }

    static void cancelling() throws Exception {
        try (Connection connection = connect()) {
            try (Statement statement = connection.createStatement()) {
                Timer timer = new Timer(true);
                timer.schedule(new TimerTask() {
                    public void run() {
                        try {
                            statement.cancel();
                        } catch (SQLException error) {
                            throw new RuntimeException(error);
                        }
                    }
                }, 700);
                long started = System.nanoTime();
                fails("57014", () -> statement.executeQuery(LONG));
                holds(System.nanoTime() - started < 10e9, "a cancelled statement ends within 10 s");
                statement.setQueryTimeout(1);
                fails("57014", () -> statement.executeQuery(LONG));
                statement.setQueryTimeout(0);
                statement.execute("SET statement_timeout = '300ms'");
                fails("57014", () -> statement.executeQuery(LONG));
                statement.execute("RESET statement_timeout");
                equal(one(connection, "SELECT 1"), 1, "the session goes on");
            }
        }
        Connection aborted = connect();
        aborted.abort(Runnable::run);
        holds(aborted.isClosed(), "an aborted connection is closed");
    }

    static void copying() throws Exception {
        try (Connection connection = connect()) {
            CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
            run(connection, "DROP TABLE IF EXISTS pgjdbc_copy", "CREATE TABLE pgjdbc_copy (id int, name text)");
            equal(copies.copyIn("COPY pgjdbc_copy FROM STDIN WITH (FORMAT csv)", new StringReader("1,one\n2,\"t\"\"wo, ü\"\n3,\n")), 3L, "rows in, CSV");
            equal(copies.copyIn("COPY pgjdbc_copy FROM STDIN", new StringReader("4\tfo\\tur\n5\t\\N\n")), 2L, "rows in, text");
            StringWriter text = new StringWriter();
            equal(copies.copyOut("COPY (SELECT * FROM pgjdbc_copy ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)", text), 5L, "rows out");
            equal(text.toString(), "id,name\n1,one\n2,\"t\"\"wo, ü\"\n3,\n4,fo\tur\n5,\n", "rows out, CSV");
            java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
            copies.copyOut("COPY pgjdbc_copy TO STDOUT (FORMAT binary)", bytes);
            equal(copies.copyIn("COPY pgjdbc_copy FROM STDIN (FORMAT binary)", new java.io.ByteArrayInputStream(bytes.toByteArray())), 5L, "rows in, binary");
            org.postgresql.copy.CopyIn copy = copies.copyIn("COPY pgjdbc_copy FROM STDIN");
            byte[] line = "6\tsix\n".getBytes();
            copy.writeToCopy(line, 0, line.length);
            copy.cancelCopy();
            fails("22P02", () -> copies.copyIn("COPY pgjdbc_copy FROM STDIN", new StringReader("x\ty\n")));
            fails("42P01", () -> copies.copyIn("COPY pgjdbc_nosuch FROM STDIN"));
            equal(one(connection, "SELECT count(*) FROM pgjdbc_copy"), 10L, "rows in the table");
            run(connection, "DROP TABLE pgjdbc_copy");
        }
    }

    static void manyStatements() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            run(connection, "DROP TABLE IF EXISTS pgjdbc_many");
            holds(!statement.execute("CREATE TABLE pgjdbc_many (id int); INSERT INTO pgjdbc_many VALUES (1), (2); SELECT id FROM pgjdbc_many ORDER BY id; SELECT 'x'"), "the first is no query");
            equal(statement.getUpdateCount(), 0, "CREATE TABLE");
            holds(!statement.getMoreResults(), "INSERT is no query");
            equal(statement.getUpdateCount(), 2, "INSERT");
            holds(statement.getMoreResults(), "SELECT is a query");
            equal(all(statement.getResultSet()), List.of(List.of(1), List.of(2)), "the rows of the third");
            holds(statement.getMoreResults(), "SELECT is a query");
            equal(all(statement.getResultSet()), List.of(List.of("x")), "the rows of the fourth");
            holds(!statement.getMoreResults() && statement.getUpdateCount() == -1, "no more results");
            equal(statement.executeUpdate("UPDATE pgjdbc_many SET id = id + 1"), 2, "UPDATE");
            equal(statement.executeLargeUpdate("DELETE FROM pgjdbc_many"), 2L, "DELETE");
            statement.execute("");
            statement.execute("-- only a comment");
            run(connection, "DROP TABLE pgjdbc_many");
        }
    }

    static void metadata() throws Exception {
        try (Connection connection = connect()) {
            run(connection, "DROP VIEW IF EXISTS pgjdbc_view", "DROP TABLE IF EXISTS pgjdbc_meta",
                "CREATE TABLE pgjdbc_meta (id bigint NOT NULL, price numeric(12,2), name text, day date, at timestamp, tz timestamptz, raw bytea, f double precision, ok boolean)",
                "CREATE VIEW pgjdbc_view AS SELECT id, name FROM pgjdbc_meta");
            DatabaseMetaData meta = connection.getMetaData();
            equal(meta.getDatabaseProductName(), "PostgreSQL", "the product");
            holds(meta.getDatabaseMajorVersion() >= 14, "the version");
            equal(meta.getUserName(), user, "the user");
            String schema = (String) one(connection, "SELECT current_schema()");
            List<String> tables = new ArrayList<>();
            try (ResultSet rows = meta.getTables(null, schema, "pgjdbc\\_%", new String[] {"TABLE", "VIEW"})) {
                while (rows.next()) tables.add(rows.getString("TABLE_SCHEM") + "." + rows.getString("TABLE_NAME") + " " + rows.getString("TABLE_TYPE"));
            }
            equal(tables, List.of(schema + ".pgjdbc_meta TABLE", schema + ".pgjdbc_view VIEW"), "getTables");
            holds(all(meta.getTables(null, null, "%", null)).size() > 2, "getTables of everything");
            holds(all(meta.getTables(null, "pg_catalog", "pg_class", new String[] {"SYSTEM TABLE"})).size() == 1, "getTables of pg_catalog");
            List<String> columns = new ArrayList<>();
            try (ResultSet rows = meta.getColumns(null, null, "pgjdbc_meta", null)) {
                while (rows.next()) {
                    columns.add(rows.getInt("ORDINAL_POSITION") + " " + rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME") + " " + rows.getInt("DATA_TYPE") + " "
                        + rows.getInt("COLUMN_SIZE") + " " + rows.getInt("DECIMAL_DIGITS") + " " + rows.getString("IS_NULLABLE") + " " + rows.getString("COLUMN_DEF"));
                }
            }
            equal(String.join("\n", columns),
                "1 id int8 -5 19 0 NO null\n2 price numeric 2 12 2 YES null\n3 name text 12 2147483647 0 YES null\n4 day date 91 13 0 YES null\n5 at timestamp 93 29 6 YES null\n"
                + "6 tz timestamptz 93 35 6 YES null\n7 raw bytea -2 2147483647 0 YES null\n8 f float8 8 17 17 YES null\n9 ok bool -7 1 0 YES null", "getColumns");
            equal(all(meta.getColumns(null, schema, "pgjdbc\\_view", "na%")).size(), 1, "getColumns of one column");
            holds(all(meta.getSchemas()).stream().anyMatch(row -> row.get(0).equals(schema)), "getSchemas");
            equal(all(meta.getSchemas(null, schema)).size(), 1, "getSchemas of one");
            holds(all(meta.getCatalogs()).stream().anyMatch(row -> row.get(0).equals(database)), "getCatalogs");
            holds(all(meta.getTableTypes()).size() > 1, "getTableTypes");
            holds(all(meta.getTypeInfo()).stream().anyMatch(row -> row.get(0).equals("int4")), "getTypeInfo");
            for (ResultSet none : new ResultSet[] {meta.getPrimaryKeys(null, schema, "pgjdbc_meta"), meta.getIndexInfo(null, schema, "pgjdbc_meta", false, false),
                meta.getImportedKeys(null, schema, "pgjdbc_meta"), meta.getExportedKeys(null, schema, "pgjdbc_meta"), meta.getCrossReference(null, schema, "pgjdbc_meta", null, schema, "pgjdbc_meta"),
                meta.getBestRowIdentifier(null, schema, "pgjdbc_meta", DatabaseMetaData.bestRowSession, true), meta.getProcedures(null, schema, "pgjdbc%")}) {
                equal(all(none).size(), 0, "a warehouse has no keys, indexes and types of its own");
            }
            holds(all(meta.getTablePrivileges(null, schema, "pgjdbc_meta")).size() > 0, "getTablePrivileges");
            all(meta.getColumnPrivileges(null, schema, "pgjdbc_meta", "id"));
            holds(all(meta.getFunctions(null, "pg_catalog", "lower")).size() > 0, "getFunctions");
            all(meta.getFunctionColumns(null, "pg_catalog", "lower", null));
            all(meta.getProcedureColumns(null, schema, "pgjdbc%", null));
            all(meta.getUDTs(null, schema, "pgjdbc%", null));
            all(meta.getVersionColumns(null, schema, "pgjdbc_meta"));
            all(meta.getClientInfoProperties());
            holds(meta.getMaxColumnNameLength() > 0, "getMaxColumnNameLength");
            holds(meta.getSQLKeywords().length() > 0, "getSQLKeywords");
            holds(meta.getTimeDateFunctions() != null && meta.getNumericFunctions() != null, "names of functions");
            try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT id AS other, price, upper(name) FROM pgjdbc_meta")) {
                ResultSetMetaData result = rows.getMetaData();
                equal(result.getTableName(1) + " " + result.unwrap(org.postgresql.PGResultSetMetaData.class).getBaseSchemaName(1) + " " + result.getColumnLabel(1), "pgjdbc_meta " + schema + " other", "where a column is from");
                equal(result.isNullable(1), ResultSetMetaData.columnNoNulls, "NOT NULL");
                equal(result.isAutoIncrement(1), false, "no column counts by itself");
                equal(result.unwrap(org.postgresql.PGResultSetMetaData.class).getBaseColumnName(1), "id", "the column that another name was given");
            }
            run(connection, "DROP VIEW pgjdbc_view", "DROP TABLE pgjdbc_meta");
        }
    }

    static void settings() throws Exception {
        try (Connection connection = connect()) {
            String schema = connection.getSchema();
            connection.setSchema("pg_catalog");
            equal(connection.getSchema(), "pg_catalog", "setSchema");
            connection.setSchema(schema);
            connection.setClientInfo("ApplicationName", "renamed");
            equal(connection.getClientInfo("ApplicationName"), "renamed", "setClientInfo");
            equal(one(connection, "SHOW application_name"), "renamed", "setClientInfo");
            holds(connection.isValid(5), "isValid");
            connection.setNetworkTimeout(Runnable::run, 60_000);
            equal(connection.getCatalog(), database, "getCatalog");
            run(connection, "SET client_min_messages = notice", "SET search_path TO " + schema + ", pg_catalog", "RESET search_path", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE");
            try (Statement statement = connection.createStatement()) {
                statement.execute("DROP TABLE IF EXISTS pgjdbc_nosuch");
                holds(statement.getWarnings() != null && statement.getWarnings().getMessage().contains("pgjdbc_nosuch"), "a notice is a warning");
            }
            equal(connection.unwrap(PGConnection.class).escapeLiteral("it's"), "it''s", "escapeLiteral");
            equal(connection.unwrap(PGConnection.class).getParameterStatus("server_encoding"), "UTF8", "server_encoding");
            equal(connection.nativeSQL("{fn ucase('x')}"), "upper('x')", "nativeSQL");
            equal(one(connection, "SELECT {fn concat('a', {fn lcase('B')})}"), "ab", "escapes of JDBC");
            holds(one(connection, "SELECT {d '2024-01-01'}").toString().equals("2024-01-01"), "a date's escape");
        }
    }

    static void manyParameters() throws Exception {
        try (Connection connection = connect()) {
            for (int count : new int[] {10_000, 65_535}) {
                String marks = "?" + ", ?".repeat(count - 1);
                try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM generate_series(1, 100) AS g(x) WHERE x IN (" + marks + ")")) {
                    for (int n = 1; n <= count; n++) statement.setInt(n, n);
                    ResultSet rows = statement.executeQuery();
                    rows.next();
                    equal(rows.getLong(1), 100L, count + " parameters");
                }
            }
        }
    }

    static void largeResults() throws Exception {
        for (String threshold : List.of("5", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                connection.setAutoCommit(false);
                try (PreparedStatement statement = connection.prepareStatement("SELECT x, x * 2 FROM generate_series(1, 1000000) AS g(x)")) {
                    statement.setFetchSize(10_000);
                    long sum = 0, count = 0;
                    try (ResultSet rows = statement.executeQuery()) {
                        while (rows.next()) {
                            sum += rows.getLong(1);
                            count++;
                        }
                    }
                    equal(count, 1_000_000L, "rows");
                    equal(sum, 500_000_500_000L, "their sum");
                }
                connection.commit();
            }
        }
    }
}
