package dubbo_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// fakeInstances contains the instances that are registered in a fakeRegistry.
type fakeInstances struct {
	registered map[string]*registry.InstanceRegistration // by application and address
	calls      []string
	latency    time.Duration // duration of each registration
	unmappable string        // an interface for which RegisterInstance returns an UnmappedError; "": none
}

// RegisterInstance waits while the registry is unavailable, like Register.
//
//arch:clock tests that set a latency run in bubbles
func (f *fakeRegistry) RegisterInstance(ctx context.Context, reg *registry.InstanceRegistration) error {
	time.Sleep(f.instanceCalls.latency)
	err := f.accept(ctx, func() {
		if f.instanceCalls.registered == nil {
			f.instanceCalls.registered = map[string]*registry.InstanceRegistration{}
		}
		f.instanceCalls.registered[reg.Instance.Application+" "+reg.Instance.Name()] = reg
		f.instanceCalls.calls = append(f.instanceCalls.calls, "+"+reg.Instance.Application+" "+strings.Join(servicesOf(reg), ","))
	})
	if err == nil && slices.Contains(reg.Interfaces, f.instanceCalls.unmappable) {
		return &registry.UnmappedError{Application: reg.Instance.Application, Interfaces: []string{f.instanceCalls.unmappable}, Err: errors.New("invalid name")}
	}
	return err
}

func (f *fakeRegistry) UnregisterInstance(_ context.Context, i registry.Instance) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instanceCalls.registered, i.Application+" "+i.Name())
	f.instanceCalls.calls = append(f.instanceCalls.calls, "-"+i.Application)
	return nil
}

// instances returns the registered instances as "application host:port service,service".
func (f *fakeRegistry) instances() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, reg := range f.instanceCalls.registered {
		list = append(list, name+" "+strings.Join(servicesOf(reg), ","))
	}
	slices.Sort(list)
	return list
}

// servicesOf returns the services that an instance provides.
func servicesOf(reg *registry.InstanceRegistration) []string {
	var info struct {
		Services map[string]struct{} `json:"services"`
	}
	if err := json.Unmarshal(reg.MetadataInfo, &info); err != nil {
		panic(err)
	}
	var names []string
	for name := range maps.Keys(info.Services) {
		names = append(names, strings.TrimSuffix(name, ":dubbo"))
	}
	slices.Sort(names)
	return names
}
