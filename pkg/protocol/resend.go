package protocol

// Rules for sending a request again. Retries, hedges and pools add their own conditions.

// IsIdempotentMethod reports whether an HTTP request with the method may be sent twice (RFC 9110
// 9.2.2). For an RPC request, the method is "" and the result is false.
func IsIdempotentMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// RewindBody rewinds a request body and reports whether all of it can be sent again; nil is an
// empty body. The caller must be the goroutine that reads b.
func RewindBody(b Body) bool {
	if b == nil {
		return true
	}
	r, ok := b.(Rewinder)
	return ok && r.Rewind()
}
