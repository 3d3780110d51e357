// The server's protocol over a plain socket: commands as arrays of strings, replies as they are.
// No package, no knowledge of jobs. One command after the other, replies in order.
'use strict';
const net = require('node:net');

class Client {
  static async open(url) {
    const { hostname, port, username, password } = new URL(url);
    const client = new Client();
    client.socket = net.connect(Number(port), hostname);
    client.socket.setNoDelay(true);
    client.waiting = [];
    client.buffer = Buffer.alloc(0);
    client.socket.on('data', (data) => client.read(data));
    client.socket.on('error', (error) => client.fail(error));
    client.socket.on('close', () => client.fail(new Error('closed')));
    if (password) await client.call('AUTH', username || 'default', password);
    return client;
  }

  call(...words) {
    const parts = words.map((word) => Buffer.from(String(word)));
    const head = `*${parts.length}\r\n`;
    const body = parts.map((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from('\r\n')]);
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.socket.write(Buffer.concat([Buffer.from(head), ...body.flat()]));
    });
  }

  close() {
    this.socket.destroy();
  }

  fail(error) {
    for (const { reject } of this.waiting.splice(0)) reject(error);
  }

  read(data) {
    this.buffer = Buffer.concat([this.buffer, data]);
    for (;;) {
      const found = parse(this.buffer, 0);
      if (!found) return;
      this.buffer = this.buffer.subarray(found.next);
      const { resolve, reject } = this.waiting.shift();
      if (found.value instanceof Error) reject(found.value);
      else resolve(found.value);
    }
  }
}

function parse(buffer, at) {
  const end = buffer.indexOf('\r\n', at);
  if (end < 0) return null;
  const kind = String.fromCharCode(buffer[at]);
  const line = buffer.toString('utf8', at + 1, end);
  const next = end + 2;
  if (kind === '+') return { value: line, next };
  if (kind === '-') return { value: new Error(line), next };
  if (kind === ':') return { value: Number(line), next };
  const size = Number(line);
  if (size < 0) return { value: null, next };
  if (kind === '$') {
    if (buffer.length < next + size + 2) return null;
    return { value: buffer.toString('utf8', next, next + size), next: next + size + 2 };
  }
  const value = [];
  let from = next;
  for (let n = 0; n < size; n += 1) {
    const found = parse(buffer, from);
    if (!found) return null;
    value.push(found.value);
    from = found.next;
  }
  return { value, next: from };
}

function pairs(flat) {
  const found = {};
  for (let at = 0; at < flat.length; at += 2) found[flat[at]] = flat[at + 1];
  return found;
}

module.exports = { Client, pairs };
