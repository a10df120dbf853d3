package cache

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// testCachedConfig returns a cached configuration that was received at the time said.
func testCachedConfig(said time.Time) *Contents {
	return &Contents{ReceivedAt: said, Resources: []ads.Update{
		{Type: resource.ClusterType, Changed: []ads.Resource{{Name: "a", Version: "1", Body: []byte("x")}, {Name: "b", Body: []byte{0, 255}}}},
		{Type: resource.RouteType},
	}}
}

func TestCacheFileRoundTrip(t *testing.T) {
	said := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	s := &file{dir: filepath.Join(t.TempDir(), "made", "here"), owner: Owner{"n", "c", "control"}}
	if _, err := s.load(said, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before anything was saved: %v, want %v", err, fs.ErrNotExist)
	}
	for range 2 { // the second save replaces the first
		if err := s.save(testCachedConfig(said)); err != nil {
			t.Fatal(err)
		}
	}
	g, err := s.load(said.Add(time.Hour), time.Hour)
	if err != nil || !reflect.DeepEqual(g, testCachedConfig(said)) {
		t.Errorf("load() = %+v, %v, want the saved contents", g, err)
	}
	names, err := filepath.Glob(s.dir + "/*")
	if err != nil || len(names) != 1 {
		t.Errorf("files in the directory: %v, want one", names)
	}
	for path, want := range map[string]fs.FileMode{s.path(): 0o600, s.dir: fs.ModeDir | 0o700} {
		if i, err := os.Stat(path); err != nil || i.Mode() != want {
			t.Errorf("%s has the mode %v, %v, want %v", path, i.Mode(), err, want)
		}
	}
	if err := (&file{dir: s.path()}).save(g); err == nil {
		t.Error("save to a path below a file = nil error, want an error")
	}
}

func TestCacheFileRejectsInvalidFiles(t *testing.T) {
	who, said := Owner{"n", "c", "control"}, time.Now()
	good, err := testCachedConfig(said).encode(who)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		file   []byte
		who    Owner
		maxAge time.Duration
		want   string
	}{
		{"nothing", nil, who, 0, "not an xDS cache of this version"},
		{"foreign file", []byte("hello\nworld\n"), who, 0, "not an xDS cache of this version"},
		{"unsupported version", bytes.Replace(good, []byte("weft-xds 1"), []byte("weft-xds 2"), 1), who, 0, "not an xDS cache of this version"},
		{"invalid header", []byte(magic + "{\n"), who, 0, "malformed header"},
		{"truncated", good[:len(good)-1], who, 0, "the file is damaged"},
		{"longer", append(bytes.Clone(good), 0), who, 0, "the file is damaged"},
		{"flipped bit", flipLastByte(good), who, 0, "the file is damaged"},
		{"another node", good, Owner{"m", "c", "control"}, 0, `saved for node "n"`},
		{"another control plane", good, Owner{"n", "c", "other"}, 0, `control plane "control", expected node`},
		{"too old", good, who, time.Minute, "the resources were received 1h0m0s ago, but the maximum age is 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &file{dir: t.TempDir(), owner: c.who}
			if err := os.WriteFile(s.path(), c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.load(said.Add(time.Hour), c.maxAge); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), s.path()) {
				t.Errorf("load() = %v, want an error with the path and %q", err, c.want)
			}
		})
	}
}

func flipLastByte(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-3] ^= 1
	return b
}

func FuzzParseCachedConfig(f *testing.F) {
	who := Owner{"n", "c", "control"}
	good, err := testCachedConfig(time.Unix(1, 0).UTC()).encode(who)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parse(b, who)
		if err != nil {
			return
		}
		again, err := g.encode(who)
		if err != nil {
			t.Skip() // a name is not valid UTF-8
		}
		if back, err := parse(again, who); err != nil || !reflect.DeepEqual(back, g) {
			t.Errorf("parse after format of %+v = %+v, %v", g, back, err)
		}
	})
}
