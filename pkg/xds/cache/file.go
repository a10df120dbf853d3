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
	Resources  []ads.Update // one for each type; only Type and Changed are set
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
	Length     int       `json:"length"` // bytes after the header
	SHA256     string    `json:"sha256"` // SHA-256 of the bytes after the header, in hexadecimal
}

// encode returns the contents of the cache file for c.
func (c *Contents) encode(owner Owner) ([]byte, error) {
	var body []byte
	for _, u := range c.Resources {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: u.Type}
		for _, r := range u.Changed {
			m.Resources = append(m.Resources, &discoveryv3.Resource{
				Name: r.Name, Version: r.Version, Resource: &anypb.Any{TypeUrl: u.Type, Value: r.Body},
			})
		}
		response, err := proto.Marshal(m)
		if err != nil {
			return nil, err
		}
		body = protowire.AppendBytes(body, response)
	}
	sum := sha256.Sum256(body)
	header, err := json.Marshal(header{Owner: owner, ReceivedAt: c.ReceivedAt.UTC(), Length: len(body), SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(magic), header, []byte{'\n'}, body), nil
}

// parse parses a cache file. It fails if the file is incomplete or has another owner.
func parse(b []byte, owner Owner) (*Contents, error) {
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	line, body, found := bytes.Cut(rest, []byte{'\n'})
	if !ok || !found {
		return nil, errors.New("the file is not an xDS cache of this version of Weft")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("malformed header: %w", err)
	}
	if h.Owner != owner {
		return nil, fmt.Errorf("the file was saved for node %q of cluster %q and control plane %q, expected node %q of cluster %q and control plane %q", h.Node, h.Cluster, h.ControlPlane, owner.Node, owner.Cluster, owner.ControlPlane)
	}
	if sum := sha256.Sum256(body); len(body) != h.Length || hex.EncodeToString(sum[:]) != h.SHA256 {
		return nil, fmt.Errorf("the file is damaged: found %d bytes of resources that do not match the checksum, expected %d", len(body), h.Length)
	}
	c := &Contents{ReceivedAt: h.ReceivedAt}
	for len(body) > 0 {
		response, n := protowire.ConsumeBytes(body)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		body = body[n:]
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := proto.Unmarshal(response, m); err != nil {
			return nil, err
		}
		u := ads.Update{Type: m.GetTypeUrl()}
		for _, r := range m.GetResources() {
			u.Changed = append(u.Changed, ads.Resource{Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource().GetValue()})
		}
		c.Resources = append(c.Resources, u)
	}
	return c, nil
}

// file is the xDS cache file in a directory. One goroutine may save while another loads.
type file struct {
	dir   string
	owner Owner
}

func (f *file) path() string { return filepath.Join(f.dir, "resources") }

// save replaces the file atomically. It creates the directory if needed. Only the user that runs
// Weft may read the directory and the file.
func (f *file) save(c *Contents) (err error) {
	b, err := c.encode(f.owner)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	newPath := f.path() + ".new"
	w, err := os.OpenFile(newPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if err = errors.Join(err, w.Sync(), w.Close()); err == nil {
		err = os.Rename(newPath, f.path())
	}
	if err != nil {
		return errors.Join(err, os.Remove(newPath))
	}
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // makes the rename durable
}

// load implements Cache.Load.
func (f *file) load(now time.Time, maxAge time.Duration) (*Contents, error) {
	b, err := os.ReadFile(f.path())
	if err != nil {
		return nil, err
	}
	c, err := parse(b, f.owner)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(), err)
	}
	if age := now.Sub(c.ReceivedAt); maxAge > 0 && age > maxAge {
		return nil, fmt.Errorf("%s: the resources were received %v ago, but the maximum age is %v", f.path(), age.Round(time.Second), maxAge)
	}
	return c, nil
}
