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

// openPipes returns how many descriptors of the process are ends of pipes.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// TestPipesDoNotOutliveTheirConnections: readers that read nothing leave their bytes in
// pipes. Once their connections are closed, only the pipes of the free list are open.
func TestPipesDoNotOutliveTheirConnections(t *testing.T) {
	const connections = 3 * maxIdlePipes
	before := openPipes(t)
	var spliced, written sync.WaitGroup
	var readers []*Conn
	for range connections {
		src, in := pair(t)
		dst, _ := pair(t)
		readers = append(readers, dst)
		written.Go(func() {
			chunk := make([]byte, 1<<20)
			for err := error(nil); err == nil; { // until the spliced connection ends
				_, err = in.Write(chunk)
			}
		})
		spliced.Go(func() {
			defer src.Close() // ends the writer
			for {
				if n, ok, rerr, werr := Splice(dst, src, 1<<30); !ok || rerr != nil || werr != nil || n == 0 {
					return
				}
			}
		})
	}
	for late := time.Now().Add(30 * time.Second); openPipes(t)-before < 2*connections; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("%d ends of pipes are open, want two for each of the %d connections", openPipes(t)-before, connections)
		}
	}
	for _, dst := range readers {
		_ = dst.Close()
	}
	spliced.Wait()
	written.Wait()
	if n := openPipes(t) - before; n > 2*maxIdlePipes {
		t.Errorf("%d ends of pipes are open after %d connections have ended, want %d at most", n, connections, 2*maxIdlePipes)
	}
}

// TestIdlePipesAreBounded is the free list alone.
func TestIdlePipesAreBounded(t *testing.T) {
	before := openPipes(t)
	var list idlePipes
	for range 2 * maxIdlePipes {
		p := newPipe()
		if p == nil {
			t.Fatal("out of descriptors")
		}
		list.put(p)
	}
	if n := openPipes(t) - before; n != 2*maxIdlePipes {
		t.Errorf("%d ends of pipes are open, want %d", n, 2*maxIdlePipes)
	}
	for p := list.get(); p != nil; p = list.get() {
		p.close()
	}
	if n := openPipes(t) - before; n != 0 {
		t.Errorf("%d ends of pipes are open after all were closed", n)
	}
}
