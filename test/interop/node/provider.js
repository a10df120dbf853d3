'use strict';

// Serves some methods of the Java providers. FAMILY is a key of families in link.js.
// Usage: provider.js FAMILY PORT

const net = require('net');
const readline = require('readline');
const { Link } = require('./link');

const [ family, port ] = process.argv.slice(2);

const string = text => ({ $class: 'java.lang.String', $: text });

const methods = {
  say: text => string(text),
  sleep: (text, millis) => new Promise(resolve => setTimeout(() => resolve(string(text)), Number(millis))),
  fail: why => {
    throw new Error(why);
  },
};

const server = net.createServer(socket => {
  const link = new Link(family, socket);
  link.decoder.on('request', async req => {
    let response;
    try {
      response = { isError: false, appResponse: await methods[req.data.methodName](...req.data.args) };
    } catch (err) {
      response = { isError: true, errorMsg: err.message };
    }
    link.encoder.writeResponse(req, response);
  });
});

server.listen(Number(port), '127.0.0.1', () => console.log('ready ' + port));
readline.createInterface({ input: process.stdin }).on('close', () => process.exit(0));
