package network

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// openPipes returns the number of the process's descriptors that are ends of pipes.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "pipe:") {
			n++
		}
	}
	return n
}

// TestPipesDoNotOutliveTheirConnections verifies that pipes are closed with their connections,
// except for those of the free list. The readers read nothing, so that each connection has bytes in
// a pipe.
func TestPipesDoNotOutliveTheirConnections(t *testing.T) {
	const connections = 3 * maxIdlePipes
	before := openPipes(t)
	var splicers, writers sync.WaitGroup
	var readers []*Conn
	for range connections {
		src, srcPeer := pair(t)
		dst, _ := pair(t)
		readers = append(readers, dst)
		writers.Go(func() {
			chunk := make([]byte, 1<<20)
			for err := error(nil); err == nil; { // until the spliced connection ends
				_, err = srcPeer.Write(chunk)
			}
		})
		splicers.Go(func() {
			defer src.Close() // makes the writer fail
			for {
				if n, ok, rerr, werr := Splice(dst, src, 1<<30); !ok || rerr != nil || werr != nil || n == 0 {
					return
				}
			}
		})
	}
	for deadline := time.Now().Add(30 * time.Second); openPipes(t)-before < 2*connections; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d pipe ends are open, want two for each of %d connections", openPipes(t)-before, connections)
		}
	}
	for _, dst := range readers {
		_ = dst.Close()
	}
	splicers.Wait()
	writers.Wait()
	if n := openPipes(t) - before; n > 2*maxIdlePipes {
		t.Errorf("%d pipe ends are open after the end of %d connections, want at most %d", n, connections, 2*maxIdlePipes)
	}
}

// TestIdlePipesAreBounded verifies that the free list keeps at most maxIdlePipes pipes.
func TestIdlePipesAreBounded(t *testing.T) {
	before := openPipes(t)
	var list idlePipes
	for range 2 * maxIdlePipes {
		p := newPipe()
		if p == nil {
			t.Fatal("newPipe = nil: out of descriptors")
		}
		list.put(p)
	}
	if n := openPipes(t) - before; n != 2*maxIdlePipes {
		t.Errorf("%d pipe ends are open, want %d", n, 2*maxIdlePipes)
	}
	for p := list.get(); p != nil; p = list.get() {
		p.close()
	}
	if n := openPipes(t) - before; n != 0 {
		t.Errorf("%d pipe ends are open after all pipes were closed, want 0", n)
	}
}
