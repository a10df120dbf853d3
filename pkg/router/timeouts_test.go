package router

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestTimeoutHeadersRequireTrust(t *testing.T) {
	f := &config.Forward{Cluster: "c", Timeout: time.Second, Retry: &config.RetryPolicy{PerTryTimeout: 100 * time.Millisecond}}
	x := request("GET", "a.test", "/", GlobalTimeoutHeader, "86400000", TryTimeoutHeader, "1")
	r := compileAndMatch(t, &config.Route{Forward: f}, x)
	if global, perTry := r.Timeouts(x); global != time.Second || perTry != 100*time.Millisecond {
		t.Errorf("Timeouts = %v, %v, want the route's 1s, 100ms", global, perTry)
	}
	if global, perTry := r.WithTimeoutHeaders().Timeouts(x); global != 24*time.Hour || perTry != time.Millisecond {
		t.Errorf("Timeouts of a trusted client = %v, %v, want the request's 24h, 1ms", global, perTry)
	}
	if global, _ := r.Timeouts(x); global != time.Second {
		t.Errorf("Timeouts = %v, want 1s: WithTimeoutHeaders must not change the route", global)
	}
}
