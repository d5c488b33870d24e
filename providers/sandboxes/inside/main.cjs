// Runs a script's main(args) and writes the result, after the nonce, to the descriptor that the job names.
"use strict";

const fs = require("node:fs");

const { nonce, result, script, arguments: args } = JSON.parse(fs.readFileSync(0, "utf8"));

function write(text) {
  let data = Buffer.from(text, "utf8");
  while (data.length > 0) {
    data = data.subarray(fs.writeSync(result, data));
  }
}

async function run() {
  const loaded = require(script);
  const main = typeof globalThis.main === "function" ? globalThis.main : loaded && loaded.main;
  if (typeof main !== "function") {
    throw new Error("The script does not define a function main.");
  }
  const text = JSON.stringify(await main(args));
  if (text === undefined) {
    throw new Error("main() must return a value. Use null for an empty result.");
  }
  write(nonce + text);
}

// Return the lines of the stack that belong to the script.
function formatError(error) {
  const lines = error instanceof Error && error.stack ? error.stack.split("\n") : [String(error)];
  return lines.filter((line) => !line.includes(__filename) && !line.includes("node:internal")).join("\n");
}

run().then(
  () => process.exit(0),
  (error) => {
    console.error(formatError(error));
    process.exit(1);
  },
);
