package zookeeper

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// connectRequest returns the first message of a client.
func connectRequest(session uint64) []byte {
	b := make([]byte, 48)
	binary.BigEndian.PutUint64(b[sessionIDStart:], session)
	return b
}

// requestWithOpcode returns a request with an opcode.
func requestWithOpcode(opcode int32) []byte {
	b := make([]byte, 16)
	binary.BigEndian.PutUint32(b[opcodeStart:], uint32(opcode))
	return b
}

func TestResumedSessionRestoresWatchesFirst(t *testing.T) {
	const get, closing = 4, -11
	tests := []struct {
		name        string
		session     uint64
		opcodes     []int32
		immediately []int32 // opcodes that the server receives immediately
		delayed     []int32 // opcodes that the server receives after watchRestoreTimeout
	}{
		{"new session", 0, []int32{get, opPing, get}, []int32{get, opPing, get}, nil},
		{"resumed session with watches", 7, []int32{opAuth, get, opPing, opSetWatches, get}, []int32{opAuth, opPing, opSetWatches, get, get}, nil},
		{"resumed session without watches", 7, []int32{get, opPing, get}, []int32{opPing}, []int32{get, get}},
		{"resumed session that is closed", 7, []int32{get, closing}, []int32{closing}, []int32{get}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				opcodes := make(chan int32, 16)
				done := make(chan struct{})
				go func() {
					defer close(done)
					if _, err := io.ReadFull(server, make([]byte, len(connectRequest(0)))); err != nil {
						return
					}
					if _, err := server.Write([]byte{0, 0, 0, 36}); err != nil {
						return
					}
					for message := make([]byte, len(requestWithOpcode(0))); ; {
						if _, err := io.ReadFull(server, message); err != nil {
							return
						}
						opcodes <- int32(binary.BigEndian.Uint32(message[opcodeStart:]))
					}
				}()
				c := &handshakeConn{Conn: client, timeout: time.Second, onFailure: func(err error) { t.Error(err) }}
				write := func(b []byte) {
					if n, err := c.Write(b); n != len(b) || err != nil {
						t.Errorf("Write = %d, %v; want %d", n, err, len(b))
					}
				}
				write(connectRequest(tt.session))
				if _, err := c.Read(make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
				for _, opcode := range tt.opcodes {
					write(requestWithOpcode(opcode))
				}
				received := func() (list []int32) {
					synctest.Wait()
					for len(opcodes) > 0 {
						list = append(list, <-opcodes)
					}
					return list
				}
				if got := received(); !slices.Equal(got, tt.immediately) {
					t.Errorf("the server received %d immediately, want %d", got, tt.immediately)
				}
				time.Sleep(watchRestoreTimeout)
				if got := received(); !slices.Equal(got, tt.delayed) {
					t.Errorf("after watchRestoreTimeout the server received %d, want %d", got, tt.delayed)
				}
				_ = client.Close() // ends the server
				<-done
			})
		})
	}
}

func TestConnectResponseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _, _ = client.Close(), server.Close() }()
		var reported error
		c := &handshakeConn{Conn: client, timeout: time.Second, onFailure: func(err error) { reported = err }}
		start := time.Now()
		if err := c.SetReadDeadline(start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 4))
		if took := time.Since(start); err == nil || reported == nil || took != time.Second {
			t.Errorf("after %v: %v, reported %v; want an error after %v", took, err, reported, time.Second)
		}
	})
}
