package dubbo_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// announced contains the instances that were registered with a fake.
type announced struct {
	there map[string]*registry.InstanceRegistration // by application and address
	calls []string
	takes time.Duration // duration of each registration
	odd   string        // an interface that is not valid as a name; "": none
}

// RegisterInstance waits while the registry is unavailable, like Register.
func (f *fake) RegisterInstance(ctx context.Context, a *registry.InstanceRegistration) error {
	<-time.After(f.announced.takes)
	err := f.accept(ctx, func() {
		if f.announced.there == nil {
			f.announced.there = map[string]*registry.InstanceRegistration{}
		}
		f.announced.there[a.Instance.Application+" "+a.Instance.Name()] = a
		f.announced.calls = append(f.announced.calls, "+"+a.Instance.Application+" "+strings.Join(servicesOf(a), ","))
	})
	if err == nil && slices.Contains(a.Interfaces, f.announced.odd) {
		return &registry.UnmappedError{Application: a.Instance.Application, Interfaces: []string{f.announced.odd}, Err: errors.New("it is odd")}
	}
	return err
}

func (f *fake) UnregisterInstance(_ context.Context, i registry.Instance) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.announced.there, i.Application+" "+i.Name())
	f.announced.calls = append(f.announced.calls, "-"+i.Application)
	return nil
}

// instances returns the registered instances as "application host:port service,service".
func (f *fake) instances() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, a := range f.announced.there {
		all = append(all, name+" "+strings.Join(servicesOf(a), ","))
	}
	slices.Sort(all)
	return all
}

// servicesOf returns the services that an instance provides.
func servicesOf(a *registry.InstanceRegistration) []string {
	var info struct {
		Services map[string]struct{} `json:"services"`
	}
	if err := json.Unmarshal(a.MetadataInfo, &info); err != nil {
		panic(err)
	}
	var names []string
	for name := range maps.Keys(info.Services) {
		names = append(names, strings.TrimSuffix(name, ":dubbo"))
	}
	slices.Sort(names)
	return names
}
