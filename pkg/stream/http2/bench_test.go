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

// unaryFrames returns the frames of a gRPC call and of its response, each with a body of 1 KiB, and
// the offsets of their stream identifiers.
func unaryFrames() (call, answer []byte, callIDs, answerIDs []int) {
	add := func(dst []byte, ids *[]int, t syntax.FrameType, flags syntax.Flags, payload []byte) []byte {
		*ids = append(*ids, len(dst)+5)
		dst = syntax.AppendFrameHeader(dst, len(payload), t, flags, 0)
		return append(dst, payload...)
	}
	content := make([]byte, 1024)
	enc := newEncoder()
	head := enc.block([]string{":method", "POST", ":scheme", "http", ":path", "/grpc.testing.TestService/UnaryCall", ":authority", "shop.test",
		"content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "te", "trailers"})
	call = add(call, &callIDs, syntax.FrameHeaders, syntax.FlagEndHeaders, withoutIndexing(head))
	call = add(call, &callIDs, syntax.FrameData, syntax.FlagEndStream, content)
	answer = add(answer, &answerIDs, syntax.FrameHeaders, syntax.FlagEndHeaders, withoutIndexing(newEncoder().block([]string{":status", "200", "content-type", "application/grpc"})))
	answer = add(answer, &answerIDs, syntax.FrameData, 0, content)
	answer = add(answer, &answerIDs, syntax.FrameHeaders, syntax.FlagEndHeaders|syntax.FlagEndStream, withoutIndexing(newEncoder().block([]string{"grpc-status", "0"})))
	return call, answer, callIDs, answerIDs
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
			strings := 1
			if index == 0 {
				strings = 2
			}
			for range strings {
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

func setStreamIDs(frames []byte, at []int, id uint32) {
	for _, i := range at {
		binary.BigEndian.PutUint32(frames[i:], id)
	}
}

// readUntilEndStream reads frames until one ends a stream, and returns the identifier of that
// stream. It acknowledges SETTINGS.
func readUntilEndStream(in *bufio.Reader, conn net.Conn, piece []byte) (id uint32, err error) {
	for {
		if _, err := io.ReadFull(in, piece[:syntax.FrameHeaderLen]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(piece) >> 8)
		kind, flags := syntax.FrameType(piece[3]), syntax.Flags(piece[4])
		id := binary.BigEndian.Uint32(piece[5:])
		if _, err := io.ReadFull(in, piece[:n]); err != nil {
			return 0, err
		}
		switch {
		case kind == syntax.FrameSettings && flags == 0:
			if _, err := conn.Write(syntax.AppendSettingsAck(nil)); err != nil {
				return 0, err
			}
		case kind <= syntax.FrameHeaders && flags.Has(syntax.FlagEndStream):
			return id, nil
		}
	}
}

// newUnaryCall returns a function that makes a gRPC call with bodies of 1 KiB through both sides.
// Its allocations are those of the engine, because client and host allocate nothing.
func newUnaryCall(b testing.TB) (one func()) {
	call, answer, callIDs, answerIDs := unaryFrames()
	windows := syntax.AppendWindowUpdate(syntax.AppendSettings(nil, syntax.Setting{ID: syntax.SettingInitialWindowSize, Value: 1 << 20}), 0, 1<<30)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in, piece := bufio.NewReader(conn), make([]byte, 1<<16)
		_, _ = conn.Write(windows)
		_, _ = io.ReadFull(in, piece[:len(syntax.Preface)])
		for {
			id, err := readUntilEndStream(in, conn, piece)
			if err != nil {
				return
			}
			setStreamIDs(answer, answerIDs, id)
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() { _ = ln.Close(); <-ended })
	r := newProxyRig(b, ln.Addr().String(), nil, nil)
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(append([]byte(syntax.Preface), windows...)); err != nil {
		b.Fatal(err)
	}
	in, piece := bufio.NewReader(conn), make([]byte, 1<<16)
	id := uint32(1)
	one = func() {
		setStreamIDs(call, callIDs, id)
		if _, err := conn.Write(call); err != nil {
			b.Fatal(err)
		}
		if got, err := readUntilEndStream(in, conn, piece); err != nil || got != id {
			b.Fatalf("got the end of stream %[2]d, want %[1]d; %[3]v", id, got, err)
		}
		id += 2
	}
	for range 100 {
		one()
	}
	return one
}

func BenchmarkUnary(b *testing.B) {
	one := newUnaryCall(b)
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
}

func TestAUnaryCallAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	if n := testing.AllocsPerRun(1000, newUnaryCall(t)); n > 0 {
		t.Errorf("%v allocations per call, want none", n)
	}
}
