package http2

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// unaryFrames returns the frames of a gRPC request and of its response, each with a body of 1 KiB,
// and the offsets of their stream identifiers.
func unaryFrames() (request, response []byte, requestIDs, responseIDs []int) {
	add := func(dst []byte, ids *[]int, t syntax.FrameType, flags syntax.Flags, payload []byte) []byte {
		*ids = append(*ids, len(dst)+5)
		dst = syntax.AppendFrameHeader(dst, len(payload), t, flags, 0)
		return append(dst, payload...)
	}
	body := make([]byte, 1024)
	enc := newEncoder()
	head := enc.block([]string{":method", "POST", ":scheme", "http", ":path", "/grpc.testing.TestService/UnaryCall", ":authority", "shop.test",
		"content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "te", "trailers"})
	request = add(request, &requestIDs, syntax.FrameHeaders, syntax.FlagEndHeaders, withoutIndexing(head))
	request = add(request, &requestIDs, syntax.FrameData, syntax.FlagEndStream, body)
	response = add(response, &responseIDs, syntax.FrameHeaders, syntax.FlagEndHeaders, withoutIndexing(newEncoder().block([]string{":status", "200", "content-type", "application/grpc"})))
	response = add(response, &responseIDs, syntax.FrameData, 0, body)
	response = add(response, &responseIDs, syntax.FrameHeaders, syntax.FlagEndHeaders|syntax.FlagEndStream, withoutIndexing(newEncoder().block([]string{"grpc-status", "0"})))
	return request, response, requestIDs, responseIDs
}

// withoutIndexing replaces literals with indexing by literals without indexing, so that a header
// block can be sent repeatedly.
func withoutIndexing(block []byte) []byte {
	out := make([]byte, 0, len(block))
	for len(block) > 0 {
		b := block[0]
		n := 1
		switch {
		case b&0x80 != 0:
		case b&0xc0 == 0x40:
			index := b & 0x3f
			if index < 15 {
				out = append(out, index)
			} else {
				out = append(out, 0x0f, index-15)
			}
			literals := 1
			if index == 0 {
				literals = 2
			}
			for range literals {
				n += 1 + int(block[n]&0x7f)
			}
			out = append(out, block[1:n]...)
			block = block[n:]
			continue
		}
		out = append(out, block[:n]...)
		block = block[n:]
	}
	return out
}

func setStreamIDs(frames []byte, offsets []int, id uint32) {
	for _, i := range offsets {
		binary.BigEndian.PutUint32(frames[i:], id)
	}
}

// readUntilEndStream reads frames until one ends a stream, and returns the identifier of that
// stream. It acknowledges SETTINGS.
func readUntilEndStream(r *bufio.Reader, conn net.Conn, buf []byte) (id uint32, err error) {
	for {
		if _, err := io.ReadFull(r, buf[:syntax.FrameHeaderLen]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(buf) >> 8)
		frameType, flags := syntax.FrameType(buf[3]), syntax.Flags(buf[4])
		id := binary.BigEndian.Uint32(buf[5:])
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return 0, err
		}
		switch {
		case frameType == syntax.FrameSettings && flags == 0:
			if _, err := conn.Write(syntax.AppendSettingsAck(nil)); err != nil {
				return 0, err
			}
		case frameType <= syntax.FrameHeaders && flags.Has(syntax.FlagEndStream):
			return id, nil
		}
	}
}

// newUnaryCall returns a function that makes a gRPC call with bodies of 1 KiB through both sides.
// Its allocations are those of the engine, because client and host allocate nothing.
func newUnaryCall(b testing.TB) (sendCall func()) {
	request, response, requestIDs, responseIDs := unaryFrames()
	windows := syntax.AppendWindowUpdate(syntax.AppendSettings(nil, syntax.Setting{ID: syntax.SettingInitialWindowSize, Value: 1 << 20}), 0, 1<<30)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in, buf := bufio.NewReader(conn), make([]byte, 1<<16)
		_, _ = conn.Write(windows)
		_, _ = io.ReadFull(in, buf[:len(syntax.Preface)])
		for {
			id, err := readUntilEndStream(in, conn, buf)
			if err != nil {
				return
			}
			setStreamIDs(response, responseIDs, id)
			if _, err := conn.Write(response); err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() { _ = ln.Close(); <-done })
	r := newProxyRig(b, ln.Addr().String(), nil, nil)
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(append([]byte(syntax.Preface), windows...)); err != nil {
		b.Fatal(err)
	}
	in, buf := bufio.NewReader(conn), make([]byte, 1<<16)
	id := uint32(1)
	sendCall = func() {
		setStreamIDs(request, requestIDs, id)
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if got, err := readUntilEndStream(in, conn, buf); err != nil || got != id {
			b.Fatalf("got the end of stream %[2]d, want %[1]d; %[3]v", id, got, err)
		}
		id += 2
	}
	for range 100 {
		sendCall()
	}
	return sendCall
}

func BenchmarkUnary(b *testing.B) {
	sendCall := newUnaryCall(b)
	b.ReportAllocs()
	for b.Loop() {
		sendCall()
	}
}

func TestUnaryCallAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	if n := testing.AllocsPerRun(1000, newUnaryCall(t)); n > 0 {
		t.Errorf("%v allocations per call, want none", n)
	}
}
