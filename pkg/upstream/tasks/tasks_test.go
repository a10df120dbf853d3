package tasks

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitForGoroutinesAndTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(slog.New(slog.DiscardHandler))
		ended := make(chan string, 2)
		g.Go(func() {
			<-g.Context().Done()
			ended <- "goroutine"
		})
		g.AddTimer()
		time.AfterFunc(time.Minute, func() {
			ended <- "timer"
			g.TimerDone()
		})
		if g.Closed() {
			t.Error("Closed = true before Close")
		}
		g.Close()
		g.Wait()
		if len(ended) != 2 || !g.Closed() || g.Now() != time.Minute {
			t.Errorf("after %v: %d tasks have ended, Closed = %v, want both after a minute", g.Now(), len(ended), g.Closed())
		}
		if first := <-ended; first != "goroutine" {
			t.Errorf("the %s ended first, want the goroutine", first)
		}
		done := make(chan struct{})
		g.Go(func() { close(done) })
		<-done
	})
}

func TestRunRecoveredLogsPanic(t *testing.T) {
	var log bytes.Buffer
	New(slog.New(slog.NewTextHandler(&log, nil))).RunRecovered("sweeping a pool", func() { panic("oops") })
	if !strings.Contains(log.String(), "oops") || !strings.Contains(log.String(), "sweeping a pool") {
		t.Errorf("log = %q, want the panic in it", &log)
	}
}
