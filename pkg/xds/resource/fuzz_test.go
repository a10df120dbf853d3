package resource

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// most is how many hosts, names and reasons an input of so many bytes can have: each takes
// a byte at least. What is read of a resource does not grow beyond what was sent.
func most(body []byte) int { return len(body) + 16 }

func FuzzReadCluster(f *testing.F) {
	seed(f, 0, "01-CDS.pb")
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ReadCluster(body, Kinds{})
		if err != nil {
			bounded(t, body, err)
			return
		}
		if c.Config.Name == "" || c.Config.Policy == "" || c.Config.Type == "" {
			t.Errorf("a cluster is accepted without a name, policy or type: %+v", c.Config)
		}
		if c.Config.ConnectTimeout > longest || c.EndpointTimeout > longest {
			t.Errorf("times are %v and %v", c.Config.ConnectTimeout, c.EndpointTimeout)
		}
		made, ok := c.With(nil, nil)
		if ok && len(made.Hosts) > most(body) || len(c.Sockets) > most(body) {
			t.Errorf("%d bytes became %d hosts and %d sockets", len(body), len(made.Hosts), len(c.Sockets))
		}
		if !ok && len(c.Secrets()) == 0 {
			t.Error("a cluster without secrets misses one")
		}
	})
}

func FuzzReadEndpoints(f *testing.F) {
	seed(f, 1, "03-EDS.pb")
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := ReadEndpoints(body, Kinds{})
		if err != nil {
			bounded(t, body, err)
			return
		}
		seen := map[string]bool{}
		for _, h := range a.Hosts {
			if h.Address == "" || h.Weight == 0 || h.Priority > mostPriority || seen[h.Address] {
				t.Errorf("a host is accepted as %+v", h)
			}
			seen[h.Address] = true
		}
		if len(a.Hosts)+len(a.Localities)+len(a.Drops) > most(body) {
			t.Errorf("%d bytes became %d hosts", len(body), len(a.Hosts))
		}
	})
}

func FuzzReadSecret(f *testing.F) {
	seed(f, 2, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := ReadSecret(body, Kinds{})
		if err != nil {
			bounded(t, body, err)
			return
		}
		if s.Certificate.Path+s.Certificate.Text == "" && s.Authorities.Path+s.Authorities.Text == "" {
			t.Error("a secret is accepted that is neither a certificate nor authorities")
		}
	})
}

// bounded fails if the reason for which a resource is refused is much larger than it.
func bounded(t *testing.T, body []byte, err error) {
	t.Helper()
	if n := len(err.Error()); n > 1000*most(body) {
		t.Errorf("the rejection of %d bytes has %d bytes", len(body), n)
	}
}

// seed adds the cases of a reader's file in testdata, and resources that a real istiod
// sent.
func seed(f *testing.F, which int, captured string) {
	f.Helper()
	r := readers()[which]
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
	for _, body := range capture(f, captured) {
		f.Add(body)
	}
}
