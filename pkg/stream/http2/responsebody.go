package http2

// responseBody is the body of a response. Close ends the call.
type responseBody struct {
	call   *call
	closed bool
}

// Read implements protocol.Body. Its errors are Faults. If the body is slow to arrive, Read watches
// a client of another protocol for a disconnect.
func (a *responseBody) Read(p []byte) (int, error) {
	k := a.call
	if k.downstream == nil && k.x.Downstream != nil && (k.uploader == nil || k.uploader.ended()) && !k.in.awaitReadable(watchAfter) {
		on := pendingCall{k.upstream, k, k.id.Load()}
		defer k.x.Downstream.OnDisconnect(on.abandon)()
	}
	return k.in.Read(p)
}

// Complete implements protocol.CompleteBody.
func (a *responseBody) Complete() (whole, empty bool) { return a.call.in.Complete() }

// Buffered implements protocol.Body.
func (a *responseBody) Buffered() int { return a.call.in.Buffered() }

// Close implements protocol.Body. It removes the body from the exchange, so that the engine does
// not close it again.
func (a *responseBody) Close() error {
	k := a.call
	if a.closed {
		return nil
	}
	a.closed = true
	u := k.upstream
	k.x.Response.BodyClosed(a)
	k.stopUpload()
	k.free()
	u.opts.OnRelease(!u.closing.Load())
	return nil
}
