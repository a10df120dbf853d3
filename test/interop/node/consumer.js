'use strict';

// Plays scenarios on command until standard input ends, like the Java consumers (see
// Consumer.java and Run.java). FAMILY is a key of families in link.js. Usage: consumer.js FAMILY

const readline = require('readline');
const zlib = require('zlib');
const { Link } = require('./link');

const family = process.argv[2];
const links = new Map(); // by port

const string = text => ({ $class: 'java.lang.String', $: text });
const long = number => ({ $class: 'long', $: number });

// short returns the value, or the length and the checksum of a buffer or a long string.
function short(value) {
  if (Buffer.isBuffer(value)) {
    return { bytes: value.length + ', sum ' + sum(value) };
  }
  if (typeof value === 'string' && value.length > 400) {
    return { chars: value.length + ', sum ' + sum(Buffer.from(value)) };
  }
  return value === undefined ? null : value;
}

// sum returns the Adler-32 checksum, which zlib writes at the end of its output.
function sum(bytes) {
  return zlib.deflateSync(bytes, { level: 0 }).subarray(-4).toString('hex');
}

function report(line) {
  console.log(JSON.stringify(line));
}

// call makes a call and reports its value or its exception.
async function call(name, f) {
  const began = Date.now();
  const what = { call: name };
  try {
    what.value = short(await f());
  } catch (err) {
    what.exception = err.name;
    what.message = String(err.message).split('\n')[0].replace(/127\.0\.0\.1:\d+/g, 'ADDRESS').slice(0, 240);
  }
  report({ ...what, elapsed_ms: Date.now() - began });
}

const scenarios = {
  async value(link) {
    await call('short', () => link.call('say', string('hello')));
    await call('empty', () => link.call('say', string('')));
    await call('beyond the first plane', () => link.call('say', string('\u00e4\u20ac\ud83d\ude00')));
    await call('of two chunks', () => link.call('say', string('x'.repeat(70000))));
    await call('a megabyte', () => link.call('say', string('y'.repeat(1 << 20))));
  },

  async 'runtime-exception'(link) {
    await call('fail', () => link.call('fail', string('out of order')));
    await call('afterwards', () => link.call('say', string('still here')));
  },

  // Makes 100 concurrent calls on one connection. The first call takes longest, so its response
  // must arrive after others.
  async concurrent(link) {
    const order = [];
    let wrong = 0;
    await Promise.all(Array.from({ length: 100 }, async (_, i) => {
      const text = await link.call('sleep', string('call ' + i), long(i === 0 ? 2500 : (100 - i) * 5));
      order.push(i);
      wrong += text === 'call ' + i ? 0 : 1;
    }));
    report({ call: 'responses', value: order.length });
    report({ call: 'responses of another call', value: wrong });
    report({ call: 'out of order', value: order[0] !== 0 });
  },

  async attachments(link) {
    const dubbo = '2.0.2'; // the first protocol version whose responses have attachments
    await call('seen by the provider', async () => {
      const { value } = await link.exchange('attachments', [], { dubbo, 'user-key': 'user value', unicode: '\u00e4\u20ac' });
      return { 'user-key': value['user-key'], unicode: value.unicode };
    });
    await call('seen by the consumer', async () => {
      const { props } = await link.exchange('attachments', [], { dubbo });
      return { 'answered-by': props['answered-by'], 'answer-empty': props['answer-empty'] };
    });
  },

  async 'one-way'(link) {
    const text = 'posted at ' + process.hrtime.bigint();
    link.oneWay('post', string(text));
    await call('has arrived', () => link.call('posted', string(text), long(5000)));
    await call('another has not', () => link.call('posted', string('never posted'), long(0)));
  },

  async heartbeat(link) {
    await call('of the consumer', () => link.ping());
    await call('among calls', async () => {
      const [ late, alive ] = await Promise.all([ link.call('sleep', string('late'), long(50)), link.ping() ]);
      return late + ', ' + alive;
    });
  },
};

async function play(line) {
  const [ name, port ] = line.trim().split(/ +/);
  const end = { end: name };
  try {
    let link = links.get(port);
    if (!link || link.socket.destroyed) {
      link = Link.to(family, Number(port));
      links.set(port, link);
    }
    await scenarios[name](link);
  } catch (err) {
    end.problem = String(err.stack);
  }
  report(end);
}

let last = Promise.resolve();
readline.createInterface({ input: process.stdin })
  .on('line', line => {
    last = last.then(() => play(line));
  })
  .on('close', () => process.exit(0));
console.log('ready 0');
