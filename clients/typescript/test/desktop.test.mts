import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { create } from './programs.mjs';

it('has a screen of its own that is seen, clicked and typed on', async () => {
  await using sandbox = await create({ desktop: { size: '640x480' } });
  const { desktop } = sandbox;
  await desktop.start();
  await sandbox.spawn(['xterm', '-geometry', '90x30+0+0', '-e', 'cat > /tmp/note'], { keep: 'editor' });
  while ((await desktop.windows()).length === 0) await setTimeout(50);
  await desktop.click(200, 200);
  await desktop.type('Grüße\n');
  await desktop.keypress('ctrl+d');
  while ((await desktop.windows()).length > 0) await setTimeout(50);
  assert.equal((await sandbox.exec('cat /tmp/note')).stdout, 'Grüße\n');
  assert.deepEqual(await desktop.pointer(), { x: 200, y: 200 });
  const png = await desktop.screenshot({ x: 0, y: 0, width: 30, height: 20 });
  assert.equal(png.subarray(1, 4).toString(), 'PNG');
  assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], [30, 20]);
  await assert.rejects(desktop.click(5000, 0), /not on the screen/);
});
