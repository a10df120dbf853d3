package proxy

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestSameEngineComparesEveryOption verifies that a change of any option needs new engines, except
// for the options in unaffected.
func TestSameEngineComparesEveryOption(t *testing.T) {
	unaffected := []string{
		"Listener.Ingress", "Listener.MaxConnections", "Listener.AcceptRate", "Listener.AccessLogs", // applied to the running listener
		"Listener.KeepAlive",                                                            // used by new connections
		"Listener.Network", "Listener.Address", "Listener.Bind", "FilterChain.UDPProxy", // a change creates another listener
		"Listener.OriginalDst",                // used by new connections
		"Listener.KeepRedirected",             // used by new connections
		"Listener.ReusePort", "Listener.Mark", // not applied; the server logs a warning
		"Proxy.RouteTable", "Proxy.StreamFilters", "Proxy.Targets", "Proxy.ClientHeaders", "Proxy.RouterHeaders", "Proxy.ForwardedScheme", "Proxy.Upgrades", // used by the services behind the engine
		"Listener.FilterChains", "Listener.DefaultChain", "Listener.InspectTimeout", "Listener.Inspection", "FilterChain.Name", "FilterChain.Match", // used by new connections
	}
	listener := func() (*config.Listener, *config.FilterChain, *config.Proxy) {
		p := &config.Proxy{Downstream: []config.Protocol{config.Auto}}
		c := &config.FilterChain{Proxy: p}
		return &config.Listener{FilterChains: []*config.FilterChain{c}}, c, p
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[config.Listener](), reflect.TypeFor[config.FilterChain](), reflect.TypeFor[config.Proxy]()} {
		for _, field := range reflect.VisibleFields(typ) {
			for i := range options(field.Type) {
				before, _, _ := listener()
				after, chain, proxy := listener()
				v := map[string]reflect.Value{
					"Listener": reflect.ValueOf(after), "FilterChain": reflect.ValueOf(chain), "Proxy": reflect.ValueOf(proxy),
				}[typ.Name()].Elem().FieldByIndex(field.Index)
				name := typ.Name() + "." + field.Name
				want := slices.Contains(unaffected, name)
				if v.Kind() == reflect.Struct {
					name += "." + v.Type().Field(i).Name
					v = v.Field(i)
				}
				change(t, name, v)
				if got := sameEngine(before, after, before.FilterChains[0], after.FilterChains[0]); got != want {
					t.Errorf("%s changed: sameEngine = %v, want %v", name, got, want)
				}
			}
		}
	}
}

// options returns the number of options in a configuration field of type t.
func options(t reflect.Type) int {
	if t.Kind() == reflect.Struct {
		return t.NumField()
	}
	return 1
}

// change gives v another value.
func change(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			change(t, name, field)
		}
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("%s is a %s, which change does not support", name, v.Kind())
	}
}
