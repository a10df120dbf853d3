package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestDubboRoutesHaveTheirOwnNamespace verifies that an HTTP and a Dubbo route resource can have
// the same name.
func TestDubboRoutesHaveTheirOwnNamespace(t *testing.T) {
	now, w := time.Now(), newState()
	names := func() (all []string) {
		for _, r := range w.Snapshot(&config.Snapshot{}).Routes {
			all = append(all, displayTableName(r.Name))
		}
		return all
	}
	applyResource(t, w, xdstest.Listener("http", 80, "r", "", 0), now)
	applyResource(t, w, xdstest.DubboListener("dubbo", "r", 0), now)
	applyResource(t, w, xdstest.Routes("r", "text"), now)
	w.Reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("active routes: %q, want those of HTTP", got)
	}
	if waits := w.Warming(); len(waits) != 1 || waits[0].Name != "dubbo" || !slices.Equal(waits[0].Missing, []string{"routes r of Dubbo"}) {
		t.Errorf("what waits is %+v", waits)
	}
	applyResource(t, w, xdstest.DubboRoutes("r", "c"), now)
	w.Reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r of Dubbo", "r"}) {
		t.Errorf("active routes: %q, want both", got)
	}
	if http, dubbo := splitTables(w.referenced().tables); !slices.Equal(http, []string{"r"}) || !slices.Equal(dubbo, []string{"r"}) {
		t.Errorf("wanted are %q of HTTP and %q of Dubbo", http, dubbo)
	}
}
