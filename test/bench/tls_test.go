package main

import (
	"testing"
	"time"
)

// TestPeersServeTLS verifies that nginx and haproxy, if installed, serve a short load of every TLS
// row.
func TestPeersServeTLS(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "nginx,haproxy", "-install=false")
	if len(env.programs) == 0 {
		t.Skip("SKIPPED: neither nginx nor haproxy is installed")
	}
	for _, r := range tlsRows() {
		for _, p := range env.programs {
			running, err := env.start(t.Context(), p, r)
			if err != nil {
				t.Errorf("row %s: %v", r.name, err)
				continue
			}
			job := env.job(r, running.Listen, running.PIDs)
			job.Warmup, job.Measure = 0, 200*time.Millisecond
			if result, err := env.load(t.Context(), job); err != nil || result.Requests == 0 {
				t.Errorf("row %s, %s: %d responses, %v; want responses and no error", r.name, p.Name, result.Requests, err)
			}
			running.Stop()
		}
	}
}
