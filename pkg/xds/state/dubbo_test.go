package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestDubboRoutesHaveTheirOwnNamespace verifies that an HTTP and a Dubbo route resource can have
// the same name.
func TestDubboRoutesHaveTheirOwnNamespace(t *testing.T) {
	now, s := time.Now(), newState()
	names := func() (list []string) {
		for _, r := range xdstest.Snapshot(s).Routes {
			list = append(list, displayTableName(r.Name))
		}
		return list
	}
	applyResource(t, s, xdstest.Listener("http", 80, "r", "", 0), now)
	applyResource(t, s, xdstest.DubboListener("dubbo", "r", 0), now)
	applyResource(t, s, xdstest.Routes("r", "text"), now)
	s.Reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("active tables: %q, want only the HTTP table", got)
	}
	if warming := s.Warming(); len(warming) != 1 || warming[0].Name != "dubbo" || !slices.Equal(warming[0].Missing, []string{"routes r (Dubbo)"}) {
		t.Errorf("Warming() = %+v, want the listener dubbo, which waits for routes r (Dubbo)", warming)
	}
	applyResource(t, s, xdstest.DubboRoutes("r", "c"), now)
	s.Reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r (Dubbo)", "r"}) {
		t.Errorf("active tables: %q, want the Dubbo table r and the HTTP table r", got)
	}
	if http, dubbo := splitTables(s.referenced().tables); !slices.Equal(http, []string{"r"}) || !slices.Equal(dubbo, []string{"r"}) {
		t.Errorf("referenced tables: HTTP %q, Dubbo %q; want r and r", http, dubbo)
	}
}
