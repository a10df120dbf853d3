package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// TestHTTP2Rows verifies that short runs of the HTTP/2 rows through the relay and directly produce
// samples. The relay does not support the rows that translate between versions.
func TestHTTP2Rows(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "relay,direct", "-rows", "h2-16x1,h2-16x16,grpc-16x16,grpc-stream", "-rounds", "1",
		"-seconds", "0.3", "-warmup", "0.05", "-patience", "0")
	report, err := env.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Loads) != 4 {
		t.Fatalf("%d rows, want 4", len(report.Loads))
	}
	for _, l := range report.Loads {
		for _, c := range l.Cells {
			for _, s := range append(c.Rounds, c.Half...) {
				if s.Requests == 0 || s.P50 <= 0 || s.Reconnects != 0 {
					t.Errorf("%s, %s: %+v, want requests, a p50 and no reconnects", l.Name, c.Proxy, s.Result)
				}
			}
			if len(c.Rounds) != 1 || (len(c.Half) == 1) != (l.Rate > 0) {
				t.Errorf("%s, %s: %d rounds, %d at half load; want 1, and 1 if the row has a rate", l.Name, c.Proxy, len(c.Rounds), len(c.Half))
			}
		}
	}
}

// TestPeersServeHTTP2 verifies that nginx and haproxy, if installed, serve a short load with every
// combination of versions.
func TestPeersServeHTTP2(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "nginx,haproxy", "-install=false")
	if len(env.programs) == 0 {
		t.Skip("SKIPPED: neither nginx nor haproxy is installed")
	}
	var names []string
	for _, r := range http2Rows() {
		names = append(names, r.name)
		for _, p := range env.programs {
			running, err := env.start(t.Context(), p, r)
			if err != nil {
				t.Errorf("row %s: %v", r.name, err)
				continue
			}
			job := env.job(r, running.Listen, running.PIDs)
			job.Warmup, job.Measure = 0, 300*time.Millisecond
			if r.load == load.GRPCStream {
				job.Body = 1 << 14
			}
			if result, err := env.load(t.Context(), job); err != nil || result.Requests == 0 {
				t.Errorf("row %s, %s: %d responses, %v; want responses and no error", r.name, p.Name, result.Requests, err)
			}
			running.Stop()
		}
	}
	for _, name := range names {
		if !slices.Contains(rowNames(), name) {
			t.Errorf("-rows does not accept %s", name)
		}
	}
}

// TestRequestsNextToIdleStreams verifies that haproxy serves requests while streams are held open.
func TestRequestsNextToIdleStreams(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "haproxy", "-install=false")
	if len(env.programs) == 0 {
		t.Skip("SKIPPED: haproxy is not installed")
	}
	running, err := env.programEnv.StartHTTP(t.Context(), env.programs[0], peer.Sides{ClientHTTP2: true, OriginHTTP2: true, GRPC: true})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	clients, closeAll, err := openHTTP2(t.Context(), running, 3)
	defer closeAll()
	if err != nil {
		t.Fatal(err)
	}
	if err := requestAll(clients); err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		if err := c.Hold(50); err != nil {
			t.Error(err)
		}
	}
	if err := requestAll(clients); err != nil {
		t.Errorf("request next to idle streams: %v", err)
	}
}

// TestProgramWithoutHTTP2IsReported verifies that a program without HTTP/2 is reported in every row
// and does not end the run.
func TestProgramWithoutHTTP2IsReported(t *testing.T) {
	weft := script(t, "echo protocol Http2 is not supported yet >&2; exit 1")
	env := newTestEnvironment(t, "-bin", "weft="+weft, "-proxies", "weft,relay", "-rows", "h2-16x1,h2-to-h1-16x16,h2-idle,h2-streams",
		"-rounds", "1", "-seconds", "0.05", "-warmup", "0", "-patience", "0", "-half=false")
	report, err := env.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkUnmeasured(t, report)
	markdown := report.markdown()
	if n := strings.Count(markdown, "| not supported |"); n < 6 {
		t.Errorf("report.md has %d times \"not supported\", want at least 6:\n%s", n, markdown)
	}
}

func TestIdleStreamVerdicts(t *testing.T) {
	for _, test := range []struct {
		growth uint64 // bytes, of 1000 streams
		misses int
	}{{5 << 20, 0}, {7 << 20, 1}} {
		r := streamsResult{Proxy: "weft", Streams: 1000}
		r.Before.Resident, r.Open.Resident = 10<<20, 10<<20+test.growth
		page := &report{wefts: []string{"weft"}, Streams: []streamsResult{r}}
		page.fillVerdicts()
		if got := page.missedCount(); got != test.misses {
			t.Errorf("%.2f KB per stream: %d targets missed, want %d", r.perStream(), got, test.misses)
		}
	}
}
