// node-postgres with its pool and its cursors, Sequelize and TypeORM. usage: check_node.js HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]
"use strict";

const assert = require("node:assert/strict");
const { Program } = require("./checks.js");

const program = new Program();
const load = program.load.bind(program);
const { Client, Pool } = load("pg");
const Cursor = load("pg-cursor");
const { DataTypes, Op, QueryTypes, Sequelize } = load("sequelize");
load("reflect-metadata");
const { DataSource, EntitySchema } = load("typeorm");

const { server } = program;
const { host, port, user, password, database } = server;
const check = program.check.bind(program);
const fails = program.fails.bind(program);

async function connected(work) {
  const client = new Client(server);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

check("pg: parameters without a type at LIMIT, OFFSET, ANY, IN, CASE, and in functions", () =>
  connected(async (client) => {
    const rows = async (text, values) => (await client.query({ text, values, rowMode: "array" })).rows;
    const numbers = "SELECT i::int FROM generate_series(1, $1::int) AS g(i)";
    assert.deepEqual(await rows(`${numbers} LIMIT $2 OFFSET $3`, [10, 3, 2]), [[3], [4], [5]]);
    assert.deepEqual(await rows(`${numbers} WHERE i = ANY($2) AND i IN ($3, $4)`, [5, [2, 3], 3, 9]), [[3]]);
    assert.deepEqual(await rows("SELECT CASE WHEN $1 THEN $2 ELSE 'no' END", [true, "yes"]), [["yes"]]);
    assert.deepEqual(await rows("SELECT upper($1), left($2, $3), $4::int[]", ["a", "bcd", 2, [1, 2]]), [["A", "bc", [1, 2]]]);
    assert.deepEqual(await rows("SELECT coalesce($1, 'b') || $2", [null, "c"]), [["bc"]]);
    await fails("22P02", rows("SELECT $1::int", ["x"]));
    await fails("42P01", rows("SELECT * FROM nosuch WHERE a = $1", [1]));
    assert.deepEqual(await rows("SELECT $1::text", ["still here"]), [["still here"]]);
  }),
);

check("pg-cursor: rows in pieces; errors at every step, which come without Sync", () =>
  connected(async (client) => {
    const cursor = client.query(new Cursor("SELECT g::int AS g FROM generate_series(1, $1::int) AS g", [5]));
    assert.deepEqual((await cursor.read(3)).map((row) => row.g), [1, 2, 3]);
    assert.deepEqual((await cursor.read(3)).map((row) => row.g), [4, 5]);
    await cursor.close();
    for (const [text, values, code] of [
      ["SELEC 1", [], "42601"],
      ["SELECT * FROM nosuch", [], "42P01"],
      ["SELECT 1 / $1::int", ["0"], "22012"],
      ["SELECT $1::int", ["x"], "22P02"],
    ]) {
      const failing = client.query(new Cursor(text, values));
      await fails(code, failing.read(1));
      await failing.close();
    }
    assert.equal((await client.query("SELECT 1::int AS a")).rows[0].a, 1);
  }),
);

check("pg-pool: connections that are used again, transactions, advisory locks", async () => {
  const pool = new Pool({ ...server, max: 2 });
  try {
    const found = await Promise.all([1, 2, 3, 4].map((one) => pool.query("SELECT $1::int AS a", [one])));
    assert.deepEqual(found.map((result) => result.rows[0].a), [1, 2, 3, 4]);
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      assert.equal((await client.query("SELECT pg_try_advisory_xact_lock($1) AS got", [99])).rows[0].got, true);
      assert.equal((await pool.query("SELECT pg_try_advisory_lock(99) AS got")).rows[0].got, false);
      await client.query("ABORT");
      assert.equal((await pool.query("SELECT pg_try_advisory_lock(99) AS got")).rows[0].got, true);
      await pool.query("SELECT pg_advisory_unlock_all()");
    } finally {
      client.release();
    }
  } finally {
    await pool.end();
  }
});

