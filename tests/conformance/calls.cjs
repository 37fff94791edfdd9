// Many snarkjs calls in one start of node. Standard input: a JSON array of calls; standard output: a JSON array of answers,
// {"value": ...} or {"error": text}, in the same order. Called by snarkjs.py beside this file.
//
//   node calls.cjs NODE_MODULES < calls.json
//   call: {"do": "verify", "vkey", "publics", "proof"} | {"do": "prove", "zkey", "wtns"} (paths) | {"do": "vkey", "zkey"} |
//         {"do": "r1cs", "r1cs"} | {"do": "check", "r1cs", "wtns"}
const path = require("path");
const fs = require("fs");

const snarkjs = require(path.join(process.argv[2], "snarkjs"));

const answers = {
  verify: (c) => snarkjs.groth16.verify(c.vkey, c.publics, c.proof),
  prove: (c) => snarkjs.groth16.prove(c.zkey, c.wtns),
  vkey: (c) => snarkjs.zKey.exportVerificationKey(c.zkey),
  "export bellman": (c) => snarkjs.zKey.exportBellman(c.zkey, c.params),
  "import bellman": (c) => snarkjs.zKey.importBellman(c.zkey, c.params, c.out, "imported"),
  "contribute bellman": async (c) => {
    const curve = await snarkjs.curves.getCurveFromName(c.curve);
    return Buffer.from(await snarkjs.zKey.bellmanContribute(curve, c.params, c.out, "entropy")).toString("hex");
  },
  "call data": (c) => snarkjs.groth16.exportSolidityCallData(c.proof, c.publics),
  r1cs: (c) => snarkjs.r1cs.exportJson(c.r1cs),
  check: (c) => snarkjs.wtns.check(c.r1cs, c.wtns),
};

async function main() {
  const calls = JSON.parse(fs.readFileSync(0, "utf8"));
  const out = [];
  for (const call of calls) {
    try {
      out.push({ value: await answers[call.do](call) });
    } catch (error) {
      out.push({ error: String(error) });
    }
  }
  process.stdout.write(JSON.stringify(out) + "\n", () => process.exit(0)); // curve workers would keep node alive
}

main();
