/** A command of one's own with the policy baked in: node dist/my-sandbox.js run python script.py */
import { runWithConfig, type Config } from 'agent-sandbox';

const config: Config = {
  image: 'standard',
  network: {
    allowed_hosts: ['api.openai.com'],
    secrets: { OPENAI_API_KEY: { value: process.env.OPENAI_API_KEY ?? '', hosts: ['api.openai.com'] } },
  },
  vfs: { mounts: { '/workspace': { type: 'memory' } } },
};

process.exitCode = await runWithConfig(config, process.argv.slice(2));
