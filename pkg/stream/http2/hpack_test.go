package http2

import (
	"bytes"

	"golang.org/x/net/http2/hpack"
)

// encoder encodes header blocks with x/net.
type encoder struct {
	buf bytes.Buffer
	enc *hpack.Encoder
}

func newEncoder() *encoder {
	e := new(encoder)
	e.enc = hpack.NewEncoder(&e.buf)
	return e
}

func (e *encoder) block(fields []string) []byte {
	e.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = e.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // never fails
	}
	return e.buf.Bytes()
}

func newDecoder() *hpack.Decoder { return hpack.NewDecoder(4096, nil) }
