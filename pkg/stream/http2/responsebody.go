package http2

// responseBody is the body of a response. Close ends the call.
type responseBody struct {
	call   *call
	closed bool
}

// Read implements protocol.Body. Its errors other than io.EOF are Faults. If the body is slow to
// arrive, Read watches a client of another protocol for a disconnect.
func (b *responseBody) Read(p []byte) (int, error) {
	c := b.call
	if c.downstream == nil && c.x.Downstream != nil && (c.uploader == nil || c.uploader.ended()) && !c.in.awaitReadable(disconnectWatchDelay) {
		pending := pendingCall{c.upstream, c, c.id.Load()}
		defer c.x.Downstream.OnDisconnect(pending.abandon)()
	}
	return c.in.Read(p)
}

// Complete implements protocol.CompleteBody.
func (b *responseBody) Complete() (complete, empty bool) { return b.call.in.Complete() }

// Buffered implements protocol.Body.
func (b *responseBody) Buffered() int { return b.call.in.Buffered() }

// Close implements protocol.Body. It removes the body from the exchange, so that the engine does
// not close it again.
func (b *responseBody) Close() error {
	c := b.call
	if b.closed {
		return nil
	}
	b.closed = true
	u := c.upstream
	c.x.Response.BodyClosed(b)
	c.stopUpload()
	c.free()
	u.opts.OnRelease(!u.closing.Load())
	return nil
}
