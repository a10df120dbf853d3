package protocol

// Rules for sending a request again. Retries, hedges and pools add their own conditions.

// IsIdempotentMethod reports whether an HTTP request with the method may be sent twice (RFC 9110
// 9.2.2). RPC has no methods: its method is "", and the result is false.
func IsIdempotentMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// RewindBody rewinds the body of a request and reports whether the request can be sent again with
// all of it; nil is an empty body. The caller reads the body on the same goroutine.
func RewindBody(b Body) bool {
	if b == nil {
		return true
	}
	r, ok := b.(Rewinder)
	return ok && r.Rewind()
}
