// What the client programs in JavaScript share: their arguments, and checks that say what differs.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");

const clients = process.env.HARRIER_CLIENTS || path.join(__dirname, "../../.harrier/clients");

// What one check may take.
const CHECK_MS_MAX = 60_000;

function within(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer after ${CHECK_MS_MAX / 1000} s`)), CHECK_MS_MAX);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

// The checks of one client. Each has a line that says what is checked, and a function that returns a promise.
class Program {
  constructor() {
    const words = process.argv.slice(2);
    const option = (name) => words.includes(name) && words.splice(words.indexOf(name), 1).length > 0;
    this.keepsGoing = option("--keep-going");
    this.only = words.includes("--only") ? words.splice(words.indexOf("--only"), 2)[1] : "";
    const [host, port, user, database = user] = words;
    this.server = { host, port: Number(port), user, password: process.env.PGPASSWORD || undefined, database };
    this.modules = path.join(clients, "node/node_modules");
    this.checks = [];
  }

  load(name) {
    return require(require.resolve(name, { paths: [this.modules] }));
  }

  version(name) {
    return JSON.parse(fs.readFileSync(path.join(this.modules, name, "package.json"), "utf8")).version;
  }

  check(line, run) {
    this.checks.push({ line, run });
  }

  // Fails unless `work` is refused with this SQLSTATE, which a client may have wrapped up.
  async fails(code, work) {
    await assert.rejects(work, (error) => assert.equal((error.cause || error).code, code) === undefined);
  }

  // Runs the checks in order and ends the program: 0 if all went well, 1 at the first that did not.
  async run(client) {
    console.log(`client  ${client}`);
    let failed = 0;
    for (const { line, run } of this.checks.filter((one) => one.line.includes(this.only))) {
      const started = performance.now();
      try {
        await within(run());
        console.log(`ok      ${line} (${((performance.now() - started) / 1000).toFixed(2)} s)`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED  ${line}\n        ${String(error.stack || error).replaceAll("\n", "\n        ")}`);
        if (error.query || error.sql || error.cause) {
          console.log(`        ${error.query || error.sql || error.cause}`);
        }
        if (!this.keepsGoing) {
          break;
        }
      }
    }
    process.exit(failed ? 1 : 0);
  }
}

module.exports = { Program };
