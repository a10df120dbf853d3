package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestStaticSecretsAreNotRequested verifies that a secret is not requested while the file defines
// it.
func TestStaticSecretsAreNotRequested(t *testing.T) {
	w, ref := newState(), resource.SecretRef{Name: "s"}
	file := func(names ...string) {
		x := &bootstrap.StaticResources{}
		for _, name := range names {
			x.Secrets = append(x.Secrets, bootstrap.StaticResource{Name: name})
		}
		w.setStaticNames(x)
	}
	asks := func(when string, want bool) {
		t.Helper()
		w.TakeSubscriptionChanges()
		if got := w.references.secrets.isRequested(ref); got != want {
			t.Errorf("%s: subscribed = %t, want %t", when, got, want)
		}
		if w.dependents.clusterSecrets[ref] == nil {
			t.Errorf("%s: the references to the secret are not recorded", when)
		}
	}
	says := func(when string, more, less bool) {
		t.Helper()
		got := w.TakeSubscriptionChanges().Secrets
		if slices.Contains(got.Added, ref) != more || slices.Contains(got.Removed, ref) != less {
			t.Errorf("%s: subscription changes %+v, want added %t, removed %t", when, got, more, less)
		}
	}
	file("s")
	applyResource(t, w, xdstest.Cluster("c", "", "s", 0), time.Now())
	asks("the file has it", false)
	file()
	says("it has it no longer", true, false)
	asks("from then on", true)
	file("s", "other")
	says("it has it again", false, true)
	asks("from then on", false)
	w.Checkpoint()
	file()
	w.Rollback()
	asks("what is taken away is taken back", false)
}
