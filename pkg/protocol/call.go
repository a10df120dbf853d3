package protocol

// Attachment implements config.Call: it returns the value of the last request header with exactly
// that name.
func (x *Exchange) Attachment(name string) (value string, ok bool) {
	h := &x.Request.Header
	for i := h.Len() - 1; i >= 0; i-- {
		if f := h.At(i); f.Name == name {
			return f.Value, true
		}
	}
	return "", false
}

// Argument implements config.Call: it returns an argument of the RPC request.
func (x *Exchange) Argument(index int) (value string, ok bool) {
	if body, reads := x.Request.Body.(Arguments); reads {
		return body.Argument(index)
	}
	return "", false
}
