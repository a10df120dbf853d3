package http2

import (
	"testing"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// unreadable returns a string that causes a panic when it is read: its data is at address 0.
func unreadable() string {
	s := struct {
		data uintptr
		len  int
	}{0, 8}
	return *(*string)(unsafe.Pointer(&s))
}

// TestSessionContinuesAfterEncoderPanic makes each method that appends a header block panic in the
// middle of the block, after fields were added to the compression table. It verifies that a peer
// that never received the dropped block decodes later blocks correctly.
func TestSessionContinuesAfterEncoderPanic(t *testing.T) {
	fill := func(h *protocol.Header) {
		for range 3 { // the encoder adds a field to the table when it encodes the field for the second time
			h.Add("x-a", "first")
			h.Add("x-b", "second")
		}
	}
	for name, write := range map[string]func(s *Session, st *Stream, h *protocol.Header, dst []byte) []byte{
		"response": func(s *Session, st *Stream, h *protocol.Header, dst []byte) []byte {
			dst, err := s.AppendResponse(dst, st, &protocol.Response{Status: 200, Message: protocol.Message{Header: *h}}, ResponseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return dst
		},
		"interim": func(s *Session, st *Stream, h *protocol.Header, dst []byte) []byte {
			dst, err := s.AppendInterim(dst, st, 103, h)
			if err != nil {
				t.Fatal(err)
			}
			return dst
		},
		"trailer": func(s *Session, st *Stream, h *protocol.Header, dst []byte) []byte {
			st.headSent = true
			dst, err := s.AppendTrailer(dst, st, h)
			if err != nil {
				t.Fatal(err)
			}
			return dst
		},
		"request": func(s *Session, _ *Stream, h *protocol.Header, dst []byte) []byte {
			req := &protocol.Request{Method: "GET", Path: "/", Scheme: "http", Authority: "shop.test"}
			req.Header, req.ContentLength = *h, -1
			dst, _, err := s.AppendRequest(dst, req, RequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return dst
		},
	} {
		t.Run(name, func(t *testing.T) {
			role := Server
			if name == "request" {
				role = Client
			}
			s := NewSession(Config{Role: role})
			peer := hpack.NewDecoder(DefaultTableSize, nil)
			next := uint32(1)
			send := func(h *protocol.Header) []hpack.HeaderField {
				var st *Stream
				if role == Server {
					st = s.newStream(next)
					next += 2
				}
				out := write(s, st, h, nil)
				fields, err := peer.DecodeFull(out[FrameHeaderLen:])
				if err != nil {
					t.Fatalf("decoding a block after the panic: %v", err)
				}
				return fields
			}
			var good, bad protocol.Header
			fill(&good)
			fill(&bad)
			bad.Add("x-late", "third")
			bad.Add("x-late", "third")
			bad.Add("x-bad", unreadable())
			send(&good)
			streams := s.Len()
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("the encoder did not panic")
					}
				}()
				st := (*Stream)(nil)
				if role == Server {
					st = s.newStream(next)
					next += 2
					defer s.closeStream(st)
				}
				write(s, st, &bad, nil)
			}()
			s.DropBlock()
			if s.Len() != streams {
				t.Errorf("%d streams are open after the panic, want %d", s.Len(), streams)
			}
			good.Add("x-late", "third")
			for range 3 {
				fields := send(&good)
				got := map[string]int{}
				for _, f := range fields {
					got[f.Name+"="+f.Value]++
				}
				if got["x-a=first"] != 3 || got["x-b=second"] != 3 || got["x-late=third"] != 1 {
					t.Fatalf("fields after the panic: %v; want x-a and x-b three times and x-late once", fields)
				}
			}
		})
	}
}
