package service

import (
	"encoding/hex"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestID is the header that identifies a request in logs and traces.
const requestID = "x-request-id"

const (
	uuidLen = 36
	// traceReasonIndex is the index of the digit of a UUID in which Envoy stores why a request is
	// traced: it is the version of the UUID, and notTraced is the version of a random one.
	traceReasonIndex = 14
	notTraced        = '4'
)

// setRequestID sets the request ID as c requires. isEdge: the client is not trusted.
func setRequestID(h *protocol.Header, c *config.RequestID, isEdge bool) {
	id := h.Get(requestID)
	switch {
	case id == "", isEdge && c.Replace:
		h.Set(requestID, newRequestID())
	case isEdge && c.ResetTraceReason && len(id) == uuidLen && id[traceReasonIndex] != notTraced:
		h.Set(requestID, id[:traceReasonIndex]+string(notTraced)+id[traceReasonIndex+1:])
	}
}

// newRequestID returns a random UUID (RFC 9562 5.4).
func newRequestID() string {
	var id [16]byte
	high, low := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		id[i], id[8+i] = byte(high>>(8*i)), byte(low>>(8*i)) //nolint:gosec // the lowest byte of each shift
	}
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // variant 10
	var text [uuidLen]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
