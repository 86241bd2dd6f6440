import jakarta.persistence.*;
import java.math.BigDecimal;
import java.nio.file.*;
import java.sql.*;
import java.time.*;
import java.util.*;
import java.util.stream.*;

/**
 * Tools of Java that make and read tables: Flyway, Liquibase, Hibernate, jOOQ with its generator, R2DBC. usage: CheckTools HOST PORT USER [DATABASE]
 * [--keep-going] [--only TEXT]; the password is $PGPASSWORD.
 */
public class CheckTools {
    /** What one check may take. */
    static final Duration CHECK_MAX = Duration.ofSeconds(120);

    interface Run {
        void run() throws Exception;
    }

    static String host, user, database, password, url;
    static int port;
    static final Map<String, Run> checks = new LinkedHashMap<>();

    static void equal(Object got, Object expected, String what) {
        if (!Objects.equals(got, expected)) throw new AssertionError(what + ": expected " + expected + ", got " + got);
    }

    static void holds(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    /** The SQLSTATE of an error or of what has caused it. */
    static String code(Throwable error) {
        for (; error != null; error = error.getCause()) {
            if (error instanceof SQLException one) return one.getSQLState();
            if (error instanceof io.r2dbc.spi.R2dbcException one) return one.getSqlState();
        }
        return "none";
    }

    static Throwable fails(Run run) {
        try {
            run.run();
        } catch (Throwable error) {
            return error;
        }
        throw new AssertionError("expected an error");
    }

    static Connection connected() throws SQLException {
        return DriverManager.getConnection(url, user, password);
    }

    static void execute(String... statements) throws SQLException {
        try (Connection connection = connected(); Statement statement = connection.createStatement()) {
            for (String one : statements) statement.execute(one);
        }
    }

    static List<String> column(String query) throws SQLException {
        try (Connection connection = connected(); Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            List<String> values = new ArrayList<>();
            while (rows.next()) values.add(rows.getString(1));
            return values;
        }
    }

    static void flyway() throws Exception {
        execute("DROP SCHEMA IF EXISTS flyway_shop CASCADE");
        Path folder = Files.createTempDirectory("clients-");
        Files.writeString(folder.resolve("V1__items.sql"), """
            CREATE TABLE items (id BIGSERIAL PRIMARY KEY, name VARCHAR(50) NOT NULL, price NUMERIC(10,2) DEFAULT 0);
            CREATE INDEX items_name ON items (name);
            INSERT INTO items (name) VALUES ('a'), ('b');
            """);
        Files.writeString(folder.resolve("V2__notes.sql"), "ALTER TABLE items ADD COLUMN note TEXT; UPDATE items SET note = 'old';");
        Files.writeString(folder.resolve("R__dear.sql"), "CREATE OR REPLACE VIEW dear AS SELECT id, name FROM items WHERE price > 5;");
        var settings = org.flywaydb.core.Flyway.configure().dataSource(url, user, password).schemas("flyway_shop").createSchemas(true).locations("filesystem:" + folder).cleanDisabled(false);
        equal(settings.load().migrate().migrationsExecuted, 3, "migrations");
        equal(settings.load().migrate().migrationsExecuted, 0, "migrations again");
        settings.load().validate();
        equal(settings.load().info().current().getVersion().toString(), "2", "version");
        equal(column("SELECT name || note FROM flyway_shop.items ORDER BY id"), List.of("aold", "bold"), "rows");
        Files.writeString(folder.resolve("V3__wrong.sql"), "CREATE TABLE more (a int); INSERT INTO nosuch VALUES (1);");
        equal(code(fails(() -> settings.load().migrate())), "42P01", "a migration that fails");
        equal(column("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'flyway_shop' AND table_name = 'more'"), List.of("0"), "undone");
    }

    static void flywayClean() throws Exception {
        execute("DROP SCHEMA IF EXISTS flyway_clean CASCADE", "CREATE SCHEMA flyway_clean", "CREATE TABLE flyway_clean.t (a int)", "CREATE VIEW flyway_clean.v AS SELECT a FROM flyway_clean.t");
        var settings = org.flywaydb.core.Flyway.configure().dataSource(url, user, password).schemas("flyway_clean").baselineOnMigrate(true).cleanDisabled(false);
        settings.load().baseline();
        settings.load().clean();
        equal(column("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'flyway_clean'"), List.of("0"), "cleaned");
    }

    static void liquibase() throws Exception {
        execute("DROP TABLE IF EXISTS databasechangelog", "DROP TABLE IF EXISTS databasechangeloglock", "DROP TABLE IF EXISTS liquibase_orders", "DROP TABLE IF EXISTS liquibase_people");
        Path folder = Files.createTempDirectory("clients-");
        Files.writeString(folder.resolve("log.yaml"), """
            databaseChangeLog:
              - changeSet:
                  id: 1
                  author: me
                  changes:
                    - createTable:
                        tableName: liquibase_people
                        columns:
                          - column: {name: id, type: bigint, autoIncrement: true, constraints: {primaryKey: true}}
                          - column: {name: name, type: varchar(50), constraints: {nullable: false, unique: true}}
                          - column: {name: active, type: boolean, defaultValueBoolean: true}
                    - createTable:
                        tableName: liquibase_orders
                        columns:
                          - column: {name: id, type: int, autoIncrement: true, constraints: {primaryKey: true}}
                          - column: {name: person_id, type: bigint, constraints: {foreignKeyName: fk_person, references: liquibase_people(id)}}
                          - column: {name: made, type: timestamp, defaultValueComputed: CURRENT_TIMESTAMP}
                    - createIndex: {indexName: liquibase_made, tableName: liquibase_orders, columns: [{column: {name: made}}]}
                    - insert: {tableName: liquibase_people, columns: [{column: {name: name, value: Ann}}]}
              - changeSet:
                  id: 2
                  author: me
                  changes:
                    - addColumn: {tableName: liquibase_people, columns: [{column: {name: age, type: int}}]}
                    - addNotNullConstraint: {tableName: liquibase_people, columnName: age, defaultNullValue: 7}
                    - renameColumn: {tableName: liquibase_people, oldColumnName: age, newColumnName: years}
                    - modifyDataType: {tableName: liquibase_people, columnName: years, newDataType: bigint}
              - changeSet:
                  id: 3
                  author: me
                  changes:
                    - dropNotNullConstraint: {tableName: liquibase_people, columnName: years}
                    - addUniqueConstraint: {tableName: liquibase_people, columnNames: "name, years"}
                  rollback:
                    - sql: SELECT 1
            """);
        var resources = new liquibase.resource.DirectoryResourceAccessor(folder);
        Run update = () -> {
            try (Connection connection = connected()) {
                var target = liquibase.database.DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new liquibase.database.jvm.JdbcConnection(connection));
                // It would tell people on standard output what it does.
                var quiet = Map.<String, Object>of(liquibase.Scope.Attr.ui.name(), new liquibase.ui.LoggerUIService());
                var work = new liquibase.Liquibase("log.yaml", resources, target);
                work.setShowSummary(liquibase.UpdateSummaryEnum.OFF);
                liquibase.Scope.child(quiet, () -> work.update(""));
            }
        };
        update.run();
        update.run();
        equal(column("SELECT id FROM databasechangelog ORDER BY orderexecuted"), List.of("1", "2", "3"), "change sets");
        equal(column("SELECT name || active || years FROM liquibase_people"), List.of("Anntrue7"), "rows");
    }

