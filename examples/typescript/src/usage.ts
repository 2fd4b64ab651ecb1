/** Create, write, run, and hear what happens. */
import { Sandbox } from 'agent-sandbox';

// Usage
async function main() {
  const sb = await Sandbox.create({
    image: 'standard',
    network: {
      allowed_hosts: ['api.openai.com'],
      secrets: {
        OPENAI_API_KEY: { value: process.env.OPENAI_API_KEY!, hosts: ['api.openai.com'] },
      },
    },
    vfs: {
      mounts: { '/workspace': { type: 'memory' } },
    },
    env: { OPENAI_API_KEY: '${OPENAI_API_KEY}' },
  });

  sb.onEvent((event) => {
    if (event.type === 'network') {
      console.log(`HTTP: ${event.network.method} ${event.network.url} -> ${event.network.status_code}`);
    }
  });

  await sb.writeFile('/workspace/hello.py', 'print("Hello from sandbox!")');
  const result = await sb.exec('python3 /workspace/hello.py');
  console.log(result.stdout); // "Hello from sandbox!"

  await sb.close();
}

main();
