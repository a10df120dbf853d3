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

// serveConfig implements the configuration API. mu is held.
func (f *fakeServer) serveConfig(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("group") + " " + r.FormValue("dataId")
	if strings.ContainsFunc(key, func(c rune) bool { return c > unicode.MaxASCII || strings.ContainsRune("$/", c) }) {
		http.Error(w, "invalid dataId", http.StatusBadRequest)
		return
	}
	text, there := f.configs[key]
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/nacos/v1/cs/") {
	case "GET configs":
		if !there {
			http.Error(w, "config data not exist", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, text)
	case "POST configs":
		if before := r.Header.Get("casMd5"); before != "" && !f.ignoresCAS && before != mark(text) {
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
			words := strings.Split(line, "\x02")
			if len(words) < 3 {
				continue
			}
			text, there := f.configs[words[1]+" "+words[0]]
			if there && words[2] != mark(text) || !there && words[2] != "" {
				changed.WriteString(words[0] + "\x02" + words[1] + "\x01")
			}
		}
		fmt.Fprint(w, url.QueryEscape(changed.String()))
	default:
		http.Error(w, "no such thing", http.StatusNotImplemented)
	}
}

// mark returns Nacos's MD5 of a text; "0" for "", like Dubbo.
func mark(text string) string {
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

// awaitConfig waits until is returns true for a configuration.
func (f *fakeServer) awaitConfig(what, group, name string, is func(text string) bool) {
	f.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(registrytest.Timeout); !is(f.config(group, name)); {
		select {
		case <-look.C:
		case <-limit:
			f.t.Fatalf("%s: %s of %s is %q", what, name, group, f.config(group, name))
		}
	}
}

func shop(host string, interfaces ...string) *registry.InstanceRegistration {
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
	a := shop("10.0.0.1", cart)
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" {
		t.Errorf("the mapping is %q", got)
	}
	if got := f.config(a.Revision, "shop"); got != string(a.MetadataInfo) {
		t.Errorf("the metadata are %q", got)
	}
	f.update(func() {
		instance := f.services["shop"]["10.0.0.1:20880"]
		if metadata, ok := instance["metadata"].(map[string]string); !ok || metadata["dubbo.metadata.revision"] != a.Revision {
			t.Errorf("the instance is %v", instance)
		}
	})
}

func TestOverwrittenMappingIsRepaired(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.update(func() { f.ignoresCAS = true })
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), shop("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	f.update(func() { f.configs["mapping "+cart] = "other" }) // written by a client that had read no mapping
	f.awaitConfig("it is not mended", "mapping", cart, func(text string) bool { return text == "other,shop" })
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
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), shop("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" || writes != 2 {
		t.Errorf("after %d attempts the mapping is %q", writes, got)
	}
}

func TestLostConfigurationsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	a := shop("10.0.0.1", cart)
	if err := openWithFastCompare(t, f).RegisterInstance(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	f.update(func() {
		clear(f.configs)
		clear(f.services)
	})
	f.awaitConfig("metadata", a.Revision, "shop", func(text string) bool { return text == string(a.MetadataInfo) })
	f.awaitConfig("the mapping", "mapping", cart, func(text string) bool { return text == "shop" })
}

func TestRetiredRevisionsAreRetained(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	s := openWithFastCompare(t, f)
	var all []*registry.InstanceRegistration
	for i := range 12 {
		a := shop("10.0.0.1", fmt.Sprintf("com.example.S%d", i))
		all = append(all, a)
		if err := s.RegisterInstance(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(text string) bool { return text == "" }
	f.awaitConfig("the oldest", all[0].Revision, "shop", gone)
	f.awaitConfig("the next", all[1].Revision, "shop", gone)
	f.awaitConfig("the third", all[2].Revision, "shop", gone)
	if slices.ContainsFunc(all[3:], func(a *registry.InstanceRegistration) bool { return f.config(a.Revision, "shop") == "" }) {
		t.Error("metadata of the last revisions were removed")
	}
	if err := s.RegisterInstance(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if f.config(all[0].Revision, "shop") == "" {
		t.Error("an instance has a revision again whose metadata were removed")
	}
}

// TestUnmappableInterfaceKeepsOthers verifies that an invalid interface is
// reported, and the others are mapped.
func TestUnmappableInterfaceKeepsOthers(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	s := openWithFastCompare(t, f)
	const odd = "com.example.Ä"
	a := shop("10.0.0.1", cart, odd)
	for range 2 { // the second call finds everything in place
		var unlisted *registry.UnmappedError
		if err := s.Registry.RegisterInstance(t.Context(), a); !errors.As(err, &unlisted) || !slices.Equal(unlisted.Interfaces, []string{odd}) {
			t.Fatalf("got %v, want that %s is not listed", err, odd)
		}
	}
	if got := f.config("mapping", cart); got != "shop" {
		t.Errorf("the mapping of the other is %q", got)
	}
	if got := f.config(a.Revision, "shop"); got != string(a.MetadataInfo) || !strings.Contains(got, odd) {
		t.Errorf("the metadata are %q", got)
	}
	f.update(func() {
		if f.services["shop"]["10.0.0.1:20880"] == nil {
			t.Error("the instance is not there")
		}
	})
	if err := s.RegisterInstance(t.Context(), shop("10.0.0.1", cart)); err != nil {
		t.Errorf("without it: %v", err)
	}
}

func TestInvalidApplicationsAreRejected(t *testing.T) {
	t.Parallel()
	a := shop("10.0.0.1", cart)
	a.Instance.Application = "schön"
	if err := openWithFastCompare(t, newFakeServer(t)).RegisterInstance(t.Context(), a); err == nil || !strings.Contains(err.Error(), "invalid Nacos name") {
		t.Errorf("got %v", err)
	}
}

// TestInnerClassesAreWhereDubboHasThem verifies that names replace the dollar sign of inner
// classes, as in Dubbo.
func TestInnerClassesAreWhereDubboHasThem(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	const inner, written = "com.example.Outer$User", "com.example.Outer___User"
	f.update(func() { f.configs["dubbo "+written+"::.configurators"] = "configs: []" })
	s := openWithFastCompare(t, f)
	if err := s.RegisterInstance(t.Context(), shop("10.0.0.1", inner)); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", written); got != "shop" {
		t.Errorf("the mapping is %q", got)
	}
	s.MustRegister(registrytest.Provider(t, inner, "10.0.0.2:20880"))
	f.update(func() {
		if len(f.services["providers:"+written+"::"]) != 1 {
			t.Errorf("the services are %v", slices.Collect(maps.Keys(f.services)))
		}
		// Registered by a client that does not know the rule.
		f.put("providers:"+inner+"::", "10.0.0.3", "20880", map[string]string{"protocol": "dubbo", "path": inner, "interface": inner})
		f.put("providers:"+written+"::", "10.0.0.4", "20880", map[string]string{"protocol": "dubbo", "path": written, "interface": written})
	})
	v := openWithFastCompare(t, f).NewSubscriber(registry.Service{Interface: inner}).Await("all", func(v registry.Snapshot) bool { return len(v.Providers) == 2 && len(v.Instances) == 1 })
	if !registrytest.At("10.0.0.2:20880", "10.0.0.3:20880")(v) || v.Instances[0].Application != "shop" {
		t.Errorf("the providers are %v, the instances %v", v.Providers, v.Instances)
	}
	if len(v.Configurators) != 1 || v.Configurators[0].Path != inner+"::" {
		t.Errorf("the rules are %v", v.Configurators)
	}
}
