package conformance

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSlowClientsDoNotDelayOthers opens hundreds of slowhttptest connections that send a head or a
// body too slowly. It verifies that Weft closes all of these connections after its timeouts, here 2
// s each, and serves other clients in the meantime.
func TestSlowClientsDoNotDelayOthers(t *testing.T) {
	program := requireTool(t, "slowhttptest", "slowhttptest")
	const limit = 2 * time.Second
	for _, attack := range []struct {
		name string
		args []string
	}{
		{"heads", []string{"-H", "-i", "1", "-x", "8"}},
		{"bodies", []string{"-B", "-i", "1", "-x", "8", "-s", "100000"}},
		{"body without bytes", []string{"-B", "-i", "60", "-s", "100000"}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			slow := plain()
			slow.HeadTimeout, slow.BodyTimeout, slow.timeout = limit, limit, limit
			front := serve(t, slow.snapshot("127.0.0.1:0", startOrigin(t, readAll)))
			args := append([]string{"-c", "300", "-r", "300", "-l", "15", "-p", "3", "-u", "http://" + front + "/"}, attack.args...)
			var report string
			var err error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				report, err = output(t.Context(), program, args...)
			}()
			latencies := sendRequestsUntil(t, front, ended)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(latencies)
			median, slowest := latencies[len(latencies)/2], latencies[len(latencies)-1]
			last := lastStatus(report)
			t.Logf("%d other requests took %v in the median and %v at most; %s", len(latencies), median, slowest, last)
			if !strings.Contains(last, "No open connections left") {
				t.Errorf("Weft did not close the slow connections")
			}
			if !strings.Contains(last, "service available: YES") {
				t.Errorf("slowhttptest reports that other clients are not served")
			}
			if median > limit/4 {
				t.Errorf("median latency of other clients = %v, want at most %v", median, limit/4)
			}
		})
	}
}

// readAll responds after it has read the request body.
func readAll(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "ok") // the client may have disconnected
}

// lastStatus returns the final status of slowhttptest, without colors.
func lastStatus(out string) string {
	out = regexp.MustCompile(`\x1b\[[\d;]*m`).ReplaceAllString(out, "")
	i := strings.LastIndex(out, "slow HTTP test status")
	return strings.Join(strings.Fields(out[max(i, 0):]), " ")
}

// sendRequestsUntil sends requests, each over a new connection, until ended is closed. It returns
// their latencies.
func sendRequestsUntil(t *testing.T, front string, ended <-chan struct{}) (latencies []time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return latencies
		case <-tick.C:
		}
		start := time.Now()
		h := &harness{TB: t, client: dial(t, front)}
		_ = h.client.SetDeadline(start.Add(toolTimeout)) // hundreds of connections compete for the CPU
		h.write(h.client, requestStart+"Connection: close\r\n\r\n")
		if got, _ := h.readToEnd("the client", h.client); !strings.HasSuffix(got, "\r\n\r\nok") {
			t.Errorf("another client got\n%s", quote(got))
		}
		h.closeConnections()
		latencies = append(latencies, time.Since(start))
	}
}
