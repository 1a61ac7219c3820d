// Lets the thread do other work, such as to handle events, before it goes on.

/** A promise that is fulfilled in another task. Timers of browsers would wait for 4 ms. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(undefined);
  });
}
