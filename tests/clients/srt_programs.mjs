// Small programs that embed srt's library, written against its own documentation. `node srt_programs.mjs LIBRARY PROGRAM` prints what
// the program saw, as JSON; the same file runs with the original and with ours.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';

const [, , library, chosen] = process.argv;
const { SandboxManager, SandboxRuntimeConfigSchema } = await import(library);

const config = (changes = {}) => ({
  network: { allowedDomains: [], deniedDomains: [], ...changes.network },
  filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [], ...changes.filesystem },
  ...changes.more,
});

/** Runs what was wrapped, as srt's README does. */
function run(command, { input, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, { shell: true, ...options });
    let stdout = '';
    let stderr = '';
    child.stdout?.on('data', (data) => (stdout += data));
    child.stderr?.on('data', (data) => (stderr += data));
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
    child.stdin?.end(input);
  });
}

const wrapped = async (command, ...more) => run(await SandboxManager.wrapWithSandbox(command, ...more));
const soon = (condition) =>
  new Promise((resolve) => {
    const look = () => (condition() ? resolve() : setTimeout(look, 5));
    look();
  });

const programs = {
  async status() {
    await SandboxManager.initialize(config());
    const done = await wrapped('echo out; echo err >&2; exit 7');
    return [done.code, done.stdout, done.stderr, (await wrapped('true')).code, (await wrapped("echo 'it'\\''s' \"$((1+1))\"")).stdout];
  },
  async ports() {
    await SandboxManager.initialize(config({ network: { httpProxyPort: 8888, socksProxyPort: 1080 } }));
    return [SandboxManager.getProxyPort(), SandboxManager.getSocksProxyPort()];
  },
  /** A program outside the sandbox goes by its rules, through the session's own proxy. */
  async hostProxy() {
    const origin = http.createServer((_, response) => response.end('the origin')).listen(0, '127.0.0.1');
    await SandboxManager.initialize(config({ network: { allowedDomains: ['localhost', '127.0.0.1'] } }));
    const [proxy, socks, token] = [SandboxManager.getProxyPort(), SandboxManager.getSocksProxyPort(), SandboxManager.getProxyAuthToken()];
    const there = `http://localhost:${origin.address().port}/`;
    const curl = async (...words) => (await run(['curl', '-s', '--noproxy', "''", '-m', '20', ...words].join(' '))).stdout;
    const status = ['-o', '/dev/null', '-w', '%{http_code}'];
    const seen = [
      await curl('-x', `http://srt:${token}@127.0.0.1:${proxy}`, there),
      await curl('-p', '-x', `http://srt:${token}@127.0.0.1:${proxy}`, there),
      await curl('-x', `socks5h://srt:${token}@127.0.0.1:${socks}`, there),
      await curl(...status, '-x', `http://srt:${token}@127.0.0.1:${proxy}`, 'http://refused.test/'),
      await curl(...status, '-x', `http://srt:wrong@127.0.0.1:${proxy}`, there),
      await curl(...status, '-x', `http://127.0.0.1:${proxy}`, there),
      await curl(...status, '-x', `socks5h://srt:wrong@127.0.0.1:${socks}`, there),
    ];
    await SandboxManager.reset();
    return [...seen, await curl(...status, '-x', `http://srt:${token}@127.0.0.1:${proxy}`, there)];
  },
  /** The program's own decision about every request, through the session's proxy. */
  async filtered() {
    const origin = http
      .createServer((request, response) => {
        let body = '';
        request.on('data', (data) => (body += data));
        request.on('end', () => {
          response.setHeader('X-Origin', 'yes');
          response.end(JSON.stringify([request.method, request.url, request.headers['x-secret'] ?? null, request.headers['x_secret'] ?? null, body]));
        });
      })
      .listen(0, '127.0.0.1');
    const answers = [];
    const decisions = {
      '/no': { action: 'deny', reason: 'not this one', status: 451 },
      '/no-status': { action: 'deny', status: 200 },
      '/odd': { action: 'perhaps' },
      '/sets': { action: 'allow', setHeaders: [['X-Added', '1']] },
      '/removes': { action: 'allow', removeHeaders: ['x-secret'] },
      '/seen': { action: 'allow', onResponse: (status, headers) => answers.push([status, headers['x-origin']]) },
    };
    const asked = [];
    const filterRequest = async (request, info) => {
      const { pathname } = new URL(request.url);
      asked.push([request.method, pathname, info.scheme, info.target.host, info.requestTarget, await request.text()]);
      if (pathname === '/throws') throw new Error('a mistake');
      return decisions[pathname] ?? { action: 'allow' };
    };
    await SandboxManager.initialize(config({ network: { allowedDomains: ['localhost', '127.0.0.1'], filterRequest } }));
    const [proxy, token] = [SandboxManager.getProxyPort(), SandboxManager.getProxyAuthToken()];
    const curl = async (target, ...words) => {
      const there = `-x http://srt:${token}@127.0.0.1:${proxy} http://localhost:${origin.address().port}${target}`;
      return (await run(`curl -s --noproxy '' -m 20 --path-as-is ${words.join(' ')} ${there} -w '\n%{http_code}'`)).stdout.split('\n');
    };
    const last = async (...words) => (await curl(...words)).at(-1);
    return [
      await curl('/ok?a=b', '-d', 'posted'),
      (await curl('/no')).at(-1) === '451' && (await curl('/no')).join().includes('not this one'),
      await last('/no-status'),
      await last('/odd'),
      await last('/throws'),
      await last('/sets'),
      await curl('/removes', '-H', "'X_Secret: s'", '-H', "'X-Secret: s'"),
      await last('/seen'),
      await last('/ok/../no'),
      await last('/ok', '-X', 'TRACE'),
      answers,
      asked.map(([method, path]) => `${method} ${path}`),
      asked[0].slice(2),
    ];
  },
  /** As in Bun, where the streams of a child cannot be told not to keep the program running. */
  async likeBun() {
    for (const name of ['ref', 'unref']) net.Socket.prototype[name] = undefined;
    await SandboxManager.initialize(config());
    return (await wrapped('echo fine')).stdout;
  },
  async argv() {
    await SandboxManager.initialize(config());
    const { argv, env } = await SandboxManager.wrapWithSandboxArgv('echo by argv; exit 4');
    const child = spawn(argv[0], argv.slice(1), { env });
    let stdout = '';
    child.stdout.on('data', (data) => (stdout += data));
    return new Promise((resolve) => child.on('close', (code) => resolve([code, stdout])));
  },
  async files() {
    fs.writeFileSync('secret', 'hidden');
    fs.writeFileSync('kept', 'mine');
    await SandboxManager.initialize(config({ filesystem: { denyRead: [path.resolve('secret')], denyWrite: [path.resolve('kept')] } }));
    const allowed = await wrapped('echo new > made && cat made');
    const denied = await wrapped('cat secret');
    const kept = await wrapped('echo theirs > kept');
    return [allowed.stdout, denied.stdout, denied.code !== 0, kept.code !== 0, fs.readFileSync('made', 'utf8'), fs.readFileSync('kept', 'utf8')];
  },
  async later() {
    await SandboxManager.initialize(
      config({ filesystem: { denyRead: [path.resolve('later'), `${process.cwd()}/**/*.key`], denyWrite: [path.resolve('kept')] } }),
    );
    await wrapped('true');
    fs.writeFileSync('later', 'hidden');
    fs.writeFileSync('a.key', 'hidden');
    fs.writeFileSync('kept', 'mine');
    const seen = await wrapped('cat later a.key; echo theirs > kept');
    return [seen.stdout, fs.readFileSync('kept', 'utf8')];
  },
  async custom() {
    await SandboxManager.initialize(config());
    const closed = await wrapped('echo x > made', undefined, { filesystem: { denyRead: [], allowWrite: [], denyWrite: [] } });
    const open = await wrapped('echo y > made; cat made');
    return [closed.code !== 0, open.stdout];
  },
  async surroundings() {
    fs.mkdirSync('sub');
    await SandboxManager.initialize(config());
    const command = await SandboxManager.wrapWithSandbox('pwd; echo $COLOUR; cat');
    const done = await run(command, { cwd: path.resolve('sub'), env: { ...process.env, COLOUR: 'blue' }, input: 'typed' });
    return [done.code, done.stdout.replace(process.cwd(), '.')];
  },
  async shell() {
    await SandboxManager.initialize(config());
    return [(await wrapped('echo $0', '/bin/sh')).stdout.includes('bash'), (await wrapped('echo ${BASH_VERSION:+bash}', '/bin/bash')).stdout];
  },
  async refused() {
    await SandboxManager.initialize(config());
    const seen = [];
    const stop = SandboxManager.getSandboxViolationStore().subscribe((violations) => seen.push(violations.length));
    const command = 'curl -sS --max-time 20 http://refused.test/path?key=1 -o /dev/null -w "%{http_code}"';
    const wrap = await SandboxManager.wrapWithSandbox(command, undefined, undefined, undefined, { commandId: 'the-id', commandText: 'the text' });
    const done = await run(wrap);
    const store = SandboxManager.getSandboxViolationStore(); // at once: it is there when the command has ended
    stop();
    const [first] = store.getViolationsForCommand('the-id');
    const annotated = SandboxManager.annotateStderrWithSandboxFailures('the-id', 'before');
    return [
      done.stdout,
      first.line.startsWith('deny network-outbound refused.test:80 ('),
      first.line.includes('key'),
      first.command,
      annotated.startsWith('before\n<sandbox_violations>\ndeny network-outbound refused.test:80 (') && annotated.endsWith('\n</sandbox_violations>'),
      SandboxManager.annotateStderrWithSandboxFailures('another', 'before'),
      seen[0],
      seen.at(-1) > 0,
    ];
  },
  async ignored() {
    await SandboxManager.initialize(config({ more: { ignoreViolations: { curl: ['refused.test'] } } }));
    await wrapped('curl -sS --max-time 20 http://refused.test/');
    await wrapped('wget -q -T 20 -t 1 -O /dev/null http://other.test/');
    const store = SandboxManager.getSandboxViolationStore();
    await soon(() => store.getCount() > 0);
    return store.getViolations().map(({ line }) => line.includes('refused.test')).filter(Boolean);
  },
  async asked() {
    const asked = [];
    await SandboxManager.initialize(config(), async ({ host, port }) => {
      asked.push(`${host}:${port}`);
      return { allow: false, reason: 'not today' };
    });
    await wrapped('curl -sS --max-time 20 http://asked.test/');
    const store = SandboxManager.getSandboxViolationStore();
    await soon(() => store.getCount() > 0);
    return [asked[0], store.getViolations()[0].line];
  },
  /** In the order of srt's documentation: the list comes just before the wrapped command is started. */
  async lists() {
    const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached';
    const world = http.createServer((_, response) => response.end('reached')).listen(0, '127.0.0.1');
    world.on('connect', (_, socket) => {
      socket.on('error', () => {});
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.once('data', () => socket.end(answer));
    });
    await new Promise((resolve) => world.once('listening', resolve));
    const parentProxy = { http: `http://127.0.0.1:${world.address().port}` };
    await SandboxManager.initialize(config({ network: { parentProxy } }));
    const wrap = (commandId) =>
      SandboxManager.wrapWithSandbox('curl -s --max-time 20 http://origin.test/', undefined, undefined, undefined, { commandId });
    const id = 'bGlzdHMgb2Ygb25lIGNvbW1hbmQ';
    const [listed, other, later] = [await wrap(id), await wrap(`${id}-of-another`), await wrap(id)];
    SandboxManager.registerCommandNetworkLists(id, { allowedDomains: ['origin.test'] });
    const seen = [(await run(listed)).stdout, (await run(other)).stdout === 'reached'];
    SandboxManager.unregisterCommandNetworkLists(id);
    seen.push((await run(later)).stdout === 'reached');
    world.close();
    return seen;
  },
  async strict() {
    const asked = [];
    await SandboxManager.initialize(config({ network: { strictAllowlist: true } }), async ({ host }) => asked.push(host) > 0);
    await wrapped('curl -sS --max-time 20 http://asked.test/');
    await soon(() => SandboxManager.getSandboxViolationStore().getCount() > 0);
    return asked;
  },
  async getters() {
    const before = [SandboxManager.isSupportedPlatform(), SandboxManager.isSandboxingEnabled(), SandboxManager.getNetworkRestrictionConfig()];
    await SandboxManager.initialize(config({ network: { allowedDomains: ['a.example'], deniedDomains: ['b.example'] } }));
    const after = [SandboxManager.isSandboxingEnabled(), SandboxManager.getNetworkRestrictionConfig(), SandboxManager.getConfig().network.allowedDomains];
    const { errors } = SandboxManager.checkDependencies();
    const network = await SandboxManager.waitForNetworkInitialization();
    SandboxManager.updateConfig(config({ network: { allowedDomains: ['c.example'] } }));
    const updated = SandboxManager.getNetworkRestrictionConfig();
    SandboxManager.cleanupAfterCommand();
    return [before, after, errors, network, updated];
  },
  async update() {
    await SandboxManager.initialize(config());
    const before = await wrapped('echo x > before; cat before');
    SandboxManager.updateConfig(config({ filesystem: { allowWrite: [] } }));
    const after = await wrapped('echo x > after');
    return [before.stdout, after.code !== 0, fs.existsSync('after')];
  },
  async tightened() {
    const rules = (allowedDomains) => config({ network: { allowedDomains }, filesystem: { denyRead: [path.resolve('*.hidden')] } });
    const ask = 'curl -sS --max-time 20 http://once.test/ -o /dev/null -w "%{http_code}"';
    await SandboxManager.initialize(rules(['once.test']));
    fs.writeFileSync('new.hidden', ''); // so that a new sandbox is needed
    const wrap = SandboxManager.wrapWithSandbox(ask);
    await new Promise((resolve) => setImmediate(resolve));
    SandboxManager.updateConfig(rules([])); // while that is found out
    return [(await run(await wrap)).stdout, (await wrapped(ask)).stdout];
  },
  async early() {
    const starting = SandboxManager.initialize(config({ network: { allowedDomains: ['once.test'] } }));
    SandboxManager.updateConfig(config());
    await starting;
    return SandboxManager.getConfig().network.allowedDomains;
  },
  async reset() {
    await SandboxManager.initialize(config());
    await SandboxManager.reset();
    await SandboxManager.initialize(config());
    const done = await wrapped('echo again');
    await SandboxManager.reset();
    return done.stdout;
  },
  async aborted() {
    await SandboxManager.initialize(config());
    const wrap = SandboxManager.wrapWithSandbox('true', undefined, undefined, AbortSignal.abort());
    return wrap.then(() => 'resolved', (problem) => problem.name);
  },
  async killed() {
    await SandboxManager.initialize(config());
    const child = spawn(await SandboxManager.wrapWithSandbox('echo up; exec sleep 1000'), { shell: true });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    child.kill('SIGTERM');
    return new Promise((resolve) => child.on('close', (code, signal) => resolve(signal ?? (code > 128 ? 'SIGTERM' : code))));
  },
  async schema() {
    const given = [
      config(),
      config({ network: { allowedDomains: ['example.com', '*.example.com', 'localhost', 'example.com:443', '[::1]:443'] } }),
      config({ network: { deniedDomains: ['*', '*.example.com'] } }),
      config({ filesystem: { allowRead: ['~/x'], denyRead: [{ path: '/a[b]', literal: true }] } }),
      config({ more: { ignoreViolations: { '*': ['x'] }, allowPty: true, mandatoryDenySearchDepth: 3 } }),
      config({ more: { credentials: { envVars: [{ name: 'TOKEN', mode: 'deny' }] } } }),
      config({ network: { allowedDomains: ['*'] } }),
      config({ network: { allowedDomains: ['*.com'] } }),
      config({ network: { allowedDomains: ['https://example.com'] } }),
      config({ network: { allowedDomains: ['example.com/path'] } }),
      config({ network: { allowedDomains: ['nodots'] } }),
      config({ network: { allowedDomains: 'example.com' } }),
      config({ network: { allowedDomains: ['example.com:0'] } }),
      config({ network: { httpProxyPort: 70000 } }),
      config({ filesystem: { allowWrite: [''] } }),
      config({ filesystem: { allowWrite: [7] } }),
      config({ more: { allowPty: 'yes' } }),
      config({ more: { mandatoryDenySearchDepth: 100 } }),
      config({ more: { credentials: { envVars: [{ name: 'TOKEN', mode: 'hide' }] } } }),
      { network: { allowedDomains: [], deniedDomains: [] } },
      {},
      null,
      'text',
    ];
    const parsed = given.map((one) => SandboxRuntimeConfigSchema.safeParse(one));
    const paths = parsed.map((one) => (one.success ? 'ok' : one.error.issues.map((issue) => issue.path.join('.')).join(' ')));
    let thrown;
    try {
      SandboxRuntimeConfigSchema.parse({});
    } catch (problem) {
      thrown = problem.name;
    }
    return [paths, thrown, parsed[0].data];
  },
  async schemaOfSecrets() {
    const secrets = (entry, { tls = {}, kind = 'envVars', allowedDomains = ['a.example', '*.b.example'], ...more } = {}) => {
      const one = kind === 'files' ? { path: '~/.token', mode: 'mask', ...entry } : { name: 'TOKEN', mode: 'mask', ...entry };
      return config({ network: { allowedDomains, tlsTerminate: tls }, more: { credentials: { [kind]: [one], ...more } } });
    };
    const given = [
      secrets({ injectHosts: ['a.example', 'x.b.example', '*.y.b.example', '*.b.example'], extract: 'token: (.+)' }),
      secrets({}, { tls: { excludeDomains: ['a.example'] } }),
      ...['--bind', '-u', '1FOO', 'FOO BAR', 'FOO=BAR', ''].map((name) => secrets({ name })),
      ...['(', 'token: .+', '(?:x)'].map((extract) => secrets({ extract })),
      ...['c.example', 'b.example', '*.a.example', '*.example'].map((host) => secrets({ injectHosts: [host] })),
      secrets({ injectHosts: [] }),
      secrets({ injectHosts: ['a.example'] }, { tls: { excludeDomains: ['a.example'] } }),
      secrets({}, { tls: { excludeDomains: ['a.example', '*.b.example'] } }),
      secrets({ path: '~/.tokens/' }, { kind: 'files' }),
      secrets({}, { injectHosts: ['a.example'] }),
      ...[{ caCertPath: '' }, { caCertPath: '/ca.pem' }, { excludeDomains: ['*'] }].map((tls) => secrets({}, { tls })),
      ...['bwrap', ''].map((bwrapPath) => config({ more: { bwrapPath } })),
      ...['com.*.foo', 'com.example.**'].map((name) => config({ network: { allowMachLookup: [name] } })),
    ];
    return given.map((one) => SandboxRuntimeConfigSchema.safeParse(one).success);
  },
  async denied() {
    const files = [{ path: '~/.netrc', mode: 'deny' }];
    await SandboxManager.initialize(config({ filesystem: { denyRead: ['/some/secret'] }, more: { credentials: { files } } }));
    return SandboxManager.getFsReadConfig().denyOnly;
  },
  async keepsItsFilter() {
    const filterRequest = async () => ({ action: 'allow' });
    await SandboxManager.initialize(config({ network: { filterRequest } }));
    const first = SandboxManager.getConfig().network.filterRequest === filterRequest;
    SandboxManager.updateConfig(config({ network: { filterRequest } }));
    return [first, SandboxManager.getConfig().network.filterRequest === filterRequest];
  },
};

const result = await programs[chosen]();
await SandboxManager.reset();
console.log(JSON.stringify(result));
process.exit(0);
