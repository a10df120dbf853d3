'use strict';

const net = require('net');

// families is how the libraries are told which protocol to speak, and which
// service of the Java peers is called.
const families = {
  dubbo: { library: 'dubbo-remoting', service: 'weft.interop.dubbo.Echo' },
  v1: { library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt' },
  v2: { library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt2' },
  v2crc: {
    library: 'sofa-bolt-node', service: 'weft.interop.sofa.Desk:1.0', protocolType: 'bolt2', boltVersion: 2, crcEnable: true,
  },
};

const PATIENCE_MS = 10000;

/** A connection with a library's encoder and decoder at its ends. */
class Link {
  /** Takes a connected socket, or one that is being connected. */
  constructor(family, socket) {
    this.family = families[family];
    const library = require(this.family.library);
    this.sent = new Map(); // the library's: what an answer is decoded with
    this.waiting = new Map(); // by id: who is told of the answer
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
    this.decoder.on('heartbeat_ack', ack => this.answered(ack.packetId, null, 'alive'));
    this.decoder.on('response', ({ packetId, data }) => {
      const failure = data.error || (data.isError ? new Error(data.errorMsg) : null);
      this.answered(packetId, failure, data.appResponse, data.responseProps);
    });
    const lost = why => () => {
      for (const id of this.waiting.keys()) {
        this.answered(id, new Error(why));
      }
    };
    this.decoder.on('error', err => socket.destroy(err));
    socket.on('error', err => lost(err.message)());
    socket.on('close', lost('the connection is closed'));
  }

  static to(family, port) {
    return new Link(family, net.connect(port, '127.0.0.1'));
  }

  answered(id, failure, value, props) {
    const call = this.waiting.get(id);
    if (!call) {
      return; // one-way, or told already
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

  /** What comes back under the next id, after send has used it. */
  await(send) {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.answered(id, new Error('nothing in ' + PATIENCE_MS + ' ms')), PATIENCE_MS);
      this.waiting.set(id, { resolve, reject, timer });
      send(id);
    });
  }

  request(methodName, args, requestProps) {
    return {
      serverSignature: this.family.service, methodName, args, requestProps, timeout: PATIENCE_MS,
    };
  }

  /** Calls, and returns the value and the attachments of the answer. */
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

  /** Sends a heartbeat and waits for its answer. */
  async ping() {
    return (await this.await(id => this.encoder.writeHeartbeat(id, { clientUrl: 'weft' }))).value;
  }
}

module.exports = { Link };
