// The wrapper of a script on a remote machine: runs main(args) and prints the result as one line after a mark that is
// unique to the run. `providers/sandboxes/remote_program.py` fills in JOB, base64 of JSON.
"use strict";

(() => {
  const JOB = "";

  const fs = require("node:fs");
  const path = require("node:path");
  const { Module } = require("node:module");
  const { stringify } = JSON;

  const job = JSON.parse(Buffer.from(JOB, "base64").toString("utf8"));
  const file = path.join(process.cwd(), "main.cjs");

  async function value() {
    fs.mkdirSync("artifacts", { recursive: true });
    const loaded = new Module(file, null);
    loaded.filename = file;
    loaded.paths = Module._nodeModulePaths(process.cwd());
    loaded._compile(job.script + "\n;if (typeof main === 'function') globalThis.main = main;\n", file);
    const main = typeof globalThis.main === "function" ? globalThis.main : loaded.exports && loaded.exports.main;
    if (typeof main !== "function") {
      throw new Error("The script does not define a function main.");
    }
    const text = stringify(await main(job.arguments));
    if (text === undefined) {
      throw new Error("main() must return a value. Use null for an empty result.");
    }
    return JSON.parse(text);
  }

  function* below(folder) {
    for (const entry of fs.readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const place = path.join(folder, entry.name);
      if (entry.isDirectory()) yield* below(place);
      else yield place;
    }
  }

  function files(limits) {
    const selected = [];
    const skipped = [];
    let room = limits.room;
    for (const place of below("artifacts")) {
      const name = path.relative("artifacts", place);
      const found = fs.lstatSync(place);
      let reason = "";
      if (!found.isFile() || found.nlink > 1) reason = limits.not_plain;
      else if (!limits.kinds.includes(path.extname(place).toLowerCase())) reason = limits.other_kind;
      else if (found.size > Math.min(limits.largest, room) || selected.length === limits.most) reason = limits.no_room;
      if (!reason) {
        room -= found.size;
        selected.push({ name, content_b64: fs.readFileSync(place).toString("base64") });
      } else if (skipped.length < limits.most_skipped) skipped.push({ name, reason });
    }
    return { files: selected, skipped };
  }

  // Return the lines of the stack that belong to the script.
  function complaint(error) {
    const lines = error instanceof Error && error.stack ? error.stack.split("\n") : [String(error)];
    return lines.filter((line) => !/node:internal|sandbox_wrapper|\[eval\]|program\.cjs/.test(line)).join("\n");
  }

  function write(target, text) {
    let data = Buffer.from(text, "utf8");
    while (data.length > 0) {
      try {
        data = data.subarray(fs.writeSync(target, data));
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
      }
    }
  }

  return value().then(
    (found) => {
      const result = { present: true, value: found, type: "json", ...(job.files ? files(job.files) : {}) };
      const line = job.mark + Buffer.from(stringify(result), "utf8").toString("base64") + "\n";
      if (!job.ends) return console.log(line);
      write(1, line);
      process.exit(0);
    },
    (error) => {
      if (!job.ends) throw error;
      write(2, complaint(error) + "\n");
      process.exit(1);
    },
  );
})();
