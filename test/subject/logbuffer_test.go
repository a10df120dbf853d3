package subject

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitReturnsCompleteLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewLogBuffer()
		_, _ = fmt.Fprint(b, "ready once\nnext rea") // never fails
		from := len("ready once\n")
		go func() {
			<-time.After(time.Second)
			_, _ = fmt.Fprint(b, "dy now")
			<-time.After(time.Second)
			_, _ = fmt.Fprint(b, "\n")
		}()
		start := time.Now()
		line, err := b.Await(from, "ready", time.Minute)
		if line != "next ready now" || err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("Await = %q, %v after %v; want \"next ready now\", nil after 2s", line, err, time.Since(start))
		}
	})
}

func TestAwaitReportsTimeoutAndExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewLogBuffer()
		_, _ = fmt.Fprint(b, "ready, but no line") // never fails
		start := time.Now()
		if line, err := b.Await(0, "ready", time.Minute); err == nil || time.Since(start) != time.Minute {
			t.Errorf("Await = %q, %v after %v; want an error after a minute", line, err, time.Since(start))
		}
		go b.Close()
		if line, err := b.Await(0, "ready", time.Minute); err == nil || time.Since(start) != time.Minute {
			t.Errorf("after exit Await = %q, %v; want an error after 1m0s", line, err)
		}
	})
}

func TestFindDefects(t *testing.T) {
	for log, want := range map[string]int{
		"panic: a nil map\n":                               1,
		"started\npanic: a nil map\n":                      1,
		"WARNING: DATA RACE\nfatal error: all are asleep":  2,
		"level=ERROR msg=\"accept failed\"\n":              1,
		"level=WARN msg=\"the cluster is in panic: down\"": 0,
		"": 0,
	} {
		if got := findDefects(log); len(got) != want {
			t.Errorf("findDefects(%q) = %v, want %d positions", log, got, want)
		}
	}
}
