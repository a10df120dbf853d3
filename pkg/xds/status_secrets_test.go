package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// dumpedSecrets returns the secrets in the dump of s, as "name version".
func dumpedSecrets(t *testing.T, s *Source) (secrets []string) {
	t.Helper()
	configDump, _ := dump(t, s, status.DumpOptions{})
	for _, section := range configDump.GetConfigs() {
		m := &adminv3.SecretsConfigDump{}
		if section.MessageIs(m) && section.UnmarshalTo(m) == nil {
			for _, secret := range m.GetDynamicActiveSecrets() {
				secrets = append(secrets, secret.GetName()+" "+secret.GetVersionInfo())
				if secret.GetSecret() == nil {
					t.Errorf("secret %s has no body", secret.GetName())
				}
			}
		}
	}
	return secrets
}

// TestSecretsOfSeveralSourcesInStatus verifies that the status reports secrets with the same name
// from several sources separately.
func TestSecretsOfSeveralSourcesInStatus(t *testing.T) {
	b := xdstest.Bootstrap("DELTA_GRPC")
	clusters := []string{xdstest.ControlPlaneJSON}
	for _, name := range []string{"a", "b"} {
		clusters = append(clusters, strings.ReplaceAll(xdstest.ControlPlaneJSON, `"control"`, `"`+name+`"`))
	}
	b.StaticResources = xdstest.StaticResourcesJSON(clusters, nil, nil)
	s, _ := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWithoutClusters(t, s)
	respondWith(t, s, xdstest.SecuredListener("l1", "own", "a"), xdstest.SecuredListener("l2", "own", "b"), xdstest.Routes("r", "text"))
	if len(s.channels) != 3 {
		t.Fatalf("%d channels, want those of the control plane, a and b", len(s.channels))
	}
	secret := xdstest.Secret("own", testpki.New(t).Issue(testpki.Spec{}))
	respond := func(ch *channel, version string, body []byte) {
		s.handleEvent(t.Context(), event{channel: ch, response: &ads.Response{
			Type: resource.SecretType, Version: version, Nonce: "n", Resources: []ads.Resource{{Name: secret.Name, Body: body}},
		}})
	}
	for i, ch := range s.channels[1:] {
		s.handleEvent(t.Context(), event{channel: ch, opened: true})
		respond(ch, []string{"1", "2"}[i], secret.Body)
	}
	if got := dumpedSecrets(t, s); !slices.Equal(got, []string{"own 1", "own 2"}) {
		t.Errorf("the dump has the secrets %q, want both", got)
	}
	respond(s.channels[1], "3", append(slices.Clone(secret.Body), 0xff))
	for i, want := range []int{0, 1, 0} {
		types := s.Status().ControlPlanes[i].Types
		if got := len(types[len(types)-1].RejectedResources); got != want {
			t.Errorf("control plane %d: %d rejected secrets, want %d", i, got, want)
		}
	}
	if got := dumpedSecrets(t, s); !slices.Equal(got, []string{"own 1", "own 2"}) {
		t.Errorf("the dump has the secrets %q, want both", got)
	}
}

// TestRemovedSecretStaysInStatus verifies that a secret that the control plane has removed stays in
// the dump and in CSDS while a listener uses it.
func TestRemovedSecretStaysInStatus(t *testing.T) {
	s, active := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWithoutClusters(t, s)
	respondWith(t, s, xdstest.Listener("l", 80, "r", "s", 0), xdstest.Routes("r", "text"), xdstest.Secret("s", testpki.New(t).Issue(testpki.Spec{})))
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{Type: resource.SecretType, Version: "2", Nonce: "n", Removed: []string{"s"}}})
	if len(active.Listeners) != 1 {
		t.Fatal("the listener is not active after the removal of its secret")
	}
	if got := dumpedSecrets(t, s); !slices.Equal(got, []string{"s 1"}) {
		t.Errorf("the dump has the secrets %q, want the one in use", got)
	}
	if r := byName(s.statusSnapshot().ClientConfig(true))["Secret s"]; r.GetClientStatus() != adminv3.ClientResourceStatus_DOES_NOT_EXIST || r.GetVersionInfo() != "1" || r.GetXdsConfig() == nil {
		t.Errorf("CSDS reports %v, want a removed secret with the version in use", r)
	}
	respondWith(t, s, xdstest.Listener("l", 80, "r", "", 0))
	if got := dumpedSecrets(t, s); len(got) != 0 {
		t.Errorf("the dump has the secrets %q, want none in use", got)
	}
}
