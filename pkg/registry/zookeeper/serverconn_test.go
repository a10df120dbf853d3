package zookeeper

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// request returns a request, with its length prefix, for a path without the watch flag.
func request(opcode uint32, path string) []byte {
	b := make([]byte, pathStart+len(path)+1)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	binary.BigEndian.PutUint32(b[opcodeStart:], opcode)
	binary.BigEndian.PutUint32(b[pathLengthStart:], uint32(len(path)))
	copy(b[pathStart:], path)
	return b
}

func TestReadsOfWatchedPathsSetWatch(t *testing.T) {
	const opDelete, path = 2, "/dubbo/com.example.User/providers"
	tests := []struct {
		name    string
		message []byte
		watched bool
	}{
		{"exists", request(opExists, path), true},
		{"data", request(opGetData, path), true},
		{"children", request(opGetChildren2, path), true},
		{"another path", request(opGetData, path+"/a"), false},
		{"the parent", request(opGetData, "/dubbo"), false},
		{"another opcode", request(opDelete, path), false},
		{"connect request", make([]byte, 48), false},
		{"truncated", request(opGetData, path)[:pathStart], false},
		{"wrong length of the path", append(request(opGetData, path), 0), false},
		{"ping", []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, server := net.Pipe()
			c := &serverConn{Conn: client, watches: newWatchSet()}
			write := func() []byte {
				t.Helper()
				given := bytes.Clone(tt.message)
				go func() {
					if n, err := c.Write(given); n != len(given) || err != nil {
						t.Errorf("Write = %d, %v; want %d", n, err, len(given))
					}
				}()
				got := make([]byte, len(tt.message))
				if _, err := io.ReadFull(server, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(given, tt.message) {
					t.Error("Write changed its argument")
				}
				return got
			}
			want := bytes.Clone(tt.message)
			if tt.watched {
				want[len(want)-1] = 1
			}
			c.watches.add(path)
			if got := write(); !bytes.Equal(got, want) {
				t.Errorf("the server received %x, want %x", got, want)
			}
			c.watches.remove(path)
			if got := write(); !bytes.Equal(got, tt.message) {
				t.Errorf("after remove the server received %x, want %x", got, tt.message)
			}
		})
	}
}

func TestConnectResponseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _, _ = client.Close(), server.Close() }()
		var reported error
		c := &serverConn{Conn: client, timeout: time.Second, onFailure: func(err error) { reported = err }}
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
