package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// Contents is the last accepted configuration of a control plane.
type Contents struct {
	ReceivedAt time.Time
	Resources  []ads.Update // by type; only Type and Changed are set
}

// Owner identifies the node and the control plane of a cached configuration.
type Owner struct {
	Node         string `json:"node"`
	Cluster      string `json:"cluster"` // node.cluster
	ControlPlane string `json:"control_plane"`
}

// A cache file consists of magic and a header as JSON, one line each, and of
// DeltaDiscoveryResponses, each after its length as a varint.
const magic = "weft-xds 1\n"

type header struct {
	Owner

	ReceivedAt time.Time `json:"said"`
	Length     int       `json:"length"` // length of the rest in bytes
	SHA256     string    `json:"sha256"` // SHA-256 of the rest in hexadecimal
}

// encode returns the contents of the cache file for g.
func (g *Contents) encode(who Owner) ([]byte, error) {
	var body []byte
	for _, u := range g.Resources {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: u.Type}
		for _, n := range u.Changed {
			m.Resources = append(m.Resources, &discoveryv3.Resource{
				Name: n.Name, Version: n.Version, Resource: &anypb.Any{TypeUrl: u.Type, Value: n.Body},
			})
		}
		one, err := proto.Marshal(m)
		if err != nil {
			return nil, err
		}
		body = protowire.AppendBytes(body, one)
	}
	sum := sha256.Sum256(body)
	header, err := json.Marshal(header{Owner: who, ReceivedAt: g.ReceivedAt.UTC(), Length: len(body), SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(magic), header, []byte{'\n'}, body), nil
}

// parse parses a cache file. It fails if the file is incomplete or has another owner.
func parse(b []byte, who Owner) (*Contents, error) {
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	line, body, whole := bytes.Cut(rest, []byte{'\n'})
	if !ok || !whole {
		return nil, errors.New("the file is not an xDS cache of this version of Weft")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("malformed header: %w", err)
	}
	if h.Owner != who {
		return nil, fmt.Errorf("the file was saved for node %q of cluster %q and control plane %q, expected node %q of cluster %q and control plane %q", h.Node, h.Cluster, h.ControlPlane, who.Node, who.Cluster, who.ControlPlane)
	}
	if sum := sha256.Sum256(body); len(body) != h.Length || hex.EncodeToString(sum[:]) != h.SHA256 {
		return nil, fmt.Errorf("the file is damaged: found %d bytes of resources that do not match the checksum, expected %d", len(body), h.Length)
	}
	g := &Contents{ReceivedAt: h.ReceivedAt}
	for len(body) > 0 {
		one, n := protowire.ConsumeBytes(body)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		body = body[n:]
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := proto.Unmarshal(one, m); err != nil {
			return nil, err
		}
		u := ads.Update{Type: m.GetTypeUrl()}
		for _, r := range m.GetResources() {
			u.Changed = append(u.Changed, ads.Resource{Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource().GetValue()})
		}
		g.Resources = append(g.Resources, u)
	}
	return g, nil
}

// file is the xDS cache file in a directory. One goroutine may save while another loads.
type file struct {
	dir   string
	owner Owner
}

func (s *file) path() string { return filepath.Join(s.dir, "resources") }

// save replaces the file atomically. It creates the directory if needed; only the owner may read
// it.
func (s *file) save(g *Contents) (err error) {
	b, err := g.encode(s.owner)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	next := s.path() + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, s.path())
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // makes the rename durable
}

// load returns the configuration that was saved last. It fails with fs.ErrNotExist if there is no
// file, and also if the file is not usable, or older than maxAge at now. A maxAge of 0 means no
// limit.
func (s *file) load(now time.Time, maxAge time.Duration) (*Contents, error) {
	b, err := os.ReadFile(s.path())
	if err != nil {
		return nil, err
	}
	g, err := parse(b, s.owner)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(), err)
	}
	if age := now.Sub(g.ReceivedAt); maxAge > 0 && age > maxAge {
		return nil, fmt.Errorf("%s: the resources were received %v ago, but the maximum age is %v", s.path(), age.Round(time.Second), maxAge)
	}
	return g, nil
}
