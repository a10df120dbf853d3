package resource

import (
	"os"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// capture returns the resources of a response that a real istiod sent.
func capture(t *testing.T, name string) (bodies [][]byte) {
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

// What a real control plane sends is accepted, all of it.
func TestIstiodIsAccepted(t *testing.T) {
	for name, read := range map[string]func(body []byte) (any, []string, error){
		"01-CDS.pb": func(b []byte) (any, []string, error) {
			c, err := ReadCluster(b)
			if err != nil {
				return nil, nil, err
			}
			return c.Config, c.Ignored, nil
		},
		"03-EDS.pb": func(b []byte) (any, []string, error) {
			a, err := ReadEndpoints(b)
			if err != nil {
				return nil, nil, err
			}
			return a, a.Ignored, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, body := range capture(t, name) {
				got, ignored, err := read(body)
				if err != nil {
					t.Errorf("resource %d: %v", i, err)
					continue
				}
				_ = got
				t.Logf("ignored %v", ignored)
			}
		})
	}
}
