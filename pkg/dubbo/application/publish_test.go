package application_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

var update = flag.Bool("update", false, "write the golden files")

func newLocalInstance() application.LocalInstance {
	return application.LocalInstance{Application: "shop", Host: "10.0.0.7", Port: 20080, Since: time.UnixMilli(1_700_000_000_000)}
}

func newServiceInfo(group, version string, parameters map[string]string) *application.ServiceInfo {
	const name = "com.example.Cart"
	s := registry.Service{Interface: name, Group: group, Version: version}
	merged := map[string]string{"interface": name, "methods": "add,get", "side": "provider"}
	maps.Copy(merged, parameters)
	return &application.ServiceInfo{Service: s, Protocol: "dubbo", Path: name, Parameters: merged}
}

func TestInstanceRegistrationFormat(t *testing.T) {
	reg := application.NewInstanceRegistration(newLocalInstance(), []*application.ServiceInfo{newServiceInfo("", "", nil), newServiceInfo("blue", "1.0", map[string]string{"weight": "50"})})
	var text bytes.Buffer
	if err := json.Indent(&text, reg.MetadataInfo, "", "  "); err != nil {
		t.Fatal(err)
	}
	instance, err := json.MarshalIndent(reg.Instance.Metadata, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := text.String() + "\n" + string(instance) + "\n"
	path := filepath.Join("testdata", "announced.json")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("encoded as\n%s\nwant\n%s", got, want)
	}
	if reg.Revision != reg.Instance.Metadata["dubbo.metadata.revision"] || !slices.Equal(reg.Interfaces, []string{"com.example.Cart"}) {
		t.Errorf("revision %s, interfaces %v; want the revision of the metadata, and [com.example.Cart]", reg.Revision, reg.Interfaces)
	}
	if err := reg.Check(); err != nil {
		t.Error(err)
	}
}

// singleRevision is a registry with one revision.
type singleRevision struct {
	registration *registry.InstanceRegistration
}

func (reg singleRevision) Metadata(_ context.Context, name, revision string) ([]byte, error) {
	if name != reg.registration.Instance.Application || revision != reg.registration.Revision {
		return nil, registry.ErrNoMetadata
	}
	return reg.registration.MetadataInfo, nil
}

func TestInstanceRegistrationRoundTrip(t *testing.T) {
	reg := application.NewInstanceRegistration(newLocalInstance(), []*application.ServiceInfo{newServiceInfo("", "", nil), newServiceInfo("blue", "1.0", map[string]string{"weight": "50"})})
	info, err := application.Fetch(t.Context(), singleRevision{reg}, reg.Instance)
	if err != nil {
		t.Fatal(err)
	}
	urls := info.URLs(reg.Instance, registry.Service{Interface: "com.example.Cart", Group: "blue", Version: "1.0"})
	if len(urls) != 1 {
		t.Fatalf("URLs = %v, want one", urls)
	}
	const want = "dubbo://10.0.0.7:20080/com.example.Cart?application=shop&group=blue&interface=com.example.Cart" +
		"&methods=add,get&side=provider&timestamp=1700000000000&version=1.0&weight=50"
	if got := urls[0].String(); got != want {
		t.Errorf("URL\n%s, want\n%s", got, want)
	}
}

func TestRevisionDependsOnServices(t *testing.T) {
	revision := func(p application.LocalInstance, services ...*application.ServiceInfo) string {
		return application.NewInstanceRegistration(p, services).Revision
	}
	ungrouped, blue := newServiceInfo("", "", nil), newServiceInfo("blue", "", nil)
	otherHost := newLocalInstance()
	otherHost.Host, otherHost.Since = "10.0.0.8", otherHost.Since.Add(time.Hour)
	otherPort, renamed := newLocalInstance(), newLocalInstance()
	otherPort.Port++
	renamed.Application = "store"
	base := revision(newLocalInstance(), ungrouped)
	tests := []struct {
		name         string
		got          string
		sameRevision bool
	}{
		{"other host and start time", revision(otherHost, ungrouped), true},
		{"additional service", revision(newLocalInstance(), ungrouped, blue), false},
		{"other parameter", revision(newLocalInstance(), newServiceInfo("", "", map[string]string{"timeout": "5"})), false},
		{"other port", revision(otherPort, ungrouped), false},
		{"other application", revision(renamed, ungrouped), false},
	}
	for _, tt := range tests {
		if sameRevision := tt.got == base; sameRevision != tt.sameRevision {
			t.Errorf("%s: same revision: %t, want %t", tt.name, sameRevision, tt.sameRevision)
		}
	}
	if revision(newLocalInstance(), ungrouped, blue) != revision(newLocalInstance(), blue, ungrouped) {
		t.Error("the revision depends on the order of services")
	}
}
