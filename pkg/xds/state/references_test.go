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
	s, ref := newState(), resource.SecretRef{Name: "s"}
	setFile := func(names ...string) {
		static := &bootstrap.StaticResources{}
		for _, name := range names {
			static.Secrets = append(static.Secrets, bootstrap.StaticResource{Name: name})
		}
		s.setStaticNames(static)
	}
	checkRequested := func(label string, want bool) {
		t.Helper()
		s.TakeSubscriptionChanges()
		if got := s.references.secrets.isRequested(ref); got != want {
			t.Errorf("%s: isRequested = %t, want %t", label, got, want)
		}
		if s.dependents.clusterSecrets[ref] == nil {
			t.Errorf("%s: the secret has no dependents, want the clusters that refer to it", label)
		}
	}
	checkChange := func(label string, added, removed bool) {
		t.Helper()
		got := s.TakeSubscriptionChanges().Secrets
		if slices.Contains(got.Added, ref) != added || slices.Contains(got.Removed, ref) != removed {
			t.Errorf("%s: subscription changes %+v, want added %t, removed %t", label, got, added, removed)
		}
	}
	setFile("s")
	applyResource(t, s, xdstest.Cluster("c", "", "s", 0), time.Now())
	checkRequested("secret in the file", false)
	setFile()
	checkChange("secret removed from the file", true, false)
	checkRequested("after the removal", true)
	setFile("s", "other")
	checkChange("secret added to the file again", false, true)
	checkRequested("after the addition", false)
	s.Checkpoint()
	setFile()
	s.Rollback()
	checkRequested("removal rolled back", false)
}
