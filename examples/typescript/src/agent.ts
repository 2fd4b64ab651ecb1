/** An AI agent's code in a sandbox: it may talk to a few hosts, uses a key it never sees, and everything it does is told. */
import { Sandbox } from 'agent-sandbox';

const agentCode = `
import json, os
key = os.environ["OPENAI_API_KEY"]
with open("/workspace/output.json", "w") as file:
    json.dump({"status": "ok", "key_is_a_placeholder": not key.startswith("sk-")}, file)
print("agent finished")
`;

const sb = await Sandbox.create(
  {
    image: 'standard',
    resources: { cpus: 2, memory_mb: 2048, timeout_seconds: 300 },
    network: {
      allowed_hosts: ['api.openai.com', 'api.anthropic.com', 'packages.example.org', 'files.example.org'],
      secrets: { OPENAI_API_KEY: { value: process.env.OPENAI_API_KEY!, hosts: ['api.openai.com'] } },
    },
    vfs: { mounts: { '/workspace': { type: 'memory' } } },
    env: { OPENAI_API_KEY: '${OPENAI_API_KEY}' }, // a placeholder inside; the gate puts the key in
  },
  {
    hooks: {
      onRequest(request) {
        console.log(`[HTTP] ${request.method} ${request.url}`);
        return request;
      },
      afterWrite(path, size) {
        console.log(`[FS] Wrote ${size} bytes to ${path}`);
      },
    },
  },
);
try {
  await sb.writeFile('/workspace/agent.py', agentCode);
  const result = await sb.exec('cd /workspace && python3 agent.py');
  console.log('Exit code:', result.exit_code);
  console.log('Output:', result.stdout);
  console.log('Result:', (await sb.readFile('/workspace/output.json')).toString());
} finally {
  await sb.close();
}
