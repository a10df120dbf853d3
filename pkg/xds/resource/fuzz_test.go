package resource

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// maxItems returns an upper bound for the number of hosts, or of other items, in an input. Each
// item takes at least one byte.
func maxItems(body []byte) int { return len(body) + 16 }

func FuzzReadCluster(f *testing.F) {
	addSeeds(f, 0, "01-CDS.pb")
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ReadCluster(body, Capabilities{})
		if err != nil {
			checkReasonSize(t, body, err)
			return
		}
		if c.Config.Name == "" || c.Config.LBPolicy == "" || c.Config.Type == "" {
			t.Errorf("accepted cluster %+v, want a name, a policy and a type", c.Config)
		}
		if c.Config.ConnectTimeout > maxDuration || c.InitialFetchTimeout > maxDuration {
			t.Errorf("timeouts %v and %v, want at most %v", c.Config.ConnectTimeout, c.InitialFetchTimeout, maxDuration)
		}
		resolved, ok := c.Resolve(nil, nil)
		if ok && len(resolved.Hosts) > maxItems(body) || len(c.TransportSocketMatches) > maxItems(body) {
			t.Errorf("%d bytes became %d hosts and %d sockets, want at most %d", len(body), len(resolved.Hosts), len(c.TransportSocketMatches), maxItems(body))
		}
		if !ok && len(c.Secrets()) == 0 {
			t.Error("Resolve reports a missing secret for a cluster without secrets")
		}
	})
}

func FuzzReadLoadAssignment(f *testing.F) {
	addSeeds(f, 1, "03-EDS.pb")
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := ReadLoadAssignment(body, Capabilities{})
		if err != nil {
			checkReasonSize(t, body, err)
			return
		}
		seen := map[string]bool{}
		for _, h := range a.Endpoints {
			if h.Address == "" || h.Weight == 0 || h.Priority > maxPriority || seen[h.Address] {
				t.Errorf("accepted host %+v, want a unique address, a weight and a valid priority", h)
			}
			seen[h.Address] = true
		}
		if len(a.Endpoints)+len(a.Localities)+len(a.DropOverloads) > maxItems(body) {
			t.Errorf("%d bytes became %d hosts, localities and drops; want at most %d", len(body), len(a.Endpoints)+len(a.Localities)+len(a.DropOverloads), maxItems(body))
		}
	})
}

func FuzzReadSecret(f *testing.F) {
	addSeeds(f, 2, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := ReadSecret(body, Capabilities{})
		if err != nil {
			checkReasonSize(t, body, err)
			return
		}
		if s.Certificate.Path+s.Certificate.Text == "" && s.TrustedCA.Path+s.TrustedCA.Text == "" {
			t.Error("ReadSecret accepted a secret without a certificate and without a trusted CA")
		}
	})
}

// checkReasonSize fails if the rejection of a resource is much larger than the resource.
func checkReasonSize(t *testing.T, body []byte, err error) {
	t.Helper()
	if n := len(err.Error()); n > 1000*maxItems(body) {
		t.Errorf("the rejection of %d bytes has %d bytes, want at most %d", len(body), n, 1000*maxItems(body))
	}
}

// addSeeds adds the cases of a reader's file in testdata, and resources that a real istiod sent.
func addSeeds(f *testing.F, index int, captured string) {
	f.Helper()
	r := readers()[index]
	text, err := os.ReadFile("testdata/" + r.name + ".txt")
	if err != nil {
		f.Fatal(err)
	}
	pems := pems(f)
	for _, c := range cases(f, string(text)) {
		m := r.message()
		if err := protojson.Unmarshal([]byte(pems.Replace(c.in)), m); err != nil {
			f.Fatalf("%s: %v", strings.TrimSpace(c.name), err)
		}
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	if captured == "" {
		return
	}
	for _, body := range capturedResources(f, captured) {
		f.Add(body)
	}
}
