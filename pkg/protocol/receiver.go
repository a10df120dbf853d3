package protocol

// RequestReceiver is a Downstream that knows whether its request has arrived completely.
type RequestReceiver interface {
	// RequestReceived reports whether the last byte of the request has arrived. It is safe for
	// concurrent use.
	RequestReceived() bool
}

// RequestReceived reports whether the request has arrived completely, as far as the Downstream
// knows.
func (x *Exchange) RequestReceived() bool {
	if x.Request.Body == nil {
		return true
	}
	r, ok := x.Downstream.(RequestReceiver)
	return !ok || r.RequestReceived()
}
