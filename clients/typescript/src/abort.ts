/** @internal What the promise gives, or the signal's reason as soon as it is aborted; then `leave` gives the rest up. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined, leave: () => unknown = () => {}): Promise<T> {
  if (!signal) return promise;
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    const abort = () => {
      reject(signal.reason);
      leave();
    };
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    stop = () => signal.removeEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    stop();
  }
}