    @Entity(name = "Owner")
    @Table(name = "hibernate_owners")
    public static class Owner {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;

        @Column(length = 60, nullable = false, unique = true)
        String name;

        LocalDate born;

        @OneToMany(mappedBy = "owner", cascade = CascadeType.ALL, orphanRemoval = true)
        List<Pet> pets = new ArrayList<>();

        @Version
        int version;
    }

    @Entity(name = "Pet")
    @Table(name = "hibernate_pets", indexes = @Index(name = "hibernate_pets_name", columnList = "name"))
    public static class Pet {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE)
        Long id;

        String name;

        @Column(precision = 10, scale = 2)
        BigDecimal price;

        Instant bought;
        UUID chip;

        @Enumerated(EnumType.STRING)
        DayOfWeek day;

        @ManyToOne(fetch = FetchType.LAZY)
        @JoinColumn(name = "owner_id")
        Owner owner;

        static Pet of(Owner owner, String name, String price) {
            Pet pet = new Pet();
            pet.owner = owner;
            pet.name = name;
            pet.price = new BigDecimal(price);
            pet.day = DayOfWeek.MONDAY;
            pet.bought = Instant.parse("2024-02-29T12:30:00Z");
            pet.chip = UUID.fromString("00000000-0000-0000-0000-000000000001");
            owner.pets.add(pet);
            return pet;
        }
    }

    static org.hibernate.SessionFactory sessions(String schema) {
        return new org.hibernate.cfg.Configuration().addAnnotatedClass(Owner.class).addAnnotatedClass(Pet.class).setProperty("hibernate.connection.url", url)
            .setProperty("hibernate.connection.username", user).setProperty("hibernate.connection.password", password).setProperty("hibernate.hbm2ddl.auto", schema)
            .setProperty("hibernate.jdbc.batch_size", "10").setProperty("hibernate.hbm2ddl.halt_on_error", "true").buildSessionFactory();
    }

    static void hibernateDrop() throws Exception {
        execute("DROP TABLE IF EXISTS hibernate_pets CASCADE", "DROP TABLE IF EXISTS hibernate_owners CASCADE", "DROP SEQUENCE IF EXISTS hibernate_pets_SEQ");
    }

    static void hibernateSchema() throws Exception {
        hibernateDrop();
        for (String schema : List.of("create", "validate", "update", "create-drop")) sessions(schema).close();
        equal(column("SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'hibernate\\_%'"), List.of("0"), "dropped");
    }

    static void hibernateWork() throws Exception {
        hibernateDrop();
        try (var factory = sessions("create")) {
            Long id = factory.fromTransaction(session -> {
                Owner owner = new Owner();
                owner.name = "Ann";
                owner.born = LocalDate.of(2000, 2, 29);
                for (int i = 0; i < 20; i++) Pet.of(owner, "pet " + i, i + ".50");
                session.persist(owner);
                return owner.id;
            });
            factory.inTransaction(session -> {
                Owner owner = session.find(Owner.class, id);
                equal(owner.pets.size(), 20, "pets");
                equal(List.of(owner.pets.get(3).price, owner.pets.get(3).day, owner.pets.get(3).bought, owner.born),
                    List.of(new BigDecimal("3.50"), DayOfWeek.MONDAY, Instant.parse("2024-02-29T12:30:00Z"), LocalDate.of(2000, 2, 29)), "a pet");
                equal(owner.pets.get(3).chip.toString(), "00000000-0000-0000-0000-000000000001", "uuid");
                var page = session.createQuery("select p.name from Pet p where p.price > :least and p.name like 'pet%' order by p.price desc", String.class);
                equal(page.setParameter("least", BigDecimal.TEN).setFirstResult(1).setMaxResults(2).list(), List.of("pet 18", "pet 17"), "page");
                var some = session.createQuery("from Pet p join fetch p.owner o where o.name = :name and p.id in :ids order by p.id", Pet.class);
                List<Long> ids = owner.pets.stream().limit(2).map(pet -> pet.id).toList();
                equal(some.setParameter("name", "Ann").setParameter("ids", ids).list().stream().map(pet -> pet.id).toList(), ids, "some");
            });
        }
    }

    static void hibernateChanges() throws Exception {
        hibernateDrop();
        try (var factory = sessions("create")) {
            factory.inTransaction(session -> {
                Owner owner = new Owner();
                owner.name = "Ann";
                for (int i = 0; i < 5; i++) Pet.of(owner, "pet " + i, i + ".50");
                session.persist(owner);
            });
            factory.inTransaction(session -> {
                Owner owner = session.createQuery("from Owner o left join fetch o.pets where o.name = ?1", Owner.class).setParameter(1, "Ann").getSingleResult();
                owner.born = LocalDate.EPOCH;
                owner.pets.remove(0);
                equal(session.createMutationQuery("update Pet p set p.price = p.price + 1 where p.name = 'pet 1'").executeUpdate(), 1, "update");
            });
            equal(factory.fromTransaction(session -> session.createQuery("select count(p), sum(p.price), max(o.version) from Owner o join o.pets p group by o.id", Object[].class).list().stream()
                .map(Arrays::asList).toList()), List.of(List.of(4L, new BigDecimal("13.00"), 1)), "what is there");
            fails(() -> factory.inTransaction(session -> {
                session.createMutationQuery("delete from Pet p where p.price > 0").executeUpdate();
                throw new IllegalStateException("undone");
            }));
            factory.inTransaction(session -> session.remove(session.createQuery("from Owner o where o.pets is not empty", Owner.class).getSingleResult()));
            equal(column("SELECT count(*) FROM hibernate_pets"), List.of("0"), "pets that are left");
        }
    }

    static void uniqueKeys() throws Exception {
        hibernateDrop();
        try (var factory = sessions("create")) {
            Run one = () -> factory.inTransaction(session -> {
                Owner owner = new Owner();
                owner.name = "Ann";
                session.persist(owner);
            });
            one.run();
            equal(code(fails(one)), "23505", "a second Ann");
        }
    }

    static void jooqTables() throws Exception {
        execute("DROP SCHEMA IF EXISTS jooq_shop CASCADE", "CREATE SCHEMA jooq_shop",
            "CREATE TABLE jooq_shop.items (id serial PRIMARY KEY, name varchar(50) NOT NULL, price numeric(10,2), tags text[], at timestamptz DEFAULT now())",
            "CREATE VIEW jooq_shop.dear AS SELECT id, name FROM jooq_shop.items WHERE price > 5");
    }

    static void jooqGenerator() throws Exception {
        jooqTables();
        Path folder = Files.createTempDirectory("clients-");
        var database = new org.jooq.meta.jaxb.Database().withName("org.jooq.meta.postgres.PostgresDatabase").withInputSchema("jooq_shop");
        org.jooq.codegen.GenerationTool.generate(new org.jooq.meta.jaxb.Configuration().withLogging(org.jooq.meta.jaxb.Logging.ERROR)
            .withOnError(org.jooq.meta.jaxb.OnError.FAIL)
            .withJdbc(new org.jooq.meta.jaxb.Jdbc().withDriver("org.postgresql.Driver").withUrl(url).withUser(user).withPassword(password))
            .withGenerator(new org.jooq.meta.jaxb.Generator().withDatabase(database).withTarget(new org.jooq.meta.jaxb.Target().withPackageName("made").withDirectory(folder.toString()))));
        String text = Files.readString(folder.resolve("made/jooq_shop/tables/Items.java".replace("jooq_shop/", "")));
        for (String word : List.of("SQLDataType.INTEGER.nullable(false).identity(true)", "SQLDataType.VARCHAR(50).nullable(false)", "SQLDataType.NUMERIC(10, 2)", "SQLDataType.CLOB.array()", "ITEMS_PKEY")) {
            holds(text.contains(word), word + " in " + text);
        }
        holds(Files.exists(folder.resolve("made/tables/Dear.java")), "the view");
    }

    static void jooqQueries() throws Exception {
        jooqTables();
        try (Connection connection = connected()) {
            var create = org.jooq.impl.DSL.using(connection, org.jooq.SQLDialect.POSTGRES);
            var items = org.jooq.impl.DSL.table("jooq_shop.items");
            var id = org.jooq.impl.DSL.field("id", Integer.class);
            var name = org.jooq.impl.DSL.field("name", String.class);
            var price = org.jooq.impl.DSL.field("price", BigDecimal.class);
            var first = create.insertInto(items, name, price).values("a", BigDecimal.ONE).returningResult(id).fetchOne(id);
            create.insertInto(items, name, price).values("b", BigDecimal.TEN).values("c", null).execute();
            equal(create.select(name).from(items).where(id.ge(first).and(name.in("a", "b", "z"))).orderBy(id.desc()).limit(1).offset(1).fetch(name), List.of("a"), "page");
            equal(create.selectCount().from(items).where(price.isNull().or(price.gt(BigDecimal.valueOf(5)))).fetchOne(0, int.class), 2, "count");
            equal(create.update(items).set(price, price.plus(1)).where(name.eq("a")).returningResult(price).fetchOne(price), new BigDecimal("2.00"), "update");
            create.batch(create.insertInto(items, name).values((String) null)).bind("x").bind("y").execute();
            var numbered = create.select(name, org.jooq.impl.DSL.rowNumber().over(org.jooq.impl.DSL.orderBy(name.desc())).as("n")).from(items).orderBy(name).limit(1).fetchOne();
            equal(numbered.get("n", int.class), 5, "window");
            fails(() -> create.transaction(inner -> {
                org.jooq.impl.DSL.using(inner).deleteFrom(items).execute();
                throw new IllegalStateException("undone");
            }));
            equal(create.fetchCount(items), 5, "rows");
            equal(create.meta().getTables("items").stream().filter(one -> one.getSchema().getName().equals("jooq_shop")).findFirst().orElseThrow().fields().length, 5, "columns");
            equal(code(fails(() -> create.fetch("SELECT * FROM jooq_shop.nosuch"))), "42P01", "no table");
        }
    }

    static <T> List<T> all(org.reactivestreams.Publisher<T> some) {
        return reactor.core.publisher.Flux.from(some).collectList().block(CHECK_MAX);
    }

    static void r2dbc() throws Exception {
        var options = io.r2dbc.postgresql.PostgresqlConnectionConfiguration.builder().host(host).port(port).username(user).password(password.isEmpty() ? null : password).database(database).build();
        var connection = new io.r2dbc.postgresql.PostgresqlConnectionFactory(options).create().block(CHECK_MAX);
        try {
            for (String statement : List.of("DROP TABLE IF EXISTS r2dbc_things", "CREATE TABLE r2dbc_things (id SERIAL PRIMARY KEY, name VARCHAR(50), price NUMERIC(10,2), at TIMESTAMPTZ DEFAULT now())")) {
                all(connection.createStatement(statement).execute().flatMap(result -> result.getRowsUpdated()));
            }
            var insert = connection.createStatement("INSERT INTO r2dbc_things (name, price) VALUES ($1, $2)").returnGeneratedValues("id");
            insert.bind("$1", "a").bind("$2", new BigDecimal("1.50")).add().bind("$1", "b").bindNull("$2", BigDecimal.class);
            List<Integer> keys = all(insert.execute().flatMap(result -> result.map((row, meta) -> row.get("id", Integer.class))));
            holds(keys.size() == 2 && keys.get(1) > keys.get(0), "keys " + keys);
            var found = connection.createStatement("SELECT name, price, at FROM r2dbc_things WHERE id = ANY($1) AND name <> $2 ORDER BY id LIMIT $3 OFFSET $4");
            found.bind("$1", keys.toArray(Integer[]::new)).bind("$2", "z").bind("$3", 5L).bind("$4", 0L);
            equal(all(found.execute().flatMap(result -> result.map((row, meta) -> row.get("name", String.class) + row.get("price", BigDecimal.class) + (row.get("at", OffsetDateTime.class) != null)))),
                List.of("a1.50true", "bnulltrue"), "rows");
            connection.beginTransaction().block(CHECK_MAX);
            equal(all(connection.createStatement("DELETE FROM r2dbc_things").execute().flatMap(result -> result.getRowsUpdated())), List.of(2L), "deleted");
            connection.rollbackTransaction().block(CHECK_MAX);
            equal(all(connection.createStatement("SELECT count(*) FROM r2dbc_things").execute().flatMap(result -> result.map((row, meta) -> row.get(0, Long.class)))), List.of(2L), "undone");
            equal(code(fails(() -> all(connection.createStatement("SELECT * FROM r2dbc_nosuch WHERE a = $1").bind("$1", 1).execute().flatMap(result -> result.getRowsUpdated())))), "42P01", "no table");
            equal(all(connection.createStatement("SELECT 1::int").execute().flatMap(result -> result.map((row, meta) -> row.get(0, Integer.class)))), List.of(1), "after an error");
        } finally {
            connection.close().block(CHECK_MAX);
        }
    }

    static {
        checks.put("Flyway: migrate with versions and a repeatable one, again, validate, info, a migration that fails is undone", CheckTools::flyway);
        checks.put("Flyway: baseline and clean", CheckTools::flywayClean);
        checks.put("Liquibase: update twice: tables with keys, an index, columns added, renamed, changed, NOT NULL added and dropped", CheckTools::liquibase);
        checks.put("Hibernate: hbm2ddl create, validate, update and create-drop", CheckTools::hibernateSchema);
        checks.put("Hibernate: persist with generated keys in batches, find, queries with pages", CheckTools::hibernateWork);
        checks.put("Hibernate: what is changed in an object, versions, update and delete by query, rollback, cascades", CheckTools::hibernateChanges);
        checks.put("Hibernate: a unique key is enforced", CheckTools::uniqueKeys);
        checks.put("jOOQ: its generator writes classes of tables and views", CheckTools::jooqGenerator);
        checks.put("jOOQ: inserts with RETURNING, queries, batches, transactions, meta()", CheckTools::jooqQueries);
        checks.put("R2DBC: generated keys, parameters, arrays, transactions, errors", CheckTools::r2dbc);
    }

    public static void main(String[] arguments) throws Exception {
        List<String> words = new ArrayList<>(List.of(arguments));
        boolean keepsGoing = words.remove("--keep-going");
        int place = words.indexOf("--only");
        String only = place < 0 ? "" : words.remove(place + 1);
        if (place >= 0) words.remove(place);
        host = words.get(0);
        port = Integer.parseInt(words.get(1));
        user = words.get(2);
        database = words.size() > 3 ? words.get(3) : user;
        password = Objects.requireNonNullElse(System.getenv("PGPASSWORD"), "");
        url = "jdbc:postgresql://" + host + ":" + port + "/" + database;
        java.util.logging.LogManager.getLogManager().reset();
        System.setProperty("org.jooq.no-logo", "true");
        System.setProperty("org.jooq.no-tips", "true");
        System.out.println("client  Flyway, Liquibase, Hibernate, jOOQ and R2DBC (scripts/more-clients/pom.xml)");
        boolean failed = false;
        for (var check : checks.entrySet()) {
            if (!check.getKey().contains(only)) continue;
            long started = System.nanoTime();
            try {
                check.getValue().run();
                System.out.printf("ok      %s (%.2f s)%n", check.getKey(), (System.nanoTime() - started) / 1e9);
            } catch (Throwable error) {
                failed = true;
                StringBuilder causes = new StringBuilder();
                for (Throwable one = error; one != null; one = one.getCause()) causes.append("\n").append(one);
                String where = Stream.of(error.getStackTrace()).filter(frame -> frame.getFileName() != null && frame.getFileName().startsWith("CheckTools")).findFirst().map(Object::toString).orElse("");
                System.out.println("FAILED  " + check.getKey() + "\n        " + where + causes.toString().replace("\n", "\n        "));
                if (!keepsGoing) break;
            }
        }
        System.exit(failed ? 1 : 0);
    }
}