check("Sequelize: connect, findAll with where, order, limit and offset, count, max, bulkCreate, transaction", async () => {
  const sequelize = new Sequelize(database, user, password || "", { host, port: port, dialect: "postgres", logging: false });
  try {
    await sequelize.authenticate();
    await sequelize.query("DROP TABLE IF EXISTS sequelize_things");
    await sequelize.query("CREATE TABLE sequelize_things (a int, b text, d timestamptz)");
    const Thing = sequelize.define(
      "Thing",
      { a: { type: DataTypes.INTEGER, primaryKey: true }, b: DataTypes.STRING, d: DataTypes.DATE },
      { timestamps: false, tableName: "sequelize_things" },
    );
    const day = new Date("2024-01-02T03:04:05Z");
    await Thing.bulkCreate([{ a: 1, b: "x", d: day }, { a: 2, b: "y" }, { a: 3, b: "z" }], { returning: false });
    const found = await Thing.findAll({ where: { a: [1, 2] }, order: [["a", "DESC"]], limit: 1, offset: 1, raw: true });
    assert.deepEqual(found, [{ a: 1, b: "x", d: day }]);
    assert.equal(await Thing.count(), 3);
    assert.equal(await Thing.max("a"), 3);
    await assert.rejects(
      sequelize.transaction(async (transaction) => {
        await sequelize.query("INSERT INTO sequelize_things (a) VALUES ($1)", { bind: [9], transaction });
        throw new Error("undone");
      }),
    );
    const rows = await sequelize.query("SELECT count(*)::int AS n FROM sequelize_things WHERE a > $1", { bind: [2], type: QueryTypes.SELECT });
    assert.deepEqual(rows, [{ n: 1 }]);
  } finally {
    await sequelize.close();
  }
});

check("Sequelize: sync with force and with alter: generated keys, associations, include, findAndCountAll, update, paranoid destroy, describeTable", async () => {
  const sequelize = new Sequelize(database, user, password || "", { host, port, dialect: "postgres", logging: false });
  try {
    const User = sequelize.define("SequelizeUser", { name: { type: DataTypes.STRING(60), allowNull: false }, settings: DataTypes.JSONB });
    const columns = { title: DataTypes.STRING, done: { type: DataTypes.BOOLEAN, defaultValue: false }, price: DataTypes.DECIMAL(10, 2), due: DataTypes.DATEONLY };
    const Task = sequelize.define("SequelizeTask", columns, { indexes: [{ fields: ["title"] }], paranoid: true });
    User.hasMany(Task);
    Task.belongsTo(User);
    await sequelize.sync({ force: true });
    await sequelize.sync({ alter: true });
    const ann = await User.create({ name: "Ann", settings: { a: [1, null] } });
    await Task.bulkCreate([1, 2, 3].map((n) => ({ title: `t${n}`, price: n, due: "2024-02-29", SequelizeUserId: ann.id })));
    const found = await User.findOne({ where: { name: "Ann" }, include: [Task], order: [[Task, "title"]] });
    assert.deepEqual([found.settings, found.SequelizeTasks.map((task) => task.price)], [{ a: [1, null] }, ["1.00", "2.00", "3.00"]]);
    const page = await Task.findAndCountAll({ where: { title: { [Op.like]: "t%" } }, limit: 1, offset: 1, order: ["title"], include: { model: User, required: true } });
    assert.deepEqual([page.count, page.rows[0].title, page.rows[0].due, page.rows[0].SequelizeUser.name], [3, "t2", "2024-02-29", "Ann"]);
    const [, changed] = await Task.update({ done: true }, { where: { title: "t1" }, returning: true });
    assert.deepEqual(changed.map((task) => [task.title, task.done]), [["t1", true]]);
    await Task.destroy({ where: { title: "t2" } });
    assert.deepEqual([await Task.count(), await Task.count({ paranoid: false })], [2, 3]);
    const described = await sequelize.getQueryInterface().describeTable("SequelizeTasks");
    assert.deepEqual([described.id.primaryKey, described.title.type, described.title.allowNull], [true, "CHARACTER VARYING(255)", true]);
    await sequelize.drop();
  } finally {
    await sequelize.close();
  }
});

