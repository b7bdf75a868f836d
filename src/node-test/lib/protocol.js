'use strict';

// PostgreSQL's messages: a letter, the length of the rest, the rest. https://www.postgresql.org/docs/current/protocol-message-formats.html

const STARTUP = 196608; // version 3.0
const SSL_REQUEST = 80877103;

const text = (value) => Buffer.from(`${value}\0`);
const int32 = (value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};

function message(letter, ...parts) {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(letter), int32(body.length + 4), body]);
}

/** Whole messages at the beginning, and what is left behind them. */
function split(bytes) {
  const messages = [];
  let at = 0;
  while (bytes.length - at >= 5 && bytes.length - at > bytes.readInt32BE(at + 1)) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    messages.push(bytes.subarray(at, end));
    at = end;
  }
  return [messages, bytes.subarray(at)];
}

const letterOf = (bytes) => String.fromCharCode(bytes[0]);

/** The strings that it begins with, each with a NUL at its end. */
function strings(bytes, count) {
  const found = [];
  for (let at = 5; found.length < count; ) {
    const end = bytes.indexOf(0, at);
    found.push(bytes.toString('utf8', at, end));
    at = end + 1;
  }
  return found;
}

/** The statement of a Query or a Parse; of another message ''. */
function statementOf(bytes) {
  if (letterOf(bytes) === 'Q') return strings(bytes, 1)[0];
  return letterOf(bytes) === 'P' ? strings(bytes, 2)[1] : '';
}

const query = (statement) => message('Q', text(statement));
const notification = (pid, channel, payload) => message('A', int32(pid), text(channel), text(payload));
const channelAndPayload = (bytes) => {
  const [channel, payload] = strings(bytes.subarray(4), 2);
  return { channel, payload };
};

/** What a server says to a client that it lets in. */
function welcome(pid, settings) {
  return Buffer.concat([
    message('R', int32(0)),
    ...Object.entries(settings).map(([name, value]) => message('S', text(name), text(value))),
    message('K', int32(pid), int32(0)),
    message('Z', Buffer.from('I')),
  ]);
}

module.exports = { STARTUP, SSL_REQUEST, split, letterOf, statementOf, query, notification, channelAndPayload, welcome };
