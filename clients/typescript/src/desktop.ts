import type { Connection } from './connection.js';
import type { CallOptions } from './options.js';

/** A window on the sandbox's screen. Title and app are text of the program's own choice. */
export interface DesktopWindow {
  id: string;
  title: string;
  app: string;
}

export type MouseButton = 'left' | 'middle' | 'right' | 'back' | 'forward';

export interface Point {
  x: number;
  y: number;
}

export interface Region extends Point {
  width: number;
  height: number;
}

/** Where a browser inside can be driven, on the machine that the sandbox is on. */
export interface BrowserEndpoints {
  ws_endpoint: string;
  cdp_endpoint: string;
  debugger_address: string;
}

/** A screen, keyboard, mouse and sound of the sandbox's own, started by the first call that needs them. */
export class Desktop {
  constructor(private readonly connection: Connection) {}

  private do<T>(method: string, params: object = {}, options: CallOptions = {}): Promise<T> {
    return this.connection.call<T>('desktop', { do: method, ...params }, options);
  }

  private async bytes(method: string, params: object, options: CallOptions): Promise<Buffer> {
    return Buffer.from((await this.do<{ data: string }>(method, params, options)).data, 'base64');
  }

  /** Starts the screen; returns the variables that programs inside find it by. */
  async start(options: CallOptions = {}): Promise<Record<string, string>> {
    return (await this.do<{ env: Record<string, string> }>('start', {}, options)).env;
  }

  async size(options: CallOptions = {}): Promise<{ width: number; height: number }> {
    return this.do('size', {}, options);
  }

  /** A PNG file of the screen, or of a part of it. */
  async screenshot(region?: Region, options: CallOptions = {}): Promise<Buffer> {
    return this.bytes('screenshot', region ?? {}, options);
  }

  async windows(options: CallOptions = {}): Promise<DesktopWindow[]> {
    return (await this.do<{ windows: DesktopWindow[] }>('windows', {}, options)).windows;
  }

  async click(x: number, y: number, button: MouseButton = 'left', count = 1, options: CallOptions = {}): Promise<void> {
    await this.do('click', { x, y, button, count }, options);
  }

  async doubleClick(x: number, y: number, options: CallOptions = {}): Promise<void> {
    await this.click(x, y, 'left', 2, options);
  }

  async move(x: number, y: number, options: CallOptions = {}): Promise<void> {
    await this.do('move', { x, y }, options);
  }

  /** Presses at the first point, moves over the others, and lets go at the last. */
  async drag(path: Point[], button: MouseButton = 'left', options: CallOptions = {}): Promise<void> {
    await this.do('drag', { path, button }, options);
  }

  /** Turns the wheel: `dy` notches down, `dx` to the right. */
  async scroll(x: number, y: number, dx: number, dy: number, options: CallOptions = {}): Promise<void> {
    await this.do('scroll', { x, y, dx, dy }, options);
  }

  async pointer(options: CallOptions = {}): Promise<Point> {
    return this.do('pointer', {}, options);
  }

  /** Types text of any script, at most 4096 characters. */
  async type(text: string, options: CallOptions = {}): Promise<void> {
    await this.do('type', { text }, options);
  }

  /** Presses keys: `Return`, `ctrl+s`, or several after one another. */
  async keypress(keys: string, options: CallOptions = {}): Promise<void> {
    await this.do('keypress', { keys }, options);
  }

  /** A WAV file of what programs inside play, 250 to 30000 ms. */
  async recordAudio(durationMs: number, options: CallOptions = {}): Promise<Buffer> {
    return this.bytes('record_audio', { duration_ms: durationMs }, options);
  }

  /** Plays a sound file inside. */
  async playAudio(data: Uint8Array, format = 'wav', options: CallOptions = {}): Promise<void> {
    await this.do('play_audio', { data: Buffer.from(data).toString('base64'), format }, options);
  }

  async startVideo(rate = 10, options: CallOptions = {}): Promise<void> {
    await this.do('start_video', { rate }, options);
  }

  /** A WebM file. */
  async stopVideo(options: CallOptions = {}): Promise<Buffer> {
    return this.bytes('stop_video', {}, options);
  }

  /** What works here, and the program inside that does it; null for what does not. */
  async capabilities(options: CallOptions = {}): Promise<Record<string, string | null>> {
    return this.do('capabilities', {}, options);
  }
}
