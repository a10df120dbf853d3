package nacos_test

import (
	"crypto/md5" //nolint:gosec // Nacos's own mark
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/application"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/nacos"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registrytest"
)

// serveConfig is the configuration centre. mu is held.
func (f *fake) serveConfig(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("group") + " " + r.FormValue("dataId")
	text, there := f.configs[key]
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/nacos/v1/cs/") {
	case "GET configs":
		if !there {
			http.Error(w, "config data not exist", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, text)
	case "POST configs":
		if before := r.Header.Get("casMd5"); before != "" && !f.blind && before != mark(text) {
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

// mark is Nacos's of a text; "0": of none, as Dubbo has it.
func mark(text string) string {
	if text == "" {
		return "0"
	}
	sum := md5.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

func (f *fake) config(group, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.configs[group+" "+name]
}

// awaitConfig waits until a configuration is so.
func (f *fake) awaitConfig(what, group, name string, is func(text string) bool) {
	f.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(registrytest.Patience); !is(f.config(group, name)); {
		select {
		case <-look.C:
		case <-limit:
			f.t.Fatalf("%s: %s of %s is %q", what, name, group, f.config(group, name))
		}
	}
}

func shop(host string, interfaces ...string) *registry.Announcement {
	var offers []*application.Offer
	for _, name := range interfaces {
		offers = append(offers, &application.Offer{Service: registry.Service{Interface: name}, Protocol: "dubbo", Path: name})
	}
	return application.Announce(application.Process{Application: "shop", Host: host, Port: 20880, Since: time.UnixMilli(1)}, offers)
}

const cart = "com.example.Cart"

// brisk opens a session whose heartbeats are a second apart at most.
func brisk(t *testing.T, f *fake) *registrytest.Session {
	return registrytest.Open(t, nacos.New, registry.Options{Address: f.address(), SessionTimeout: 3 * time.Second})
}

func TestWhatIsAnnouncedIsWhereDubboLooksForIt(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.change(func() { f.configs["mapping "+cart] = "other" })
	a := shop("10.0.0.1", cart)
	if err := brisk(t, f).Announce(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" {
		t.Errorf("the mapping is %q", got)
	}
	if got := f.config(a.Revision, "shop"); got != string(a.Provided) {
		t.Errorf("the metadata are %q", got)
	}
	f.change(func() {
		instance := f.services["shop"]["10.0.0.1:20880"]
		if metadata, ok := instance["metadata"].(map[string]string); !ok || metadata["dubbo.metadata.revision"] != a.Revision {
			t.Errorf("the instance is %v", instance)
		}
	})
}

func TestAMappingThatOthersWriteOverIsMended(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.change(func() { f.blind = true })
	if err := brisk(t, f).Announce(t.Context(), shop("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	f.change(func() { f.configs["mapping "+cart] = "other" }) // written by who had read none
	f.awaitConfig("it is not mended", "mapping", cart, func(text string) bool { return text == "other,shop" })
}

func TestAMappingThatWasChangedSinceItWasReadIsReadAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	writes := 0
	f.change(func() {
		f.interrupt = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.FormValue("group") == "mapping" {
				if writes++; writes == 1 {
					f.configs["mapping "+cart] = "other" // a moment before
				}
			}
			return false
		}
	})
	if err := brisk(t, f).Announce(t.Context(), shop("10.0.0.1", cart)); err != nil {
		t.Fatal(err)
	}
	if got := f.config("mapping", cart); got != "other,shop" || writes != 2 {
		t.Errorf("after %d attempts the mapping is %q", writes, got)
	}
}

func TestConfigurationsThatAServerHasForgottenAreWrittenAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	a := shop("10.0.0.1", cart)
	if err := brisk(t, f).Announce(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	f.change(func() {
		clear(f.configs)
		clear(f.services)
	})
	f.awaitConfig("metadata", a.Revision, "shop", func(text string) bool { return text == string(a.Provided) })
	f.awaitConfig("the mapping", "mapping", cart, func(text string) bool { return text == "shop" })
}

func TestMetadataOfTheLastRevisionsStay(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := brisk(t, f)
	var all []*registry.Announcement
	for i := range 12 {
		a := shop("10.0.0.1", fmt.Sprintf("com.example.S%d", i))
		all = append(all, a)
		if err := s.Announce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(text string) bool { return text == "" }
	f.awaitConfig("the oldest", all[0].Revision, "shop", gone)
	f.awaitConfig("the next", all[1].Revision, "shop", gone)
	f.awaitConfig("the third", all[2].Revision, "shop", gone)
	if slices.ContainsFunc(all[3:], func(a *registry.Announcement) bool { return f.config(a.Revision, "shop") == "" }) {
		t.Error("metadata of the last revisions are gone")
	}
	if err := s.Announce(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if f.config(all[0].Revision, "shop") == "" {
		t.Error("an instance has a revision again whose metadata are gone")
	}
}

func TestNamesThatNacosDoesNotTakeAreRefused(t *testing.T) {
	t.Parallel()
	a := shop("10.0.0.1", "com.example.Ä")
	if err := brisk(t, newFake(t)).Announce(t.Context(), a); err == nil || !strings.Contains(err.Error(), "cannot be a name") {
		t.Errorf("got %v", err)
	}
}
