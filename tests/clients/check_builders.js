// Knex and drizzle-orm over node-postgres. usage: check_builders.js HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]
"use strict";

const assert = require("node:assert/strict");
const { Program } = require("./checks.js");

const program = new Program();
const { Pool } = program.load("pg");
const knexOf = program.load("knex");
const { drizzle } = program.load("drizzle-orm/node-postgres");
const { and, asc, count, desc, eq, gt, ilike, inArray, relations, sql } = program.load("drizzle-orm");
const { bigint, boolean, integer, jsonb, numeric, pgTable, serial, text, timestamp, uuid, varchar } = program.load("drizzle-orm/pg-core");
const check = program.check.bind(program);

async function withKnex(work) {
  const knex = knexOf({ client: "pg", connection: program.server, pool: { min: 0, max: 3 } });
  try {
    await knex.schema.dropTableIfExists("knex_orders");
    await knex.schema.dropTableIfExists("knex_users");
    await knex.schema.createTable("knex_users", (table) => {
      table.increments("id");
      table.string("name", 60).notNullable();
      table.date("born");
    });
    await knex.schema.createTable("knex_orders", (table) => {
      table.bigIncrements("id");
      table.integer("user_id").references("id").inTable("knex_users").onDelete("CASCADE");
      table.decimal("price", 10, 2);
      table.boolean("paid").notNullable().defaultTo(false);
      table.timestamps(true, true);
      table.index(["user_id", "paid"]);
    });
    return await work(knex);
  } finally {
    await knex.destroy();
  }
}

check("Knex: tables with generated keys, defaults and indexes; hasTable, columnInfo, alterTable", () =>
  withKnex(async (knex) => {
    assert.equal(await knex.schema.hasTable("knex_users"), true);
    assert.equal(await knex.schema.hasColumn("knex_users", "nosuch"), false);
    const columns = await knex("knex_users").columnInfo();
    assert.deepEqual([columns.name.type, columns.name.maxLength, columns.name.nullable], ["character varying", 60, false]);
    await knex.schema.alterTable("knex_users", (table) => {
      table.string("city").defaultTo("Berlin");
      table.renameColumn("born", "birthday");
      table.dropNullable("birthday");
      table.setNullable("birthday");
    });
    await knex("knex_users").insert({ name: "a" });
    assert.deepEqual(await knex("knex_users").first("city", "birthday"), { city: "Berlin", birthday: null });
  }),
);

check("Knex: insert with returning, where, whereIn, joins, limit and offset, aggregates, update, delete", () =>
  withKnex(async (knex) => {
    const [first, second] = await knex("knex_users").insert([{ name: "Ann", born: "2000-02-29" }, { name: "Bob" }]).returning("id");
    assert.ok(first.id < second.id);
    await knex.batchInsert("knex_orders", [1, 2, 3, 4, 5].map((n) => ({ user_id: first.id, price: n })), 2);
    const page = await knex("knex_orders").select("price").where("price", ">", 1).orderBy("price", "desc").limit(2).offset(1);
    assert.deepEqual(page, [{ price: "4.00" }, { price: "3.00" }]);
    const some = await knex("knex_orders as o").join("knex_users as u", "u.id", "o.user_id").whereIn("o.price", [1, 5, 9]).orderBy("o.id").pluck("u.name");
    assert.deepEqual(some, ["Ann", "Ann"]);
    const groups = await knex("knex_users as u").leftJoin("knex_orders as o", "o.user_id", "u.id").groupBy("u.name").orderBy("u.name").select("u.name").count("o.id as n").sum("o.price as sum");
    assert.deepEqual(groups, [{ name: "Ann", n: "5", sum: "15.00" }, { name: "Bob", n: "0", sum: null }]);
    assert.deepEqual(await knex("knex_orders").where({ price: 2 }).update({ paid: true }, ["price", "paid"]), [{ price: "2.00", paid: true }]);
    assert.equal(await knex("knex_orders").where("paid", true).increment("price", 10), 1);
    assert.equal(await knex("knex_orders").where("price", 12).del(), 1);
    const order = await knex("knex_orders").first();
    assert.ok(order.created_at instanceof Date && order.updated_at instanceof Date && order.paid === false);
    assert.deepEqual((await knex.raw("SELECT ?::int AS a, ??.name FROM knex_users AS ?? WHERE name = ?", [7, "x", "x", "Bob"])).rows, [{ a: 7, name: "Bob" }]);
  }),
);

