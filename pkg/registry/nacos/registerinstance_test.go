package nacos_test

import (
	"crypto/md5" //nolint:gosec // Nacos's own mark
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/nacos"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
)

// serveConfig implements the configuration API. The caller holds mu.
func (f *fakeServer) serveConfig(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("group") + " " + r.FormValue("dataId")
	if strings.ContainsFunc(key, func(c rune) bool { return c > unicode.MaxASCII || strings.ContainsRune("$/", c) }) {
		http.Error(w, "invalid dataId", http.StatusBadRequest)
		return
	}
	text, exists := f.configs[key]
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/nacos/v1/cs/") {
	case "GET configs":
		if !exists {
			http.Error(w, "config data not exist", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, text)
	case "POST configs":
		if oldSum := r.Header.Get("casMd5"); oldSum != "" && !f.ignoresCAS && oldSum != configMD5(text) {
			http.Error(w, "Cas publish fail, server md5 may have changed.", http.StatusInternalServerError)
			return
		}
		f.configs[key] = r.FormValue("content")
		fmt.Fprint(w, "true")
	case "DELETE configs":
		delete(f.configs, key)
		fmt.Fprint(w, "true")
	case "POST configs/listener":
		var changed strings.Builder
		for line := range strings.SplitSeq(r.FormValue("Listening-Configs"), "\x01") {
			fields := strings.Split(line, "\x02")
			if len(fields) < 3 {
				continue
			}
			text, exists := f.configs[fields[1]+" "+fields[0]]
			if exists && fields[2] != configMD5(text) || !exists && fields[2] != "" {
				changed.WriteString(fields[0] + "\x02" + fields[1] + "\x01")
			}
		}
		fmt.Fprint(w, url.QueryEscape(changed.String()))
	default:
		http.Error(w, "not found", http.StatusNotImplemented)
	}
}

// configMD5 returns the MD5 of a text as Nacos identifies it; "0" for "", as in Dubbo.
func configMD5(text string) string {
	if text == "" {
		return "0"
	}
	sum := md5.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

func (f *fakeServer) config(group, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.configs[group+" "+name]
}

// awaitConfig waits until cond returns true for a configuration.
func (f *fakeServer) awaitConfig(label, group, name string, cond func(text string) bool) {
	f.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(registrytest.Timeout); !cond(f.config(group, name)); {
		select {
		case <-ticker.C:
		case <-deadline:
			f.t.Fatalf("%s: %s of %s is %q", label, name, group, f.config(group, name))
		}
	}
}

func newRegistration(host string, interfaces ...string) *registry.InstanceRegistration {
	return registrytest.NewInstance("shop", host, interfaces...)
}

const cart = "com.example.Cart"

// openWithFastCompare opens a session whose heartbeats are at most a second apart.
func openWithFastCompare(t *testing.T, f *fakeServer) *registrytest.Session {
	return registrytest.Open(t, nacos.New, registry.Options{Address: f.address(), SessionTimeout: 3 * time.Second})
}

func TestInstanceConfigurations(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.update(func() { f.configs["mapping "+cart] = "other" })
	reg := newRegistration("10.0.0.1", cart)
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" {
		t.Errorf("mapping = %q, want \"other,shop\"", got)
	}
	if got := f.config(reg.Revision, "shop"); got != string(reg.MetadataInfo) {
		t.Errorf("metadata = %q, want %q", got, reg.MetadataInfo)
	}
	f.update(func() {
		instance := f.services["shop"]["10.0.0.1:20880"]
		if metadata, ok := instance["metadata"].(map[string]string); !ok || metadata["dubbo.metadata.revision"] != reg.Revision {
			t.Errorf("instance = %v, want the revision %s", instance, reg.Revision)
		}
	})
}

func TestOverwrittenMappingIsRepaired(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.update(func() { f.ignoresCAS = true })
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), newRegistration("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	f.update(func() { f.configs["mapping "+cart] = "other" }) // written by a client that had read no mapping
	f.awaitConfig("repaired mapping", "mapping", cart, func(text string) bool { return text == "other,shop" })
}

func TestConflictingMappingIsReadAgain(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	writes := 0
	f.update(func() {
		f.interrupt = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.FormValue("group") == "mapping" {
				if writes++; writes == 1 {
					f.configs["mapping "+cart] = "other" // a concurrent write
				}
			}
			return false
		}
	})
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), newRegistration("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" || writes != 2 {
		t.Errorf("after %d writes the mapping is %q, want other,shop after 2 writes", writes, got)
	}
}

func TestLostConfigurationsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	reg := newRegistration("10.0.0.1", cart)
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	f.update(func() {
		clear(f.configs)
		clear(f.services)
	})
	f.awaitConfig("metadata", reg.Revision, "shop", func(text string) bool { return text == string(reg.MetadataInfo) })
	f.awaitConfig("mapping", "mapping", cart, func(text string) bool { return text == "shop" })
}