check("TypeORM: connect, find, query builder, insert, update, remove", async () => {
  const Thing = new EntitySchema({
    name: "Thing",
    tableName: "typeorm_things",
    columns: { a: { type: "int", primary: true }, b: { type: "text", nullable: true } },
  });
  const source = new DataSource({ type: "postgres", host, port: port, username: user, password, database, entities: [Thing] });
  await source.initialize();
  try {
    await source.query("DROP TABLE IF EXISTS typeorm_things");
    await source.query("CREATE TABLE typeorm_things (a int, b text)");
    const things = source.getRepository("Thing");
    await things.insert([{ a: 1, b: "x" }, { a: 2, b: "y" }, { a: 3, b: null }]);
    assert.deepEqual(await things.find({ where: { a: 2 }, take: 1, skip: 0 }), [{ a: 2, b: "y" }]);
    const some = things.createQueryBuilder("t").where("t.a IN (:...some)", { some: [1, 3] }).orderBy("t.a");
    assert.deepEqual(await some.getMany(), [{ a: 1, b: "x" }, { a: 3, b: null }]);
    await things.update({ a: 1 }, { b: "new" });
    await things.delete({ a: 3 });
    assert.equal(await things.count(), 2);
    assert.equal((await things.findOneBy({ a: 1 })).b, "new");
    assert.equal(await source.transaction((manager) => manager.countBy("Thing", { b: "new" })), 1);
  } finally {
    await source.destroy();
  }
});

check("TypeORM: synchronize, twice; generated keys and uuids, relations, findAndCount with take and skip, cascades", async () => {
  const User = new EntitySchema({
    name: "User",
    tableName: "typeorm_users",
    columns: { id: { type: "int", primary: true, generated: "increment" }, name: { type: "varchar", length: 60, unique: true }, made: { type: "timestamptz", createDate: true } },
    relations: { posts: { type: "one-to-many", target: "Post", inverseSide: "user" } },
  });
  const Post = new EntitySchema({
    name: "Post",
    tableName: "typeorm_posts",
    columns: {
      id: { type: "uuid", primary: true, generated: "uuid" },
      title: { type: "varchar" },
      body: { type: "jsonb", nullable: true },
      price: { type: "numeric", precision: 10, scale: 2, default: 0 },
      tags: { type: "text", array: true, nullable: true },
    },
    relations: { user: { type: "many-to-one", target: "User", inverseSide: "posts", onDelete: "CASCADE" } },
    indices: [{ columns: ["title"] }],
  });
  const source = new DataSource({ type: "postgres", host, port, username: user, password, database, entities: [User, Post], uuidExtension: "pgcrypto", installExtensions: false });
  await source.initialize();
  try {
    await source.query("DROP TABLE IF EXISTS typeorm_posts");
    await source.query("DROP TABLE IF EXISTS typeorm_users");
    await source.synchronize();
    await source.synchronize();
    const [users, posts] = [source.getRepository("User"), source.getRepository("Post")];
    const ann = await users.save({ name: "Ann" });
    assert.ok(ann.id > 0 && ann.made instanceof Date);
    await posts.save([{ title: "a", body: { x: [1, null] }, tags: ["q"], user: ann }, { title: "b", user: ann }]);
    const found = await users.findOne({ where: { name: "Ann" }, relations: { posts: true }, order: { posts: { title: "ASC" } } });
    assert.deepEqual(found.posts.map(({ title, body, price, tags }) => ({ title, body, price, tags })), [
      { title: "a", body: { x: [1, null] }, price: "0.00", tags: ["q"] },
      { title: "b", body: null, price: "0.00", tags: null },
    ]);
    const [page, count] = await posts.findAndCount({ where: { user: { name: "Ann" } }, relations: { user: true }, order: { title: "ASC" }, skip: 1, take: 1 });
    assert.deepEqual([count, page.map((post) => [post.title, post.user.name])], [2, [["b", "Ann"]]]);
    await posts.remove(found.posts);
    await users.delete({ id: ann.id });
    assert.deepEqual([await posts.count(), await users.count()], [0, 0]);
  } finally {
    await source.destroy();
  }
});

program.run(`node-postgres ${program.version("pg")}, Sequelize ${program.version("sequelize")}, TypeORM ${program.version("typeorm")}`);
