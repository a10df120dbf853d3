package state

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

func TestInitTargets(t *testing.T) {
	now := time.Now()
	s := newState()
	s.runtime = layeredRuntime{layers: []bootstrap.RuntimeLayer{{Name: "layer", Resource: "one"}}, startedAt: now}
	applyResource(t, s, xdstest.FilteredListener("waits", "r", 0, "x"), now)
	applyResource(t, s, xdstest.Listener("secure", 81, "r", "cert", 0), now)
	s.Reconcile(now)
	check := func(all bool, want ...InitTargets) {
		t.Helper()
		if diff := cmp.Diff(want, s.InitTargets(all), cmpopts.IgnoreFields(InitTargets{}, "Version"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("InitTargets(%t) (-want +got):\n%s", all, diff)
		}
	}
	waits := InitTargets{Listener: "waits", Targets: []string{
		"shared target RdsRouteConfigSubscription RDS init r", "shared target FilterConfigSubscription init x", "target RTDS one",
	}}
	secure := InitTargets{Listener: "secure", Targets: []string{"shared target RdsRouteConfigSubscription RDS init r", "target RTDS one", "shared target SdsApi cert"}}
	check(false, secure, waits)
	check(true, secure, waits)
	if v := s.InitTargets(false); v[0].Version == v[1].Version {
		t.Errorf("two listeners have the version %d", v[0].Version)
	}

	s = newState()
	applyResource(t, s, xdstest.Listener("active", 80, "r", "", 0), now)
	applyResource(t, s, xdstest.FractionRoutes("r"), now)
	s.Reconcile(now)
	check(false)
	check(true, InitTargets{Listener: "active"})
}