check("Knex: transactions, kept and undone; a stream of rows; errors with their codes", () =>
  withKnex(async (knex) => {
    await knex.transaction(async (transaction) => {
      await transaction("knex_users").insert({ name: "kept" });
      await assert.rejects(transaction.transaction(async (inner) => {
        await inner("knex_users").insert({ name: "undone" });
        throw new Error("undone");
      }));
    });
    assert.deepEqual(await knex("knex_users").pluck("name"), ["kept"]);
    await program.fails("42P01", () => knex("knex_nosuch").where("a", 1));
    await program.fails("23502", () => knex("knex_users").insert({ name: null }));
    assert.deepEqual(await knex("knex_users").count("* as n"), [{ n: "1" }]);
  }),
);

check("Knex: onConflict with ignore and with merge", () =>
  withKnex(async (knex) => {
    await knex.schema.alterTable("knex_users", (table) => table.unique(["name"]));
    await knex("knex_users").insert({ name: "a" });
    await knex("knex_users").insert({ name: "a" }).onConflict("name").ignore();
    await knex("knex_users").insert({ name: "a", born: "2001-01-01" }).onConflict("name").merge(["born"]);
    assert.deepEqual((await knex("knex_users").select("name", knex.raw("born::text"))), [{ name: "a", born: "2001-01-01" }]);
  }),
);

check("Knex: migrations up and down, with its own tables and lock", () =>
  withKnex(async (knex) => {
    for (const name of ["knex_migrations", "knex_migrations_lock", "knex_migrated"]) {
      await knex.schema.dropTableIfExists(name);
    }
    const up = (knex) => knex.schema.createTable("knex_migrated", (table) => table.uuid("id").primary());
    const migrationSource = {
      getMigrations: async () => ["one"],
      getMigrationName: (name) => name,
      getMigration: async () => ({ up, down: (knex) => knex.schema.dropTable("knex_migrated") }),
    };
    assert.deepEqual(await knex.migrate.latest({ migrationSource }), [1, ["one"]]);
    assert.deepEqual((await knex.migrate.latest({ migrationSource }))[1], []);
    assert.equal(await knex.schema.hasTable("knex_migrated"), true);
    await knex.migrate.rollback({ migrationSource });
    assert.equal(await knex.schema.hasTable("knex_migrated"), false);
  }),
);

