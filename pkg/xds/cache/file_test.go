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

// testCachedConfig returns a cached configuration that was received at receivedAt.
func testCachedConfig(receivedAt time.Time) *Contents {
	return &Contents{ReceivedAt: receivedAt, Resources: []ads.Update{
		{Type: resource.ClusterType, Changed: []ads.Resource{{Name: "a", Version: "1", Body: []byte("x")}, {Name: "b", Body: []byte{0, 255}}}},
		{Type: resource.RouteType},
	}}
}

func TestCacheFileRoundTrip(t *testing.T) {
	receivedAt := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	f := &file{dir: filepath.Join(t.TempDir(), "new", "nested"), owner: Owner{"n", "c", "control"}}
	if _, err := f.load(receivedAt, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load before a save: %v, want %v", err, fs.ErrNotExist)
	}
	for range 2 { // the second save replaces the first
		if err := f.save(testCachedConfig(receivedAt)); err != nil {
			t.Fatal(err)
		}
	}
	contents, err := f.load(receivedAt.Add(time.Hour), time.Hour)
	if err != nil || !reflect.DeepEqual(contents, testCachedConfig(receivedAt)) {
		t.Errorf("load() = %+v, %v, want the saved contents", contents, err)
	}
	names, err := filepath.Glob(f.dir + "/*")
	if err != nil || len(names) != 1 {
		t.Errorf("files in the directory: %v, want one", names)
	}
	for path, want := range map[string]fs.FileMode{f.path(): 0o600, f.dir: fs.ModeDir | 0o700} {
		if i, err := os.Stat(path); err != nil || i.Mode() != want {
			t.Errorf("%s has the mode %v, %v, want %v", path, i.Mode(), err, want)
		}
	}
	if err := (&file{dir: f.path()}).save(contents); err == nil {
		t.Error("save to a path below a file = nil error, want an error")
	}
}

func TestCacheFileRejectsInvalidFiles(t *testing.T) {
	owner, receivedAt := Owner{"n", "c", "control"}, time.Now()
	valid, err := testCachedConfig(receivedAt).encode(owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		file   []byte
		owner  Owner
		maxAge time.Duration
		want   string
	}{
		{"empty", nil, owner, 0, "not an xDS cache of this version"},
		{"foreign file", []byte("hello\nworld\n"), owner, 0, "not an xDS cache of this version"},
		{"unsupported version", bytes.Replace(valid, []byte("weft-xds 1"), []byte("weft-xds 2"), 1), owner, 0, "not an xDS cache of this version"},
		{"invalid header", []byte(magic + "{\n"), owner, 0, "malformed header"},
		{"truncated", valid[:len(valid)-1], owner, 0, "the file is damaged"},
		{"longer", append(bytes.Clone(valid), 0), owner, 0, "the file is damaged"},
		{"flipped bit", flipBit(valid), owner, 0, "the file is damaged"},
		{"other node", valid, Owner{"m", "c", "control"}, 0, `saved for node "n"`},
		{"other control plane", valid, Owner{"n", "c", "other"}, 0, `control plane "control", expected node`},
		{"too old", valid, owner, time.Minute, "the resources were received 1h0m0s ago, but the maximum age is 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &file{dir: t.TempDir(), owner: c.owner}
			if err := os.WriteFile(f.path(), c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := f.load(receivedAt.Add(time.Hour), c.maxAge); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), f.path()) {
				t.Errorf("load() = %v, want an error with the path and %q", err, c.want)
			}
		})
	}
}

// flipBit returns a copy of b with one bit flipped, near the end.
func flipBit(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-3] ^= 1
	return b
}

func FuzzParseCachedConfig(f *testing.F) {
	owner := Owner{"n", "c", "control"}
	valid, err := testCachedConfig(time.Unix(1, 0).UTC()).encode(owner)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		contents, err := parse(b, owner)
		if err != nil {
			return
		}
		encoded, err := contents.encode(owner)
		if err != nil {
			t.Skip() // a name is not valid UTF-8
		}
		if got, err := parse(encoded, owner); err != nil || !reflect.DeepEqual(got, contents) {
			t.Errorf("parse after encode = %+v, %v, want %+v", got, err, contents)
		}
	})
}
