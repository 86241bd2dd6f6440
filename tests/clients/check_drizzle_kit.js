// drizzle-kit: a schema pushed into a database, and read from it again. usage: check_drizzle_kit.js HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { Program } = require("./checks.js");

const program = new Program();
const { Client } = program.load("pg");

// What one command may take.
const COMMAND_MS_MAX = 55_000;

const SCHEMA = `
import { bigint, boolean, index, integer, jsonb, numeric, pgSchema, serial, text, timestamp, uuid, varchar } from "drizzle-orm/pg-core";
export const kit = pgSchema("drizzle_kit");
export const users = kit.table("users", { id: serial().primaryKey(), name: varchar({ length: 60 }).notNull().unique(), tags: text().array() });
export const posts = kit.table("posts", {
  id: bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  userId: integer("user_id").references(() => users.id),
  score: numeric({ precision: 10, scale: 2 }),
  draft: boolean().default(true).notNull(),
  key: uuid().defaultRandom(),
  body: jsonb(),
  at: timestamp({ withTimezone: true }).defaultNow(),
}, (table) => [index("posts_score").on(table.score)]);
`;

async function execute(text) {
  const client = new Client(program.server);
  await client.connect();
  try {
    return (await client.query({ text, rowMode: "array" })).rows;
  } finally {
    await client.end();
  }
}

function kit(folder, ...words) {
  const { host, port, user, password = "", database } = program.server;
  fs.symlinkSync(program.modules, path.join(folder, "node_modules"));
  const url = `postgresql://${encodeURIComponent(user)}:${encodeURIComponent(password)}@${host}:${port}/${encodeURIComponent(database)}`;
  fs.writeFileSync(path.join(folder, "schema.ts"), SCHEMA);
  const settings = { dialect: "postgresql", schema: "./schema.ts", out: "./out", schemaFilter: ["drizzle_kit"], dbCredentials: { url } };
  fs.writeFileSync(path.join(folder, "drizzle.config.json"), JSON.stringify(settings));
  const bin = path.join(program.modules, "drizzle-kit/bin.cjs");
  return execFileSync(process.execPath, [bin, ...words], { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], timeout: COMMAND_MS_MAX });
}

program.check("drizzle-kit push: tables with keys, defaults and an index from a schema in TypeScript, and again without changes", async () => {
  await execute("DROP SCHEMA IF EXISTS drizzle_kit CASCADE");
  assert.match(kit(fs.mkdtempSync(path.join(os.tmpdir(), "clients-")), "push", "--force"), /Changes applied/);
  assert.deepEqual(await execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'drizzle_kit' ORDER BY 1"), [["posts"], ["users"]]);
  assert.match(kit(fs.mkdtempSync(path.join(os.tmpdir(), "clients-")), "push", "--force"), /No changes detected/);
});

program.check("drizzle-kit introspect: a schema in TypeScript from tables with keys, defaults and a view", async () => {
  await execute("DROP SCHEMA IF EXISTS drizzle_kit CASCADE");
  await execute("CREATE SCHEMA drizzle_kit");
  await execute("CREATE TABLE drizzle_kit.owners (id serial PRIMARY KEY, name varchar(60) NOT NULL, price numeric(10,2) DEFAULT 1.5)");
  await execute("CREATE TABLE drizzle_kit.pets (id bigint PRIMARY KEY, owner_id int REFERENCES drizzle_kit.owners (id), at timestamptz DEFAULT now(), tags text[])");
  await execute("CREATE VIEW drizzle_kit.dear AS SELECT id, name FROM drizzle_kit.owners WHERE price > 5");
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "clients-"));
  kit(folder, "introspect");
  const text = fs.readFileSync(path.join(folder, "out/schema.ts"), "utf8");
  for (const line of ["id: serial().primaryKey().notNull()", "name: varchar({ length: 60 }).notNull()", "tags: text().array()", 'name: "pets_owner_id_fkey"', '.view("dear"']) {
    assert.ok(text.includes(line), `${line} in ${text}`);
  }
});

program.run(`drizzle-kit ${program.version("drizzle-kit")}`);