const users = pgTable("drizzle_users", { id: serial("id").primaryKey(), name: varchar("name", { length: 60 }).notNull(), tags: text("tags").array() });
const posts = pgTable("drizzle_posts", {
  id: bigint("id", { mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  userId: integer("user_id").references(() => users.id),
  title: text("title").notNull(),
  score: numeric("score", { precision: 10, scale: 2 }),
  draft: boolean("draft").default(true),
  at: timestamp("at", { withTimezone: true }).defaultNow(),
});
const documents = pgTable("drizzle_documents", { id: uuid("id").defaultRandom().primaryKey(), body: jsonb("body") });
const schema = {
  users,
  posts,
  usersRelations: relations(users, ({ many }) => ({ posts: many(posts) })),
  postsRelations: relations(posts, ({ one }) => ({ user: one(users, { fields: [posts.userId], references: [users.id] }) })),
};

async function withDrizzle(work) {
  const pool = new Pool({ ...program.server, max: 3 });
  const database = drizzle(pool, { schema });
  try {
    await database.execute(sql`DROP TABLE IF EXISTS drizzle_posts`);
    await database.execute(sql`DROP TABLE IF EXISTS drizzle_users`);
    await database.execute(sql`CREATE TABLE "drizzle_users" ("id" serial PRIMARY KEY NOT NULL, "name" varchar(60) NOT NULL, "tags" text[])`);
    await database.execute(sql`CREATE TABLE "drizzle_posts" ("id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "drizzle_posts_id_seq"
      INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1), "user_id" integer, "title" text NOT NULL, "score" numeric(10, 2),
      "draft" boolean DEFAULT true, "at" timestamp with time zone DEFAULT now())`);
    return await work(database);
  } finally {
    await pool.end();
  }
}

check("drizzle-orm: insert with returning and defaults, select with where, limit and offset, joins, aggregates", () =>
  withDrizzle(async (database) => {
    const [ann, bob] = await database.insert(users).values([{ name: "Ann", tags: ["a", "b"] }, { name: "Bob" }]).returning();
    assert.ok(ann.id < bob.id);
    assert.deepEqual([ann.tags, bob.tags], [["a", "b"], null]);
    const made = await database.insert(posts).values([1, 2, 3, 4, 5].map((n) => ({ userId: ann.id, title: `Post ${n}`, score: `${n}` }))).returning({ id: posts.id, draft: posts.draft, at: posts.at });
    assert.ok(made.every((one) => one.draft === true && one.at instanceof Date) && made[0].id < made[4].id);
    const page = await database.select({ title: posts.title }).from(posts).where(and(gt(posts.score, "1"), ilike(posts.title, "post%"))).orderBy(desc(posts.score)).limit(2).offset(1);
    assert.deepEqual(page, [{ title: "Post 4" }, { title: "Post 3" }]);
    const groups = await database.select({ name: users.name, n: count(posts.id) }).from(users).leftJoin(posts, eq(posts.userId, users.id)).groupBy(users.name).orderBy(asc(users.name));
    assert.deepEqual(groups, [{ name: "Ann", n: 5 }, { name: "Bob", n: 0 }]);
    assert.equal(await database.$count(posts, inArray(posts.title, ["Post 1", "Post 2", "none"])), 2);
    const prepared = database.select().from(users).where(eq(users.name, sql.placeholder("name"))).limit(sql.placeholder("most")).prepare("drizzle_by_name");
    assert.deepEqual((await prepared.execute({ name: "Bob", most: 1 })).map((one) => one.name), ["Bob"]);
  }),
);

check("drizzle-orm: queries with what belongs to a row (lateral joins and json)", () =>
  withDrizzle(async (database) => {
    const [ann] = await database.insert(users).values({ name: "Ann" }).returning();
    await database.insert(posts).values([{ userId: ann.id, title: "b" }, { userId: ann.id, title: "a" }]);
    const found = await database.query.users.findMany({ columns: { name: true }, with: { posts: { columns: { title: true }, orderBy: asc(posts.title) } } });
    assert.deepEqual(found, [{ name: "Ann", posts: [{ title: "a" }, { title: "b" }] }]);
    const post = await database.query.posts.findFirst({ columns: { title: true }, where: eq(posts.title, "a"), with: { user: { columns: { name: true } } } });
    assert.deepEqual(post, { title: "a", user: { name: "Ann" } });
  }),
);

check("drizzle-orm: update and delete with returning, transactions, a document under a random uuid", () =>
  withDrizzle(async (database) => {
    await database.insert(users).values([{ name: "a" }, { name: "b" }]);
    assert.deepEqual(await database.update(users).set({ name: sql`upper(${users.name})` }).where(eq(users.name, "a")).returning({ name: users.name }), [{ name: "A" }]);
    assert.deepEqual(await database.delete(users).where(eq(users.name, "b")).returning({ name: users.name }), [{ name: "b" }]);
    await database.transaction(async (transaction) => {
      await transaction.insert(users).values({ name: "kept" });
      await assert.rejects(transaction.transaction(async (inner) => {
        await inner.insert(users).values({ name: "undone" });
        inner.rollback();
      }));
    });
    assert.deepEqual((await database.select().from(users).orderBy(users.id)).map((one) => one.name), ["A", "kept"]);
    await database.execute(sql`DROP TABLE IF EXISTS drizzle_documents`);
    await database.execute(sql`CREATE TABLE "drizzle_documents" ("id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL, "body" jsonb)`);
    const [document] = await database.insert(documents).values({ body: { a: [1, null] } }).returning();
    assert.deepEqual(await database.select().from(documents).where(eq(documents.id, document.id)), [document]);
    assert.deepEqual(document.body, { a: [1, null] });
  }),
);

program.run(`Knex ${program.version("knex")}, drizzle-orm ${program.version("drizzle-orm")}`);
