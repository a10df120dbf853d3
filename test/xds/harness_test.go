package xds

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// harnessBinary builds go-control-plane's test harness at the version that the module in harness
// pins, and returns its path.
var harnessBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binariesDir, "harness")
	return path, subject.Build("harness", "github.com/envoyproxy/go-control-plane/pkg/test/main", path)
})

// TestHarness verifies that Weft passes go-control-plane's test harness. The harness pushes three
// versions, each with different names of clusters, endpoints, routes and listeners, and passes if
// all listeners respond after each. The test omits what Weft rejects: scoped routes, VHDS, and
// resources outside of ADS (the modes xds and delta).
func TestHarness(t *testing.T) {
	harness, err := harnessBinary()
	if err != nil {
		t.Skipf("cannot build the harness, its modules may be unavailable: %v", err)
	}
	for i, test := range []struct{ name, mode, apiType string }{
		{"state of the world", "ads", "GRPC"},
		{"delta", "delta-ads", "DELTA_GRPC"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			port := 22_000 + os.Getpid()%400*20 + i*10 // on the machine's loopback address: the harness supports no other address
			ln, err := net.Listen("tcp", loopback(port))
			if err != nil {
				t.Fatal(err)
			}
			serveAs(t, ln, "Default message")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, harness, "-xds", test.mode, "-u", "3", "-r", "10", "-delay", "200ms", "-scopedhttp", "0", "-vhdshttp", "0",
				"-upstream", strconv.Itoa(port), "-port", strconv.Itoa(port+1), "-gateway", strconv.Itoa(port+2), "-als", strconv.Itoa(port+3),
				"-base", strconv.Itoa(port+4), "-http", "3", "-tcp", "3")
			log := subject.NewLogBuffer()
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			startWeft(t, bootstrap(test.apiType, loopback(port+1), newHost()+":9901"), nil)
			if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "passed!") {
				t.Errorf("the harness failed: %v, want the output \"passed!\"\n%s", err, log)
			}
		})
	}
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