func TestRetiredRevisionsAreRetained(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	s := openWithFastCompare(t, f)
	var regs []*registry.InstanceRegistration
	for i := range 12 {
		reg := newRegistration("10.0.0.1", fmt.Sprintf("com.example.S%d", i))
		regs = append(regs, reg)
		if err := s.RegisterInstance(t.Context(), reg); err != nil {
			t.Fatal(err)
		}
	}
	removed := func(text string) bool { return text == "" }
	f.awaitConfig("metadata of the oldest revision", regs[0].Revision, "shop", removed)
	f.awaitConfig("metadata of the second revision", regs[1].Revision, "shop", removed)
	f.awaitConfig("metadata of the third revision", regs[2].Revision, "shop", removed)
	if slices.ContainsFunc(regs[3:], func(reg *registry.InstanceRegistration) bool { return f.config(reg.Revision, "shop") == "" }) {
		t.Error("metadata of the last revisions was removed")
	}
	if err := s.RegisterInstance(t.Context(), regs[0]); err != nil {
		t.Fatal(err)
	}
	if f.config(regs[0].Revision, "shop") == "" {
		t.Error("the metadata of a revision that is registered again was removed")
	}
}

// TestUnmappableInterfaceKeepsOthers verifies that an invalid interface is reported, and the others
// are mapped.
func TestUnmappableInterfaceKeepsOthers(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	s := openWithFastCompare(t, f)
	const odd = "com.example.Ä"
	reg := newRegistration("10.0.0.1", cart, odd)
	for range 2 { // the second call finds everything in place
		var unmapped *registry.UnmappedError
		if err := s.Registry.RegisterInstance(t.Context(), reg); !errors.As(err, &unmapped) || !slices.Equal(unmapped.Interfaces, []string{odd}) {
			t.Fatalf("RegisterInstance = %v, want an UnmappedError for %s", err, odd)
		}
	}
	if got := f.config("mapping", cart); got != "shop" {
		t.Errorf("mapping of the other interface = %q, want shop", got)
	}
	if got := f.config(reg.Revision, "shop"); got != string(reg.MetadataInfo) || !strings.Contains(got, odd) {
		t.Errorf("metadata = %q, want %q", got, reg.MetadataInfo)
	}
	f.update(func() {
		if f.services["shop"]["10.0.0.1:20880"] == nil {
			t.Error("the instance is not registered")
		}
	})
	if err := s.RegisterInstance(t.Context(), newRegistration("10.0.0.1", cart)); err != nil {
		t.Errorf("RegisterInstance without the invalid interface: %v", err)
	}
}

func TestInvalidApplicationsAreRejected(t *testing.T) {
	t.Parallel()
	reg := newRegistration("10.0.0.1", cart)
	reg.Instance.Application = "schön"
	if err := openWithFastCompare(t, newFakeServer(t)).RegisterInstance(t.Context(), reg); err == nil || !strings.Contains(err.Error(), "invalid Nacos name") {
		t.Errorf("RegisterInstance = %v, want an error about the name", err)
	}
}

// TestInnerClassNames verifies that names replace the dollar sign of inner classes, as in Dubbo.
func TestInnerClassNames(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	const inner, written = "com.example.Outer$User", "com.example.Outer___User"
	f.update(func() { f.configs["dubbo "+written+"::.configurators"] = "configs: []" })
	s := openWithFastCompare(t, f)
	if err := s.RegisterInstance(t.Context(), newRegistration("10.0.0.1", inner)); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", written); got != "shop" {
		t.Errorf("mapping = %q, want \"shop\"", got)
	}
	s.MustRegister(registrytest.Provider(t, inner, "10.0.0.2:20880"))
	f.update(func() {
		if len(f.services["providers:"+written+"::"]) != 1 {
			t.Errorf("services = %v, want one provider at providers:%s::", slices.Collect(maps.Keys(f.services)), written)
		}
		// The first is registered by a client that does not replace the dollar sign.
		f.put("providers:"+inner+"::", "10.0.0.3", "20880", map[string]string{"protocol": "dubbo", "path": inner, "interface": inner})
		f.put("providers:"+written+"::", "10.0.0.4", "20880", map[string]string{"protocol": "dubbo", "path": written, "interface": written})
	})
	snap := openWithFastCompare(t, f).NewSubscriber(registry.Service{Interface: inner}).Await("all providers", func(snap registry.Snapshot) bool { return len(snap.Providers) == 2 && len(snap.Instances) == 1 })
	if !registrytest.At("10.0.0.2:20880", "10.0.0.3:20880")(snap) || snap.Instances[0].Application != "shop" {
		t.Errorf("providers = %v, instances = %v; want 10.0.0.2:20880 and 10.0.0.3:20880, and an instance of shop", snap.Providers, snap.Instances)
	}
	if len(snap.Configurators) != 1 || snap.Configurators[0].Path != inner+"::" {
		t.Errorf("configurators = %v, want one for %s::", snap.Configurators, inner)
	}
}
