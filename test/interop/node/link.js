'use strict';

const net = require('net');

// families maps the name of each protocol to the library that implements it, the service of
// the Java providers that the consumer calls, and the options of the library.
const families = {
  dubbo: { library: 'dubbo-remoting', service: 'weft.interop.dubbo.Echo' },
  v1: { library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt' },
  v2: { library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt2' },
  v2crc: {
    library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt2', boltVersion: 2, crcEnable: true,
  },
};

const PATIENCE_MS = 10000;

/** A connection with the encoder and the decoder of a library. */
class Link {
  /** The socket is connected or connecting. */
  constructor(family, socket) {
    this.family = families[family];
    const library = require(this.family.library);
    this.sent = new Map(); // requests by id; the library needs them to decode the responses
    this.waiting = new Map(); // pending calls by request id
    this.lastId = 0;
    this.socket = socket;
    this.encoder = library.encoder({ sentReqs: this.sent });
    this.decoder = library.decoder({ sentReqs: this.sent });
    for (const option of [ 'protocolType', 'boltVersion', 'crcEnable' ]) {
      if (option in this.family) {
        this.encoder[option] = this.family[option];
      }
    }
    this.encoder.pipe(socket);
    socket.pipe(this.decoder);
    this.decoder.on('heartbeat', heartbeat => this.encoder.writeHeartbeatAck(heartbeat));
    this.decoder.on('heartbeat_ack', ack => this.finish(ack.packetId, null, 'alive'));
    this.decoder.on('response', ({ packetId, data }) => {
      const failure = data.error || (data.isError ? new Error(data.errorMsg) : null);
      this.finish(packetId, failure, data.appResponse, data.responseProps);
    });
    const lost = why => () => {
      for (const id of this.waiting.keys()) {
        this.finish(id, new Error(why));
      }
    };
    this.decoder.on('error', err => socket.destroy(err));
    socket.on('error', err => lost(err.message)());
    socket.on('close', lost('the connection is closed'));
  }

  static to(family, port) {
    return new Link(family, net.connect(port, '127.0.0.1'));
  }

  finish(id, failure, value, props) {
    const call = this.waiting.get(id);
    if (!call) {
      return; // a one-way call, or already completed
    }
    this.waiting.delete(id);
    this.sent.delete(id);
    clearTimeout(call.timer);
    if (failure) {
      call.reject(failure);
    } else {
      call.resolve({ value, props });
    }
  }

  /** Calls send with the next request id, and returns a promise of the response to it. */
  await(send) {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.finish(id, new Error('nothing in ' + PATIENCE_MS + ' ms')), PATIENCE_MS);
      this.waiting.set(id, { resolve, reject, timer });
      send(id);
    });
  }

  request(methodName, args, requestProps) {
    return {
      serverSignature: this.family.service, methodName, args, requestProps, timeout: PATIENCE_MS,
    };
  }

  /** Makes a call, and returns the value and the attachments of the response. */
  exchange(methodName, args, requestProps) {
    return this.await(id => {
      const req = this.request(methodName, args, requestProps);
      this.sent.set(id, { req });
      this.encoder.writeRequest(id, req);
    });
  }

  async call(methodName, ...args) {
    return (await this.exchange(methodName, args)).value;
  }

  oneWay(methodName, ...args) {
    this.encoder.writeRequest(++this.lastId, { ...this.request(methodName, args), oneway: true });
  }

  /** Sends a heartbeat and waits for its acknowledgment. */
  async ping() {
    return (await this.await(id => this.encoder.writeHeartbeat(id, { clientUrl: 'weft' }))).value;
  }
}

module.exports = { Link };
