package dubbo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// settings are the options with defaults, and values derived from them. They are immutable.
type settings struct {
	Options

	host string // of the published providers
}

// newSettings sets defaults, and validates the configuration.
func newSettings(o Options) (*settings, error) {
	setDefaults(&o.Config)
	for i := range o.Config.Registries {
		s := &o.Config.Registries[i]
		if o.Registries[s.Type] == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].type", i), fmt.Sprintf("unknown registry type %q", truncate(s.Type))}
		}
		if s.TLS != nil && o.TLS == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].tls", i), errNoTLS.Error()}
		}
	}
	host := hostToPublish(o.Config.Host)
	if strings.ContainsAny(host, " /?&@\n") {
		return nil, &FieldError{"host", fmt.Sprintf("%q (from the configuration or %s) is not a valid address", truncate(host), hostVariable)}
	}
	return &settings{Options: o, host: host}, nil
}

// setDefaults sets defaults in a configuration.
func setDefaults(c *config.DubboRegistry) {
	defaults := config.DefaultDubboRegistry()
	if c.Application == "" {
		c.Application = defaults.Application
	}
	if c.EmptyProtection == 0 {
		c.EmptyProtection = defaults.EmptyProtection
	}
	if c.UnregisterWait == 0 {
		c.UnregisterWait = defaults.UnregisterWait
	}
}

// registry returns the configuration of a registry, or nil.
func (s *settings) registry(registryType, address string) *config.RegistrySettings {
	for i := range s.Config.Registries {
		if configured := &s.Config.Registries[i]; configured.Type == registryType && configured.Address == address {
			return configured
		}
	}
	return nil
}

// registryTypes returns the supported registry types as a list for messages.
func (s *settings) registryTypes() string {
	return strings.Join(slices.Sorted(maps.Keys(s.Registries)), ", ")
}
