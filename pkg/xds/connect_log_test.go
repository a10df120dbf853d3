package xds

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// lineLog is a log that several goroutines can write to.
type lineLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines returns the lines that contain text.
func (l *lineLog) lines(text string) (matching []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			matching = append(matching, line)
		}
	}
	return matching
}

func (l *lineLog) expectLines(t *testing.T, text string, n int) {
	t.Helper()
	if got := l.lines(text); len(got) != n {
		t.Errorf("%d log lines contain %q, want %d; the log is:\n%s", len(got), text, n, strings.Join(l.lines(""), ""))
	}
}

// TestControlPlaneStateIsLogged verifies the log lines about the connection to the control plane
// and about its first configuration.
func TestControlPlaneStateIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lineLog{}
		r := startWith(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
		r.run()
		synctest.Wait()
		log.expectLines(t, `msg="connecting to the control plane" control_plane=control address=127.0.0.1:1`, 1)
		log.expectLines(t, `msg="cannot connect to the control plane" control_plane=control address=127.0.0.1:1 error=`, 1)
		if got := log.lines("cannot connect"); !strings.Contains(got[0], "no server at this address") || !strings.Contains(got[0], " retry_in=") {
			t.Errorf("log line %s, want the reason and retry_in", got[0])
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(log.lines("cannot connect")); n < 8 || n > 30 {
			t.Errorf("%d lines in five minutes of failed attempts, want one every 10 to 30 s", n)
		}
		log.expectLines(t, "connecting to", 1)
		log.expectLines(t, "first configuration", 0)

		s := r.serve(controlAddress)
		r.sendInitial(r.nextStream(s))
		synctest.Wait()
		log.expectLines(t, `msg="connected to the control plane" control_plane=control address=127.0.0.1:1`, 1)
		log.expectLines(t, `level=INFO msg="first configuration of the control plane applied" listeners=1 clusters=`, 1)
		r.stop[controlAddress]()
		time.Sleep(time.Second)
		synctest.Wait()
		log.expectLines(t, "disconnected from the control plane: the last accepted resources stay active", 1)
		r.nextStream(r.serve(controlAddress))
		synctest.Wait()
		log.expectLines(t, "connected to the control plane", 2)
		log.expectLines(t, "first configuration", 1)
	})
}

// TestUnreadableCertificateIsRetried verifies that Run does not connect without a readable CA file,
// logs the reason, and connects once the file exists.
func TestUnreadableCertificateIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lineLog{}
		r := startWith(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
		caFile := filepath.Join(t.TempDir(), "ca.pem")
		r.source.channels[0].dialer.Target.TLS = &config.TLS{TrustedCA: config.PEM{Path: caFile}, ServerName: "control"}
		r.serve(controlAddress)
		r.run() // fails the test if Run returns an error
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.lines("cannot connect to the control plane"); len(got) == 0 || !strings.Contains(got[0], "ca.pem: no such file") || !strings.Contains(got[0], "TLS: ") {
			t.Fatalf("want a log line with the missing file ca.pem, got:\n%s", strings.Join(log.lines(""), ""))
		}
		r.mu.Lock()
		connects := len(r.dialTimes)
		r.mu.Unlock()
		if connects > 0 {
			t.Errorf("%d connects without a CA file, want none", connects)
		}
		if err := os.WriteFile(caFile, testpki.New(t).PEM, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.dialTimes) == 0 {
			t.Error("no connect after the CA file was created")
		}
	})
}
