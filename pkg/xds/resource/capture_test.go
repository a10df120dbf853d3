package resource

import (
	"os"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/cors"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
)

func testCapabilities() Capabilities {
	return Capabilities{Filters: []filter.StreamFilterFactory{cors.Factory(), fault.Factory(), jwtauthn.Factory(), mirror.Factory(), rbac.Factory()}, ConnectionFilters: []filter.ConnectionFilterFactory{rbac.ConnectionFactory()}}
}

// capturedResources returns the resources of a response that a real istiod sent.
func capturedResources(t testing.TB, name string) (bodies [][]byte) {
	t.Helper()
	b, err := os.ReadFile("testdata/istiod/" + name)
	if err != nil {
		t.Fatal(err)
	}
	m := &discoveryv3.DiscoveryResponse{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.GetResources() {
		bodies = append(bodies, r.GetValue())
	}
	if len(bodies) == 0 {
		t.Fatalf("%s has no resources", name)
	}
	return bodies
}

// TestIstiodResourcesAreAccepted verifies that Weft accepts the resources of a real control plane.
func TestIstiodResourcesAreAccepted(t *testing.T) {
	for name, read := range map[string]func(body []byte) ([]string, error){
		"01-CDS.pb": func(b []byte) ([]string, error) {
			c, err := ReadCluster(b, Capabilities{})
			if err != nil {
				return nil, err
			}
			return c.Ignored, nil
		},
		"02-LDS.pb": func(b []byte) ([]string, error) {
			l, err := ReadListener(b, testCapabilities())
			if err != nil {
				return nil, err
			}
			return l.Ignored, nil
		},
		"03-EDS.pb": func(b []byte) ([]string, error) {
			a, err := ReadLoadAssignment(b, Capabilities{})
			if err != nil {
				return nil, err
			}
			return a.Ignored, nil
		},
		"04-RDS.pb": func(b []byte) ([]string, error) {
			r, err := ReadRoutes(b, testCapabilities())
			if err != nil {
				return nil, err
			}
			return r.Ignored, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, body := range capturedResources(t, name) {
				resourceName, _ := Name(body)
				ignored, err := read(body)
				if err != nil {
					t.Errorf("%s: %v", resourceName, err)
					continue
				}
				t.Logf("%s ignores %q", resourceName, ignored)
			}
		})
	}
}
